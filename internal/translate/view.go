package translate

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// A machine sees the listeners that VIPs of its pools lead to, and what all edges share at their own
// addresses unless a pool has chosen it: spec.machines is set, and takes it, whether or not maxMachines does.

func viewNode(id model.ViewID) node { return node{kind: nodeView, a: string(id)} }

// viewsOf are the views of a machine, sorted; none where it has backends only.
func (t *Translator) viewsOf(o *v1alpha1.Machine) []model.ViewID {
	if o.Spec.Role == v1alpha1.RoleBackend {
		return nil
	}
	var views []model.ViewID
	for pool := range t.selectedBy[o.Name] {
		views = append(views, model.PoolView(pool.Name))
	}
	if !t.isChosen(o.Name) {
		views = append(views, model.SharedView)
	}
	slices.Sort(views)
	return views
}

// isChosen says that a pool has chosen a machine, and does not take all.
func (t *Translator) isChosen(machine string) bool { return len(t.chosenBy[machine]) > 0 }

// hasShared says that a machine has listeners that edges share at their own addresses: of some of them at
// least, where a pool has chosen it.
func (t *Translator) hasShared(machine string) bool {
	if !t.isChosen(machine) {
		return true
	}
	for pool := range t.selectedBy[machine] {
		for id := range t.leadsTo[pool.Name] {
			if !id.Own() {
				return true
			}
		}
	}
	return false
}

// noteSelection takes in which machines a pool selects and has chosen, and tells those of which that changes.
func (t *Translator) noteSelection(pool string, before, after *selectionFact) {
	move := func(by map[string]nameSet, was, is []string) {
		for _, m := range was {
			if _, stays := slices.BinarySearch(is, m); !stays {
				drop(by, m, snapshot.Name{Name: pool})
				t.markMachine(m)
			}
		}
		for _, m := range is {
			if _, stood := slices.BinarySearch(was, m); !stood {
				put(by, m, snapshot.Name{Name: pool})
				t.markMachine(m)
			}
		}
	}
	none := &selectionFact{}
	before, after = cmp.Or(before, none), cmp.Or(after, none)
	move(t.selectedBy, before.machines, after.machines)
	move(t.chosenBy, before.chosen, after.chosen)
}

func (t *Translator) markMachine(name string) {
	t.graph.mark(node{kind: nodeMachine, a: name})
	t.graph.mark(node{kind: nodeAddresses})
}

// noteGrants takes in where the VIPs of pools lead.
func (t *Translator) noteGrants(grants map[netip.Addr]grant) {
	leadsTo := map[string]map[model.ListenerID]struct{}{}
	for _, g := range grants {
		for _, id := range g.listeners {
			if leadsTo[g.pool] == nil {
				leadsTo[g.pool] = map[model.ListenerID]struct{}{}
			}
			leadsTo[g.pool][id] = struct{}{}
		}
	}
	for _, pools := range []map[string]map[model.ListenerID]struct{}{t.leadsTo, leadsTo} {
		for pool := range pools {
			if !maps.Equal(t.leadsTo[pool], leadsTo[pool]) {
				t.graph.mark(viewNode(model.PoolView(pool)))
				t.graph.mark(node{kind: nodeAddresses})
			}
		}
	}
	t.leadsTo = leadsTo
}

// markViewsOf tells the views that may have a listener that it came or went.
func (t *Translator) markViewsOf(id model.ListenerID) {
	if !id.Own() {
		t.graph.mark(viewNode(model.SharedView))
	}
	for pool, ids := range t.leadsTo {
		if _, leads := ids[id]; leads {
			t.graph.mark(viewNode(model.PoolView(pool)))
		}
	}
}

// computeView lists a view's listeners. That of a pool is there while it has any.
func (t *Translator) computeView(n node) {
	view := &model.View{ID: model.ViewID(n.a)}
	if view.ID == model.SharedView {
		for id := range t.result.Listeners {
			if !id.Own() {
				view.Listeners = append(view.Listeners, id)
			}
		}
	} else {
		for id := range t.leadsTo[strings.TrimPrefix(n.a, string(model.PoolView("")))] {
			if t.result.Listeners[id] != nil {
				view.Listeners = append(view.Listeners, id)
			}
		}
	}
	slices.Sort(view.Listeners)
	if len(view.Listeners) == 0 && view.ID != model.SharedView {
		view = nil
	}
	publish(t.result.Views, t.out.Views, model.ViewID(n.a), view)
}
