package plane

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/southbound"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// neighbours are the machines that share a frontend: they are told of each other's tunnels.
type neighbours struct {
	groups  map[string]*machineGroup // by the names of its members
	of      map[string]map[string]bool
	held    map[string]map[string]bool // machine -> the nodes that it has
	sent    map[string]*delta.Resource // node -> as last published
	stale   map[string]bool            // nodes that may have changed
	changed map[string]bool            // machines whose groups changed
	// What was last known of each machine.
	decaps    map[string]bool
	delivered map[string]delta.Revision
	seen      map[string][]model.FrontendObserved
}

// machineGroup are machines that share count frontends.
type machineGroup struct {
	members []string
	count   int
}

func newNeighbours() neighbours {
	return neighbours{
		groups: map[string]*machineGroup{}, of: map[string]map[string]bool{}, held: map[string]map[string]bool{}, sent: map[string]*delta.Resource{},
		stale: map[string]bool{}, changed: map[string]bool{}, decaps: map[string]bool{}, delivered: map[string]delta.Revision{}, seen: map[string][]model.FrontendObserved{},
	}
}

// regroup moves a frontend from some machines to others.
func (a *neighbours) regroup(before, after []string) {
	if slices.Equal(before, after) {
		return
	}
	if name := strings.Join(before, " "); len(before) > 0 {
		if g := a.groups[name]; g.count > 1 {
			g.count--
		} else {
			delete(a.groups, name)
			for _, m := range before {
				delete(a.of[m], name)
				a.changed[m] = true
			}
		}
	}
	if name := strings.Join(after, " "); len(after) > 0 {
		if g := a.groups[name]; g != nil {
			g.count++
			return
		}
		a.groups[name] = &machineGroup{members: after, count: 1}
		for _, m := range after {
			if a.of[m] == nil {
				a.of[m] = map[string]bool{}
			}
			a.of[m][name] = true
			a.changed[m] = true
		}
	}
}

// tell adds to an update the nodes that machines are told anew. moved is called for a machine whose node
// changes for its neighbours.
func (a *neighbours) tell(update *southbound.Update, node func(name string) *agentv1.Node, moved func(name string)) error {
	var errs []error
	encode := func(name string) *delta.Resource {
		r, err := delta.NewResource(name, node(name))
		if err != nil {
			errs = append(errs, fmt.Errorf("machine %s: %w", name, err))
			return nil
		}
		return &r
	}
	add := func(machine, name string, r *delta.Resource) {
		update.Machine[machine] = append(update.Machine[machine], delta.Change{Type: agentv1.NodeType, Name: name, Resource: r})
	}
	for name := range a.stale {
		delete(a.stale, name)
		old := a.sent[name]
		if old == nil {
			continue // nobody has it
		}
		r := encode(name)
		if r == nil || r.Version == old.Version {
			continue
		}
		a.sent[name] = r
		moved(name)
		for m, held := range a.held {
			if held[name] {
				add(m, name, r)
			}
		}
	}
	for m := range a.changed {
		delete(a.changed, m)
		wanted := map[string]bool{}
		for g := range a.of[m] {
			for _, name := range a.groups[g].members {
				wanted[name] = true
			}
		}
		for name := range a.held[m] {
			if !wanted[name] {
				add(m, name, nil)
			}
		}
		for name := range wanted {
			if a.held[m][name] {
				continue
			}
			if a.sent[name] == nil {
				a.sent[name] = encode(name)
			}
			if a.sent[name] != nil {
				add(m, name, a.sent[name])
			}
		}
		if len(wanted) == 0 {
			delete(a.held, m)
			delete(a.of, m)
			delete(a.sent, m) // nobody shares a frontend with it
		} else {
			a.held[m] = wanted
		}
	}
	return errors.Join(errs...)
}

// mark says that a machine's node may have changed.
func (a *neighbours) mark(name string) { a.stale[name] = true }

// setDecaps notes whether a machine takes packets out of tunnels.
func (a *neighbours) setDecaps(name string, is bool) {
	if a.decaps[name] != is {
		a.decaps[name] = is
		a.mark(name)
	}
}

// deliver notes the revision that a machine's agent has, and says whether it is another.
func (a *neighbours) deliver(name string, rev delta.Revision) bool {
	if a.delivered[name] == rev {
		return false
	}
	a.delivered[name] = rev
	return true
}

// forget forgets a machine that is gone.
func (a *neighbours) forget(name string) {
	delete(a.decaps, name)
	delete(a.delivered, name)
	delete(a.seen, name)
}

// observe replaces a machine's report of its frontends, and returns the frontends that it reports otherwise.
func (a *neighbours) observe(machine string, now []model.FrontendObserved) []model.FrontendKey {
	before := a.seen[machine]
	if slices.Equal(before, now) {
		return nil
	}
	if a.seen[machine] = now; now == nil {
		delete(a.seen, machine)
	}
	said := make(map[model.FrontendKey]model.FrontendObserved, len(before))
	for _, o := range before {
		said[o.FrontendKey] = o
	}
	var changed []model.FrontendKey
	for _, o := range now {
		if said[o.FrontendKey] != o {
			changed = append(changed, o.FrontendKey)
		}
		delete(said, o.FrontendKey)
	}
	for key := range said {
		changed = append(changed, key)
	}
	return changed
}
