package translate

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// ControllerName is the controllerName of the GatewayClasses that are ours,
// unless the configuration says another.
const ControllerName gatewayv1.GatewayController = "fairlead.dev/gateway"

// IngressClass is the class of the IngressRoutes that are ours, unless the configuration says another: that
// which Contour has where no flag says one.
const IngressClass = "contour"

// Config is what an operator decides about translation. The zero value is usable.
type Config struct {
	// ControllerName that a GatewayClass must name to be ours; ControllerName when empty.
	ControllerName gatewayv1.GatewayController
	// RootNamespaces are where root IngressRoutes may stand; any when empty.
	RootNamespaces []string
	// IngressClass is the class of the IngressRoutes that are ours, beside those without one;
	// IngressClass when empty.
	IngressClass string
	// AffinityCookie keeps clients at a backend for services with the strategy Cookie; the proxy's when empty.
	AffinityCookie string
	// DisablePermitInsecure serves no route of an IngressRoute in clear text whose host has TLS.
	DisablePermitInsecure bool
	// MinTLS is the least version of TLS of every host name, which proxies see to; empty is none. Here it
	// changes what statuses say alone.
	MinTLS model.TLSVersion
	// IngressRoutePort is where IngressRoutes are served in clear text; 80 when 0.
	IngressRoutePort uint16
	// IngressRouteTLSPort is where IngressRoutes with TLS are served; 443 when 0.
	IngressRouteTLSPort uint16
	// GatewayAPIVersion is the release of the Gateway API whose CRDs the API serves, as they
	// say themselves; empty when it is not known.
	GatewayAPIVersion string
	// ReservedPorts are taken on every machine and refused to listeners.
	ReservedPorts []uint16
	// SecretNamespace is where the Secrets are that BGPPeers name;
	// v1alpha1.SystemNamespace when empty.
	SecretNamespace string
	// RefusedEndpoints are where endpoints are refused, unless their Namespace allows them
	// (v1alpha1.AnnotationAllowEndpoints).
	RefusedEndpoints []netip.Prefix
}

func (c Config) withDefaults() Config {
	if c.ControllerName == "" {
		c.ControllerName = ControllerName
	}
	if c.IngressRoutePort == 0 {
		c.IngressRoutePort = 80
	}
	if c.IngressRouteTLSPort == 0 {
		c.IngressRouteTLSPort = 443
	}
	c.IngressClass = cmp.Or(c.IngressClass, IngressClass)
	c.SecretNamespace = cmp.Or(c.SecretNamespace, v1alpha1.SystemNamespace)
	return c
}

func (c Config) mayBeRoot(namespace string) bool {
	return len(c.RootNamespaces) == 0 || slices.Contains(c.RootNamespaces, namespace)
}

// Changes is what one Apply changed. A nil value says that the entry is gone. The
// values are shared with the Translator and must not be changed.
type Changes struct {
	Listeners    map[model.ListenerID]*model.Listener
	VirtualHosts map[model.HostKey]*model.VirtualHost
	Certificates map[model.CertificateID]*model.Certificate
	Authorities  map[model.AuthorityID]*model.Authority
	TLSHosts     map[model.HostKey]*model.TLSHost
	Groups       map[model.GroupID]*model.BackendGroup
	Sets         map[model.SetID]*model.BackendSet
	Views        map[model.ViewID]*model.View // the plane puts its combined ones here
	Machines     map[string]*model.Machine
	Nodes        map[string]*model.Node // Decaps is not set: it is what agents report
	Frontends    map[model.FrontendKey]*model.Frontend
	Assignments  map[netip.Addr]*model.Assignment
	VIPs         map[model.VIPKey]*model.VIP
	Peers        map[model.PeerKey]*model.Peer
	Statuses     map[model.Object]*Status
}

// Empty reports whether nothing changed.
func (c Changes) Empty() bool {
	return len(c.Listeners)+len(c.VirtualHosts)+len(c.Certificates)+len(c.Authorities)+len(c.TLSHosts)+len(c.Groups)+len(c.Sets)+len(c.Views)+len(c.Machines)+
		len(c.Nodes)+len(c.Frontends)+len(c.Assignments)+len(c.VIPs)+len(c.Peers)+len(c.Statuses) == 0
}

// Translator keeps the result of a translation and what is needed to change it
// at a cost that follows the change. It is not safe for concurrent use. It keeps
// pointers into the objects of the snapshot and never writes to them.
type Translator struct {
	config Config
	graph  *memo.Graph
	tables
}

// tables are all values of a translation, by room: each is made of those before it.
type tables struct {
	in       *inputTables
	anchor   *anchorTables
	tls      *tlsTables
	pool     *poolTables
	fleet    *fleetTables
	backend  *backendTables
	policy   *policyTables
	vip      *vipTables
	host     *hostTables
	gateway  *gatewayTables
	listener *listenerTables
	route    *routeTables
	contour  *contourTables
	frontend *frontendTables
	status   *statusTables
}

