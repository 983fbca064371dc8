package placement

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/translate"
)

func published(n uint64) delta.Revision { return delta.Revision{Epoch: 1, Number: n} }

// placementRig is a placement with the listeners that there are, and what its machines are sent.
type placementRig struct {
	Placement
	now       time.Time
	listeners map[model.ListenerID]bool
	published map[model.ViewID][]model.ListenerID
	on        map[string]model.ViewID
	revision  uint64
	kept      map[ListenerAt]bool
	used      map[ListenerAt]bool
}

func newPlacementRig() *placementRig {
	return &placementRig{
		Placement: New(), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), listeners: map[model.ListenerID]bool{},
		published: map[model.ViewID][]model.ListenerID{}, on: map[string]model.ViewID{}, kept: map[ListenerAt]bool{}, used: map[ListenerAt]bool{},
	}
}

func (r *placementRig) send(ch translate.Changes, moved map[string]bool) {
	for id, v := range ch.Views {
		if v == nil {
			delete(r.published, id)
		} else {
			r.published[id] = v.Listeners
		}
	}
	for name := range moved {
		if m := r.machines[name]; m != nil {
			r.on[name] = m.on
		} else {
			delete(r.on, name)
		}
	}
}

func (r *placementRig) change(ch translate.Changes) {
	for id, l := range ch.Listeners {
		r.listeners[id] = l != nil
	}
	moved := r.Apply(&ch, r.now, func(id model.ListenerID) bool { return r.listeners[id] })
	r.send(ch, moved)
	r.revision++
	r.Published(moved, ch.Views, published(r.revision))
}

func (r *placementRig) wait(d time.Duration) {
	r.now = r.now.Add(d)
	var ch translate.Changes
	moved, _ := r.Expire(&ch, r.now, Uses{
		Kept: func() map[ListenerAt]bool { return r.kept }, Passed: func() map[ListenerAt]bool { return r.used },
	})
	r.send(ch, moved)
}

func (r *placementRig) expect(t *testing.T, when, machine string, want ...model.ListenerID) {
	t.Helper()
	if got := r.published[r.on[machine]]; !slices.Equal(got, want) {
		t.Errorf("%s: %s is sent %v, want %v", when, machine, got, want)
	}
}

func viewOfListeners(id model.ViewID, listeners ...model.ListenerID) map[model.ViewID]*model.View {
	return map[model.ViewID]*model.View{id: {ID: id, Listeners: listeners}}
}

func machineWith(name string, drain uint32, views ...model.ViewID) map[string]*model.Machine {
	return map[string]*model.Machine{name: {Name: name, DrainSeconds: drain, Views: views, HostsOnly: len(views) == 0}}
}

func allThere(ids ...model.ListenerID) map[model.ListenerID]*model.Listener {
	out := map[model.ListenerID]*model.Listener{}
	for _, id := range ids {
		out[id] = &model.Listener{ID: id}
	}
	return out
}

