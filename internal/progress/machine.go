package progress

import (
	"strconv"
	"strings"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// Fault is a resource that a machine's proxy does not run as wanted.
type Fault struct {
	Refused bool // else it waits for a cluster
	Message string
}

// Machine is one machine as it was last seen.
type Machine struct {
	Name     string
	Views    string // as a text
	Cordoned bool
	Lost     bool
	// Silent says that the machine has joined and not reported ever: nobody counts on
	// it yet.
	Silent bool
	// Unheard says that the machine has not reported since this plane began to lead,
	// and may still do so.
	Unheard bool
	// Unproxied says that the machine runs no proxy on purpose: it serves no listener.
	Unproxied bool
	Applied   delta.Revision
	// Wanted is the last revision that concerned the machine: what changed later, but
	// came out the same, needs no answer of it.
	Wanted    delta.Revision
	hosts     map[model.HostKey]Fault
	shards    map[shardKey]Fault
	groups    map[model.GroupID]Fault
	secrets   map[string]Fault
	listeners map[model.ListenerID]Fault
}

type shardKey struct {
	listener model.ListenerID
	shard    int
}

// concern is the part of a machine's progress by which it counts or not.
func (s *Machine) concern() [3]any {
	return [3]any{s.Views, [5]bool{s.Cordoned, s.Lost, s.Silent, s.Unheard, s.Unproxied}, s.Name}
}

// Note notes a fault of a resource.
func (s *Machine) Note(t delta.Type, resource string, f Fault) {
	if f.Message == "" {
		f.Message = string(t) + " " + resource
	}
	switch t {
	case agentv1.ListenerType:
		name, _, _ := strings.Cut(resource, "/") // its half over UDP is the same listener
		put(&s.listeners, model.ListenerID(name), f)
	case agentv1.RouteType, agentv1.ScopeType:
		listener, rest, _ := strings.Cut(resource, "/")
		shard, host, whole := strings.Cut(rest, "/")
		if whole {
			put(&s.hosts, model.HostKey{Listener: model.ListenerID(listener), Host: host}, f)
		} else if n, ok := shardNumber(model.ListenerID(listener), shard); ok {
			put(&s.shards, shardKey{model.ListenerID(listener), n}, f)
		}
	case agentv1.ClusterType, agentv1.EndpointType:
		// The load assignment's name is the group's with a suffix.
		name, _, _ := strings.Cut(resource, "#")
		put(&s.groups, model.GroupID(name), f)
	case agentv1.SecretType:
		put(&s.secrets, resource, f)
	}
}

// put keeps the worse of two faults of one thing.
func put[K comparable](m *map[K]Fault, k K, f Fault) {
	if *m == nil {
		*m = map[K]Fault{}
	}
	if old, ok := (*m)[k]; !ok || f.Refused && !old.Refused {
		(*m)[k] = f
	}
}

func shardNumber(listener model.ListenerID, text string) (int, bool) {
	if text == strings.TrimPrefix(xds.RouteConfigurationName("", xds.WildShard), "/") {
		return xds.WildShard, true
	}
	n, err := strconv.Atoi(text)
	return n, err == nil && n >= 0 && n < xds.Shards(listener)
}