// New returns a Translator of an empty snapshot. Its first Apply must name every
// key of the snapshot.
func New(c Config) *Translator {
	c = c.withDefaults()
	g := memo.New()
	var t tables
	t.in = newInputTables(g, c)                                             // the snapshot
	t.anchor = newAnchorTables(g, t.in)                                     // which policy is attached to what
	t.tls = newTLSTables(g, t.in)                                           // certificates
	t.pool = newPoolTables(g, t.in)                                         // AddressPools
	t.fleet = newFleetTables(g, t.in, t.pool)                               // machines and their BGP peers
	t.backend = newBackendTables(g, t.in, t.anchor, t.tls, t.pool, t.fleet) // Services: groups and sets of backends
	t.policy = newPolicyTables(g, t.in, t.anchor, t.backend)                // what policies say
	t.vip = newVIPTables(g, t.in, t.pool, t.fleet)                          // who gets which address
	t.host = newHostTables(g, t.in, t.anchor, t.tls, t.backend, t.policy)   // who has which host and server name
	t.gateway = newGatewayTables(g, t.in, t.tls, t.vip, t.host)             // Gateways and ListenerSets
	t.listener = newListenerTables(g, t.in, t.anchor, t.tls, t.backend, t.policy, t.vip, t.host, t.gateway)
	t.route = newRouteTables(g, t.in, t.backend, t.policy, t.host, t.gateway)        // routes of Gateways
	t.contour = newContourTables(g, t.in, t.tls, t.backend, t.policy, t.vip, t.host) // IngressRoutes
	t.frontend = newFrontendTables(g, t.in, t.anchor, t.policy, t.backend, t.pool, t.fleet, t.vip, t.gateway, t.listener, t.route)
	t.status = newStatusTables(g, &statusTables{
		in: t.in, anchor: t.anchor, tls: t.tls, pool: t.pool, fleet: t.fleet, backend: t.backend, policy: t.policy, vip: t.vip, host: t.host,
		gateway: t.gateway, listener: t.listener, route: t.route, contour: t.contour, frontend: t.frontend,
	})
	g.Seal()
	return &Translator{config: c, graph: g, tables: t}
}

// Full translates a whole snapshot.
func Full(c Config, s *snapshot.Snapshot) (*Translator, Changes) {
	t := New(c)
	return t, t.Apply(s, s.Keys())
}

// Apply brings the result up to the snapshot, in which the objects of the given
// keys were set, replaced or deleted since the last Apply, and returns what
// changed. Keys may repeat, and may name objects that did not change. Between two
// calls with the same Translator all other objects must have stayed the same.
func (t *Translator) Apply(s *snapshot.Snapshot, changed []snapshot.Key) Changes {
	for _, k := range changed {
		t.in.changed(s, k)
	}
	t.graph.Run()
	return t.changes()
}

// changes are what the last Run changed.
func (t *Translator) changes() Changes {
	c := Changes{
		Listeners:    t.listener.listeners.Changes(),
		VirtualHosts: map[model.HostKey]*model.VirtualHost{},
		Certificates: t.tls.usedCertificate.Changes(),
		Authorities:  t.tls.usedAuthority.Changes(),
		TLSHosts:     t.host.tlsHosts.Changes(),
		Groups:       t.backend.groups.Changes(),
		Sets:         map[model.SetID]*model.BackendSet{},
		Views:        t.listener.views.Changes(),
		Machines:     t.fleet.machine.Changes(),
		Nodes:        t.fleet.nodes.Changes(),
		Frontends:    t.frontend.frontends.Changes(),
		Assignments:  t.frontend.assignments.Changes(),
		VIPs:         t.frontend.vips.Changes(),
		Peers:        t.fleet.peers.Changes(),
		Statuses:     map[model.Object]*Status{},
	}
	for k, h := range t.host.hosts.Changes() {
		c.VirtualHosts[k] = h.host()
	}
	for k, set := range t.backend.sets.Changes() {
		c.Sets[k.id()] = set
	}
	for _, statuses := range t.status.all {
		maps.Copy(c.Statuses, statuses.Changes())
	}
	return c
}

// result is everything that stands.
func (t *Translator) result() Changes {
	c := Changes{
		Listeners:    maps.Collect(t.listener.listeners.All()),
		VirtualHosts: map[model.HostKey]*model.VirtualHost{},
		Certificates: maps.Collect(t.tls.usedCertificate.All()),
		Authorities:  maps.Collect(t.tls.usedAuthority.All()),
		TLSHosts:     maps.Collect(t.host.tlsHosts.All()),
		Groups:       maps.Collect(t.backend.groups.All()),
		Sets:         map[model.SetID]*model.BackendSet{},
		Views:        maps.Collect(t.listener.views.All()),
		Machines:     maps.Collect(t.fleet.machine.All()),
		Nodes:        maps.Collect(t.fleet.nodes.All()),
		Frontends:    maps.Collect(t.frontend.frontends.All()),
		Assignments:  maps.Collect(t.frontend.assignments.All()),
		VIPs:         maps.Collect(t.frontend.vips.All()),
		Peers:        maps.Collect(t.fleet.peers.All()),
		Statuses:     map[model.Object]*Status{},
	}
	for k, h := range t.host.hosts.All() {
		c.VirtualHosts[k] = h.host()
	}
	for k, set := range t.backend.sets.All() {
		c.Sets[k.id()] = set
	}
	for _, statuses := range t.status.all {
		maps.Insert(c.Statuses, statuses.All())
	}
	return c
}
