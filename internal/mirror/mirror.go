package mirror

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// Mirror is the state of all upstreams.
type Mirror struct {
	upstreams map[string]*upstream
	// As the API has them.
	services   map[snapshot.Name]*corev1.Service
	slices     map[snapshot.Name]*discoveryv1.EndpointSlice
	namespaces map[string]bool // that exist; false: it is being deleted

	// labelled are the stored objects with the label of an upstream, or of a backend of Gimbal.
	labelled map[backend]map[snapshot.Key]bool
	// copies are the EndpointSlices that Kubernetes has made of the Endpoints of a Service.
	copies map[snapshot.Name]map[snapshot.Key]bool

	inNamespace map[string]map[owner]bool // services by the namespace here

	owners  map[snapshot.Name]owner // of the names of Services
	wanted  map[snapshot.Key]snapshot.Object
	shown   map[snapshot.Key]snapshot.Object // that are in effect
	offered map[snapshot.Key]Write           // that were to be written, and are not known to be stored
	dirty   map[snapshot.Key]bool
	known   bool                   // every object and every Upstream of the API was given
	used    map[snapshot.Name]bool // Services of deleted Upstreams, and whether something routes to them
}

// Write is one create, update or delete of an object of the API.
type Write struct {
	// Wanted is the object to create, or to merge into that of its name. Nobody changes it.
	Wanted snapshot.Object
	Absent bool // it is to be deleted
}

// New returns a Mirror without upstreams.
func New() *Mirror {
	return &Mirror{
		upstreams: map[string]*upstream{}, services: map[snapshot.Name]*corev1.Service{}, slices: map[snapshot.Name]*discoveryv1.EndpointSlice{},
		namespaces: map[string]bool{}, owners: map[snapshot.Name]owner{}, wanted: map[snapshot.Key]snapshot.Object{},
		shown: map[snapshot.Key]snapshot.Object{}, offered: map[snapshot.Key]Write{}, dirty: map[snapshot.Key]bool{},
		inNamespace: map[string]map[owner]bool{}, labelled: map[backend]map[snapshot.Key]bool{}, copies: map[snapshot.Name]map[snapshot.Key]bool{}, used: map[snapshot.Name]bool{},
	}
}

// Follows says whether a Mirror follows a kind: Stored has to tell it of changes. Only those of Services and EndpointSlices
// come back from Take.
func Follows(k snapshot.Kind) bool {
	return k == snapshot.KindService || k == snapshot.KindEndpointSlice || k == snapshot.KindNamespace
}

// Stored notes a change in the API, of a kind that a Mirror Follows.
func (m *Mirror) Stored(c snapshot.Change) {
	n := c.Key.Name
	m.index(c.Key, false)
	defer m.index(c.Key, true)
	switch c.Key.Kind {
	case snapshot.KindService:
		before := m.services[n]
		if o, is := c.Object.(*corev1.Service); is {
			m.services[n] = o
		} else {
			delete(m.services, n)
		}
		m.dirty[c.Key] = true
		m.markCopies(n)
		m.reconsiderName(n, before)
	case snapshot.KindEndpointSlice:
		if o, is := c.Object.(*discoveryv1.EndpointSlice); is {
			m.slices[n] = o
		} else {
			delete(m.slices, n)
		}
		m.dirty[c.Key] = true
	case snapshot.KindNamespace:
		before, was := m.namespaces[n.Name]
		o, is := c.Object.(*corev1.Namespace)
		if is {
			m.namespaces[n.Name] = o.DeletionTimestamp == nil && o.Status.Phase != corev1.NamespaceTerminating
		} else {
			delete(m.namespaces, n.Name)
		}
		if is != was || before != m.namespaces[n.Name] {
			m.reconsider(n.Name, func(*service) bool { return true })
		}
	}
}

// reconsiderName places those services again whose name came to be another's, or free.
func (m *Mirror) reconsiderName(n snapshot.Name, before *corev1.Service) {
	after := m.services[n]
	foreign := after != nil && m.ownerOf(after) == ""
	wasForeign := before != nil && m.ownerOf(before) == ""
	if foreign == wasForeign {
		return
	}
	m.reconsider(n.Namespace, func(e *service) bool {
		return e.name == n || e.refusal != nil && e.refusal.Reason == model.RefusedNameTaken
	})
}

