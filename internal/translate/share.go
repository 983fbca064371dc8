package translate

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
)

// Services with the same key share addresses: those of one namespace, and those of others
// that name it where the pool lets both namespaces share. Towards the pools they are one
// owner, so that an address never has two; which of them has a port of it is decided where
// frontends are made: the oldest, and those of the address's own namespace before guests.

// readShare reads the key with which a Service shares addresses, KEY or NAMESPACE/KEY.
func (w *want) readShare(annotations map[string]string) {
	text, said := annotations[v1alpha1.AnnotationShareVIP]
	if !said {
		return
	}
	namespace, key, foreign := strings.Cut(text, "/")
	if !foreign {
		namespace, key = w.owner.Namespace, text
	}
	if !isLabel(namespace) || !isLabel(key) {
		w.needs, w.request = [families]need{}, request{pool: w.request.pool, problem: "metadata.annotations[" + v1alpha1.AnnotationShareVIP + "]: " +
			quote(text) + " must be 1 to 63 lower-case letters, digits and inner hyphens, and so the namespace before it, as in team/key, where the VIP is another namespace's"}
		return
	}
	w.share = model.SharingServices(namespace, key)
}

// guest says that the Service shares addresses that are another namespace's.
func (w *want) guest() bool { return w.share.Namespace != w.owner.Namespace }

// joinWants puts those together that share addresses. Who asks for other addresses, or for
// another pool, than somebody older has no part in it, and is told. What is asked for is
// said by Services of the namespace whose address it is: guests take what there is, and
// keep it when the last of those is gone.
func joinWants(wants memo.Parts[model.Object, *want]) (all []*want, refused map[model.Object]*outcome) {
	groups := map[model.Object][]*want{}
	for _, w := range wants.All() {
		if w.share == (model.Object{}) {
			all = append(all, w)
			continue
		}
		groups[w.share] = append(groups[w.share], w)
	}
	for group, sharers := range groups {
		slices.SortFunc(sharers, func(x, y *want) int {
			if x.guest() != y.guest() {
				if x.guest() {
					return 1 // nobody takes a port of another namespace's VIP by being older
				}
				return -1
			}
			return cmp.Or(cmp.Compare(x.created, y.created), x.owner.Compare(y.owner))
		})
		joined := &want{owner: group, idle: true}
		var asker [families]model.Object
		var pooler model.Object
		for _, w := range sharers {
			problem := w.request.problem
			if problem == "" && !w.guest() {
				problem = joined.differs(w, pooler, asker)
			}
			if problem != "" {
				if refused == nil {
					refused = map[model.Object]*outcome{}
				}
				refused[w.owner] = &outcome{pooled: true, hold: &Hold{Reason: gatewayv1.GatewayReasonAddressNotUsable, Message: limit(problem)}}
				continue
			}
			joined.sharers = append(joined.sharers, w)
			if w.guest() {
				continue
			}
			if joined.idle {
				joined.idle, joined.created = false, w.created
			}
			if w.request.pool != "" {
				joined.request.pool, pooler = w.request.pool, w.owner
			}
			for fam := range families {
				if mine := w.request.of(fam); len(mine) > 0 && len(joined.request.of(fam)) == 0 {
					joined.request.addresses, asker[fam] = append(joined.request.addresses, mine[0]), w.owner
				}
				joined.needs[fam] = max(joined.needs[fam], w.needs[fam])
			}
		}
		slices.SortFunc(joined.request.addresses, netip.Addr.Compare)
		if joined.idle {
			joined.needs = [families]need{needOptional, needOptional} // what is recorded stays
		}
		if len(joined.sharers) > 0 {
			all = append(all, joined)
		}
	}
	return all, refused
}

// differs says in what a Service asks for something else than those before it, or nothing.
func (w *want) differs(later *want, pooler model.Object, asker [families]model.Object) string {
	if later.request.pool != "" && pooler != (model.Object{}) && later.request.pool != w.request.pool {
		return "metadata.annotations[" + v1alpha1.AnnotationPool + "]: " + pooler.String() + ", which came first and shares the address, names pool " + quote(w.request.pool)
	}
	for fam := range families {
		mine, theirs := later.request.of(fam), w.request.of(fam)
		if len(mine) > 0 && len(theirs) > 0 && mine[0] != theirs[0] {
			return later.request.addressPath(mine[0]) + asker[fam].String() + ", which came first and shares the address, asks for " + theirs[0].String()
		}
	}
	return ""
}

