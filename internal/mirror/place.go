package mirror

import (
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// place makes the objects of a service, or says why there are none.
func (m *Mirror) place(u *upstream, e *service, from *model.UpstreamService) {
	before := e.objects
	u.uncount(e)
	e.from, e.objects, e.endpoints, e.refusal = from, nil, 0, nil
	e.refused = slices.Clone(from.Refused)
	delete(u.limited, e.key)
	delete(u.short, e.key)
	e.placed = true
	m.locate(u, e, Namespace(&u.object.Spec, from.Key.Scope, from.ScopeName))
	name, refusal := m.mayBe(u, e)
	if refusal != nil {
		refusal.Object = from.Object
		e.refusal = refusal
	}
	if e.name != name {
		m.freeName(u, e)
		if e.name = name; name.Name != "" {
			m.owners[name] = owner{u.name, e.key}
			m.markMirrored(name)
		}
	}
	if refusal == nil {
		for _, o := range m.objects(u, e) {
			k := keyOfObject(o)
			e.objects = append(e.objects, k)
			if at := m.wanted[k]; at != nil && has(at, o) && has(o, at) {
				continue // the same
			}
			m.wanted[k] = o
			m.dirty[k] = true
		}
		u.count(e)
	}
	for _, k := range before {
		if !slices.Contains(e.objects, k) {
			delete(m.wanted, k)
			m.dirty[k] = true
		}
	}
}

// unplace takes the objects of a service away.
func (m *Mirror) unplace(u *upstream, e *service) {
	for _, k := range e.objects {
		delete(m.wanted, k)
		m.dirty[k] = true
	}
	u.uncount(e)
	e.objects, e.endpoints = nil, 0
	m.freeName(u, e)
}

func (m *Mirror) freeName(u *upstream, e *service) {
	if m.owners[e.name] == (owner{u.name, e.key}) {
		delete(m.owners, e.name)
		m.markMirrored(e.name)
	}
	e.name = snapshot.Name{}
}

// count adds a service to those in effect.
func (u *upstream) count(e *service) {
	e.counted = true
	u.nServices++
	u.endpoints += e.endpoints
}

// uncount takes a service out of those in effect, if it is one of them.
func (u *upstream) uncount(e *service) {
	if e.counted {
		e.counted = false
		u.nServices--
		u.endpoints -= e.endpoints
	}
}

// mayBe finds the name of a service, or says why it cannot be here.
func (m *Mirror) mayBe(u *upstream, e *service) (snapshot.Name, *model.UpstreamRefusal) {
	refuse := func(reason model.RefusalReason, message string) (snapshot.Name, *model.UpstreamRefusal) {
		return snapshot.Name{}, &model.UpstreamRefusal{Reason: reason, Message: message}
	}
	exists, known := m.namespaces[e.namespace]
	switch {
	case !Selects(&u.object.Spec, e.key.Scope, e.from.ScopeName):
		return refuse(model.RefusedUnselected, "spec.namespaces does not select it")
	case len(validation.IsDNS1123Label(e.namespace)) > 0:
		return refuse(model.RefusedNamespace, "no namespace can have the name "+e.namespace+": give it another one in spec.namespaces.map")
	case !known:
		return refuse(model.RefusedNamespace, "namespace "+e.namespace+" does not exist: create it, or map another one in spec.namespaces.map")
	case !exists:
		return refuse(model.RefusedNamespace, "namespace "+e.namespace+" is being deleted")
	case len(e.from.Ports) == 0 && len(e.refused) > 0:
		r := e.refused[0]
		e.refused = e.refused[1:]
		return refuse(r.Reason, r.Message)
	case len(e.from.Ports) == 0:
		return refuse(model.RefusedNoPorts, "it has no port")
	case u.nServices >= limitOf(u.object.Spec.Limits.Services, defaultServices):
		u.limited[e.key] = true
		return refuse(model.RefusedLimit, "the upstream has more services than spec.limits.services")
	}
	return m.choose(u, e)
}

// The defaults of spec.limits, where the API has not set them.
const (
	defaultServices  = 10000
	defaultEndpoints = 100000
)

func limitOf(limit int32, standard int) int {
	if limit == 0 {
		return standard
	}
	return int(limit)
}

// retryLimited places again what was beyond the limits, while there is room.
func (m *Mirror) retryLimited(u *upstream) {
	retry := func(which map[model.UpstreamKey]bool, isRoom func() bool) {
		if len(which) == 0 || !isRoom() {
			return
		}
		for _, k := range sortedKeys(which) {
			if !isRoom() {
				return
			}
			m.place(u, u.services[k], u.services[k].from)
		}
	}
	retry(u.short, func() bool { return u.endpoints < limitOf(u.object.Spec.Limits.Endpoints, defaultEndpoints) })
	retry(u.limited, func() bool { return u.nServices < limitOf(u.object.Spec.Limits.Services, defaultServices) })
}

// accepted are the endpoints of a slice that may be here. It notes those that may not.
func (u *upstream) accepted(e *service, s *model.UpstreamSlice) []model.UpstreamEndpoint {
	room := limitOf(u.object.Spec.Limits.Endpoints, defaultEndpoints) - u.endpoints - e.endpoints
	var in []model.UpstreamEndpoint
	outside, beyond := 0, 0
	var first netip.Addr
	for _, p := range s.Endpoints {
		switch a := p.Address.Unmap(); {
		case !isUsable(a) || !u.allows(a):
			if outside++; outside == 1 {
				first = a
			}
		case len(in) >= room:
			beyond++
		default:
			p.Address = a
			in = append(in, p)
		}
	}
	if outside > 0 {
		e.refused = append(e.refused, model.UpstreamRefusal{
			Object: e.from.Object, Reason: model.RefusedAddress,
			Message: number(outside, "endpoint is", "endpoints are") + " outside of spec.addresses, or of no machine, the first of them " + first.String(),
		})
	}
	if beyond > 0 {
		u.short[e.key] = true
		e.refused = append(e.refused, model.UpstreamRefusal{
			Object: e.from.Object, Reason: model.RefusedLimit,
			Message: number(beyond, "endpoint is", "endpoints are") + " beyond spec.limits.endpoints",
		})
	}
	e.endpoints += len(in)
	return in
}

// isUsable says whether an address can be one of an EndpointSlice (Kubernetes, ValidateEndpointIP).
func isUsable(a netip.Addr) bool {
	return a.IsValid() && a.Zone() == "" && !a.IsUnspecified() && !a.IsLoopback() && !a.IsLinkLocalUnicast() && !a.IsMulticast() &&
		a != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

func (u *upstream) allows(a netip.Addr) bool {
	if len(u.object.Spec.Addresses) == 0 {
		return true
	}
	return slices.ContainsFunc(u.object.Spec.Addresses, func(s string) bool {
		p, err := netip.ParsePrefix(s)
		return err == nil && p.Contains(a)
	})
}
