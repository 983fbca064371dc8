package translate

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
)

// backendTables are the Services with what says how their backends are spoken to, and the groups and sets that are
// used.
type backendTables struct {
	in     *inputTables
	anchor *anchorTables
	tls    *tlsTables
	pool   *poolTables
	fleet  *fleetTables

	allowances *memo.Table[string, *allowance] // by namespace
	refusing   *memo.Table[memo.Unit, *refusing]
	suspects   *memo.Sum[snapshot.Name, snapshot.Name, []netip.AddrPort, memo.Parts[snapshot.Name, []netip.AddrPort]] // by Service and EndpointSlice
	services   *memo.Table[snapshot.Name, *serviceFact]
	backendTLS *memo.Table[snapshot.Name, *backendTLSFact]

	groupUses *memo.Sum[model.GroupID, user, *model.BackendGroup, groupUse]
	groups    *memo.Table[model.GroupID, *model.BackendGroup]
	setUses   *memo.Sum[portKey, setUser, struct{}, setUses]
	sets      *memo.Table[portKey, *model.BackendSet]
}

func newBackendTables(g *memo.Graph, in *inputTables, anchor *anchorTables, tls *tlsTables, pool *poolTables, fleet *fleetTables) *backendTables {
	t := &backendTables{in: in, anchor: anchor, tls: tls, pool: pool, fleet: fleet}
	t.allowances = memo.NewTable(g, "allowed endpoints", func(c *memo.Context, namespace string) (*allowance, bool) {
		a := makeAllowance(in.namespaces.Get(c, snapshot.Name{Name: namespace}))
		return a, a != nil
	}, memo.Reads(in.namespaces))
	t.refusing = memo.NewTable(g, "refused endpoints", t.makeRefusing, memo.Reads(pool.ranges, in.own, in.endpointSlices))
	t.suspects = memo.NewSum[snapshot.Name, snapshot.Name, []netip.AddrPort](g, "suspects").Same(slices.Equal[[]netip.AddrPort])
	memo.NewScan(g, "suspects: index", in.endpointSlices, func(c *memo.Context, n snapshot.Name, o *discoveryv1.EndpointSlice) {
		if service, is := serviceOfSlice(o); is {
			if list := t.refusing.Get(c, memo.Unit{}).suspects(o); len(list) > 0 {
				t.suspects.Put(c, service, n, list)
			}
		}
	}, memo.Reads(t.refusing), memo.Puts(t.suspects))
	t.services = memo.NewTable(g, "service", t.makeService,
		memo.Reads(in.services, anchor.slots, in.backendPolicies, t.suspects, t.allowances, t.refusing, in.poolNames, pool.pools))
	t.backendTLS = memo.NewTable(g, "BackendTLSPolicy", t.makeBackendTLS, memo.Reads(in.backendTLSPolicies, tls.authorities))
	t.groupUses = memo.NewFold[model.GroupID](g, "uses of a group", (*groupUse).fold).Same(func(_, _ *model.BackendGroup) bool { return true })
	t.setUses = memo.NewFold[portKey](g, "uses of a set", (*setUses).fold).Shows(setUses.shows)
	t.groups = memo.For(memo.NewTable(g, "group", t.makeUsedGroup, memo.Reads(t.groupUses),
		memo.Puts(t.setUses, tls.certificateUses, tls.authorityUses)), t.groupUses).Watch()
	t.sets = memo.For(memo.NewTable(g, "set", t.makeSet,
		memo.Reads(t.setUses, t.services, in.slicesOf, fleet.machines, fleet.own)), t.setUses).
		Equal(func(a, b *model.BackendSet) bool {
			return a.Refusal == b.Refusal && slices.Equal(a.Backends, b.Backends)
		}).Watch()
	return t
}

// readsOfGroups declares what those read who look for a Service's port and make a group of it.
func (t *backendTables) readsOfGroups() memo.Option {
	return memo.Reads(t.in.grantsIn, t.services, t.anchor.tlsSlots, t.backendTLS)
}

// makeService judges a Service with what policies ask of it, and which of its endpoints are refused.
func (t *backendTables) makeService(c *memo.Context, n snapshot.Name) (*serviceFact, bool) {
	f := makeServiceFact(t.in.services.Get(c, n))
	if f == nil {
		return nil, false
	}
	t.addPolicies(c, n, f)
	t.addRefusals(c, n, f)
	return f, true
}

// serviceFact is what routes ask of a Service.
type serviceFact struct {
	external bool                 // ExternalName
	limits   *model.BackendLimits // that annotations name; nil: none
	unread   []string             // annotations that name no limit, as notes
	ports    []servicePort
	drained  []netip.Addr     // backends that take no new work, sorted
	refused  []netip.AddrPort // endpoints that are no backends, sorted; port 0 stands for every port
	refusal  string           // how many those are, and why; empty where there are none
}

type servicePort struct {
	number      int32
	name        string
	protocol    corev1.Protocol
	appProtocol string
	upstream    string   // what annotations say, see upstreamsOf
	undrained   string   // why annotations drain less than they name; empty: nothing is wrong
	refusal     string   // of the Service's endpoints
	unread      []string // of the Service's limits
	options     backendOptions
}

