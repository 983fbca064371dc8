package backend

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/address"
	"fairlead.dev/internal/translate/certificate"
	"fairlead.dev/internal/translate/field"
	"fairlead.dev/internal/translate/fleet"
	"fairlead.dev/internal/translate/input"
	"fairlead.dev/internal/translate/pool"
	"fairlead.dev/internal/translate/quota"
	"fairlead.dev/internal/translate/target"
)

// Rooms are the rooms that the tables read, besides the input.
type Rooms struct {
	Targets      *target.Tables
	Certificates *certificate.Tables
	Pool         *pool.Tables
	Fleet        *fleet.Tables
}

// Tables are the Services with what says how their backends are spoken to, and the groups and sets that are
// used.
type Tables struct {
	in   *input.Tables
	from Rooms

	allowances *memo.Table[string, *allowance] // by namespace
	refusing   *memo.Table[memo.Unit, *refusing]
	peculiar   *memo.Sum[snapshot.Name, snapshot.Name, peculiarities, memo.Parts[snapshot.Name, peculiarities]] // by Service and EndpointSlice
	Services   *memo.Table[snapshot.Name, *Service]
	BackendTLS *memo.Table[snapshot.Name, *TLSPolicy]

	GroupUses *memo.Sum[model.GroupID, certificate.User, *model.BackendGroup, groupUse]
	measured  *quota.Quota[model.GroupID]
	Groups    *memo.Table[model.GroupID, *model.BackendGroup]
	// Unmeasured are the groups of a Service that asks for metrics of its backends, and gets none of these: they are beyond the bound.
	Unmeasured *memo.Sum[snapshot.Name, model.GroupID, struct{}, int]
	SetUses    *memo.Sum[PortKey, SetUser, struct{}, setUses]
	Sets       *memo.Table[PortKey, *model.BackendSet]
}

// New adds the tables of Services, backend groups and backend sets to a graph.
func New(g *memo.Graph, in *input.Tables, r Rooms) *Tables {
	t := &Tables{in: in, from: r}
	t.allowances = memo.NewTable(g, "allowed endpoints", func(c *memo.Context, namespace string) (*allowance, bool) {
		a := makeAllowance(in.Namespaces.Get(c, snapshot.Name{Name: namespace}))
		return a, a != nil
	}, memo.Reads(in.Namespaces))
	t.refusing = memo.NewTable(g, "refused endpoints", t.makeRefusing, memo.Reads(t.from.Pool.Ranges, in.Own, in.EndpointSlices))
	t.peculiar = memo.NewSum[snapshot.Name, snapshot.Name, peculiarities](g, "peculiarities").Same(func(a, b peculiarities) bool {
		return a.misread == b.misread && slices.Equal(a.suspects, b.suspects)
	})
	memo.NewScan(g, "peculiarities: index", in.EndpointSlices, func(c *memo.Context, n snapshot.Name, o *discoveryv1.EndpointSlice) {
		if service, is := input.ServiceOfSlice(o); is {
			p := peculiarities{suspects: t.refusing.Get(c, memo.Unit{}).suspects(o)}
			if _, p.misread = ratingsOf(o); len(p.suspects) > 0 || p.misread != "" {
				t.peculiar.Put(c, service, n, p)
			}
		}
	}, memo.Reads(t.refusing), memo.Puts(t.peculiar))
	t.Services = memo.NewTable(g, "service", t.makeService,
		memo.Reads(in.Services, t.from.Targets.Slots, in.BackendPolicies, t.peculiar, t.allowances, t.refusing, in.PoolNames, t.from.Pool.Pools))
	t.BackendTLS = memo.NewTable(g, "BackendTLSPolicy", t.makeBackendTLS, memo.Reads(in.BackendTLSPolicies, t.from.Certificates.Authorities))
	t.GroupUses = memo.NewFold[model.GroupID](g, "uses of a group", (*groupUse).fold).Same(func(_, _ *model.BackendGroup) bool { return true })
	t.SetUses = memo.NewFold[PortKey](g, "uses of a set", (*setUses).fold).Shows(setUses.shows)
	t.measured = quota.New(g, "measured groups", in.Config.MeasuredGroups, cmp.Compare[model.GroupID])
	memo.For(memo.NewTable(g, "claim of a group", t.claim, memo.Reads(t.GroupUses, t.Services), t.measured.Puts()), t.GroupUses)
	t.Unmeasured = memo.NewCount[snapshot.Name, model.GroupID](g, "groups of a Service that are not measured")
	t.Groups = memo.For(memo.NewTable(g, "group", t.makeUsedGroup, memo.Reads(t.GroupUses, t.Services), t.measured.Reads(),
		memo.Puts(t.Unmeasured, t.SetUses, t.from.Certificates.CertificateUses, t.from.Certificates.AuthorityUses)), t.GroupUses).Watch()
	memo.NewScan(g, "pins: users", in.Pins, t.usePinned, memo.Puts(t.GroupUses, t.from.Certificates.CertificateUses, t.from.Certificates.AuthorityUses))
	t.Sets = memo.For(memo.NewTable(g, "set", t.makeSet,
		memo.Reads(t.SetUses, t.Services, in.SlicesOf, t.from.Fleet.Machines, t.from.Fleet.Own)), t.SetUses).
		Equal(func(a, b *model.BackendSet) bool {
			return a.Refusal == b.Refusal && slices.Equal(a.Backends, b.Backends)
		}).Watch()
	return t
}

