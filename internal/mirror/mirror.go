package mirror

import (
	"maps"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"

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

	owners  map[snapshot.Name]owner // of the names of Services
	wanted  map[snapshot.Key]snapshot.Object
	shown   map[snapshot.Key]snapshot.Object // that are in effect
	offered map[snapshot.Key]snapshot.Object // the last writes that are not known to be stored; nil: to be deleted
	dirty   map[snapshot.Key]bool
	known   bool                   // every object and every Upstream of the API was given
	used    map[snapshot.Name]bool // Services of deleted Upstreams that something routes to; nil: not known
}

// owner is a service of an upstream.
type owner struct {
	upstream string
	key      model.UpstreamKey
}

// Write brings an object of the API about.
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
		shown: map[snapshot.Key]snapshot.Object{}, offered: map[snapshot.Key]snapshot.Object{}, dirty: map[snapshot.Key]bool{},
	}
}

// Mirrored says whether a Mirror has to be told of changes of a kind by Stored. Only those of Services and EndpointSlices
// come back from Take.
func Mirrored(k snapshot.Kind) bool {
	return k == snapshot.KindService || k == snapshot.KindEndpointSlice || k == snapshot.KindNamespace
}

// Stored notes a change in the API, of a kind that is Mirrored.
func (m *Mirror) Stored(c snapshot.Change) {
	n := c.Key.Name
	switch c.Key.Kind {
	case snapshot.KindService:
		before := m.services[n]
		if o, is := c.Object.(*corev1.Service); is {
			m.services[n] = o
		} else {
			delete(m.services, n)
		}
		m.dirty[c.Key] = true
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
			m.reconsider(func(e *service) bool { return e.namespace == n.Name })
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
	m.reconsider(func(e *service) bool { return e.namespace == n.Namespace && (e.name == n || e.refusal != nil) })
}

func (m *Mirror) reconsider(which func(*service) bool) {
	for _, name := range slices.Sorted(maps.Keys(m.upstreams)) {
		u := m.upstreams[name]
		for _, k := range sortedKeys(u.services) {
			if e := u.services[k]; which(e) {
				m.place(u, e, e.from)
			}
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
		m.used = nil
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
	u.object = o
	if !selectsAlike(&before.Spec, &o.Spec) {
		u.lenient = true // operators select fewer: the next list is no loss
	}
	if !reflect.DeepEqual(before.Spec, o.Spec) {
		for _, k := range sortedKeys(u.services) {
			m.place(u, u.services[k], u.services[k].from)
		}
		m.retryLimited(u)
	}
	m.Advance(now)
}

// markOf has all stored objects of an upstream looked at again.
func (m *Mirror) markOf(name string) {
	for n, o := range m.services {
		if m.ownerOf(o) == name {
			m.dirty[snapshot.Key{Kind: snapshot.KindService, Name: n}] = true
		}
	}
	for n, o := range m.slices {
		if m.ownerOf(o) == name {
			m.dirty[snapshot.Key{Kind: snapshot.KindEndpointSlice, Name: n}] = true
		}
	}
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
	}
}

// Orphans are the Services whose Upstream does not exist.
func (m *Mirror) Orphans() []snapshot.Name {
	var names []snapshot.Name
	if !m.known {
		return nil
	}
	for n, o := range m.services {
		if name := m.ownerOf(o); name != "" && m.upstreams[name] == nil {
			names = append(names, n)
		}
	}
	slices.SortFunc(names, compareNames)
	return names
}

// Use says which of the Orphans something routes to. The others are deleted.
func (m *Mirror) Use(used map[snapshot.Name]bool) {
	if m.used != nil && maps.Equal(used, m.used) {
		return
	}
	if m.used = used; used == nil {
		m.used = map[snapshot.Name]bool{}
	}
	for _, n := range m.Orphans() {
		m.dirty[snapshot.Key{Kind: snapshot.KindService, Name: n}] = true
	}
	for n, o := range m.slices {
		if name := m.ownerOf(o); name != "" && m.upstreams[name] == nil {
			m.dirty[snapshot.Key{Kind: snapshot.KindEndpointSlice, Name: n}] = true
		}
	}
}

// Take returns what came into effect since the last call, and what to write. The writes of one call replace those of
// earlier calls, object by object.
func (m *Mirror) Take() (changes []snapshot.Change, writes []Write) {
	keys := slices.SortedFunc(maps.Keys(m.dirty), snapshot.Key.Compare)
	clear(m.dirty)
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
		wanted := m.wanted[k]
		last, offered := m.offered[k]
		switch {
		case wanted != nil && object != stored: // merged, or not stored yet
			writes = append(writes, Write{Wanted: wanted})
			m.offered[k] = wanted
			if stored != nil && stored.GetLabels()[v1alpha1.LabelUpstream] == "" {
				writes = append(writes, withoutEndpoints(k.Name)...)
			}
		case hidden:
			writes = append(writes, Write{Wanted: named(k), Absent: true})
			m.offered[k] = nil
		case !offered:
		case wanted == nil && stored == nil && last != nil: // it may still be created
			writes = append(writes, Write{Wanted: named(k), Absent: true})
			m.offered[k] = nil
		case wanted != nil && last != wanted: // another form may still be written
			writes = append(writes, Write{Wanted: wanted})
			m.offered[k] = wanted
		default:
			delete(m.offered, k)
		}
	}
	return changes, writes
}

// effect is the stored object of a key (nil: none), and the one that is in effect. Hidden objects are stored, and are to go.
func (m *Mirror) effect(k snapshot.Key) (stored, object snapshot.Object, hidden bool) {
	stored = m.storedObject(k)
	wanted := m.wanted[k]
	switch {
	case wanted != nil && (stored == nil || m.ownerOf(stored) != ""):
		return stored, merged(stored, wanted), false
	case stored == nil:
		return nil, nil, false
	case m.hides(k, stored):
		return stored, nil, m.ownerOf(stored) != "" // mirrored slices go with what they mirror
	}
	return stored, stored, false
}

func (m *Mirror) storedObject(k snapshot.Key) snapshot.Object {
	switch k.Kind {
	case snapshot.KindService:
		if o := m.services[k.Name]; o != nil {
			return o
		}
	case snapshot.KindEndpointSlice:
		if o := m.slices[k.Name]; o != nil {
			return o
		}
	}
	return nil
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
		return u.synced
	case m.used == nil:
		return false
	case k.Kind == snapshot.KindEndpointSlice:
		return !m.used[snapshot.Name{Namespace: k.Name.Namespace, Name: stored.GetLabels()[discoveryv1.LabelServiceName]}]
	}
	return !m.used[k.Name]
}

// ownerOf is the Upstream that an object is of; empty: it is not ours. What Gimbal has made is the Upstream's that takes it over.
func (m *Mirror) ownerOf(o snapshot.Object) string {
	labels := o.GetLabels()
	if name := labels[v1alpha1.LabelUpstream]; name != "" {
		return name
	}
	name := gimbalBackend(labels)
	if u := m.upstreams[name]; u != nil && u.object.Spec.Naming == v1alpha1.NamingGimbal {
		return name
	}
	return ""
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