func makeServiceFact(o *corev1.Service) *serviceFact {
	if o == nil {
		return nil
	}
	f := &serviceFact{external: o.Spec.Type == corev1.ServiceTypeExternalName}
	drained, undrained := drainedBackends(o)
	f.drained = drained
	f.limits, f.unread = limitsOf(o.Annotations)
	said := upstreamsOf(o.Annotations)
	for _, p := range o.Spec.Ports {
		port := servicePort{number: p.Port, name: p.Name, protocol: cmp.Or(p.Protocol, corev1.ProtocolTCP), upstream: said.of(p.Name, p.Port), undrained: undrained, unread: f.unread}
		if p.AppProtocol != nil {
			port.appProtocol = *p.AppProtocol
		}
		f.ports = append(f.ports, port)
	}
	return f
}

// port finds the TCP port with a number, or, when there is none, one of another protocol.
func (f *serviceFact) port(number int32) (servicePort, bool) {
	var other servicePort
	found := false
	for _, p := range f.ports {
		if p.number != number {
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
func (f *serviceFact) portOf(number int32, protocol corev1.Protocol) (servicePort, bool) {
	for _, p := range f.ports {
		if p.number == number && p.protocol == protocol {
			return p, true
		}
	}
	return servicePort{}, false
}

// drainedBackends reads the annotation that names backends to be drained. Addresses that
// cannot be read are told.
func drainedBackends(o *corev1.Service) (drained []netip.Addr, problem string) {
	text := o.Annotations[v1alpha1.AnnotationDrainedBackends]
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		a, err := parsePlain(part)
		if err != nil {
			problem = "metadata.annotations[" + v1alpha1.AnnotationDrainedBackends + "]: " + err.Error()
			continue
		}
		drained = append(drained, a)
	}
	slices.SortFunc(drained, netip.Addr.Compare)
	return slices.Compact(drained), problem
}

// appProtocol is what an appProtocol says of a port's backends.
type appProtocol struct{ secure, http2, websocket bool }

// protocolOfApp reads the names of KEP-3726, IANA's, and those that meshes know. Others
// say nothing.
func (p servicePort) protocolOfApp() appProtocol {
	switch strings.ToLower(p.appProtocol) {
	case "kubernetes.io/h2c", "h2c", "http2", "grpc":
		return appProtocol{http2: true}
	case "kubernetes.io/ws", "ws":
		return appProtocol{websocket: true}
	case "kubernetes.io/wss", "wss":
		return appProtocol{secure: true, websocket: true}
	case "https":
		return appProtocol{secure: true}
	}
	return appProtocol{}
}

// serviceFault says why a Service's port cannot be a backend.
type serviceFault uint8

const (
	serviceFine serviceFault = iota
	serviceMissing
	serviceExternal
	portMissing
	portProtocol
	policyInvalid
)

// findPort looks up a Service's TCP port; the message says what is wrong with it.
func (t *backendTables) findPort(c *memo.Context, n snapshot.Name, number int32) (servicePort, serviceFault, string) {
	return t.findPortOf(c, n, number, corev1.ProtocolTCP)
}

// findPortOf is findPort for a protocol.
func (t *backendTables) findPortOf(c *memo.Context, n snapshot.Name, number int32, protocol corev1.Protocol) (servicePort, serviceFault, string) {
	service := t.services.Get(c, n)
	if service == nil {
		return servicePort{}, serviceMissing, "Service " + n.String() + " not found"
	}
	if service.external {
		return servicePort{}, serviceExternal, "Service " + n.String() + " is of type ExternalName, which could lead anywhere: use a Service with EndpointSlices"
	}
	port, found := service.portOf(number, protocol)
	if found {
		return port, serviceFine, ""
	}
	if port, found = service.port(number); !found {
		return servicePort{}, portMissing, "Service " + n.String() + " has no port " + strconv.Itoa(int(number)) + describePorts(service.ports)
	}
	return servicePort{}, portProtocol, "port " + strconv.Itoa(int(number)) + " of Service " + n.String() + " is " + string(port.protocol) + ", not " + string(protocol)
}

func describePorts(ports []servicePort) string {
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
		text += strconv.Itoa(int(p.number))
	}
	return text
}

// portKey names a port of a Service, whose backends are a set.
type portKey struct {
	service   snapshot.Name
	number    int32
	transport model.Transport
}

// id is "namespace/service/port", with "/UDP" where the port is of that.
func (k portKey) id() model.SetID {
	id := k.service.Namespace + "/" + k.service.Name + "/" + strconv.Itoa(int(k.number))
	if k.transport == model.UDP {
		id += "/" + string(model.UDP)
	}
	return model.SetID(id)
}

// portOfSet is the port whose set an ID names; names of Kubernetes have no slashes.
func portOfSet(id model.SetID) (k portKey, ok bool) {
	parts := strings.Split(string(id), "/")
	if len(parts) < 3 || len(parts) > 4 || len(parts) == 4 && parts[3] != string(model.UDP) {
		return portKey{}, false
	}
	number, err := strconv.ParseInt(parts[2], 10, 32)
	k = portKey{snapshot.Name{Namespace: parts[0], Name: parts[1]}, int32(number), model.TCP}
	if len(parts) == 4 {
		k.transport = model.UDP
	}
	return k, err == nil
}

// protocol is the transport as Services name it.
func (k portKey) protocol() corev1.Protocol { return corev1.Protocol(k.transport) }

// setUser is a group or a frontend that uses a set.
type setUser struct {
	group    model.GroupID
	frontend model.FrontendKey
}

// setUses counts who uses a set.
type setUses struct{ groups, frontends int }

func (u *setUses) fold(by setUser, before, after *struct{}) {
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

// reached says that groups use a Service.
func (t *backendTables) reached(c *memo.Context, service snapshot.Name) bool {
	f := t.services.Get(c, service)
	return f != nil && slices.ContainsFunc(f.ports, func(p servicePort) bool {
		return t.setUses.Get(c, portKey{service, p.number, model.TCP}).groups > 0
	})
}

// makeSet gathers the backends of a Service's port from its EndpointSlices.
func (t *backendTables) makeSet(c *memo.Context, k portKey) (*model.BackendSet, bool) {
	balanced := t.setUses.Get(c, k).frontends > 0
	set := &model.BackendSet{ID: k.id()}
	if service := t.services.Get(c, k.service); service != nil && !service.external {
		if port, found := service.portOf(k.number, k.protocol()); found {
			all := gatherBackends(t.in.slicesOf.Get(c, k.service), port.name, k.protocol(), t.placing(c, balanced))
			gathered := len(all)
			if set.Backends = service.accept(all); len(set.Backends) < gathered {
				set.Refusal = service.refusal
			}
			drainBackends(set.Backends, service.drained)
		}
	}
	return set, true
}

// placing finds the machine of a backend: that of the endpoint's node, else the one that has its
// address. Only frontends ask, and only their sets are looked at again when machines
// come and go.
func (t *backendTables) placing(c *memo.Context, balanced bool) func(nodeName string, a netip.Addr) string {
	if !balanced {
		return nowhere
	}
	fleet, own := t.fleet.machines.Get(c, memo.Unit{}), t.fleet.own.Get(c, memo.Unit{})
	return func(nodeName string, a netip.Addr) string {
		if _, is := slices.BinarySearchFunc(fleet, nodeName, func(m fleetMachine, name string) int { return cmp.Compare(m.name, name) }); is {
			return nodeName
		}
		i, _ := slices.BinarySearchFunc(own, a, func(o ownAddress, a netip.Addr) int { return o.address.Compare(a) })
		for ; i < len(own) && own[i].address == a; i++ {
			if own[i].held {
				return own[i].machine
			}
		}
		return ""
	}
}

func nowhere(string, netip.Addr) string { return "" }

// backendsOf are the backends of a set, wherever they are.
func (t *backendTables) backendsOf(c *memo.Context, set model.SetID) []model.Backend {
	k, ok := portOfSet(set)
	service := t.services.Get(c, k.service)
	if !ok || service == nil {
		return nil
	}
	port, found := service.portOf(k.number, k.protocol())
	if !found {
		return nil
	}
	return service.accept(gatherBackends(t.in.slicesOf.Get(c, k.service), port.name, k.protocol(), nowhere))
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
	for _, s := range all.All() {
		if s.AddressType != discoveryv1.AddressTypeIPv4 && s.AddressType != discoveryv1.AddressTypeIPv6 {
			continue
		}
		for _, p := range s.Ports {
			if p.Port == nil || *p.Port < 1 || *p.Port > 65535 || deref(p.Name) != portName ||
				cmp.Or(deref(p.Protocol), corev1.ProtocolTCP) != protocol {
				continue
			}
			backends = appendBackends(backends, s.Endpoints, uint16(*p.Port), machineOf)
		}
	}
	if len(backends) == 0 {
		return nil
	}
	slices.SortFunc(backends, func(a, b model.Backend) int {
		return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.State, b.State), cmp.Compare(a.Zone, b.Zone), cmp.Compare(a.Machine, b.Machine))
	})
	return slices.CompactFunc(backends, func(a, b model.Backend) bool { return a.Address == b.Address })
}

func appendBackends(backends []model.Backend, endpoints []discoveryv1.Endpoint, port uint16, machineOf func(nodeName string, a netip.Addr) string) []model.Backend {
	for i := range endpoints {
		e := &endpoints[i]
		state := backendState(e.Conditions)
		zone := ""
		if e.Zone != nil && utf8.ValidString(*e.Zone) {
			zone = *e.Zone
		}
		if a, ok := endpointAddress(e); ok {
			backends = append(backends, model.Backend{
				Address: netip.AddrPortFrom(a, port), State: state, Zone: zone, Machine: machineOf(deref(e.NodeName), a),
			})
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

func deref[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
