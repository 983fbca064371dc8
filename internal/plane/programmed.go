package plane

import (
	"cmp"
	"maps"
	"slices"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/catalog"
	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/translate"
	"fairlead.dev/internal/xds"
)

// verdictState is how far an object is programmed into the machines concerned.
type verdictState uint8

const (
	// verdictNone: there is nothing to program.
	verdictNone verdictState = iota
	// verdictHold: it cannot be known yet; what stands written stays.
	verdictHold
	verdictPending
	verdictRefused
	verdictProgrammed
)

type verdict struct {
	State verdictState
	// Machines says that at least one machine is concerned, lost ones included.
	Machines bool
	// Lost says that a machine concerned is lost; the message names it.
	Lost bool
	// Behind says that a machine has still to follow, whatever the state: another one may have
	// refused what this one has not looked at.
	Behind  bool
	Reason  string // with verdictPending, when it is not that machines are behind
	Message string
	// Kernel: with verdictRefused, it is a machine's data plane that refuses, not its proxy.
	Kernel bool
	// Ports holds the verdict on each listener of an object that has several.
	Ports map[model.ListenerID]verdict
	// Sections is the same of listeners that no proxy serves.
	Sections map[gatewayv1.SectionName]verdict
}

// fault is a resource that a machine's proxy does not run as wanted.
type fault struct {
	refused bool // else it waits for a cluster
	message string
}

// standing is one machine as the loop last saw it.
type standing struct {
	name     string
	views    string // as a text
	cordoned bool
	lost     bool
	// silent says that the machine has joined and not reported ever: nobody counts on
	// it yet.
	silent bool
	// unheard says that the machine has not reported since this plane began to lead,
	// and may still do so.
	unheard bool
	// unproxied says that the machine runs no proxy on purpose: it serves no listener.
	unproxied bool
	applied   delta.Revision
	// wanted is the last revision that concerned the machine: what changed later, but
	// came out the same, needs no answer of it.
	wanted    delta.Revision
	hosts     map[model.HostKey]fault
	shards    map[shardKey]fault
	groups    map[model.GroupID]fault
	secrets   map[string]fault
	listeners map[model.ListenerID]fault
}

type shardKey struct {
	listener model.ListenerID
	shard    int
}

// concern is what of a standing decides which machines count.
func (s *standing) concern() [3]any {
	return [3]any{s.views, [5]bool{s.cordoned, s.lost, s.silent, s.unheard, s.unproxied}, s.name}
}

// target is what one object needs at the machines.
type target struct {
	object    model.Object
	hosts     []model.HostKey
	listeners []model.ListenerID
	frontends []model.FrontendKey
	sections  map[gatewayv1.SectionName][]model.FrontendKey
	hold      *translate.Hold
	verdict   verdict
}

// tracker compares what objects need with what machines have.
type tracker struct {
	catalog *catalog.Catalog
	targets map[model.Object]*target
	byHost  map[model.HostKey]map[model.Object]bool
	byPort  map[model.ListenerID]map[model.Object]bool
	// byFrontend are the objects that need a frontend without a proxy.
	byFrontend map[model.FrontendKey]map[model.Object]bool
	hostAt     map[model.HostKey]delta.Revision // when it last changed
	portAt     map[model.ListenerID]delta.Revision
	unfitAt    map[catalog.Key]delta.Revision // since when it cannot be sent
	machines   map[string]*standing
	unsettled  map[model.Object]bool
	// serving says that a machine is to serve a listener, and with which revision that began.
	serving func(machine string, id model.ListenerID) (bool, delta.Revision)
	// frozen is the reason why the change of an object that needs these hosts and listeners is held back.
	frozen func(o model.Object, hosts []model.HostKey, listeners []model.ListenerID) string
	// balanced is the verdict on frontends.
	balanced func([]model.FrontendKey) verdict
}

