package vip

import (
	"cmp"
	"net/netip"
	"slices"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/translate/address"
	"fairlead.dev/internal/translate/condition"
	"fairlead.dev/internal/translate/field"
	"fairlead.dev/internal/translate/pool"
)

// Services with the same key share addresses: those of one namespace, and those of others
// that name it where the pool lets both namespaces share. Towards the pools they are one
// owner, so that an address never has two; which of them has a port of it is decided where
// frontends are made: the oldest, and those of the address's own namespace before guests.

// joinWants puts those together that share addresses. Who asks for other addresses, or for
// another pool, than somebody older has no part in it, and is told. What is asked for is
// said by Services of the namespace whose address it is: guests take what there is, and
// keep it when the last of those is gone.
func joinWants(wants memo.Parts[model.Object, *Want]) (all []*Want, refused map[model.Object]*Outcome) {
	groups := map[model.Object][]*Want{}
	for _, w := range wants.All() {
		if w.share == (model.Object{}) {
			all = append(all, w)
			continue
		}
		groups[w.share] = append(groups[w.share], w)
	}
	for group, sharers := range groups {
		slices.SortFunc(sharers, func(x, y *Want) int {
			if x.guest() != y.guest() {
				if x.guest() {
					return 1 // nobody takes a port of another namespace's VIP by being older
				}
				return -1
			}
			return cmp.Or(cmp.Compare(x.Created, y.Created), x.Owner.Compare(y.Owner))
		})
		joined := &Want{Owner: group, Idle: true}
		var asker [address.Families]model.Object
		var pooler model.Object
		for _, w := range sharers {
			problem := w.Request.problem
			if problem == "" && !w.guest() {
				problem = joined.differs(w, pooler, asker)
			}
			if problem != "" {
				if refused == nil {
					refused = map[model.Object]*Outcome{}
				}
				refused[w.Owner] = &Outcome{Pooled: true, Hold: &condition.Hold{Reason: gatewayv1.GatewayReasonAddressNotUsable, Message: condition.Limit(problem)}}
				continue
			}
			joined.sharers = append(joined.sharers, w)
			if w.guest() {
				continue
			}
			if joined.Idle {
				joined.Idle, joined.Created = false, w.Created
			}
			if w.Request.pool != "" {
				joined.Request.pool, pooler = w.Request.pool, w.Owner
			}
			for fam := range address.Families {
				if mine := w.Request.of(fam); len(mine) > 0 && len(joined.Request.of(fam)) == 0 {
					joined.Request.addresses, asker[fam] = append(joined.Request.addresses, mine[0]), w.Owner
				}
				joined.Needs[fam] = max(joined.Needs[fam], w.Needs[fam])
			}
		}
		slices.SortFunc(joined.Request.addresses, netip.Addr.Compare)
		if joined.Idle {
			joined.Needs = [address.Families]need{needOptional, needOptional} // what is recorded stays
		}
		if len(joined.sharers) > 0 {
			all = append(all, joined)
		}
	}
	return all, refused
}

// differs says in what a Service asks for something else than those before it, or nothing.
func (w *Want) differs(later *Want, pooler model.Object, asker [address.Families]model.Object) string {
	if later.Request.pool != "" && pooler != (model.Object{}) && later.Request.pool != w.Request.pool {
		return "metadata.annotations[" + v1alpha1.AnnotationPool + "]: " + "the older " + pooler.String() + ", which shares the address, names pool " + field.Quote(w.Request.pool)
	}
	for fam := range address.Families {
		mine, theirs := later.Request.of(fam), w.Request.of(fam)
		if len(mine) > 0 && len(theirs) > 0 && mine[0] != theirs[0] {
			return later.Request.addressPath(mine[0]) + "the older " + asker[fam].String() + ", which shares the address, requests " + theirs[0].String()
		}
	}
	return ""
}

// onlyGuests says of an owner that shares that no Service is left of the namespace whose
// address it is, and that none of the others may have one of the pool.
func (a *assigner) onlyGuests(p *poolBook, w *Want) bool {
	return len(w.sharers) > 0 && !slices.ContainsFunc(w.sharers, func(s *Want) bool { return !s.guest() || a.barred(p, s) == "" })
}