// onlyGuests says of an owner that shares that no Service is left of the namespace whose
// address it is, and that none of the others may have one of the pool.
func (a *assigner) onlyGuests(p *poolBook, w *want) bool {
	return len(w.sharers) > 0 && !slices.ContainsFunc(w.sharers, func(s *want) bool { return !s.guest() || a.barred(p, s) == "" })
}

// barred says why a Service has no part in the VIPs of a pool that another namespace has;
// empty: it has.
func (a *assigner) barred(p *poolBook, guest *want) string {
	host, own := guest.share.Namespace, guest.owner.Namespace
	switch {
	case !a.keepsIn(p, own):
		return "is not for namespace " + own + ": spec.namespaces of the pool does not select it"
	case p.sharing == nil:
		return "belongs to namespace " + host + ", and the pool lets no namespaces share: its spec.sharing.namespaces must select both"
	}
	for _, namespace := range []string{own, host} {
		if !matches(p.sharing, a.labels(namespace)) {
			return "belongs to namespace " + host + ", and spec.sharing.namespaces of the pool does not select namespace " + namespace
		}
	}
	return ""
}

// sharersAt are those that have a part in an address of a pool, who comes first first.
func (a *assigner) sharersAt(pool string, w *want) []model.Object {
	var list []model.Object
	for _, s := range w.sharers {
		if !s.guest() || a.byName[pool] != nil && a.barred(a.byName[pool], s) == "" && a.misses(w, s) == "" {
			list = append(list, s.owner)
		}
	}
	return list
}

// misses says what a guest asks for that the VIPs are not, or nothing.
func (a *assigner) misses(w, guest *want) string {
	for _, address := range guest.request.addresses {
		if !slices.ContainsFunc(a.has[w.owner], func(h held) bool { return h.address == address }) {
			return guest.request.addressPath(address) + address.String() + " is no address of " + w.owner.Words() + ": ask for none"
		}
	}
	if pool := guest.request.pool; pool != "" && !slices.ContainsFunc(a.has[w.owner], func(h held) bool { return h.pool == pool }) {
		return "metadata.annotations[" + v1alpha1.AnnotationPool + "]: " + w.owner.Words() + " have no address of AddressPool " + quote(pool) + ": name none"
	}
	return ""
}

// outcomeOfGuest is what a Service shows that shares the addresses of another namespace.
func (a *assigner) outcomeOfGuest(w, guest *want) *outcome {
	var problems verdict[gatewayv1.GatewayConditionReason]
	missed := a.misses(w, guest)
	if missed != "" {
		problems.fail(gatewayv1.GatewayReasonAddressNotUsable, missed)
	}
	for _, h := range a.has[w.owner] {
		if why := a.barred(a.byName[h.pool], guest); why != "" {
			problems.fail(gatewayv1.GatewayReasonAddressNotUsable, h.address.String()+" of AddressPool "+h.pool+" "+why)
		}
	}
	switch key, _ := w.owner.ShareKey(); {
	case len(a.has[w.owner]) == 0 && w.idle:
		problems.fail(gatewayv1.GatewayReasonAddressNotAssigned, "no Service of namespace "+w.owner.Namespace+" has an address with "+
			v1alpha1.AnnotationShareVIP+": "+key)
	case len(a.has[w.owner]) == 0:
		problems.fail(gatewayv1.GatewayReasonAddressNotAssigned, w.owner.Words()+" have no address")
	default:
		for fam := range families {
			if guest.needs[fam] == needRequired && len(guest.request.addresses) == 0 &&
				!slices.ContainsFunc(a.has[w.owner], func(h held) bool { return familyOf(h.address) == fam }) {
				problems.fail(gatewayv1.GatewayReasonAddressNotAssigned, w.owner.Words()+" have no "+fam.String()+
					" address: a Service of namespace "+w.owner.Namespace+" must want one, or spec.ipFamilies not ask for it")
			}
		}
	}
	o := a.outcomeOf(w.owner, w.owner, func(h held) bool { return missed == "" && a.barred(a.byName[h.pool], guest) == "" })
	if o == nil {
		o = &outcome{}
	}
	o.pooled = true
	if o.hold != nil {
		problems.fail(o.hold.Reason, o.hold.Message)
	}
	if problems.failed {
		o.hold = &Hold{Reason: problems.reason, Message: limit(problems.message)}
	}
	return o
}
