package progress

import (
	"cmp"
	"maps"
	"slices"

	"fairlead.dev/internal/catalog"
	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/translate"
	"fairlead.dev/internal/xds"
)

// ReasonFrozen is why an object is not programmed whose change a Freeze holds back.
const ReasonFrozen = "Frozen"

// State is how far an object is programmed into the machines concerned.
type State uint8

const (
	// None says that there is nothing to program.
	None State = iota
	// Unknown says that it cannot be told yet; the status that is written stays.
	Unknown
	// Pending says that some machine has not applied it.
	Pending
	// Refused says that some machine refused it.
	Refused
	// Programmed says that every machine concerned runs it.
	Programmed
)

// Result is how far an object is, with the words for people.
type Result struct {
	State State
	// Machines says that at least one machine is concerned, lost ones included.
	Machines bool
	// Lost says that a machine concerned is lost; the message names it.
	Lost bool
	// Behind says that some machine has still to follow, whatever the state: another one may have refused it
	// already.
	Behind  bool
	Reason  string // of Pending, unless it is that machines are behind
	Message string
	// Kernel says that a machine's data plane refused, not its proxy.
	Kernel bool
	// Ports has the result of each listener of an object that has several.
	Ports map[model.ListenerID]Result
	// Sections is the same of listeners that no proxy serves.
	Sections map[string]Result
}

// worse is the result that matters of two; the message of the other is lost.
func worse(a, b Result) Result {
	rank := map[State]int{Refused: 4, Pending: 3, Unknown: 2, Programmed: 1, None: 0}
	out := a
	if rank[b.State] > rank[a.State] {
		out = b
	}
	out.Machines, out.Lost, out.Behind = a.Machines || b.Machines, a.Lost || b.Lost, a.Behind || b.Behind
	return out
}

// target is what one object needs at the machines.
type target struct {
	object    model.Object
	hosts     []model.HostKey
	listeners []model.ListenerID
	frontends []model.FrontendKey
	sections  map[string][]model.FrontendKey
	hold      *translate.Hold
	result    Result
}

// Tracker compares what objects need with what machines have.
type Tracker struct {
	catalog *catalog.Catalog
	targets map[model.Object]*target
	byHost  map[model.HostKey]map[model.Object]bool
	byPort  map[model.ListenerID]map[model.Object]bool
	// byFrontend are the objects that need a frontend without a proxy.
	byFrontend map[model.FrontendKey]map[model.Object]bool
	hostAt     map[model.HostKey]delta.Revision // when it last changed
	portAt     map[model.ListenerID]delta.Revision
	unfitAt    map[catalog.Key]delta.Revision // since when it cannot be sent
	machines   map[string]*Machine
	open       map[model.Object]bool // not programmed everywhere
	inputs     Inputs
}

// Inputs are asked when an object is judged. One that is nil says no to everything.
type Inputs struct {
	// Serving says that a machine is to serve a listener, and with which revision that began.
	Serving func(machine string, id model.ListenerID) (bool, delta.Revision)
	// Frozen is the reason why the change of an object that needs these hosts and listeners is held back;
	// empty: it is not.
	Frozen func(o model.Object, hosts []model.HostKey, listeners []model.ListenerID) string
	// Balanced is how far machines balance frontends.
	Balanced func([]model.FrontendKey) Result
}

// New is a tracker of nothing. c must have applied changes before the tracker does.
func New(c *catalog.Catalog, in Inputs) *Tracker {
	if in.Serving == nil {
		in.Serving = func(string, model.ListenerID) (bool, delta.Revision) { return false, delta.Revision{} }
	}
	if in.Frozen == nil {
		in.Frozen = func(model.Object, []model.HostKey, []model.ListenerID) string { return "" }
	}
	if in.Balanced == nil {
		in.Balanced = func([]model.FrontendKey) Result { return Result{} }
	}
	return &Tracker{
		catalog:    c,
		targets:    map[model.Object]*target{},
		byHost:     map[model.HostKey]map[model.Object]bool{},
		byPort:     map[model.ListenerID]map[model.Object]bool{},
		byFrontend: map[model.FrontendKey]map[model.Object]bool{},
		hostAt:     map[model.HostKey]delta.Revision{},
		portAt:     map[model.ListenerID]delta.Revision{},
		unfitAt:    map[catalog.Key]delta.Revision{},
		machines:   map[string]*Machine{},
		open:       map[model.Object]bool{},
		inputs:     in,
	}
}