// barred says why a Service has no part in the VIPs of a pool that another namespace has;
// empty: it has.
func (a *assigner) barred(p *poolBook, guest *Want) string {
	host, own := guest.share.Namespace, guest.Owner.Namespace
	switch {
	case !a.keepsIn(p, own):
		return "is not for namespace " + own + ": spec.namespaces of the pool does not select it"
	case p.Sharing == nil:
		return "belongs to namespace " + host + ", and the pool lets no namespaces share: its spec.sharing.namespaces must select both"
	}
	for _, namespace := range []string{own, host} {
		if !pool.Matches(p.Sharing, a.labels(namespace)) {
			return "belongs to namespace " + host + ", and spec.sharing.namespaces of the pool does not select namespace " + namespace
		}
	}
	return ""
}

// sharersAt are those that have a part in an address of a pool, who comes first first.
func (a *assigner) sharersAt(pool string, w *Want) []model.Object {
	var list []model.Object
	for _, s := range w.sharers {
		if !s.guest() || a.byName[pool] != nil && a.barred(a.byName[pool], s) == "" && a.misses(w, s) == "" {
			list = append(list, s.Owner)
		}
	}
	return list
}

// misses says what a guest asks for that the VIPs are not, or nothing.
func (a *assigner) misses(w, guest *Want) string {
	for _, address := range guest.Request.addresses {
		if !slices.ContainsFunc(a.has[w.Owner], func(h held) bool { return h.address == address }) {
			return guest.Request.addressPath(address) + address.String() + " is not an address of " + w.Owner.Describe() + ": request none"
		}
	}
	if pool := guest.Request.pool; pool != "" && !slices.ContainsFunc(a.has[w.Owner], func(h held) bool { return h.pool == pool }) {
		return "metadata.annotations[" + v1alpha1.AnnotationPool + "]: " + w.Owner.Describe() + " have no address of AddressPool " + field.Quote(pool) + ": name none"
	}
	return ""
}

// outcomeOfGuest is what a Service shows that shares the addresses of another namespace.
func (a *assigner) outcomeOfGuest(w, guest *Want) *Outcome {
	var problems condition.Result[gatewayv1.GatewayConditionReason]
	missed := a.misses(w, guest)
	if missed != "" {
		problems.Fail(gatewayv1.GatewayReasonAddressNotUsable, missed)
	}
	for _, h := range a.has[w.Owner] {
		if why := a.barred(a.byName[h.pool], guest); why != "" {
			problems.Fail(gatewayv1.GatewayReasonAddressNotUsable, h.address.String()+" of AddressPool "+h.pool+" "+why)
		}
	}
	switch key, _ := w.Owner.ShareKey(); {
	case len(a.has[w.Owner]) == 0 && w.Idle:
		problems.Fail(gatewayv1.GatewayReasonAddressNotAssigned, "no Service of namespace "+w.Owner.Namespace+" has an address with "+
			v1alpha1.AnnotationShareVIP+": "+key)
	case len(a.has[w.Owner]) == 0:
		problems.Fail(gatewayv1.GatewayReasonAddressNotAssigned, w.Owner.Describe()+" have no address")
	default:
		for fam := range address.Families {
			if guest.Needs[fam] == needRequired && len(guest.Request.addresses) == 0 &&
				!slices.ContainsFunc(a.has[w.Owner], func(h held) bool { return address.FamilyOf(h.address) == fam }) {
				problems.Fail(gatewayv1.GatewayReasonAddressNotAssigned, w.Owner.Describe()+" have no "+fam.String()+
					" address: a Service of namespace "+w.Owner.Namespace+" must want one, or spec.ipFamilies not ask for it")
			}
		}
	}
	o := a.outcomeOf(w.Owner, w.Owner, func(h held) bool { return missed == "" && a.barred(a.byName[h.pool], guest) == "" })
	if o == nil {
		o = &Outcome{}
	}
	o.Pooled = true
	if o.Hold != nil {
		problems.Fail(o.Hold.Reason, o.Hold.Message)
	}
	if problems.Failed {
		o.Hold = &condition.Hold{Reason: problems.Reason, Message: condition.Limit(problems.Message)}
	}
	return o
}