// reconsider places services of a namespace again.
func (m *Mirror) reconsider(namespace string, which func(*service) bool) {
	var of []owner
	for o := range m.inNamespace[namespace] {
		if which(m.upstreams[o.upstream].services[o.key]) {
			of = append(of, o)
		}
	}
	slices.SortFunc(of, func(a, b owner) int {
		return cmp.Or(cmp.Compare(a.upstream, b.upstream), a.key.Compare(b.key))
	})
	for i, o := range of {
		u := m.upstreams[o.upstream]
		m.place(u, u.services[o.key], u.services[o.key].from)
		if i == len(of)-1 || of[i+1].upstream != o.upstream {
			m.retryLimited(u)
		}
	}
}

// SetUpstream notes an Upstream, or that it does not exist (nil).
func (m *Mirror) SetUpstream(name string, o *v1alpha1.Upstream, now time.Time) {
	u := m.upstreams[name]
	switch {
	case o == nil && u != nil:
		m.markOf(name)
		m.release(u)
		delete(m.upstreams, name)
		for k := range m.labelled[backend{name: name}] {
			delete(m.used, m.serviceOf(k))
		}
		for k := range m.orphaned() { // some may be of the same Services
			m.dirty[k] = true
		}
	case o == nil:
	case u == nil:
		m.upstreams[name] = newUpstream(name, o)
		m.markOf(name)
	default:
		m.change(u, o, now)
	}
}

// change takes another spec or confirmation of an upstream.
func (m *Mirror) change(u *upstream, o *v1alpha1.Upstream, now time.Time) {
	before := u.object
	u.object, u.confirmed, u.stale = o, confirmedAt(o), true
	if !selectsAlike(&before.Spec, &o.Spec) {
		u.lenient = true // operators select fewer: the next list is no loss
	}
	if !reflect.DeepEqual(before.Spec, o.Spec) {
		if before.Spec.Naming != o.Spec.Naming {
			m.markOf(u.name)
			m.release(u)
		}
		// So that limits are for the first ones again: of those in effect, and then of the others. Whoever has very many
		// services takes nothing from others.
		var keys, others []model.UpstreamKey
		for _, k := range sortedKeys(u.services) {
			if u.services[k].counted {
				keys = append(keys, k)
			} else {
				others = append(others, k)
			}
		}
		for _, e := range u.services {
			u.uncount(e)
		}
		for _, k := range append(keys, others...) {
			m.place(u, u.services[k], u.services[k].from)
		}
		m.retryLimited(u)
	}
	m.Advance(now)
}

// Known says that every object and every Upstream of the API was given once. Before, nothing is deleted.
func (m *Mirror) Known() {
	if m.known {
		return
	}
	m.known = true
	m.markAll()
}

// Recheck has Take return again whatever is to be written.
func (m *Mirror) Recheck() { m.markAll() }

func (m *Mirror) markAll() {
	for n := range m.services {
		m.dirty[snapshot.Key{Kind: snapshot.KindService, Name: n}] = true
	}
	for n := range m.slices {
		m.dirty[snapshot.Key{Kind: snapshot.KindEndpointSlice, Name: n}] = true
	}
	for k := range m.wanted {
		m.dirty[k] = true
	}
}

// Forget drops what upstreams have said: what is stored is in effect, until they have given complete lists again.
func (m *Mirror) Forget() {
	for _, u := range m.upstreams {
		m.release(u)
		m.upstreams[u.name] = newUpstream(u.name, u.object)
	}
	clear(m.owners)
	clear(m.offered)
	m.markAll()
}

// release takes what an upstream wants out of what is wanted.
func (m *Mirror) release(u *upstream) {
	for _, e := range u.services {
		m.unplace(u, e)
		m.locate(u, e, "")
	}
}

// Use says of Orphans whether something routes to them. Those that nothing routes to are deleted; those that it does not name stay.
func (m *Mirror) Use(used map[snapshot.Name]bool) {
	if !m.known {
		return
	}
	judged := map[snapshot.Name]bool{}
	for k := range m.orphaned() {
		n := m.serviceOf(k)
		before, was := m.used[n]
		now, asked := used[n]
		switch {
		case asked:
			judged[n] = now
		case was: // others have become orphans since the question
			judged[n] = before
		}
		if asked && (!was || before != now) {
			m.dirty[k] = true
		}
	}
	m.used = judged
}

