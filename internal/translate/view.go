package translate

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// A machine sees the listeners of its views: those that VIPs of its pools lead to, and the
// shared ones at the machines' own addresses while somebody has no other.

func viewNode(id model.ViewID) node { return node{kind: nodeView, a: string(id)} }

// viewsOf are the views of a machine, sorted; none where it has backends only.
func (t *Translator) viewsOf(o *v1alpha1.Machine) []model.ViewID {
	if o.Spec.Role == v1alpha1.RoleBackend {
		return nil
	}
	views := []model.ViewID{model.SharedView}
	for pool := range t.poolsAt[o.Name] {
		views = append(views, model.PoolView(pool.Name))
	}
	slices.Sort(views)
	return views
}

// noteSelection takes in which machines a pool selects, and tells those that come or go.
func (t *Translator) noteSelection(pool string, before, after *selectionFact) {
	was, is := before.all(), after.all()
	for _, m := range was {
		if _, stays := slices.BinarySearch(is, m); !stays {
			drop(t.poolsAt, m, snapshot.Name{Name: pool})
			t.graph.mark(node{kind: nodeMachine, a: m})
		}
	}
	for _, m := range is {
		if _, stood := slices.BinarySearch(was, m); !stood {
			put(t.poolsAt, m, snapshot.Name{Name: pool})
			t.graph.mark(node{kind: nodeMachine, a: m})
		}
	}
}

func (s *selectionFact) all() []string {
	if s == nil {
		return nil
	}
	return s.machines
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
			}
		}
	}
	t.leadsTo = leadsTo
	t.graph.mark(viewNode(model.SharedView)) // who has an address
}

// seek replaces which shared listeners somebody asks for, and whose address leads there: of
// nobody where it is the zero value.
func (t *Translator) seek(before, after []model.ListenerID, was, is model.Object) {
	count := func(ids []model.ListenerID, by model.Object, change int) {
		for _, id := range ids {
			if id.Own() {
				continue
			}
			if t.seekers[id] == nil {
				t.seekers[id] = map[model.Object]int{}
			}
			n := t.seekers[id][by]
			t.seekers[id][by] = n + change
			if n == 0 || n+change == 0 {
				t.graph.mark(viewNode(model.SharedView))
			}
			if n+change == 0 {
				delete(t.seekers[id], by)
			}
			if len(t.seekers[id]) == 0 {
				delete(t.seekers, id)
			}
		}
	}
	count(after, is, 1) // first, so that who stays is no news
	count(before, was, -1)
}

// addressed reports whether an owner has an address that some machine has, too.
func (r reader) addressed(owner model.Object) bool {
	out := r.outcome(owner)
	return out != nil && slices.ContainsFunc(out.addresses, func(a netip.Addr) bool {
		return len(r.selection(r.t.grants[a].pool).all()) > 0 // noteGrants tells of other grants
	})
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
func (t *Translator) computeView(r reader, n node) {
	view := &model.View{ID: model.ViewID(n.a)}
	add := func(id model.ListenerID) {
		if t.result.Listeners[id] != nil {
			view.Listeners = append(view.Listeners, id)
		}
	}
	if view.ID == model.SharedView {
		for id, owners := range t.seekers {
			// In their order: what is read must follow from what there is.
			for _, owner := range slices.SortedFunc(maps.Keys(owners), model.Object.Compare) {
				if owner == (model.Object{}) || !r.addressed(owner) {
					add(id)
					break
				}
			}
		}
	} else {
		for id := range t.leadsTo[strings.TrimPrefix(n.a, string(model.PoolView("")))] {
			add(id)
		}
	}
	slices.Sort(view.Listeners)
	if len(view.Listeners) == 0 && view.ID != model.SharedView {
		view = nil
	}
	publish(t.result.Views, t.out.Views, model.ViewID(n.a), view)
}
