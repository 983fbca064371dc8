package mirror

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// sim is a world in which anything happens, in any order, and which is checked all the time.
type sim struct {
	*world
	rnd   *rand.Rand
	plain bool // no collisions, limits, losses, or objects of others: what is in effect follows from the last lists alone
	log   []string

	specs  map[string]*v1alpha1.Upstream
	clouds map[string]map[model.UpstreamKey]*model.UpstreamService // what upstreams have
	told   map[string]map[model.UpstreamKey]*model.UpstreamService // what m was told of synced upstreams
}

var (
	simUpstreams  = []string{"a", "a-b", "up"}
	simNamespaces = []string{"s0", "s1", "s2"}
	simNames      = []string{"x", "b-c", "c", "Web", "web", strings.Repeat("y", 70), strings.Repeat("y", 70) + "z"}
)

func (s *sim) pick(of []string) string { return of[s.rnd.IntN(len(of))] }

func (s *sim) note(format string, args ...any) { s.log = append(s.log, fmt.Sprintf(format, args...)) }

// service is one with a random content.
func (s *sim) service(k model.UpstreamKey) *model.UpstreamService {
	next := &model.UpstreamService{Key: k, Object: k.String(), Ports: []model.UpstreamPort{{Name: "p", Port: uint16(80 + s.rnd.IntN(2)), Protocol: "TCP"}}}
	if s.rnd.IntN(20) == 0 {
		next.Ports = nil
	}
	for _, name := range []string{"", "b"}[:s.rnd.IntN(3)] {
		slice := model.UpstreamSlice{Name: name, Ports: []model.UpstreamPort{{Name: "p", Port: 8080, Protocol: "TCP"}}}
		for i := range s.rnd.IntN(5) {
			text := fmt.Sprintf("10.0.%d.%d", s.rnd.IntN(3), i)
			if s.rnd.IntN(4) == 0 {
				text = "fd00::" + fmt.Sprint(i)
			}
			e := ready(text)[0]
			e.Ready, e.Weight, e.Backup = s.rnd.IntN(4) > 0, uint32(s.rnd.IntN(3)), s.rnd.IntN(4) == 0
			slice.Endpoints = append(slice.Endpoints, e)
		}
		next.Slices = append(next.Slices, slice)
	}
	return next
}

func (s *sim) key() model.UpstreamKey {
	names := simNames
	if s.plain {
		names = []string{"x", "y", "z", "t"}
	}
	return model.UpstreamKey{Scope: s.pick(simNamespaces), Name: s.pick(names)}
}

func (s *sim) spec(name string) *v1alpha1.Upstream {
	u := anUpstream(name, threshold(100), returnTime([]time.Duration{0, time.Second, 10 * time.Second}[s.rnd.IntN(3)]))
	u.Annotations = map[string]string{"n": fmt.Sprint(s.rnd.IntN(1000))}
	if s.rnd.IntN(3) == 0 {
		u.Spec.Namespaces.Exclude = []string{s.pick(simNamespaces)}
	}
	if s.rnd.IntN(3) == 0 {
		u.Spec.Addresses = []string{"10.0.0.0/23", "fd00::/16"}
	}
	if s.plain {
		return u
	}
	openStack(u)
	if s.rnd.IntN(3) == 0 {
		u.Spec.Loss.Threshold = []*int32{nil, new(int32)}[s.rnd.IntN(2)]
	}
	if s.rnd.IntN(3) == 0 {
		keepFor(time.Minute)(u)
	}
	if s.rnd.IntN(3) == 0 {
		limits(int32(1+s.rnd.IntN(5)), int32(1+s.rnd.IntN(12)))(u)
	}
	if s.rnd.IntN(3) == 0 {
		mapped(s.pick(simNamespaces), s.pick(simNamespaces))(u)
	}
	if s.rnd.IntN(3) == 0 {
		gimbal(u)
	}
	if s.rnd.IntN(4) == 0 {
		confirmed(s.now)(u)
	}
	return u
}

