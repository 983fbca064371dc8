package status

import (
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/address"
	"fairlead.dev/internal/translate/condition"
	"fairlead.dev/internal/translate/fleet"
)

// poolStatus writes a pool's whole status, the record of its assignments among it.
func (t *Tables) poolStatus(c *memo.Context, n snapshot.Name) (*Status, bool) {
	o := t.in.Pools.Get(c, n)
	out, pool := t.from.VIP.PoolOutcomes.Get(c, n.Name), t.from.Pool.Pools.Get(c, n.Name)
	status := &v1alpha1.AddressPoolStatus{Assigned: int32(len(out.Records))}
	var used [address.Families]uint64
	for _, rec := range out.Records {
		used[address.FamilyOf(rec.Address)]++
	}
	var free []string
	uses := []PoolUse{}
	for fam := range address.Families {
		if len(pool.Ranges[fam]) > 0 || used[fam] > 0 {
			uses = append(uses, PoolUse{Family: fam.String(), Used: used[fam], Free: out.Free[fam]})
		}
		if len(pool.Ranges[fam]) > 0 {
			free = append(free, address.FreeText(out.Free[fam])+" "+fam.String())
		}
	}
	status.Free = strings.Join(free, ", ")
	for _, rec := range out.Records {
		status.Assignments = append(status.Assignments, v1alpha1.Assignment{
			Address: rec.Address.String(), Kind: rec.Owner.Kind, Namespace: rec.Owner.Namespace, Name: rec.Owner.Name,
		})
	}
	reason, message := v1alpha1.ReasonAccepted, "the pool is accepted"
	if out.Accepted.Failed {
		reason, message = out.Accepted.Reason, out.Accepted.Message
		if len(out.Records) > 0 {
			message += "; addresses that the pool has assigned stay assigned"
		}
	}
	notes := slices.Clone(out.Notes)
	if selection := t.from.Fleet.Selections.Get(c, n.Name); selection != nil {
		if len(selection.Machines) == 0 {
			notes = append(notes, "no machine announces its addresses: it selects no Machine of role Edge")
		}
		notes = append(notes, fleet.AlsoHeld(out.Records, t.from.Fleet.Own.Get(c, memo.Unit{}), selection.Machines)...)
	}
	switch {
	case pool.Mode == model.AnnounceBGP && len(o.Spec.Interfaces) > 0:
		notes = append(notes, "spec.interfaces is not used: it is for announce: L2")
	case pool.Mode == model.AnnounceL2 && !reflect.DeepEqual(o.Spec.BGP, v1alpha1.PathAttributes{}):
		notes = append(notes, "spec.bgp is not used: it is for announce: BGP")
	}
	message = condition.WithNotes(message, notes)
	status.Conditions = []metav1.Condition{condition.New(v1alpha1.ConditionAccepted, !out.Accepted.Failed, reason, message, o.Generation)}
	return &Status{Generation: o.Generation, AddressPool: status, Pool: uses}, true
}
