package model

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// UpstreamKey names a service in an upstream.
type UpstreamKey struct {
	Scope string // namespace of a cluster, ID of a project
	Name  string // of a Service, ID of a load balancer or of a pool
}

// String is "scope/name".
func (k UpstreamKey) String() string { return k.Scope + "/" + k.Name }

// Compare orders keys by scope and name.
func (k UpstreamKey) Compare(l UpstreamKey) int {
	return cmp.Or(cmp.Compare(k.Scope, l.Scope), cmp.Compare(k.Name, l.Name))
}

// UpstreamService is all that an upstream has of one service. Sources replace it whole; nobody changes one.
type UpstreamService struct {
	Key UpstreamKey
	// ScopeName is the name of a project whose ID is Key.Scope; empty: the same as Key.Scope.
	ScopeName string
	// Object says which object of the upstream it is, such as "Service team01/app" or "load balancer 5c1e… (web)".
	Object string
	// Labels and Annotations are copied to the Service, without those that only its own cluster understands.
	Labels, Annotations map[string]string
	Ports               []UpstreamPort
	Slices              []UpstreamSlice
	// Refused says what the source left out of the service.
	Refused []UpstreamRefusal
	// Changed is when the upstream says that it changed last; zero: it does not say.
	Changed time.Time
	// Seen is when the source saw this form of it.
	Seen time.Time
}

// Endpoints is the number of endpoints.
func (s *UpstreamService) Endpoints() int {
	n := 0
	for i := range s.Slices {
		n += len(s.Slices[i].Endpoints)
	}
	return n
}

// Same says whether two forms of a service differ in nothing but their times.
func (s *UpstreamService) Same(t *UpstreamService) bool {
	return s == t || s.Key == t.Key && s.ScopeName == t.ScopeName && s.Object == t.Object &&
		maps.Equal(s.Labels, t.Labels) && maps.Equal(s.Annotations, t.Annotations) &&
		slices.Equal(s.Ports, t.Ports) && slices.EqualFunc(s.Slices, t.Slices, UpstreamSlice.Same) && slices.Equal(s.Refused, t.Refused)
}

// UpstreamPort is a port of a service, or the port of its endpoints that the name says.
type UpstreamPort struct {
	Name        string
	Port        uint16
	Protocol    string // TCP, UDP or SCTP
	AppProtocol string // empty: not said
}

// UpstreamSlice is a part of a service's endpoints: those that have the same ports.
type UpstreamSlice struct {
	// Name of the part, the only one of the service: an EndpointSlice, or a listener and a port of members.
	Name      string
	Ports     []UpstreamPort
	Endpoints []UpstreamEndpoint
}

// Same says whether two slices are alike.
func (s UpstreamSlice) Same(t UpstreamSlice) bool {
	return s.Name == t.Name && slices.Equal(s.Ports, t.Ports) && slices.EqualFunc(s.Endpoints, t.Endpoints, UpstreamEndpoint.same)
}

// UpstreamEndpoint is an address of a service, with the meaning of an EndpointSlice's endpoint.
type UpstreamEndpoint struct {
	Address netip.Addr
	// Ready endpoints take new work. Serving ones that are Terminating finish what they have.
	Ready, Serving, Terminating bool
	// Backup endpoints take work only while no other endpoint is able to.
	Backup bool
	// Weight among the endpoints of the service; 0 counts as 1.
	Weight uint32
	Zone   string
	// ForZones are topology hints.
	ForZones []string
}

func (e UpstreamEndpoint) same(f UpstreamEndpoint) bool {
	return e.Address == f.Address && e.Ready == f.Ready && e.Serving == f.Serving && e.Terminating == f.Terminating &&
		e.Backup == f.Backup && e.Weight == f.Weight && e.Zone == f.Zone && slices.Equal(e.ForZones, f.ForZones)
}

// UpstreamRefusal says what was left out, and why.
type UpstreamRefusal struct {
	Object  string        `json:"object"` // of the upstream
	Reason  RefusalReason `json:"reason"`
	Message string        `json:"message"`
}

// RefusalReason is why something of an upstream is left out.
type RefusalReason string

// The reasons. Sources give those of the first group; the others come from what is here.
const (
	RefusedNoAddress    RefusalReason = "NoAddress"    // a member or endpoint without a usable address
	RefusedProtocol     RefusalReason = "Protocol"     // a port whose protocol is neither TCP, UDP nor SCTP
	RefusedPort         RefusalReason = "Port"         // a port out of range, or twice
	RefusedExternalName RefusalReason = "ExternalName" // a Service that is a name
	RefusedLoop         RefusalReason = "Loop"         // it was discovered by us or another Fairlead or Gimbal
	RefusedAnswer       RefusalReason = "Answer"       // its description is incomplete or contradicts itself

	RefusedName       RefusalReason = "Name"       // no Service can have its name
	RefusedNameTaken  RefusalReason = "NameTaken"  // the Service exists, and is not ours
	RefusedNamespace  RefusalReason = "Namespace"  // the namespace does not exist here, or goes
	RefusedAddress    RefusalReason = "Address"    // an endpoint outside of spec.addresses
	RefusedLimit      RefusalReason = "Limit"      // beyond spec.limits
	RefusedNoPorts    RefusalReason = "NoPorts"    // a service without a port
	RefusedUnselected RefusalReason = "Unselected" // spec.namespaces does not select it
)

// SystemPrefix begins the names of patterns that include the namespaces of IsSystemNamespace.
const SystemPrefix = "kube-"

// IsSystemNamespace says whether a namespace is one of those that every Kubernetes cluster has for itself.
func IsSystemNamespace(name string) bool {
	return name == "kube-system" || name == "kube-public" || name == "kube-node-lease"
}

// MatchPattern compares a name with a pattern in which "*" stands for any characters.
func MatchPattern(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == name
	}
	rest, ok := strings.CutPrefix(name, parts[0])
	if !ok {
		return false
	}
	for _, p := range parts[1 : len(parts)-1] {
		i := strings.Index(rest, p)
		if i < 0 {
			return false
		}
		rest = rest[i+len(p):]
	}
	return strings.HasSuffix(rest, parts[len(parts)-1])
}
