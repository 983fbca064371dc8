package catalog

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/health"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/translate"
	"fairlead.dev/internal/xds"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// modelWorld is a whole translation result, changed at random.
type modelWorld struct {
	rng       *rand.Rand
	listeners map[model.ListenerID]*model.Listener
	hosts     map[model.HostKey]*model.VirtualHost
	groups    map[model.GroupID]*model.BackendGroup
	sets      map[model.SetID]*model.BackendSet
	views     map[model.ViewID]*model.View
}

func (w *modelWorld) step() translate.Changes {
	ch := translate.Changes{
		Listeners: map[model.ListenerID]*model.Listener{}, VirtualHosts: map[model.HostKey]*model.VirtualHost{},
		Groups: map[model.GroupID]*model.BackendGroup{}, Sets: map[model.SetID]*model.BackendSet{}, Views: map[model.ViewID]*model.View{},
	}
	for range 1 + w.rng.IntN(4) {
		switch w.rng.IntN(6) {
		case 0:
			id := model.ListenerID(fmt.Sprintf("http-%d", 80+w.rng.IntN(2)))
			alter(w.rng, w.listeners, ch.Listeners, id, &model.Listener{ID: id, Port: uint16(80 + w.rng.IntN(2)), Protocol: model.ProtocolHTTP})
		case 1:
			id := model.ViewID(fmt.Sprintf("view-%d", w.rng.IntN(2)))
			v := &model.View{ID: id}
			for i := range 2 {
				if w.rng.IntN(2) == 0 {
					v.Listeners = append(v.Listeners, model.ListenerID(fmt.Sprintf("http-%d", 80+i)))
				}
			}
			alter(w.rng, w.views, ch.Views, id, v)
		case 2:
			set := w.set()
			alter(w.rng, w.sets, ch.Sets, set, &model.BackendSet{ID: set, Backends: []model.Backend{
				{Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(w.rng.IntN(3))}), 80)},
			}})
		case 3:
			id := w.group()
			alter(w.rng, w.groups, ch.Groups, id, &model.BackendGroup{ID: id, Set: w.set(), Balance: []model.Balance{"", model.BalanceRandom}[w.rng.IntN(2)]})
		default:
			k := model.HostKey{
				Listener: model.ListenerID(fmt.Sprintf("http-%d", 80+w.rng.IntN(2))),
				Host:     []string{"a.example", "b.example", "*.example", "*"}[w.rng.IntN(4)],
			}
			h := &model.VirtualHost{HostKey: k}
			for i := range w.rng.IntN(3) {
				forward := &model.Forward{}
				for range 1 + w.rng.IntN(2) {
					g := w.group()
					if w.rng.IntN(5) == 0 {
						g = ""
					}
					forward.Backends = append(forward.Backends, model.WeightedGroup{Group: g, Weight: 1})
				}
				h.Routes = append(h.Routes, model.Route{Name: fmt.Sprint(i), Forward: forward})
			}
			alter(w.rng, w.hosts, ch.VirtualHosts, k, h)
		}
	}
	return ch
}

func (w *modelWorld) group() model.GroupID { return model.GroupID(fmt.Sprintf("g%d", w.rng.IntN(3))) }
func (w *modelWorld) set() model.SetID     { return model.SetID(fmt.Sprintf("s%d", w.rng.IntN(2))) }

// alter sets a key, or removes it one time in four.
func alter[K comparable, V any](rng *rand.Rand, all, changes map[K]*V, k K, v *V) {
	if rng.IntN(4) == 0 {
		v = nil
		delete(all, k)
	} else {
		all[k] = v
	}
	changes[k] = v
}

// resources are what a view must hold, by the definition and not by differences.
func (w *modelWorld) resources(t *testing.T, id model.ViewID) map[string]string {
	out := map[string]string{}
	add := func(typ delta.Type, name string, r delta.Resource, err error) {
		if err != nil {
			t.Fatal(err)
		}
		out[string(typ)+" "+name] = r.Version
	}
	v := w.views[id]
	if v == nil {
		return out
	}
	used := map[model.GroupID]bool{}
	for _, l := range v.Listeners {
		shards := map[int][]model.VirtualHost{}
		for k, h := range w.hosts {
			if k.Listener == l {
				shards[xds.Shard(k.Listener, k.Host)] = append(shards[xds.Shard(k.Listener, k.Host)], *h)
				for _, g := range groupsOf(h) {
					used[g] = true
				}
			}
		}
		if w.listeners[l] == nil {
			continue
		}
		r, err := delta.NewResource(string(l), xds.Listener(*w.listeners[l], nil, xds.Options{}))
		add(agentv1.ListenerType, string(l), r, err)
		for _, scope := range xds.Scopes(l) {
			r, err := delta.NewResource(scope.GetName(), scope)
			add(agentv1.ScopeType, scope.GetName(), r, err)
		}
		for _, shard := range xds.AllShards(l) {
			name := xds.RouteConfigurationName(l, shard)
			r, err := delta.NewResource(name, xds.RouteConfiguration(l, shard, shards[shard]))
			add(agentv1.RouteType, name, r, err)
		}
	}
	for g := range used {
		group := w.groups[g]
		if group == nil {
			continue
		}
		r, err := delta.NewResource(string(g), xds.Cluster(*group))
		add(agentv1.ClusterType, string(g), r, err)
		set := model.BackendSet{ID: group.Set}
		if s := w.sets[group.Set]; s != nil {
			set = *s
		}
		name := xds.EndpointsName(*group)
		r, err = delta.NewResource(name, xds.LoadAssignment(*group, set, nil))
		add(agentv1.EndpointType, name, r, err)
	}
	return out
}

