package nft

import (
	"maps"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"fairlead.dev/internal/model"
)

// tableName of ours, in the family inet.
const tableName = "fairlead"

// layout is the name of an empty set that says how the table is laid out. A table of
// another layout is replaced.
const layout = "layout-1"

// The maps and sets that hold an element for each frontend or backend; each exists for
// both families.
const (
	mapChoose = "choose" // frontend -> its chain for new flows
	mapGuard  = "guard"  // frontend -> its chain that keeps clients out
	mapTouch  = "touch"  // frontend -> its chain that remembers clients
	mapAnswer = "answer" // frontend -> that sources are to be rewritten
	setSeen   = "seen"   // frontends: packets for them
	setFlows  = "flows"  // frontend and backend: flows that began
	setPacket = "packets"
)

var (
	verdictMaps = []string{mapChoose, mapGuard, mapTouch, mapAnswer}
	frontends   = []string{setSeen}
	pairs       = []string{setFlows, setPacket}
)

const chainMasquerade = "masquerade"

// element is one of a map or set, by the bytes of its key.
type element struct{ set, key string }

// objects are what the kernel has, or should have, of one frontend. Equal names mean equal
// contents.
type objects struct {
	chains, sets map[string]bool
	elements     map[element]string // to the chain of the verdict; empty for none
}

func newObjects() *objects {
	return &objects{chains: map[string]bool{}, sets: map[string]bool{}, elements: map[element]string{}}
}

func (o *objects) equal(p *objects) bool {
	return maps.Equal(o.chains, p.chains) && maps.Equal(o.sets, p.sets) && maps.Equal(o.elements, p.elements)
}

// backends that the elements say may have flows.
func (o *objects) backends(f *family) map[string]bool {
	found := map[string]bool{}
	for e := range o.elements {
		if e.set == setPacket+f.suffix {
			found[e.key] = true
		}
	}
	return found
}

// has says that the backend may have flows.
func (o *objects) has(c cutting) bool {
	_, there := o.elements[element{setPacket + familyOf(c.key.VIP).suffix, pairKey(c.key, c.backend)}]
	return there
}

// objects of a frontend.
func (s spec) objects() *objects {
	o, n, f := newObjects(), s.names(), familyOf(s.key.VIP)
	key := frontendKey(s.key)
	chain := func(in, name string) {
		o.chains[name] = true
		o.elements[element{in + f.suffix, key}] = name
	}
	chain(mapChoose, n.choose)
	if s.guarded {
		chain(mapGuard, n.guard)
	}
	if s.affinity > 0 && !s.local {
		chain(mapTouch, n.touch)
	}
	if !s.local {
		o.elements[element{mapAnswer + f.suffix, key}] = chainMasquerade
	}
	o.elements[element{setSeen + f.suffix, key}] = ""
	for _, b := range s.known {
		o.elements[element{setFlows + f.suffix, pairKey(s.key, b)}] = ""
		o.elements[element{setPacket + f.suffix, pairKey(s.key, b)}] = ""
	}
	for _, x := range s.sets(nil) {
		o.sets[x.Name] = true
	}
	return o
}

// owner is the id of the frontend that a chain or set of that name is for.
func owner(name string) (string, bool) {
	rest, ours := strings.CutPrefix(name, "f-")
	id, _, found := strings.Cut(rest, "-")
	return id, ours && found
}

// base are the objects that all frontends share.
func base(t *nftables.Table) ([]set, []*nftables.Chain, map[string][]exprs) {
	sets := []set{{Set: &nftables.Set{Table: t, Name: layout, KeyType: nftables.TypeInteger}}}
	for _, f := range both {
		for _, name := range verdictMaps {
			sets = append(sets, set{Set: &nftables.Set{Table: t, Name: name + f.suffix, IsMap: true, KeyType: f.frontend, DataType: nftables.TypeVerdict}})
		}
		for _, name := range frontends {
			sets = append(sets, set{Set: &nftables.Set{Table: t, Name: name + f.suffix, KeyType: f.frontend, Counter: true}})
		}
		for _, name := range pairs {
			sets = append(sets, set{Set: &nftables.Set{Table: t, Name: name + f.suffix, KeyType: f.pair, Counter: true}})
		}
	}
	hook := func(name string, kind nftables.ChainType, at *nftables.ChainHook, priority nftables.ChainPriority) *nftables.Chain {
		return &nftables.Chain{Table: t, Name: name, Type: kind, Hooknum: at, Priority: &priority}
	}
	chains := []*nftables.Chain{
		{Table: t, Name: chainMasquerade},
		hook("arrive", nftables.ChainTypeFilter, nftables.ChainHookPrerouting, *nftables.ChainPriorityMangle),
		hook("choose", nftables.ChainTypeNAT, nftables.ChainHookPrerouting, *nftables.ChainPriorityNATDest),
		hook("leave", nftables.ChainTypeFilter, nftables.ChainHookPrerouting, *nftables.ChainPriorityNATDest+10),
		hook("answer", nftables.ChainTypeNAT, nftables.ChainHookPostrouting, *nftables.ChainPriorityNATSource),
	}
	rules := map[string][]exprs{chainMasquerade: {{&expr.Masq{}}}}
	for _, f := range both {
		add := func(chain string, parts ...exprs) {
			rules[chain] = append(rules[chain], join(append([]exprs{f.is()}, parts...)...))
		}
		add("arrive", f.loadFrontend(), exprs{contains(setSeen+f.suffix, f.vip()), verdict(mapGuard+f.suffix, f.vip())})
		add("choose", f.loadFrontend(), exprs{verdict(mapChoose+f.suffix, f.vip())})
		add("leave", translated(), f.loadOriginal(), f.loadBackend(), exprs{contains(setPacket+f.suffix, f.vip()), verdict(mapTouch+f.suffix, f.vip())})
		add("answer", f.loadOriginal(), exprs{verdict(mapAnswer+f.suffix, f.vip())})
	}
	return sets, chains, rules
}

// change is how one frontend's objects are to become others.
type change struct {
	id       string
	key      model.FrontendKey
	from, to *objects
	spec     spec // of to
}

// missing and surplus are the names of what is in one only.
func missing(from, to map[string]bool) []string {
	var names []string
	for name := range to {
		if !from[name] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