func newTracker(c *catalog.Catalog) *tracker {
	return &tracker{
		catalog:    c,
		targets:    map[model.Object]*target{},
		byHost:     map[model.HostKey]map[model.Object]bool{},
		byPort:     map[model.ListenerID]map[model.Object]bool{},
		byFrontend: map[model.FrontendKey]map[model.Object]bool{},
		hostAt:     map[model.HostKey]delta.Revision{},
		portAt:     map[model.ListenerID]delta.Revision{},
		unfitAt:    map[catalog.Key]delta.Revision{},
		machines:   map[string]*standing{},
		unsettled:  map[model.Object]bool{},
		serving:    func(string, model.ListenerID) (bool, delta.Revision) { return false, delta.Revision{} },
		frozen:     func(model.Object, []model.HostKey, []model.ListenerID) string { return "" },
		balanced:   func([]model.FrontendKey) verdict { return verdict{} },
	}
}

// changed notes at which revision things changed, after the catalog took them in, and
// returns the objects concerned. Backends that come and go do not count: a route is
// programmed when its virtual host and its clusters are.
func (t *tracker) changed(rev delta.Revision, ch translate.Changes) map[model.Object]bool {
	stale := map[model.Object]bool{}
	t.noteFit(stale)
	t.noteUnfit(rev, stale)
	host := func(k model.HostKey) {
		t.hostAt[k] = rev
		maps.Copy(stale, t.byHost[k])
	}
	for k, h := range ch.VirtualHosts {
		host(k)
		if h == nil && len(t.byHost[k]) == 0 {
			delete(t.hostAt, k)
		}
	}
	for g, group := range ch.Groups {
		if group != nil {
			for k := range t.catalog.Users(g) {
				host(k)
			}
		}
	}
	for k, h := range ch.TLSHosts {
		host(k)
		if h == nil && len(t.byHost[k]) == 0 {
			delete(t.hostAt, k)
		}
		t.portAt[k.Listener] = rev
		if h != nil {
			stale[h.Owner] = true
		}
	}
	for id := range ch.Listeners {
		t.portAt[id] = rev
		maps.Copy(stale, t.byPort[id])
	}
	if len(ch.Views) > 0 {
		for o := range t.targets {
			stale[o] = true
		}
	}
	for o, s := range ch.Statuses {
		t.setTarget(o, s)
		stale[o] = true
	}
	return stale
}

func (t *tracker) setTarget(o model.Object, s *translate.Status) {
	if old := t.targets[o]; old != nil {
		for _, k := range old.hosts {
			unindex(t.byHost, k, o)
		}
		for _, id := range old.listeners {
			unindex(t.byPort, id, o)
		}
		for _, k := range old.frontends {
			unindex(t.byFrontend, k, o)
		}
	}
	if s == nil {
		delete(t.targets, o)
		delete(t.unsettled, o)
		return
	}
	n := &target{object: o, hosts: s.Hosts, listeners: slices.Clone(s.Listeners), frontends: s.Frontends, sections: s.SectionFrontends, hold: s.Hold}
	for _, k := range s.Hosts {
		if !slices.Contains(n.listeners, k.Listener) {
			n.listeners = append(n.listeners, k.Listener)
		}
		index(t.byHost, k, o)
	}
	for _, id := range n.listeners {
		index(t.byPort, id, o)
	}
	for _, k := range n.frontends {
		index(t.byFrontend, k, o)
	}
	t.targets[o] = n
}

func index[K comparable](m map[K]map[model.Object]bool, k K, o model.Object) {
	if m[k] == nil {
		m[k] = map[model.Object]bool{}
	}
	m[k][o] = true
}

func unindex[K comparable](m map[K]map[model.Object]bool, k K, o model.Object) {
	delete(m[k], o)
	if len(m[k]) == 0 {
		delete(m, k)
	}
}

// restart says that everything is published anew at rev: nothing that machines
// applied before counts any more.
func (t *tracker) restart(rev delta.Revision) {
	for k := range t.hostAt {
		t.hostAt[k] = rev
	}
	for id := range t.portAt {
		t.portAt[id] = rev
	}
}

func (t *tracker) all() map[model.Object]bool {
	stale := make(map[model.Object]bool, len(t.targets))
	for o := range t.targets {
		stale[o] = true
	}
	return stale
}

