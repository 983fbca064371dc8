package translate

import (
	"cmp"
	"iter"
	"maps"
	"net/netip"
	"slices"

	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/backend"
	"fairlead.dev/internal/translate/certificate"
	"fairlead.dev/internal/translate/contour"
	"fairlead.dev/internal/translate/fleet"
	"fairlead.dev/internal/translate/frontend"
	"fairlead.dev/internal/translate/gateway"
	"fairlead.dev/internal/translate/host"
	"fairlead.dev/internal/translate/input"
	"fairlead.dev/internal/translate/listener"
	"fairlead.dev/internal/translate/policy"
	"fairlead.dev/internal/translate/pool"
	"fairlead.dev/internal/translate/quota"
	"fairlead.dev/internal/translate/render"
	"fairlead.dev/internal/translate/route"
	"fairlead.dev/internal/translate/status"
	"fairlead.dev/internal/translate/target"
	"fairlead.dev/internal/translate/vip"
)

// Changes is what one Apply changed. A nil value says that the entry is gone. A map may
// be nil. The values are shared with the Translator and must not be changed.
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
	Statuses     map[model.Object]*status.Status
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
	config input.Config
	graph  *memo.Graph
	tables
}

// tables are all values of a translation, by room: each is made of those before it.
type tables struct {
	in           *input.Tables
	targets      *target.Tables
	certificates *certificate.Tables
	pool         *pool.Tables
	fleet        *fleet.Tables
	backend      *backend.Tables
	policy       *policy.Tables
	vip          *vip.Tables
	host         *host.Tables
	gateway      *gateway.Tables
	listener     *listener.Tables
	route        *route.Tables
	contour      *contour.Tables
	frontend     *frontend.Tables
	status       *status.Tables
}

// New returns a Translator of an empty snapshot. Its first Apply must name every
// key of the snapshot.
func New(c input.Config) *Translator {
	c = c.WithDefaults()
	g := memo.New()
	var t tables

	// The snapshot.
	t.in = input.New(g, c)
	// Which policy is attached to what.
	t.targets = target.New(g, t.in)
	t.certificates = certificate.New(g, t.in)
	// AddressPools.
	t.pool = pool.New(g, t.in)
	// Machines and their BGP peers.
	t.fleet = fleet.New(g, t.in, fleet.Rooms{Pool: t.pool})
	// Services: groups and sets of backends.
	t.backend = backend.New(g, t.in, backend.Rooms{Targets: t.targets, Certificates: t.certificates, Pool: t.pool, Fleet: t.fleet})
	// What policies say.
	t.policy = policy.New(g, t.in, policy.Rooms{Targets: t.targets, Backend: t.backend})
	// Who gets which address.
	t.vip = vip.New(g, t.in, vip.Rooms{Pool: t.pool, Fleet: t.fleet})
	// Who has which host and server name. The candidates come from gateway, route and contour.
	t.host = host.New(g, t.in, host.Rooms{Targets: t.targets, Certificates: t.certificates, Backend: t.backend, Policy: t.policy})
	// Gateways and ListenerSets.
	t.gateway = gateway.New(g, t.in, gateway.Rooms{Certificates: t.certificates, VIP: t.vip, Host: t.host})
	// Listeners of proxies.
	t.listener = listener.New(g, t.in, listener.Rooms{
		Targets: t.targets, Certificates: t.certificates, Backend: t.backend, Policy: t.policy, VIP: t.vip, Host: t.host, Gateway: t.gateway,
	})
	// Routes that have series of their own.
	measured := quota.NewRoutes(g, t.in)
	// Routes of Gateways.
	t.route = route.New(g, t.in, route.Rooms{Backend: t.backend, Policy: t.policy, Host: t.host, Gateway: t.gateway, Quota: measured})
	// IngressRoutes.
	t.contour = contour.New(g, t.in, contour.Rooms{Certificates: t.certificates, Backend: t.backend, Policy: t.policy, VIP: t.vip, Host: t.host, Quota: measured})
	// Frontends of addresses.
	t.frontend = frontend.New(g, t.in, frontend.Rooms{
		Targets: t.targets, Policy: t.policy, Backend: t.backend, Pool: t.pool, Fleet: t.fleet, VIP: t.vip, Gateway: t.gateway, Listener: t.listener, Route: t.route,
	})
	// What all resources show.
	t.status = status.New(g, t.in, status.Rooms{
		Targets: t.targets, Certificates: t.certificates, Pool: t.pool, Fleet: t.fleet, Backend: t.backend, Policy: t.policy, VIP: t.vip, Host: t.host,
		Gateway: t.gateway, Listener: t.listener, Route: t.route, Contour: t.contour, Frontend: t.frontend,
	})

	g.Seal()
	return &Translator{config: c, graph: g, tables: t}
}

