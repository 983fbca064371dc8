package vip

import (
	"net/netip"
	"slices"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/translate/condition"
)

// Outcome is what became of an owner's want.
type Outcome struct {
	// Addresses that are recorded and so may be used, sorted.
	Addresses []netip.Addr
	Hold      *condition.Hold
	// Pooled says that pools care for the owner, whether or not it has an address yet.
	Pooled bool
}

// outcomeOf is what an owner shows. Asking is who asked, owner who has the addresses:
// they differ for roots that share.
func (a *assigner) outcomeOf(asking, owner model.Object, mine func(held) bool) *Outcome {
	o := &Outcome{Pooled: a.pooled[asking]}
	told := a.told[asking]
	var problems condition.Result[gatewayv1.GatewayConditionReason]
	if told != nil {
		problems = *told
	}
	for _, h := range a.has[owner] {
		switch {
		case !mine(h):
		case h.kept:
			o.Addresses = append(o.Addresses, h.address)
			o.Pooled = true
		default:
			problems.Fail(gatewayv1.GatewayReasonAddressNotAssigned, h.address.String()+" of AddressPool "+h.pool+" is being recorded")
			o.Pooled = true
		}
	}
	slices.SortFunc(o.Addresses, netip.Addr.Compare)
	if problems.Failed {
		o.Hold = &condition.Hold{Reason: problems.Reason, Message: condition.Limit(problems.Message)}
	}
	if len(o.Addresses) == 0 && o.Hold == nil && !o.Pooled {
		return nil
	}
	return o
}