// step has one thing happen.
func (s *sim) step() {
	up := s.pick(simUpstreams)
	cloud := s.clouds[up]
	switch n := s.rnd.IntN(100); {
	case n < 20: // a service comes or changes, and mostly m is told
		k := s.key()
		cloud[k] = s.service(k)
		if s.rnd.IntN(5) > 0 {
			s.note("put %s %v", up, k)
			s.m.Put(up, s.now, cloud[k])
			if s.told[up] != nil {
				s.told[up][k] = cloud[k]
			}
		}
	case n < 26: // one goes
		k := s.key()
		delete(cloud, k)
		if s.rnd.IntN(5) > 0 {
			s.note("remove %s %v", up, k)
			s.m.Remove(up, s.now, k)
			delete(s.told[up], k)
		}
	case n < 36:
		s.list(up)
	case n < 40:
		s.note("away %s", up)
		s.m.Contact(up, errAway, s.now)
	case n < 45:
		s.note("contact %s", up)
		s.m.Contact(up, nil, s.now)
	case n < 52:
		d := []time.Duration{time.Millisecond, time.Second, time.Minute, -time.Second}[s.rnd.IntN(4)]
		s.note("after %v", d)
		s.after(d)
	case n < 57:
		s.note("spec %s", up)
		s.specs[up] = s.spec(up)
		s.m.SetUpstream(up, s.specs[up], s.now)
	case n < 59:
		s.note("delete %s", up)
		delete(s.specs, up)
		delete(s.told, up)
		s.m.SetUpstream(up, nil, s.now)
	case n < 61:
		used := map[snapshot.Name]bool{}
		for _, o := range s.m.Orphans() {
			used[o] = s.rnd.IntN(2) == 0
		}
		s.note("use %v", used)
		s.m.Use(used)
	case n < 64:
		s.namespace(s.pick(simNamespaces))
	case n < 67 && !s.plain:
		s.foreign()
	case n < 70 && !s.plain:
		s.meddle()
	case n < 71:
		s.note("forget")
		clear(s.told)
		s.m.Forget()
	case n < 75:
		s.calm()
	case n < 76:
		s.checkRestart()
	case n < 78:
		s.checkScratch()
	case n < 84:
		s.take()
		s.check()
	case n < 92 && len(s.pending) > 0:
		keys := slices.SortedFunc(maps.Keys(s.pending), snapshot.Key.Compare)
		s.write(keys[s.rnd.IntN(len(keys))])
	case len(s.watch) > 0:
		keys := slices.SortedFunc(maps.Keys(s.watch), snapshot.Key.Compare)
		s.deliverOne(keys[s.rnd.IntN(len(keys))])
	}
}

// list gives m the complete list of an upstream.
func (s *sim) list(up string) {
	s.note("list %s %v", up, sortedKeys(s.clouds[up]))
	if s.specs[up] != nil {
		s.told[up] = maps.Clone(s.clouds[up])
	}
	s.m.Replace(up, slices.Collect(maps.Values(s.clouds[up])), s.now)
}

// namespace has a namespace come or go, with all in it.
func (s *sim) namespace(name string) {
	k := snapshot.Key{Kind: snapshot.KindNamespace, Name: snapshot.Name{Name: name}}
	switch o := s.api[k]; {
	case o == nil:
		s.note("create namespace %s", name)
		s.store(namespace(name))
	case o.GetDeletionTimestamp() == nil && s.rnd.IntN(2) == 0:
		s.note("delete namespace %s", name)
		n := namespace(name)
		n.DeletionTimestamp = &metav1.Time{Time: s.now}
		s.store(n)
	default:
		s.note("namespace %s is gone", name)
		for k := range s.api {
			if k.Name.Namespace == name {
				s.erase(k)
			}
		}
		s.erase(k)
	}
}