// machine notes what a machine is now, nil for one that is gone, and returns the
// objects whose verdict may have changed by it.
func (t *tracker) machine(name string, now *standing) map[model.Object]bool {
	before := t.machines[name]
	if now == nil {
		delete(t.machines, name)
	} else {
		t.machines[name] = now
	}
	switch {
	case before == nil && now == nil:
		return nil
	case before == nil || now == nil || before.concern() != now.concern():
		return t.all()
	}
	stale := map[model.Object]bool{}
	if before.applied != now.applied {
		maps.Copy(stale, t.unsettled)
	}
	for _, k := range differing(before.hosts, now.hosts) {
		maps.Copy(stale, t.byHost[k])
	}
	for _, k := range differing(before.shards, now.shards) {
		for host := range t.catalog.HostsIn(k.listener, k.shard) {
			maps.Copy(stale, t.byHost[host])
		}
	}
	for _, g := range differing(before.groups, now.groups) {
		for k := range t.catalog.Users(g) {
			maps.Copy(stale, t.byHost[k])
		}
	}
	for _, name := range differing(before.secrets, now.secrets) {
		for k := range t.catalog.HostsWith(name) {
			maps.Copy(stale, t.byHost[k])
		}
	}
	for _, id := range differing(before.listeners, now.listeners) {
		maps.Copy(stale, t.byPort[id])
	}
	return stale
}

func differing[K comparable](a, b map[K]fault) []K {
	var out []K
	for k, f := range a {
		if b[k] != f {
			out = append(out, k)
		}
	}
	for k := range b {
		if _, ok := a[k]; !ok {
			out = append(out, k)
		}
	}
	return out
}

// judge computes the object's verdict anew.
func (t *tracker) judge(o model.Object) verdict {
	n := t.targets[o]
	if n == nil {
		return verdict{}
	}
	n.verdict = t.verdict(n)
	if len(n.hosts) == 0 && len(n.listeners) > 0 && len(n.listeners)+len(n.sections) > 1 {
		n.verdict.Ports = map[model.ListenerID]verdict{}
		for _, id := range n.listeners {
			n.verdict.Ports[id] = t.verdict(&target{object: o, listeners: []model.ListenerID{id}})
		}
	}
	if len(n.sections) > 0 {
		n.verdict.Sections = map[gatewayv1.SectionName]verdict{}
		for name, keys := range n.sections {
			n.verdict.Sections[name] = t.balanced(keys)
		}
	}
	if s := n.verdict.State; s == verdictPending || s == verdictHold || n.verdict.Behind {
		t.unsettled[o] = true
	} else {
		delete(t.unsettled, o)
	}
	return n.verdict
}

// verdict is the worse one of what proxies serve and of what data planes balance.
func (t *tracker) verdict(n *target) verdict {
	if len(n.frontends) == 0 {
		if n.hold != nil && len(n.listeners) == 0 {
			return verdict{State: verdictPending, Reason: string(n.hold.Reason), Message: n.hold.Message}
		}
		return t.served(n)
	}
	balanced := t.balanced(n.frontends)
	if n.hold != nil {
		balanced.State, balanced.Reason, balanced.Message = verdictPending, string(n.hold.Reason), n.hold.Message
	}
	if len(n.listeners) == 0 {
		return balanced
	}
	return worse(t.served(n), balanced)
}