// Take returns what came into effect since the last call, and what to write. The writes of one call replace those of
// earlier calls, object by object.
func (m *Mirror) Take() (changes []snapshot.Change, writes []Write) {
	keys := slices.SortedFunc(maps.Keys(m.dirty), snapshot.Key.Compare)
	m.dirty = map[snapshot.Key]bool{} // one that was large once stays slow
	for _, k := range keys {
		stored, object, hidden := m.effect(k)
		if shown, is := m.shown[k]; is != (object != nil) || is && !alike(shown, object) {
			changes = append(changes, snapshot.Change{Key: k, Object: object})
		}
		if object == nil {
			delete(m.shown, k)
		} else {
			m.shown[k] = object
		}
		writes = append(writes, m.write(k, stored, object, hidden)...)
	}
	return changes, writes
}

// write is what to write of a key.
func (m *Mirror) write(k snapshot.Key, stored, object snapshot.Object, hidden bool) (writes []Write) {
	wanted, last := m.wanted[k], m.offered[k]
	offer := func(w Write) {
		writes = append(writes, w)
		m.offered[k] = w
	}
	switch {
	case stored != nil && m.ownerOf(stored) == "": // not ours
		if m.mirrorsGimbal(stored) {
			writes = append(writes, withoutEndpoints(m.serviceOf(k)))
		}
	case hidden:
		offer(Write{Wanted: named(k), Absent: true})
	case wanted != nil && object != stored: // merged, or not stored yet
		offer(Write{Wanted: wanted})
	case last.Wanted == nil:
	default: // it is stored as it is to be, or is not stored and not to be
		delete(m.offered, k)
		switch {
		case wanted != nil && (last.Absent || last.Wanted != wanted):
			writes = append(writes, Write{Wanted: wanted}) // nothing else is to be written any more
		case wanted == nil && stored != nil && last.Absent: // its Upstream is there again, and has not said what it has
			writes = append(writes, Write{Wanted: afresh(stored)})
		case wanted == nil && stored == nil && !last.Absent:
			writes = append(writes, Write{Wanted: named(k), Absent: true})
		}
	}
	if len(writes) > 0 && k.Kind == snapshot.KindService && stored != nil && stored.GetLabels()[v1alpha1.LabelUpstream] == "" {
		writes = append(writes, withoutEndpoints(k.Name))
	}
	return writes
}

// afresh is a stored object as it can be created again, should it be deleted already.
func afresh(stored snapshot.Object) snapshot.Object {
	next := stored.DeepCopyObject().(snapshot.Object)
	next.SetUID("")
	next.SetResourceVersion("")
	next.SetCreationTimestamp(metav1.Time{})
	next.SetManagedFields(nil)
	return next
}

// effect is the stored object of a key (nil: none), and the one that is in effect. Hidden objects are stored and ours, and
// are to go.
func (m *Mirror) effect(k snapshot.Key) (stored, object snapshot.Object, hidden bool) {
	stored = m.storedObject(k)
	wanted := m.wanted[k]
	switch {
	case wanted != nil && (stored == nil || m.ownerOf(stored) != ""):
		return stored, merged(stored, wanted), false
	case stored == nil:
		return nil, nil, false
	case m.hides(k, stored):
		return stored, nil, m.ownerOf(stored) != ""
	}
	return stored, stored, false
}

// hides says whether a stored object that is not wanted is not in effect.
func (m *Mirror) hides(k snapshot.Key, stored snapshot.Object) bool {
	if !m.known {
		return false
	}
	name := m.ownerOf(stored)
	u := m.upstreams[name]
	switch {
	case name == "":
		return m.mirrorsGimbal(stored)
	case u != nil:
		return u.synced || u.early != nil && u.early.said[m.serviceOf(k)] || u.contact.expired && stored.GetLabels()[discoveryv1.LabelManagedBy] == v1alpha1.SliceManager
	}
	return m.isUnused(m.serviceOf(k))
}

// alike says whether two forms of an object mean the same to a translation.
func alike(a, b snapshot.Object) bool {
	if a == b {
		return true
	}
	if a.GetUID() != b.GetUID() {
		return false
	}
	x, is := a.(*discoveryv1.EndpointSlice)
	y, isToo := b.(*discoveryv1.EndpointSlice)
	if !is || !isToo {
		return false // statuses are written to the newest form
	}
	return x.AddressType == y.AddressType && maps.Equal(x.Labels, y.Labels) && maps.Equal(x.Annotations, y.Annotations) &&
		equality.Semantic.DeepEqual(x.Ports, y.Ports) && equality.Semantic.DeepEqual(x.Endpoints, y.Endpoints)
}
