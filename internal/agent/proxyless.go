package agent

import (
	"maps"
	"slices"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/gate"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// An edge may run an Envoy, then none, and then one again. Nobody tells the agent without one what
// becomes of listeners, routes and clusters. So it forgets them, and marks each checkpoint that it
// remembers with this version, which no plane gives or hears of. To an agent with an Envoy a
// state with that mark is whole for its data planes alone: they go on, and Envoy waits for a plane.
const unproxiedVersion = "unproxied"

// withoutProxy is a checkpoint as an agent without a proxy remembers it.
func withoutProxy(r *delta.Resource) *delta.Resource {
	return &delta.Resource{Name: r.Name, Version: unproxiedVersion, Body: r.Body}
}

// withoutProxies are changes as an agent without a proxy remembers them.
func withoutProxies(changes []delta.Change) []delta.Change {
	changes = slices.Clone(changes)
	for i, c := range changes {
		if isCheckpoint(c) {
			changes[i].Resource = withoutProxy(c.Resource)
		}
	}
	return changes
}

// unproxy forgets what a proxy serves. The next write makes the file anew, so that no key is left
// in it.
func (m *memory) unproxy() {
	for _, part := range []map[key]*delta.Resource{m.target, m.good} {
		maps.DeleteFunc(part, func(k key, _ *delta.Resource) bool { return slices.Contains(gate.Types[:], k.kind) })
	}
	if k := (key{typeCheckpoint, agentv1.CheckpointName}); m.target[k] != nil {
		m.target[k] = withoutProxy(m.target[k])
	}
	m.anew = m.file.Size() > 0
}