// A machine is sent the listeners of its views, and goes on with those that it had for its drain
// time, for as long as it keeps a VIP of theirs, and while others pass on connections to it.
func TestPlacement(t *testing.T) {
	r := newPlacementRig()
	r.change(translate.Changes{
		Listeners: allThere("http-80", "https-443_a_web", "https-443_b_web"), Views: viewOfListeners("shared", "http-80"),
		Machines: machineWith("edge-1", 30, "pool:a", "shared"),
	})
	r.change(translate.Changes{Machines: machineWith("edge-2", 30, "pool:b", "shared")})
	r.change(translate.Changes{Machines: machineWith("host", 30)})
	r.expect(t, "before there are VIPs", "edge-1", "http-80")
	r.change(translate.Changes{Views: viewOfListeners("pool:a", "https-443_a_web")})
	r.change(translate.Changes{Views: viewOfListeners("pool:b", "https-443_b_web")})
	r.expect(t, "each has its pool's", "edge-1", "http-80", "https-443_a_web")
	if _, since := r.Serves("edge-1", "https-443_a_web"); since != published(r.revision-1) {
		t.Errorf("a listener that came to a view is served since %s, want %d", since, r.revision-1)
	}
	r.expect(t, "each has its pool's", "edge-2", "http-80", "https-443_b_web")
	r.expect(t, "backends only", "host")

	r.change(translate.Changes{Machines: machineWith("edge-1", 30, "pool:b", "shared")})
	r.expect(t, "it has left the pool", "edge-1", "http-80", "https-443_a_web", "https-443_b_web")
	left, _ := r.Serves("edge-1", "https-443_a_web")
	came, since := r.Serves("edge-1", "https-443_b_web")
	if left || !came || since != published(r.revision) {
		t.Errorf("it serves what it has left: %t; it serves what it came to: %t, since %s", left, came, since)
	}
	r.kept[ListenerAt{"edge-1", "https-443_a_web"}] = true
	r.wait(29 * time.Second)
	r.wait(29 * time.Second)
	r.expect(t, "it keeps a VIP", "edge-1", "http-80", "https-443_a_web", "https-443_b_web")
	clear(r.kept)
	r.wait(29 * time.Second)
	r.expect(t, "it drains", "edge-1", "http-80", "https-443_a_web", "https-443_b_web")
	r.used[ListenerAt{"edge-1", "https-443_a_web"}] = true
	r.wait(time.Second)
	r.expect(t, "others pass on connections to it", "edge-1", "http-80", "https-443_a_web", "https-443_b_web")
	clear(r.used)
	r.wait(partAgain)
	r.expect(t, "it has drained", "edge-1", "http-80", "https-443_b_web")
	if r.on["edge-1"] != r.on["edge-2"] || len(r.published) != 2 {
		t.Errorf("machines with the same views are not together, or views that nobody is on stay: %v, %v", r.on, r.published)
	}

	r.change(translate.Changes{Views: viewOfListeners("shared")})
	r.expect(t, "what was shared is served elsewhere", "edge-1", "http-80", "https-443_b_web")
	r.change(translate.Changes{Views: viewOfListeners("shared", "http-80")})
	r.wait(time.Minute)
	r.expect(t, "and is shared again", "edge-1", "http-80", "https-443_b_web")
	r.change(translate.Changes{Views: viewOfListeners("shared")})
	r.now = r.now.Add(-time.Hour)
	r.wait(0)
	r.wait(30 * time.Second)
	r.expect(t, "the clock was set back", "edge-1", "https-443_b_web")

	r.change(translate.Changes{Machines: machineWith("edge-1", 30, "shared")})
	r.expect(t, "it has left the other pool", "edge-1", "https-443_b_web")
	r.change(translate.Changes{Listeners: map[model.ListenerID]*model.Listener{"https-443_b_web": nil}, Views: map[model.ViewID]*model.View{"pool:b": nil}})
	r.expect(t, "the listener is gone", "edge-1")
	r.change(translate.Changes{Listeners: allThere("https-443_b_web"), Views: viewOfListeners("pool:b", "https-443_b_web")})
	r.expect(t, "and comes again elsewhere", "edge-1")
	r.change(translate.Changes{Machines: machineWith("edge-2", 30)})
	r.expect(t, "it has backends only now", "edge-2")
	r.change(translate.Changes{Machines: map[string]*model.Machine{"edge-1": nil, "edge-2": nil, "host": nil}})
	if len(r.published)+len(r.on)+len(r.machines)+len(r.combined)+len(r.parting) != 0 {
		t.Errorf("something is left: %+v", r.Placement)
	}
}

// A state of a plane before this one, in which all machines had one view.
func TestPlacementOfAnOlderState(t *testing.T) {
	r := newPlacementRig()
	r.change(translate.Changes{Listeners: allThere("http-80"), Views: viewOfListeners("shared", "http-80"), Machines: machineWith("edge", 30, "shared")})
	r.change(translate.Changes{Machines: machineWith("host", 30)})
	older := viewOfListeners(everyListener, "http-80", "https-443")
	older["shared"] = nil
	r.change(translate.Changes{Listeners: allThere("https-443"), Views: older})
	r.expect(t, "an older state holds", "edge", "http-80", "https-443")
	r.expect(t, "an older state holds", "host")
}