// Whatever changes in whatever order, what the catalog hands out adds up to what each
// view must hold.
func TestCatalogAddsUp(t *testing.T) {
	for seed := range uint64(5) {
		w := &modelWorld{
			rng:       rand.New(rand.NewPCG(seed, 1)),
			listeners: map[model.ListenerID]*model.Listener{}, hosts: map[model.HostKey]*model.VirtualHost{},
			groups: map[model.GroupID]*model.BackendGroup{}, sets: map[model.SetID]*model.BackendSet{}, views: map[model.ViewID]*model.View{},
		}
		c := New(Config{Health: health.New()})
		held := map[model.ViewID]map[string]string{}
		for step := range 60 {
			changes := c.Apply(w.step())
			for v, list := range changes {
				if held[v] == nil {
					held[v] = map[string]string{}
				}
				if !slices.IsSortedFunc(list, compareChanges) {
					t.Fatalf("seed %d, step %d: the changes are not in order", seed, step)
				}
				for _, change := range list {
					key := string(change.Type) + " " + change.Name
					if change.Resource == nil {
						delete(held[v], key)
					} else {
						held[v][key] = change.Resource.Version
					}
				}
			}
			for _, v := range []model.ViewID{"view-0", "view-1"} {
				want := w.resources(t, v)
				if !maps.Equal(held[v], want) {
					t.Fatalf("seed %d, step %d: %s holds %d resources, want %d; differing: %v", seed, step, v, len(held[v]), len(want), difference(held[v], want))
				}
			}
		}
		// Nothing is left of what is gone.
		end := translate.Changes{
			Listeners: map[model.ListenerID]*model.Listener{}, VirtualHosts: map[model.HostKey]*model.VirtualHost{},
			Groups: map[model.GroupID]*model.BackendGroup{}, Sets: map[model.SetID]*model.BackendSet{}, Views: map[model.ViewID]*model.View{},
		}
		for id := range c.listeners {
			end.Listeners[id] = nil
		}
		for k := range w.hosts {
			end.VirtualHosts[k] = nil
		}
		for id := range c.groups {
			end.Groups[id] = nil
		}
		for id := range c.sets {
			end.Sets[id] = nil
		}
		for id := range c.views {
			end.Views[id] = nil
		}
		c.Apply(end)
		if n := len(c.listeners) + len(c.groups) + len(c.sets) + len(c.views); n != 0 {
			t.Errorf("seed %d: %d listeners, %d groups, %d sets and %d views are left", seed, len(c.listeners), len(c.groups), len(c.sets), len(c.views))
		}
	}
}

func difference(got, want map[string]string) []string {
	var out []string
	for k, v := range want {
		if got[k] != v {
			out = append(out, "- "+k)
		}
	}
	for k := range got {
		if _, ok := want[k]; !ok {
			out = append(out, "+ "+k)
		}
	}
	slices.Sort(out)
	return out[:min(len(out), 10)]
}

// One backend more among many is one load assignment for each group of its set; one
// host is one route configuration.
func TestCatalogTouchesWhatChanged(t *testing.T) {
	const hosts = 3000
	c := New(Config{Health: health.New()})
	ch := translate.Changes{
		Listeners:    map[model.ListenerID]*model.Listener{"http-80": {ID: "http-80", Port: 80, Protocol: model.ProtocolHTTP}},
		VirtualHosts: map[model.HostKey]*model.VirtualHost{},
		Groups:       map[model.GroupID]*model.BackendGroup{},
		Sets:         map[model.SetID]*model.BackendSet{},
		Views:        map[model.ViewID]*model.View{"all": {ID: "all", Listeners: []model.ListenerID{"http-80"}}},
	}
	for i := range hosts {
		g := model.GroupID(fmt.Sprintf("g%d", i))
		ch.Groups[g] = &model.BackendGroup{ID: g, Set: model.SetID(g)}
		ch.Sets[model.SetID(g)] = &model.BackendSet{ID: model.SetID(g)}
		k := model.HostKey{Listener: "http-80", Host: fmt.Sprintf("h%d.example", i)}
		ch.VirtualHosts[k] = hostTo(k, g)
	}
	all := c.Apply(ch)
	if want := 1 + 2*(xds.Shards("http-80")+1) + 2*hosts; len(all["all"]) != want {
		t.Errorf("%d resources, want %d", len(all["all"]), want)
	}
	for name, one := range map[string]translate.Changes{
		"set":  {Sets: map[model.SetID]*model.BackendSet{"g7": {ID: "g7", Backends: []model.Backend{{Address: netip.MustParseAddrPort("10.0.0.1:80")}}}}},
		"host": {VirtualHosts: map[model.HostKey]*model.VirtualHost{{Listener: "http-80", Host: "h7.example"}: hostTo(model.HostKey{Listener: "http-80", Host: "h7.example"}, "g7")}},
	} {
		if got := c.Apply(one); len(got["all"]) != 1 {
			t.Errorf("one %s touched %d resources", name, len(got["all"]))
		}
	}
}

func hostTo(k model.HostKey, g model.GroupID) *model.VirtualHost {
	return &model.VirtualHost{HostKey: k, Routes: []model.Route{{Name: "r", Forward: &model.Forward{Backends: []model.WeightedGroup{{Group: g, Weight: 1}}}}}}
}