// Apply notes at which revision things changed, after the catalog applied the changes, and
// returns the objects concerned. Backends that come and go do not count: a route is
// programmed when its virtual host and its clusters are.
func (t *Tracker) Apply(rev delta.Revision, ch translate.Changes) map[model.Object]bool {
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

func (t *Tracker) setTarget(o model.Object, s *translate.Status) {
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
		delete(t.open, o)
		return
	}
	n := &target{object: o, hosts: s.Hosts, listeners: slices.Clone(s.Listeners), frontends: s.Frontends, hold: s.Hold}
	for name, keys := range s.SectionFrontends {
		if n.sections == nil {
			n.sections = map[string][]model.FrontendKey{}
		}
		n.sections[string(name)] = keys
	}
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

// Restart says that everything is published anew at rev: nothing that machines
// applied before counts any more.
func (t *Tracker) Restart(rev delta.Revision) {
	for k := range t.hostAt {
		t.hostAt[k] = rev
	}
	for id := range t.portAt {
		t.portAt[id] = rev
	}
}

// All are the objects that are tracked.
func (t *Tracker) All() map[model.Object]bool {
	stale := make(map[model.Object]bool, len(t.targets))
	for o := range t.targets {
		stale[o] = true
	}
	return stale
}

// SetMachine replaces the progress of a machine, nil for one that is gone, and returns the
// objects whose result may be another by it.
func (t *Tracker) SetMachine(name string, now *Machine) map[model.Object]bool {
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
		return t.All()
	}
	stale := map[model.Object]bool{}
	if before.Applied != now.Applied {
		maps.Copy(stale, t.open)
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

func differing[K comparable](a, b map[K]Fault) []K {
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

// Machine is the progress of a machine as it was set last; nil: none was.
func (t *Tracker) Machine(name string) *Machine { return t.machines[name] }

// SetWanted looks up again the last revision that concerned each machine.
func (t *Tracker) SetWanted(of func(machine string) delta.Revision) {
	for name, m := range t.machines {
		m.Wanted = of(name)
	}
}

// Unfinished are the objects that are not programmed everywhere. They must not be changed.
func (t *Tracker) Unfinished() map[model.Object]bool { return t.open }

// Needing are the objects that need a frontend without a proxy. They must not be changed.
func (t *Tracker) Needing(k model.FrontendKey) map[model.Object]bool { return t.byFrontend[k] }

// Last is the object's result as it was judged last.
func (t *Tracker) Last(o model.Object) Result {
	if n := t.targets[o]; n != nil {
		return n.result
	}
	return Result{}
}

// Judge judges anew how far an object is.
func (t *Tracker) Judge(o model.Object) Result {
	n := t.targets[o]
	if n == nil {
		return Result{}
	}
	n.result = t.result(n)
	if len(n.hosts) == 0 && len(n.listeners) > 0 && len(n.listeners)+len(n.sections) > 1 {
		n.result.Ports = map[model.ListenerID]Result{}
		for _, id := range n.listeners {
			n.result.Ports[id] = t.result(&target{object: o, listeners: []model.ListenerID{id}})
		}
	}
	if len(n.sections) > 0 {
		n.result.Sections = map[string]Result{}
		for name, keys := range n.sections {
			n.result.Sections[name] = t.inputs.Balanced(keys)
		}
	}
	if s := n.result.State; s == Pending || s == Unknown || n.result.Behind {
		t.open[o] = true
	} else {
		delete(t.open, o)
	}
	return n.result
}

// result is the worse one of what proxies serve and of what data planes balance.
func (t *Tracker) result(n *target) Result {
	if len(n.frontends) == 0 {
		if n.hold != nil && len(n.listeners) == 0 {
			return Result{State: Pending, Reason: string(n.hold.Reason), Message: n.hold.Message}
		}
		return t.served(n)
	}
	balanced := t.inputs.Balanced(n.frontends)
	if n.hold != nil {
		balanced.State, balanced.Reason, balanced.Message = Pending, string(n.hold.Reason), n.hold.Message
	}
	if len(n.listeners) == 0 {
		return balanced
	}
	return worse(t.served(n), balanced)
}

// served is how far proxies serve hosts and listeners.
func (t *Tracker) served(n *target) Result {
	if len(n.listeners) == 0 {
		return Result{State: None}
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
		case m.Cordoned:
			cordoned = append(cordoned, m.Name)
		case m.Unproxied:
			proxyless = append(proxyless, m.Name)
		case m.Silent:
			silent = append(silent, m.Name)
		case m.Lost:
			lost = append(lost, m.Name)
		case m.Unheard:
			unheard = append(unheard, m.Name)
		case (m.Applied.Compare(needed) < 0 || m.Applied.Compare(since) < 0) && m.Applied != m.Wanted:
			waiting = append(waiting, m.Name)
		case faulty && f.Refused:
			refused = append(refused, m.Name+": "+f.Message)
		case faulty:
			waiting = append(waiting, m.Name+" ("+f.Message+")")
		default:
			acked++
		}
	}
	v := Result{Lost: len(lost) > 0, Behind: len(waiting) > 0, Machines: acked+len(lost)+len(silent)+len(waiting)+len(unheard)+len(refused) > 0}
	held, frozen := t.held(n), t.inputs.Frozen(n.object, n.hosts, n.listeners)
	switch {
	case n.hold != nil:
		v.State, v.Reason, v.Message = Pending, string(n.hold.Reason), n.hold.Message
		return v
	case frozen != "":
		v.State, v.Reason, v.Message = Pending, ReasonFrozen, frozen
		return v
	case held != "":
		v.State, v.Message = Pending, held
	case len(refused) > 0:
		v.State, v.Message = Refused, model.List(refused, "; ")
	case len(unheard) > 0:
		v.State, v.Message = Unknown, "waiting for the first report of "+model.List(unheard, ", ")
	case len(waiting) > 0:
		v.State, v.Message = Pending, "waiting for "+model.List(waiting, ", ")
	case acked+len(lost) == 0 && len(silent) > 0:
		v.State, v.Message = Pending, "waiting for the first report of "+model.List(silent, ", ")
	case acked+len(lost) == 0:
		v.State, v.Message = Pending, "no machine serves this"+exempt(cordoned, proxyless)
	case acked == 0:
		v.State, v.Message = Pending, "no machine that serves this is connected"+exempt(cordoned, proxyless)
	default:
		v.State, v.Message = Programmed, "every machine concerned runs it"
	}
	if len(lost) > 0 && v.State != Unknown {
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
func (t *Tracker) serves(m *Machine, n *target) (is bool, since delta.Revision) {
	for _, id := range n.listeners {
		serves, rev := t.inputs.Serving(m.Name, id)
		if is = is || serves; rev.Compare(since) > 0 {
			since = rev
		}
	}
	return is, since
}

// fault finds the worst of what the machine does not run of the target.
func (t *Tracker) fault(m *Machine, n *target) (Fault, bool) {
	if len(m.hosts)+len(m.shards)+len(m.groups)+len(m.secrets)+len(m.listeners) == 0 {
		return Fault{}, false
	}
	var found []Fault
	note := func(f Fault, ok bool) {
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
		return Fault{}, false
	}
	return slices.MinFunc(found, func(a, b Fault) int {
		if a.Refused != b.Refused {
			if a.Refused {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Message, b.Message)
	}), true
}
