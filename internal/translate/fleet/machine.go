package fleet

import (
	"slices"
	"time"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// defaultDrain is how long connections may finish where a Machine does not say.
const defaultDrain = 30 * time.Second

func (t *Tables) makeMachine(c *memo.Context, name string) (*model.Machine, bool) {
	o := t.in.Machines.Get(c, snapshot.Name{Name: name})
	if o == nil {
		return nil, false
	}
	drain := defaultDrain
	if o.Spec.DrainTime != nil {
		drain = min(max(o.Spec.DrainTime.Duration, 0), time.Hour)
	}
	machine := &model.Machine{
		Name: o.Name, HostsOnly: o.Spec.Role == v1alpha1.RoleBackend, Views: t.viewsOf(c, o), Cordoned: o.Spec.Cordoned, DrainSeconds: uint32(drain / time.Second),
	}
	// Two speakers with one id cannot have sessions with one router (RFC 6286).
	if id := parseRouterID(o.Spec.RouterID); id.IsValid() && t.keepers.Get(c, id) == o.Name {
		machine.RouterID = id
	}
	machine.Contested = t.contests(c, o)
	return machine, true
}

// viewsOf are the views of a machine, sorted; none where it has backends only.
func (t *Tables) viewsOf(c *memo.Context, o *v1alpha1.Machine) []model.ViewID {
	if o.Spec.Role == v1alpha1.RoleBackend {
		return nil
	}
	var views []model.ViewID
	for pool := range t.SelectedBy.Get(c, o.Name).All() {
		views = append(views, model.PoolView(pool))
	}
	if !t.IsChosen(c, o.Name) {
		views = append(views, model.SharedView)
	}
	slices.Sort(views)
	return views
}

// IsChosen says that a pool has chosen a machine, and does not take all.
func (t *Tables) IsChosen(c *memo.Context, machine string) bool {
	return t.ChosenBy.Get(c, machine).Len() > 0
}

// makeNode says where a machine takes in what comes through tunnels: of each family at the
// tunnel address that its spec says, else at the first that it reported, else at the first that its
// spec says; always one that it has.
func (t *Tables) makeNode(c *memo.Context, name string) (*model.Node, bool) {
	o := t.in.Machines.Get(c, snapshot.Name{Name: name})
	if o == nil {
		return nil, false
	}
	n := &model.Node{Name: o.Name}
	for _, text := range slices.Concat(o.Spec.TunnelAddresses, o.Status.Addresses, o.Spec.Addresses) {
		a, ok := machineAddress(text)
		if !ok || t.Holders.Get(c, a) != o.Name {
			continue
		}
		if a.Is4() && !n.Tunnel4.IsValid() {
			n.Tunnel4 = a
		}
		if a.Is6() && !n.Tunnel6.IsValid() {
			n.Tunnel6 = a
		}
	}
	return n, true
}
