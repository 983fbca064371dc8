package health

import (
	"bytes"
	"maps"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// Assignments puts health into load assignments where the plane does not know it, or is
// away. A plane that has just started does not know it until the machines have reported:
// its earlier decision stays until then.
//
// An endpoint is, in this order,
//   - what this machine is sure of, while there is no plane;
//   - what the plane says;
//   - what this machine is sure of;
//   - what the plane said before;
//   - what this machine found, when it asked for the first time;
//   - out, if another endpoint is known to be healthy: that one can wait for an answer. A healthy
//     backup counts for others once one of them is known to be unhealthy. Not where nobody asked for
//     the check, which may never be answered;
//   - in, since nobody knows better.
//
// Where nobody asked for the checks and none is left, all are in.
//
// Those that the plane keeps out for another reason than health stay out.
type Assignments struct {
	own   func(check string) Finding
	known map[string]*assignment // those with checks
}

// assignment is a load assignment as the plane sent it.
type assignment struct {
	raw    *delta.Resource
	parsed *endpointv3.ClusterLoadAssignment // without what says how it is checked
	// endpoints of parsed that are checked.
	endpoints []checkedEndpoint
	presumed  bool                           // nobody asked for their checks
	others    bool                           // there are healthy ones that nobody checks
	said      map[string]corev3.HealthStatus // by the plane, when it knew, by address
	sent      *delta.Resource
	statuses  []corev3.HealthStatus // of sent
}

type checkedEndpoint struct {
	*endpointv3.LbEndpoint
	check, address string
	status         corev3.HealthStatus // by the plane
	backup         bool                // of a priority that waits for others to fail
}

// NewAssignments makes assignments that know nothing. own returns this machine's own result
// of a check.
func NewAssignments(own func(string) Finding) *Assignments {
	return &Assignments{own: own, known: map[string]*assignment{}}
}

// Resolve converts a change of the plane into the change for the proxy. A load assignment that
// cannot be read, or a body of another type, is returned as it is, for the gate to refuse, and
// nothing changes.
func (a *Assignments) Resolve(c delta.Change) delta.Change {
	if c.Type != agentv1.EndpointType || c.Resource != nil && c.Resource.Body.GetTypeUrl() != string(c.Type) {
		return c
	}
	before := a.known[c.Name]
	if c.Resource == nil {
		delete(a.known, c.Name)
		return c
	}
	checked := bytes.Contains(c.Resource.Body.GetValue(), []byte(agentv1.CheckMetadata))
	if !checked && before == nil {
		return c
	}
	m := &endpointv3.ClusterLoadAssignment{}
	if err := read(c.Resource, m); err != nil {
		return c // the gate refuses it, and keeps the one before
	}
	if !checked {
		delete(a.known, c.Name)
		return c
	}
	x := &assignment{raw: c.Resource, parsed: m, said: map[string]corev3.HealthStatus{}}
	for _, l := range m.GetEndpoints() {
		for _, e := range l.GetLbEndpoints() {
			fields := e.GetMetadata().GetFilterMetadata()[agentv1.CheckMetadata].GetFields()
			if check := fields[agentv1.CheckMetadataKey].GetStringValue(); check != "" {
				x.presumed = fields[agentv1.PresumedMetadataKey].GetBoolValue()
				at := e.GetEndpoint().GetAddress().GetSocketAddress()
				n := checkedEndpoint{LbEndpoint: e, check: check, status: e.GetHealthStatus(), address: at.String(), backup: l.GetPriority() > 0}
				x.endpoints = append(x.endpoints, n)
				switch {
				case n.status != corev3.HealthStatus_UNKNOWN:
					x.said[n.address] = n.status
				case before != nil && before.said[n.address] != corev3.HealthStatus_UNKNOWN:
					x.said[n.address] = before.said[n.address]
				}
			} else if e.GetHealthStatus() == corev3.HealthStatus_HEALTHY {
				x.others = true
			}
			delete(e.GetMetadata().GetFilterMetadata(), agentv1.CheckMetadata)
			if len(e.GetMetadata().GetFilterMetadata()) == 0 {
				e.Metadata = nil
			}
		}
	}
	a.known[c.Name] = x
	c.Resource = a.build(x)
	return c
}

// Again returns the load assignments that have changed although the plane sent none.
func (a *Assignments) Again() []delta.Change {
	var changes []delta.Change
	for _, name := range slices.Sorted(maps.Keys(a.known)) {
		x := a.known[name]
		if before := x.sent; a.build(x) != before {
			changes = append(changes, delta.Change{Type: agentv1.EndpointType, Name: name, Resource: x.sent})
		}
	}
	return changes
}

// build makes a load assignment for the proxy; the same again if it is no other.
func (a *Assignments) build(x *assignment) *delta.Resource {
	statuses := make([]corev3.HealthStatus, len(x.endpoints))
	same, unknown := true, false
	var healthy, healthyBackup, ill bool // ill: of those that are no backups
	for i, e := range x.endpoints {
		switch own, before := a.own(e.check), x.said[e.address]; {
		case own.Holds():
			statuses[i] = statusOf(own.Health)
		case e.status != corev3.HealthStatus_UNKNOWN:
			statuses[i] = e.status
		case own.sure(), Decided(own.Health) && before == corev3.HealthStatus_UNKNOWN:
			statuses[i] = statusOf(own.Health)
		default:
			statuses[i] = before
		}
		if e.backup {
			healthyBackup = healthyBackup || statuses[i] == corev3.HealthStatus_HEALTHY
		} else {
			healthy = healthy || statuses[i] == corev3.HealthStatus_HEALTHY
			ill = ill || statuses[i] == corev3.HealthStatus_UNHEALTHY
		}
		unknown = unknown || statuses[i] == corev3.HealthStatus_UNKNOWN
	}
	if x.presumed && !healthy && !healthyBackup && !unknown && !x.others {
		for i := range statuses {
			statuses[i] = corev3.HealthStatus_HEALTHY
		}
	}
	for i, e := range x.endpoints {
		if statuses[i] == corev3.HealthStatus_UNKNOWN {
			waits := healthy || healthyBackup && (e.backup || ill)
			if statuses[i] = corev3.HealthStatus_HEALTHY; waits && !x.presumed {
				statuses[i] = corev3.HealthStatus_UNHEALTHY
			}
		}
		same = same && statuses[i] == e.status
	}
	if x.sent != nil && slices.Equal(statuses, x.statuses) {
		return x.sent
	}
	for i, e := range x.endpoints {
		e.HealthStatus = statuses[i]
	}
	r, err := delta.NewResource(x.raw.Name, proto.Clone(x.parsed))
	if err != nil {
		return x.raw // it came encoded: it can be
	}
	// Equal versions must mean equal bodies, and the plane knows its own.
	if same {
		r.Version = x.raw.Version
	} else {
		r.Version = x.raw.Version + "+" + r.Version
	}
	x.sent, x.statuses = &r, statuses
	return x.sent
}

func statusOf(h model.Health) corev3.HealthStatus {
	if h == model.Healthy {
		return corev3.HealthStatus_HEALTHY
	}
	return corev3.HealthStatus_UNHEALTHY
}
