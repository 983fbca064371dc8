package translate

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// Services of one namespace with the same key share addresses. Towards the pools they are
// one owner, so that an address never has two; which of them has a port of it is decided
// where frontends are made: the oldest.

const sharePrefix = "share-vip="

// shareOwner is the owner that Services with a key are together. Names of Kubernetes have
// no "=".
func shareOwner(namespace, key string) model.Object {
	return model.Object{Kind: string(snapshot.KindService), Namespace: namespace, Name: sharePrefix + key}
}

// shareKey is the key of an owner that shareOwner made.
func shareKey(o model.Object) (key string, is bool) {
	if o.Kind != string(snapshot.KindService) {
		return "", false
	}
	return strings.CutPrefix(o.Name, sharePrefix)
}

// readShare reads the key with which a Service shares addresses.
func (w *want) readShare(annotations map[string]string) {
	key, said := annotations[v1alpha1.AnnotationShareVIP]
	switch {
	case !said:
	case !isLabel(key):
		w.needs, w.request = [families]need{}, request{pool: w.request.pool, problem: "metadata.annotations[" + v1alpha1.AnnotationShareVIP + "]: " +
			quote(key) + " must be 1 to 63 lower-case letters, digits and inner hyphens"}
	default:
		w.share = key
	}
}

// joinWants puts those together that share addresses. Who asks for other addresses, or for
// another pool, than somebody older has no part in it, and is told.
func joinWants(wants map[model.Object]*want) (all []*want, refused map[model.Object]*outcome) {
	groups := map[model.Object][]*want{}
	for _, w := range wants {
		if w.share == "" {
			all = append(all, w)
			continue
		}
		group := shareOwner(w.owner.Namespace, w.share)
		groups[group] = append(groups[group], w)
	}
	for group, members := range groups {
		slices.SortFunc(members, func(x, y *want) int {
			return cmp.Or(cmp.Compare(x.created, y.created), cmp.Compare(x.owner.Name, y.owner.Name))
		})
		joined := &want{owner: group, created: members[0].created}
		var asker [families]model.Object
		var pooler model.Object
		for _, w := range members {
			problem := w.request.problem
			if problem == "" && w.request.pool != "" && pooler != (model.Object{}) && w.request.pool != joined.request.pool {
				problem = "metadata.annotations[" + v1alpha1.AnnotationPool + "]: " + pooler.String() + ", which came first and shares the address, names pool " + quote(joined.request.pool)
			}
			for fam := range families {
				mine, theirs := w.request.of(fam), joined.request.of(fam)
				if problem == "" && len(mine) > 0 && len(theirs) > 0 && mine[0] != theirs[0] {
					problem = "metadata.annotations[" + v1alpha1.AnnotationAddresses + "]: " + asker[fam].String() + ", which came first and shares the address, asks for " + theirs[0].String()
				}
			}
			if problem != "" {
				if refused == nil {
					refused = map[model.Object]*outcome{}
				}
				refused[w.owner] = &outcome{pooled: true, hold: &Hold{Reason: gatewayv1.GatewayReasonAddressNotUsable, Message: limit(problem)}}
				continue
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
			joined.members = append(joined.members, w.owner)
		}
		slices.SortFunc(joined.request.addresses, netip.Addr.Compare)
		if len(joined.members) > 0 {
			all = append(all, joined)
		}
	}
	return all, refused
}

// takenPorts are the ports of a Service that another one has at an address that both share,
// in words.
func (r reader) takenPorts(service model.Object, f *balancedFact, addresses []netip.Addr) []string {
	var taken []string
	for _, a := range addresses {
		r.t.graph.read(r.by, frontendsNode(a))
		for _, p := range f.ports {
			k := model.FrontendKey{VIP: a, Transport: p.transport, Port: uint16(p.number)}
			if other := r.t.result.Frontends[k]; other != nil && other.Owner != service {
				taken = append(taken, k.String()+" is "+other.Owner.String()+"'s, which came first")
			}
		}
	}
	return taken
}