// ReadsOfGroups declares what those read who look for a Service's port and make a group of it.
func (t *Tables) ReadsOfGroups() memo.Option {
	return memo.Reads(t.in.GrantsIn, t.Services, t.from.Targets.TLSSlots, t.BackendTLS)
}

// makeService judges a Service with what policies ask of it, and which of its endpoints are refused.
func (t *Tables) makeService(c *memo.Context, n snapshot.Name) (*Service, bool) {
	f := newService(t.in.Services.Get(c, n))
	if f == nil {
		return nil, false
	}
	t.addPolicies(c, n, f)
	if list := t.peculiar.Get(c, n); list.Len() > 0 {
		t.addRefusals(c, n, f, list)
		f.addMisread(list)
	}
	return f, true
}

// peculiarities are what of an EndpointSlice a Service is judged by: its suspects, and what its annotations say
// that cannot be read.
type peculiarities struct {
	suspects []netip.AddrPort
	misread  string
}

// Service is what routes ask of a Service.
type Service struct {
	external bool // ExternalName
	measured bool // it asks for metrics of each backend
	created  int64
	limits   *model.BackendLimits // that annotations name; nil: none
	unread   []string             // annotations that name no limit, as notes
	Ports    []Port
	Drained  []netip.Addr     // backends that take no new work, sorted
	refused  []netip.AddrPort // endpoints that are no backends, sorted; port 0 stands for every port
	Refusal  string           // how many those are, and why; empty where there are none
	Misread  string           // what annotations of EndpointSlices say that cannot be read; empty: nothing
}

func newService(o *corev1.Service) *Service {
	if o == nil {
		return nil
	}
	f := &Service{external: o.Spec.Type == corev1.ServiceTypeExternalName, measured: field.MeasuredBackends(o.Annotations), created: o.CreationTimestamp.Unix()}
	drained, undrained := DrainedBackends(o)
	f.Drained = drained
	f.limits, f.unread = limitsOf(o.Annotations)
	said, metricsNote := upstreamsOf(o.Annotations), field.MeasuredNote(o.Annotations, v1alpha1.MetricsOfBackend)
	for _, p := range o.Spec.Ports {
		port := Port{Number: p.Port, Name: p.Name, protocol: cmp.Or(p.Protocol, corev1.ProtocolTCP), Upstream: said.of(p.Name, p.Port), Undrained: undrained, MetricsNote: metricsNote, Unread: f.unread, discovered: o.Labels[v1alpha1.LabelUpstream]}
		if p.AppProtocol != nil {
			port.appProtocol = *p.AppProtocol
		}
		f.Ports = append(f.Ports, port)
	}
	return f
}

// port finds the TCP port with a number, or, when there is none, one of another protocol.
func (f *Service) port(number int32) (Port, bool) {
	var other Port
	found := false
	for _, p := range f.Ports {
		if p.Number != number {
			continue
		}
		if p.protocol == corev1.ProtocolTCP {
			return p, true
		}
		other, found = p, true
	}
	return other, found
}

// portOf finds the port with a number for a protocol.
func (f *Service) portOf(number int32, protocol corev1.Protocol) (Port, bool) {
	for _, p := range f.Ports {
		if p.Number == number && p.protocol == protocol {
			return p, true
		}
	}
	return Port{}, false
}

// DrainedBackends reads the annotation that names backends to be drained. Addresses that
// cannot be read are told.
func DrainedBackends(o *corev1.Service) (drained []netip.Addr, problem string) {
	text := o.Annotations[v1alpha1.AnnotationDrainedBackends]
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		a, err := address.ParsePlain(part)
		if err != nil {
			problem = "metadata.annotations[" + v1alpha1.AnnotationDrainedBackends + "]: " + err.Error()
			continue
		}
		drained = append(drained, a)
	}
	slices.SortFunc(drained, netip.Addr.Compare)
	return slices.Compact(drained), problem
}