// foreign has somebody else write or delete a Service, or Gimbal its objects.
func (s *sim) foreign() {
	ns := s.pick(simNamespaces)
	if o := s.api[snapshot.Key{Kind: snapshot.KindNamespace, Name: snapshot.Name{Name: ns}}]; o == nil || o.GetDeletionTimestamp() != nil {
		return
	}
	up, name := s.pick(simUpstreams), strings.ToLower(s.pick(simNames))
	key := snapshot.Key{Kind: snapshot.KindService, Name: snapshot.Name{Namespace: ns, Name: gimbalName(up, name)}}
	live := s.api[key]
	switch {
	case live == nil && s.rnd.IntN(2) == 0:
		s.note("Gimbal writes %v", key)
		for _, o := range byGimbal(gimbalPrefix, up, ns, name, 1+s.rnd.IntN(2), "10.0.0.7", "10.0.0.8") {
			if s.api[keyOfAny(o)] == nil {
				s.store(o)
			}
		}
	case live == nil:
		s.note("somebody writes %v", key)
		s.store(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: key.Name.Name}})
	case !Ours(live):
		s.note("somebody deletes %v", key)
		s.erase(key)
	}
}

// meddle has somebody change or delete what is ours.
func (s *sim) meddle() {
	keys := slices.SortedFunc(maps.Keys(s.api), snapshot.Key.Compare)
	if len(keys) == 0 {
		return
	}
	k := keys[s.rnd.IntN(len(keys))]
	if o := s.api[k]; !Ours(o) || k.Kind == kindEndpoints || o.GetLabels()[discoveryv1.LabelManagedBy] == mirroringManager {
		return
	}
	s.note("somebody meddles with %v", k)
	if s.rnd.IntN(2) == 0 {
		s.erase(k)
		return
	}
	next := s.api[k].DeepCopyObject().(snapshot.Object)
	switch o := next.(type) {
	case *corev1.Service:
		o.Spec.Ports = nil
	case *discoveryv1.EndpointSlice:
		o.Endpoints = nil
	}
	s.store(next)
}

// check compares what is in effect with what would be, were it computed anew: no change was lost.
func (s *sim) check() {
	keys := maps.Clone(s.m.wanted)
	maps.Copy(keys, s.effect)
	for n, o := range s.m.services {
		keys[snapshot.Key{Kind: snapshot.KindService, Name: n}] = o
	}
	for n, o := range s.m.slices {
		keys[snapshot.Key{Kind: snapshot.KindEndpointSlice, Name: n}] = o
	}
	for k := range keys {
		stored, want, _ := s.m.effect(k)
		have := s.effect[k]
		merged := k.Kind == snapshot.KindService && stored != want // each time anew
		if (have == nil) != (want == nil) || have != nil && !alike(have, want) && (!merged || !has(have, want)) {
			s.t.Fatalf("%v in effect is %v, expected %v", k, have, want)
		}
		if stored != nil && !Ours(stored) && have != stored {
			s.t.Fatalf("the foreign %v in effect is %v", k, have)
		}
	}
	s.checkCounts()
}

// checkCounts compares the counts of upstreams with what they count.
func (s *sim) checkCounts() {
	for name, u := range s.m.upstreams {
		nServices, endpoints := 0, 0
		for k, e := range u.services {
			if len(e.objects) > 0 {
				nServices++
				endpoints += e.endpoints
			}
			if e.name.Name != "" && s.m.owners[e.name] != (owner{name, k}) || (e.held != nil) != u.holds[k] {
				s.t.Fatalf("%v of %s: %+v", k, name, e)
			}
		}
		if nServices != u.nServices || endpoints != u.endpoints {
			s.t.Fatalf("%s has %d services and %d endpoints, and counts %d and %d", name, nServices, endpoints, u.nServices, u.endpoints)
		}
	}
}

// calm lets everything settle. Then what is stored is what is in effect.
func (s *sim) calm() {
	s.note("settle")
	foreign := map[snapshot.Key]snapshot.Object{}
	for k, o := range s.api {
		if !Ours(o) {
			foreign[k] = o
		}
	}
	s.deliver()
	s.settle()
	s.unmirror()
	s.settle()
	s.check()
	for k, o := range foreign {
		if s.api[k] != o {
			s.t.Fatalf("the foreign %v was %v and is %v", k, o, s.api[k])
		}
	}
	for k, o := range s.api {
		if !Follows(k.Kind) || k.Kind == snapshot.KindNamespace || o.GetLabels()[discoveryv1.LabelManagedBy] == mirroringManager {
			continue
		}
		if s.effect[k] == nil || !alike(s.effect[k], o) {
			s.t.Fatalf("%v is stored as\n%v\nand in effect as\n%v", k, o, s.effect[k])
		}
	}
	for k := range s.effect {
		if s.api[k] == nil {
			s.t.Fatalf("%v is in effect and not stored", k)
		}
	}
	if changes, writes := s.take(); len(changes)+len(writes) > 0 {
		s.t.Fatalf("it does not rest: %v, %v", changes, writes)
	}
}