// Whatever happens, each machine is sent what its views have and what is not over yet, machines
// are on one view only where they are sent the same, and no view stays without a machine.
func TestPlacementOfAnything(t *testing.T) {
	for seed := range uint64(200) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			r := newPlacementRig()
			ids := []model.ListenerID{"http-80", "https-443", "http-80_a_web", "https-443_b_web"}
			views := []model.ViewID{"shared", "pool:a", "pool:b"}
			lists := map[model.ViewID]map[model.ListenerID]bool{}
			machines := map[string]*model.Machine{}
			until := map[string]map[model.ListenerID]time.Time{}
			some := func(list []model.ListenerID) (chosen []model.ListenerID) {
				for _, id := range list {
					if random.IntN(2) == 0 {
						chosen = append(chosen, id)
					}
				}
				return chosen
			}
			has := func(name string) map[model.ListenerID]bool {
				all := map[model.ListenerID]bool{}
				if m := machines[name]; m != nil {
					for _, v := range m.Views {
						maps.Copy(all, lists[v])
					}
				}
				return all
			}
			for step := range 60 {
				before := map[string]map[model.ListenerID]bool{}
				for name := range machines {
					before[name] = has(name)
				}
				ch := translate.Changes{Listeners: map[model.ListenerID]*model.Listener{}, Views: map[model.ViewID]*model.View{}, Machines: map[string]*model.Machine{}}
				for range 1 + random.IntN(3) {
					switch random.IntN(4) {
					case 0:
						id := ids[random.IntN(len(ids))]
						ch.Listeners[id] = nil
						if random.IntN(4) > 0 {
							ch.Listeners[id] = &model.Listener{ID: id}
						}
					case 1:
						v := views[random.IntN(len(views))]
						ch.Views[v] = &model.View{ID: v, Listeners: some(ids)}
						lists[v] = map[model.ListenerID]bool{}
						for _, id := range ch.Views[v].Listeners {
							lists[v][id] = true
						}
					case 2:
						name := fmt.Sprintf("edge-%d", random.IntN(4))
						ch.Machines[name] = nil
						if random.IntN(4) > 0 {
							some := views[:random.IntN(len(views)+1)]
							ch.Machines[name] = &model.Machine{Name: name, DrainSeconds: uint32(name[len(name)-1] - '0'), Views: some, HostsOnly: len(some) == 0 && random.IntN(2) == 0}
						}
						machines[name] = ch.Machines[name]
					}
				}
				r.change(ch)
				for name, m := range machines {
					switch {
					case m == nil || m.HostsOnly:
						delete(until, name)
						continue
					case until[name] == nil:
						until[name] = map[model.ListenerID]time.Time{}
					}
					for id := range before[name] {
						if _, is := until[name][id]; !is {
							until[name][id] = r.now.Add(time.Duration(m.DrainSeconds) * time.Second)
						}
					}
					for id := range until[name] {
						if has(name)[id] || !r.listeners[id] {
							delete(until[name], id)
						}
					}
				}
				if random.IntN(2) == 0 {
					r.wait(time.Second)
					for name := range until {
						for id, end := range until[name] {
							if !r.now.Before(end) {
								delete(until[name], id)
							}
						}
					}
				}
				on := map[model.ViewID]bool{}
				for name, m := range machines {
					if m == nil {
						continue
					}
					want := has(name)
					for id := range until[name] {
						want[id] = true
					}
					on[r.on[name]] = true
					if got := r.published[r.on[name]]; !slices.Equal(got, slices.Sorted(maps.Keys(want))) {
						t.Fatalf("step %d: %s is sent %v, want %v", step, name, got, slices.Sorted(maps.Keys(want)))
					}
				}
				if len(on) != len(r.published) {
					t.Fatalf("step %d: %d views, of which machines are on %d", step, len(r.published), len(on))
				}
			}
		})
	}
}
