package translate

import (
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

func poolObject(name string) model.Object {
	return model.Object{Kind: string(snapshot.KindAddressPool), Name: name}
}

// poolStatus writes a pool's whole status, the record of its assignments among it.
func (t *statusTables) poolStatus(c *memo.Context, n snapshot.Name) (*Status, bool) {
	o := t.in.pools.Get(c, n)
	out, f := t.vip.poolOutcomes.Get(c, n.Name), t.pool.pools.Get(c, n.Name)
	status := &v1alpha1.AddressPoolStatus{Assigned: int32(len(out.records))}
	var free []string
	for fam := range families {
		if len(f.ranges[fam]) > 0 {
			free = append(free, freeText(out.free[fam])+" "+fam.String())
		}
	}
	status.Free = strings.Join(free, ", ")
	for _, rec := range out.records {
		status.Assignments = append(status.Assignments, v1alpha1.Assignment{
			Address: rec.address.String(), Kind: rec.owner.Kind, Namespace: rec.owner.Namespace, Name: rec.owner.Name,
		})
	}
	reason, message := v1alpha1.ReasonAccepted, "the pool is accepted"
	if out.accepted.failed {
		reason, message = out.accepted.reason, out.accepted.message
		if len(out.records) > 0 {
			message += "; what the pool gave away stays"
		}
	}
	notes := slices.Clone(out.notes)
	if selection := t.fleet.selections.Get(c, n.Name); selection != nil {
		if len(selection.machines) == 0 {
			notes = append(notes, "no machine announces its addresses: it selects no Machine of role Edge")
		}
		notes = append(notes, alsoHeld(out.records, t.fleet.own.Get(c, memo.Unit{}), selection.machines)...)
	}
	switch {
	case f.mode == model.AnnounceBGP && len(o.Spec.Interfaces) > 0:
		notes = append(notes, "spec.interfaces is not used: it is for announce: L2")
	case f.mode == model.AnnounceL2 && !reflect.DeepEqual(o.Spec.BGP, v1alpha1.PathAttributes{}):
		notes = append(notes, "spec.bgp is not used: it is for announce: BGP")
	}
	message = withNotes(message, notes)
	status.Conditions = []metav1.Condition{condition(v1alpha1.ConditionAccepted, !out.accepted.failed, reason, message, o.Generation)}
	return &Status{Generation: o.Generation, AddressPool: status}, true
}