// full translates a whole snapshot.
func full(c input.Config, s *snapshot.Snapshot) *Translator {
	t := New(c)
	t.Apply(s, s.Keys())
	return t
}

// Apply brings the result up to the snapshot, in which the objects of the given
// keys were set, replaced or deleted since the last Apply, and returns what
// changed. Keys may repeat, and may name objects that did not change. Between two
// calls with the same Translator all other objects must have stayed the same.
func (t *Translator) Apply(s *snapshot.Snapshot, changed []snapshot.Key) Changes {
	for _, k := range changed {
		t.in.Changed(s, k)
	}
	t.graph.Run()
	return t.gather(lastRun)
}

// Pin keeps things in use: pinned groups, their sets, certificates and authorities stay in
// the result and follow their resources as long as these exist. A thing that several sets of pins
// name stays until the last of them is removed, with unpin. Both take effect with the next Apply.
func (t *Translator) Pin(p Pins) (unpin func()) { return t.in.Pin(p) }

// scope is the part of each table that a gathering takes.
type scope bool

const (
	everything scope = false // all entries
	lastRun    scope = true  // those that the last Run changed
)

// table is a Table or a Sum.
type table[K comparable, V any] interface {
	All() iter.Seq2[K, V]
	Changes() map[K]V
}

// entries takes the entries of one table.
func entries[K comparable, V any](s scope, of table[K, V]) map[K]V {
	if s == lastRun {
		return of.Changes()
	}
	return maps.Collect(of.All())
}

// gather takes the entries of all tables that make up a result.
func (t *Translator) gather(s scope) Changes {
	c := Changes{
		Listeners:    entries(s, t.listener.Listeners),
		VirtualHosts: map[model.HostKey]*model.VirtualHost{},
		Certificates: entries(s, t.certificates.UsedCertificate),
		Authorities:  entries(s, t.certificates.UsedAuthority),
		TLSHosts:     entries(s, t.host.TLSHosts),
		Groups:       entries(s, t.backend.Groups),
		Sets:         map[model.SetID]*model.BackendSet{},
		Views:        entries(s, t.listener.Views),
		Machines:     entries(s, t.fleet.Machine),
		Nodes:        entries(s, t.fleet.Nodes),
		Frontends:    entries(s, t.frontend.Frontends),
		Assignments:  entries(s, t.frontend.Assignments),
		VIPs:         entries(s, t.frontend.VIPs),
		Peers:        entries(s, t.fleet.Peers),
		Statuses:     map[model.Object]*status.Status{},
	}
	for k, h := range entries(s, t.host.Hosts) {
		c.VirtualHosts[k] = h.Host()
	}
	for k, set := range entries(s, t.backend.Sets) {
		c.Sets[k.ID()] = set
	}
	for _, statuses := range t.status.All {
		maps.Copy(c.Statuses, entries(s, statuses))
	}
	return c
}

// result is everything that stands.
func (t *Translator) result() Changes { return t.gather(everything) }

// Desired returns the whole result as it stands. It costs as much as the result is
// large.
func (t *Translator) Desired() render.Desired {
	r := t.result()
	d := render.Desired{
		MinTLS:       t.config.MinTLS,
		Listeners:    render.Values(r.Listeners, cmp.Compare),
		VirtualHosts: render.Values(r.VirtualHosts, model.HostKey.Compare),
		Certificates: render.Values(r.Certificates, cmp.Compare),
		Authorities:  render.Values(r.Authorities, cmp.Compare),
		TLSHosts:     render.Values(r.TLSHosts, model.HostKey.Compare),
		Groups:       render.Values(r.Groups, cmp.Compare),
		Sets:         render.Values(r.Sets, cmp.Compare),
		Views:        render.Values(r.Views, cmp.Compare),
		Machines:     render.Values(r.Machines, cmp.Compare),
		Nodes:        render.Values(r.Nodes, cmp.Compare),
		Frontends:    render.Values(r.Frontends, model.FrontendKey.Compare),
		Assignments:  render.Values(r.Assignments, netip.Addr.Compare),
	}
	for _, k := range slices.SortedFunc(maps.Keys(r.VIPs), model.VIPKey.Compare) {
		d.VIPs = append(d.VIPs, render.MachineVIP{Machine: k.Machine, VIP: r.VIPs[k]})
	}
	for _, k := range slices.SortedFunc(maps.Keys(r.Peers), model.PeerKey.Compare) {
		d.Peers = append(d.Peers, render.MachinePeer{Machine: k.Machine, Peer: r.Peers[k]})
	}
	for _, o := range slices.SortedFunc(maps.Keys(r.Statuses), model.Object.Compare) {
		d.Statuses = append(d.Statuses, render.ObjectStatus{Object: o, Status: r.Statuses[o]})
	}
	return d
}