// Fault says why a Service's port cannot be a backend.
type Fault uint8

// The faults of a port; Fine is none.
const (
	Fine Fault = iota
	ServiceMissing
	ServiceExternal
	PortMissing
	PortProtocol
	PolicyInvalid
)

// FindPort looks up a Service's TCP port; the message says what is wrong with it.
func (t *Tables) FindPort(c *memo.Context, n snapshot.Name, number int32) (Port, Fault, string) {
	return t.FindPortOf(c, n, number, corev1.ProtocolTCP)
}

// FindPortOf is FindPort for a protocol.
func (t *Tables) FindPortOf(c *memo.Context, n snapshot.Name, number int32, protocol corev1.Protocol) (Port, Fault, string) {
	service := t.Services.Get(c, n)
	if service == nil {
		return Port{}, ServiceMissing, "Service " + n.String() + " not found"
	}
	if service.external {
		return Port{}, ServiceExternal, "Service " + n.String() + " has type ExternalName, which is not supported, because it can name any host: use a Service with EndpointSlices"
	}
	port, found := service.portOf(number, protocol)
	if found {
		return port, Fine, ""
	}
	if port, found = service.port(number); !found {
		return Port{}, PortMissing, "Service " + n.String() + " has no port " + strconv.Itoa(int(number)) + describePorts(service.Ports)
	}
	return Port{}, PortProtocol, "port " + strconv.Itoa(int(number)) + " of Service " + n.String() + " is " + string(port.protocol) + ", not " + string(protocol)
}

func describePorts(ports []Port) string {
	if len(ports) == 0 {
		return ": it has no ports"
	}
	text := "; it has "
	for i, p := range ports {
		if i == 8 {
			return text + ", ..."
		}
		if i > 0 {
			text += ", "
		}
		text += strconv.Itoa(int(p.Number))
	}
	return text
}

// SetUser is a group or a frontend that uses a set.
type SetUser struct {
	group    model.GroupID
	Frontend model.FrontendKey
}

// setUses counts who uses a set.
type setUses struct{ groups, frontends int }

func (u *setUses) fold(by SetUser, before, after *struct{}) {
	count := &u.groups
	if by.group == "" {
		count = &u.frontends
	}
	if before == nil {
		*count++
	}
	if after == nil {
		*count--
	}
}

// shows says that the first comes or the last goes.
func (u setUses) shows(after setUses) bool {
	return (u.groups > 0) != (after.groups > 0) || (u.frontends > 0) != (after.frontends > 0)
}

// Reached says that groups use a Service.
func (t *Tables) Reached(c *memo.Context, service snapshot.Name) bool {
	f := t.Services.Get(c, service)
	return f != nil && slices.ContainsFunc(f.Ports, func(p Port) bool {
		return t.SetUses.Get(c, PortKey{service, p.Number, model.TCP}).groups > 0
	})
}

// Used says that groups or frontends use a Service.
func (t *Tables) Used(c *memo.Context, service snapshot.Name) bool {
	f := t.Services.Get(c, service)
	return f != nil && slices.ContainsFunc(f.Ports, func(p Port) bool {
		return slices.ContainsFunc([]model.Transport{model.TCP, model.UDP}, func(transport model.Transport) bool {
			uses := t.SetUses.Get(c, PortKey{service, p.Number, transport})
			return uses.groups+uses.frontends > 0
		})
	})
}

// makeSet gathers the backends of a Service's port from its EndpointSlices.
func (t *Tables) makeSet(c *memo.Context, k PortKey) (*model.BackendSet, bool) {
	balanced := t.SetUses.Get(c, k).frontends > 0
	set := &model.BackendSet{ID: k.ID()}
	if service := t.Services.Get(c, k.Service); service != nil && !service.external {
		if port, found := service.portOf(k.Number, k.protocol()); found {
			all := gatherBackends(t.in.SlicesOf.Get(c, k.Service), port.Name, k.protocol(), t.placing(c, balanced))
			gathered := len(all)
			if set.Backends = service.accept(all); len(set.Backends) < gathered {
				set.Refusal = service.Refusal
			}
			drainBackends(set.Backends, service.Drained)
		}
	}
	return set, true
}

// placing finds the machine of a backend: that of the endpoint's node, else the one that has its
// address. Only frontends ask, and only their sets are looked at again when machines
// come and go.
func (t *Tables) placing(c *memo.Context, balanced bool) func(nodeName string, a netip.Addr) string {
	if !balanced {
		return nowhere
	}
	fleetList, own := t.from.Fleet.Machines.Get(c, memo.Unit{}), t.from.Fleet.Own.Get(c, memo.Unit{})
	return func(nodeName string, a netip.Addr) string {
		if _, is := slices.BinarySearchFunc(fleetList, nodeName, func(m fleet.Machine, name string) int { return cmp.Compare(m.Name, name) }); is {
			return nodeName
		}
		i, _ := slices.BinarySearchFunc(own, a, func(o fleet.OwnAddress, a netip.Addr) int { return o.Address.Compare(a) })
		for ; i < len(own) && own[i].Address == a; i++ {
			if own[i].Held {
				return own[i].Machine
			}
		}
		return ""
	}
}