// checkRestart starts anew: what is stored is in effect, and the same lists change nothing.
func (s *sim) checkRestart() {
	s.calm()
	s.note("restart")
	before, states := s.inEffect(), map[string]State{}
	for up := range s.specs {
		states[up], _ = s.m.State(up, 0)
	}
	told := s.told
	s.restart(slices.Collect(maps.Values(s.specs))...)
	s.told = map[string]map[model.UpstreamKey]*model.UpstreamService{}
	if _, writes := s.take(); len(writes) > 0 {
		s.t.Fatalf("a start writes %v", writes)
	}
	if have := s.inEffect(); have != before {
		s.t.Fatalf("after a start\n%s\nis in effect, before it\n%s", have, before)
	}
	for up, st := range states {
		if !st.Synced || st.Held.Services > 0 || st.Returning || st.Expired || !maps.EqualFunc(told[up], s.clouds[up], func(a, b *model.UpstreamService) bool { return a == b }) {
			continue
		}
		s.list(up)
		if changed := s.settle(); len(changed) > 0 {
			s.t.Fatalf("after a start the same list of %s wrote %v", up, changed)
		}
		s.check()
	}
	if have := s.inEffect(); have != before {
		s.t.Fatalf("after a start and the same lists\n%s\nis in effect, before it\n%s", have, before)
	}
}

// checkScratch compares what is in effect with what another Mirror makes of one list of each upstream.
func (s *sim) checkScratch() {
	if s.calm(); !s.plain || len(s.m.Orphans()) > 0 {
		return
	}
	w := newWorld(s.t)
	w.now = s.now
	for k, o := range s.api {
		if k.Kind == snapshot.KindNamespace {
			w.store(o.DeepCopyObject().(snapshot.Object))
		}
	}
	w.deliver()
	for up, u := range s.specs {
		if st, _ := s.m.State(up, 0); !st.Synced || st.Returning || st.Expired {
			return
		}
		w.m.SetUpstream(up, u, w.now)
		w.m.Replace(up, slices.Collect(maps.Values(s.told[up])), w.now)
		have, _ := s.m.State(up, 0)
		if want, _ := w.m.State(up, 0); have.Seen != want.Seen || have.Replicated != want.Replicated || have.Refused != want.Refused {
			s.t.Fatalf("%s has %+v, from scratch %+v", up, have, want)
		}
	}
	w.settle()
	if have, want := s.inEffect(), w.inEffect(); have != want {
		s.t.Fatalf("in effect is\n%s\nfrom scratch\n%s", have, want)
	}
}

func TestAnythingHappens(t *testing.T) {
	seeds, steps := 150, 400
	if testing.Short() {
		seeds = 50
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			s := &sim{
				rnd: rand.New(rand.NewPCG(uint64(seed), 16)), plain: seed%3 == 0, specs: map[string]*v1alpha1.Upstream{},
				clouds: map[string]map[model.UpstreamKey]*model.UpstreamService{}, told: map[string]map[model.UpstreamKey]*model.UpstreamService{},
			}
			s.world = newWorld(t, simNamespaces...)
			for _, up := range simUpstreams {
				s.clouds[up] = map[model.UpstreamKey]*model.UpstreamService{}
			}
			defer func() {
				if t.Failed() {
					t.Logf("the last steps:\n%s", strings.Join(s.log[max(0, len(s.log)-40):], "\n"))
				}
			}()
			for range steps {
				s.step()
			}
			s.checkRestart()
		})
	}
}