// served is the verdict on hosts and listeners of proxies.
func (t *tracker) served(n *target) verdict {
	if len(n.listeners) == 0 {
		return verdict{State: verdictNone}
	}
	var needed delta.Revision
	for _, k := range n.hosts {
		if r := t.hostAt[k]; r.Compare(needed) > 0 {
			needed = r
		}
	}
	for _, id := range n.listeners {
		if r := t.portAt[id]; r.Compare(needed) > 0 {
			needed = r
		}
	}
	var cordoned, proxyless, lost, silent, waiting, unheard, refused []string
	acked := 0
	for _, m := range t.machines {
		serves, since := t.serves(m, n)
		if !serves {
			continue
		}
		switch f, faulty := t.fault(m, n); {
		case m.cordoned:
			cordoned = append(cordoned, m.name)
		case m.unproxied:
			proxyless = append(proxyless, m.name)
		case m.silent:
			silent = append(silent, m.name)
		case m.lost:
			lost = append(lost, m.name)
		case m.unheard:
			unheard = append(unheard, m.name)
		case (m.applied.Compare(needed) < 0 || m.applied.Compare(since) < 0) && m.applied != m.wanted:
			waiting = append(waiting, m.name)
		case faulty && f.refused:
			refused = append(refused, m.name+": "+f.message)
		case faulty:
			waiting = append(waiting, m.name+" ("+f.message+")")
		default:
			acked++
		}
	}
	v := verdict{Lost: len(lost) > 0, Behind: len(waiting) > 0, Machines: acked+len(lost)+len(silent)+len(waiting)+len(unheard)+len(refused) > 0}
	held, frozen := t.held(n), t.frozen(n.object, n.hosts, n.listeners)
	switch {
	case n.hold != nil:
		v.State, v.Reason, v.Message = verdictPending, string(n.hold.Reason), n.hold.Message
		return v
	case frozen != "":
		v.State, v.Reason, v.Message = verdictPending, ReasonFrozen, frozen
		return v
	case held != "":
		v.State, v.Message = verdictPending, held
	case len(refused) > 0:
		v.State, v.Message = verdictRefused, model.List(refused, "; ")
	case len(unheard) > 0:
		v.State, v.Message = verdictHold, "waiting for the first report of "+model.List(unheard, ", ")
	case len(waiting) > 0:
		v.State, v.Message = verdictPending, "waiting for "+model.List(waiting, ", ")
	case acked+len(lost) == 0 && len(silent) > 0:
		v.State, v.Message = verdictPending, "waiting for the first report of "+model.List(silent, ", ")
	case acked+len(lost) == 0:
		v.State, v.Message = verdictPending, "no machine serves this"+exempt(cordoned, proxyless)
	case acked == 0:
		v.State, v.Message = verdictPending, "no machine that serves this is connected"+exempt(cordoned, proxyless)
	default:
		v.State, v.Message = verdictProgrammed, "every machine concerned runs it"
	}
	if len(lost) > 0 && v.State != verdictHold {
		v.Message += "; lost: " + model.List(lost, ", ")
	}
	return v
}

// exempt names the machines that are not asked for what nobody else serves.
func exempt(cordoned, proxyless []string) string {
	text := ""
	if len(cordoned) > 0 {
		text += "; cordoned: " + model.List(cordoned, ", ")
	}
	if len(proxyless) > 0 {
		text += "; without a proxy (--envoy none): " + model.List(proxyless, ", ")
	}
	return text
}

// serves says whether the machine is to serve one of the target's listeners, and since when all of those.
func (t *tracker) serves(m *standing, n *target) (is bool, since delta.Revision) {
	for _, id := range n.listeners {
		serves, rev := t.serving(m.name, id)
		if is = is || serves; rev.Compare(since) > 0 {
			since = rev
		}
	}
	return is, since
}

// fault finds the worst of what the machine does not run of the target.
func (t *tracker) fault(m *standing, n *target) (fault, bool) {
	if len(m.hosts)+len(m.shards)+len(m.groups)+len(m.secrets)+len(m.listeners) == 0 {
		return fault{}, false
	}
	var found []fault
	note := func(f fault, ok bool) {
		if ok {
			found = append(found, f)
		}
	}
	for _, id := range n.listeners {
		f, ok := m.listeners[id]
		note(f, ok)
	}
	for _, k := range n.hosts {
		f, ok := m.hosts[k]
		note(f, ok)
		shard := xds.Shard(k.Listener, k.Host)
		f, ok = m.shards[shardKey{k.Listener, shard}]
		note(f, ok)
		for _, name := range t.catalog.SecretsOf(k) {
			f, ok := m.secrets[name]
			note(f, ok)
		}
		if len(m.groups) == 0 {
			continue
		}
		if h := t.catalog.VirtualHost(k); h != nil {
			for _, g := range h.Groups() {
				f, ok := m.groups[g]
				note(f, ok)
			}
		}
	}
	if len(found) == 0 {
		return fault{}, false
	}
	return slices.MinFunc(found, func(a, b fault) int {
		if a.refused != b.refused {
			if a.refused {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.message, b.message)
	}), true
}