func nowhere(string, netip.Addr) string { return "" }

// BackendsOf are the backends of a set, wherever they are.
func (t *Tables) BackendsOf(c *memo.Context, set model.SetID) []model.Backend {
	k, ok := PortOfSet(set)
	service := t.Services.Get(c, k.Service)
	if !ok || service == nil {
		return nil
	}
	port, found := service.portOf(k.Number, k.protocol())
	if !found {
		return nil
	}
	return service.accept(gatherBackends(t.in.SlicesOf.Get(c, k.Service), port.Name, k.protocol(), nowhere))
}

// drainBackends has backends take no new work.
func drainBackends(backends []model.Backend, drained []netip.Addr) {
	for i := range backends {
		b := &backends[i]
		if _, is := slices.BinarySearchFunc(drained, b.Address.Addr(), netip.Addr.Compare); is && b.State == model.BackendReady {
			b.State = model.BackendDraining
		}
	}
}

// gatherBackends returns the backends at the port of a name, sorted by address.
// An address that stands twice is there once, in its better state.
func gatherBackends(all memo.Parts[snapshot.Name, *discoveryv1.EndpointSlice], portName string, protocol corev1.Protocol, machineOf func(nodeName string, a netip.Addr) string) []model.Backend {
	size := 0
	for _, s := range all.All() {
		size += len(s.Endpoints)
	}
	backends := make([]model.Backend, 0, size)
	rated := false
	for _, s := range all.All() {
		if s.AddressType != discoveryv1.AddressTypeIPv4 && s.AddressType != discoveryv1.AddressTypeIPv6 {
			continue
		}
		said, _ := ratingsOf(s)
		rated = rated || said != nil
		for _, p := range s.Ports {
			if p.Port == nil || *p.Port < 1 || *p.Port > 65535 || field.Deref(p.Name) != portName ||
				cmp.Or(field.Deref(p.Protocol), corev1.ProtocolTCP) != protocol {
				continue
			}
			backends = appendBackends(backends, s.Endpoints, uint16(*p.Port), said, machineOf)
		}
	}
	if len(backends) == 0 {
		return nil
	}
	compare := func(a, b model.Backend) int {
		return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.State, b.State), cmp.Compare(a.Zone, b.Zone), cmp.Compare(a.Machine, b.Machine))
	}
	if rated {
		compare = compareRated
	}
	slices.SortFunc(backends, compare)
	return slices.CompactFunc(backends, func(a, b model.Backend) bool { return a.Address == b.Address })
}

// compareRated orders by address, the better one first: of two ready ones that which is no backup, then the heavier.
func compareRated(a, b model.Backend) int {
	backup := func(b model.Backend) int {
		if b.Backup {
			return 1
		}
		return 0
	}
	return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.State, b.State), cmp.Compare(backup(a), backup(b)), cmp.Compare(b.Weight, a.Weight),
		cmp.Compare(a.Zone, b.Zone), cmp.Compare(a.Machine, b.Machine))
}

func appendBackends(backends []model.Backend, endpoints []discoveryv1.Endpoint, port uint16, said *ratings, machineOf func(nodeName string, a netip.Addr) string) []model.Backend {
	for i := range endpoints {
		e := &endpoints[i]
		state := backendState(e.Conditions)
		zone := ""
		if e.Zone != nil && utf8.ValidString(*e.Zone) {
			zone = *e.Zone
		}
		if a, ok := endpointAddress(e); ok {
			b := model.Backend{Address: netip.AddrPortFrom(a, port), State: state, Zone: zone, Machine: machineOf(field.Deref(e.NodeName), a)}
			said.rate(&b)
			backends = append(backends, b)
		}
	}
	return backends
}

// backendState reads conditions as EndpointSlice defines them: unset ready means
// ready, unset serving means what ready says, unset terminating means no.
func backendState(c discoveryv1.EndpointConditions) model.BackendState {
	ready := c.Ready == nil || *c.Ready
	serving := ready
	if c.Serving != nil {
		serving = *c.Serving
	}
	switch {
	case ready:
		return model.BackendReady
	case serving && c.Terminating != nil && *c.Terminating:
		return model.BackendDraining
	default:
		return model.BackendUnready
	}
}
