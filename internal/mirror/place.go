package mirror

import (
	"slices"
	"strconv"

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
	m.locate(u, e, namespaceOf(&u.object.Spec, from.Key.Scope, from.ScopeName))
	name, refusal := m.admit(u, e)
	if refusal != nil {
		refusal.Object = from.Object
		e.refusal = refusal
	}
	if e.name != name {
		m.freeName(u, e)
		if e.name = name; name.Name != "" {
			m.owners[name] = owner{u.name, e.key}
			m.markCopies(name)
		}
	}
	kept := map[snapshot.Key]bool{} // there may be very many
	if refusal == nil {
		for _, o := range m.build(u, e) {
			k := keyOfObject(o)
			kept[k] = true
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
		if !kept[k] {
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
		m.markCopies(e.name)
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

// admit finds the name of a service, or says why it cannot be here. One beyond the limit is noted for retryLimited.
func (m *Mirror) admit(u *upstream, e *service) (snapshot.Name, *model.UpstreamRefusal) {
	refuse := func(reason model.RefusalReason, message string) (snapshot.Name, *model.UpstreamRefusal) {
		return snapshot.Name{}, &model.UpstreamRefusal{Reason: reason, Message: message}
	}
	exists, known := m.namespaces[e.namespace]
	switch {
	case !Selects(&u.object.Spec, e.key.Scope, e.from.ScopeName):
		return refuse(model.RefusedUnselected, "spec.namespaces does not select it")
	case len(validation.IsDNS1123Label(e.namespace)) > 0:
		return refuse(model.RefusedNamespace, "no namespace can have the name "+strconv.Quote(e.namespace)+": give it another one in spec.namespaces.map")
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

// apply brings a form of a service into effect.
func (m *Mirror) apply(u *upstream, k model.UpstreamKey, next *model.UpstreamService) {
	delete(u.pace.next, k)
	delete(u.holds, k)
	u.stale = true
	e := u.services[k]
	switch {
	case next == nil && e == nil:
	case next != nil && e != nil && e.placed && e.full == nil && e.from.Same(next):
		e.from, e.held = next, nil
	case next == nil:
		m.unplace(u, e)
		m.locate(u, e, "")
		delete(u.services, k)
		delete(u.limited, k)
		delete(u.short, k)
		delete(u.guessed, e.guessed)
	default:
		if e == nil {
			e = &service{key: k}
			u.services[k] = e
		}
		e.held, e.full = nil, nil
		m.place(u, e, next)
	}
}
