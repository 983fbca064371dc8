package discovery

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/derive"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/source/cloud"
)

// rig is a Discovery with an API, a Writer and sources that a test plays.
type rig struct {
	*testing.T
	*Discovery
	api chan snapshot.Batch

	mu       sync.Mutex
	opened   map[string][]*played // by upstream, the last one last
	offered  map[snapshot.Key]derive.Object
	statuses map[string]*v1alpha1.UpstreamStatus
	orphans  []snapshot.Name
	shown    map[snapshot.Key]snapshot.Object
	synced   bool
}

// played is a source that a test plays.
type played struct {
	cloud.Sink
	origin Origin
	ended  bool
}

// Next implements API.
func (r *rig) Next(ctx context.Context) (snapshot.Batch, error) {
	select {
	case b := <-r.api:
		return b, nil
	case <-ctx.Done():
		return snapshot.Batch{}, ctx.Err()
	}
}

// Offer implements Writer.
func (r *rig) Offer(o derive.Object) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := snapshot.Key{Kind: snapshot.KindEndpointSlice, Name: snapshot.Name{Namespace: o.Wanted.GetNamespace(), Name: o.Wanted.GetName()}}
	if _, is := o.Wanted.(*corev1.Service); is {
		k.Kind = snapshot.KindService
	}
	r.offered[k] = o
}

type running struct {
	r *rig
	p *played
}

// Run implements Source.
func (s running) Run(ctx context.Context) {
	<-ctx.Done()
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	s.p.ended = true
}

func (r *rig) open(o Origin, sink cloud.Sink) (Source, error) {
	if o.Secret == nil {
		return Open(o, sink)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p := &played{Sink: sink, origin: o}
	r.opened[o.Upstream.Name] = append(r.opened[o.Upstream.Name], p)
	return running{r, p}, nil
}

// discover runs a test in a bubble, with an API that is synced and has namespace team.
func discover(t *testing.T, test func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{
			T: t, api: make(chan snapshot.Batch), opened: map[string][]*played{}, offered: map[snapshot.Key]derive.Object{},
			statuses: map[string]*v1alpha1.UpstreamStatus{}, shown: map[snapshot.Key]snapshot.Object{},
		}
		r.Discovery = New(Config{
			API: r, Writer: r, Log: slog.New(slog.DiscardHandler), Open: r.open,
			Changed: func(name string, s *v1alpha1.UpstreamStatus) {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.statuses[name] = s
			},
			Orphaned: func(names []snapshot.Name) {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.orphans = names
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { r.Discovery.Run(ctx) })
		all.Go(func() {
			for {
				b, err := r.Discovery.Next(ctx)
				if err != nil {
					return
				}
				r.mu.Lock()
				for _, c := range b.Changes {
					if c.Object == nil {
						delete(r.shown, c.Key)
					} else {
						r.shown[c.Key] = c.Object
					}
				}
				r.synced = b.Synced
				r.mu.Unlock()
			}
		})
		r.store(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}})
		test(r)
		cancel()
		all.Wait()
	})
}

// store has the API say that objects are as they are here.
func (r *rig) store(objects ...snapshot.Object) {
	b := snapshot.Batch{Synced: true}
	for _, o := range objects {
		b.Changes = append(b.Changes, snapshot.Change{Key: r.key(o), Object: o})
	}
	r.api <- b
	synctest.Wait()
}

func (r *rig) remove(o snapshot.Object) {
	r.api <- snapshot.Batch{Synced: true, Changes: []snapshot.Change{{Key: r.key(o)}}}
	synctest.Wait()
}

func (r *rig) key(o snapshot.Object) snapshot.Key {
	k, err := snapshot.New().Set(o)
	if err != nil {
		r.Fatal(err)
	}
	return k
}

func upstream(name string) *v1alpha1.Upstream {
	return &v1alpha1.Upstream{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.UpstreamSpec{Kubernetes: &v1alpha1.KubernetesUpstream{Secret: name}}}
}

func secret(name, kubeconfig string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: name}, Data: map[string][]byte{snapshot.KubeconfigKey: []byte(kubeconfig)},
	}
}

func app(name, address string) *model.UpstreamService {
	return &model.UpstreamService{
		Key: model.UpstreamKey{Scope: "team", Name: name}, Object: "Service team/" + name,
		Ports: []model.UpstreamPort{{Name: "http", Port: 80, Protocol: "TCP"}},
		Slices: []model.UpstreamSlice{{
			Name: name + "-1", Ports: []model.UpstreamPort{{Name: "http", Port: 8080, Protocol: "TCP"}},
			Endpoints: []model.UpstreamEndpoint{{Address: netip.MustParseAddr(address), Ready: true, Serving: true}},
		}},
	}
}

// source is the last source of an upstream; it fails the test if that is not the number so many.
func (r *rig) source(name string, number int) *played {
	r.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if all := r.opened[name]; len(all) != number {
		r.Fatalf("%s had %d sources, want %d", name, len(all), number)
	}
	if number == 0 {
		return nil
	}
	return r.opened[name][number-1]
}

// shows fails the test if the Services in effect are not those of these names.
func (r *rig) shows(when string, names ...string) {
	r.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for k := range r.shown {
		if k.Kind == snapshot.KindService {
			n++
		}
	}
	for _, name := range names {
		if r.shown[snapshot.Key{Kind: snapshot.KindService, Name: snapshot.Name{Namespace: "team", Name: name}}] == nil {
			r.Errorf("%s: Service %s is not in effect", when, name)
		}
	}
	if n != len(names) {
		r.Errorf("%s: %d Services are in effect, want %d", when, n, len(names))
	}
}

// condition fails the test if a condition of an upstream has another reason.
func (r *rig) condition(name, kind, reason string) {
	r.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.statuses[name]
	if s == nil {
		r.Errorf("%s shows nothing, want %s: %s", name, kind, reason)
		return
	}
	if c := meta.FindStatusCondition(s.Conditions, kind); c == nil || c.Reason != reason {
		r.Errorf("%s shows %+v, want %s: %s", name, c, kind, reason)
	}
}

func (r *rig) lead(leads bool) {
	r.Lead(r.Context(), leads)
	synctest.Wait()
}

// What a source says comes into effect at once and is offered to the API. A credential that is changed makes another
// source, and what was known stays in effect.
func TestUpstreamIsFollowed(t *testing.T) {
	discover(t, func(r *rig) {
		r.store(upstream("up01"), secret("up01", "a"))
		r.source("up01", 0)
		r.lead(true)
		first := r.source("up01", 1)
		r.condition("up01", v1alpha1.ConditionCurrent, v1alpha1.ReasonSyncing)
		first.Contact(nil)
		first.Replace([]*model.UpstreamService{app("a", "10.0.0.1"), app("b", "10.0.0.2")})
		r.shows("after the first list", "up01-a", "up01-b")
		r.condition("up01", v1alpha1.ConditionCurrent, v1alpha1.ReasonCurrent)
		if len(r.offered) != 4 {
			t.Errorf("%d objects were offered, want 4", len(r.offered))
		}
		r.store(secret("up01", "b"))
		second := r.source("up01", 2)
		if !first.ended {
			t.Error("the source with the old credentials still runs")
		}
		first.Remove(model.UpstreamKey{Scope: "team", Name: "a"})
		r.shows("after the old source spoke", "up01-a", "up01-b")
		second.Replace([]*model.UpstreamService{app("a", "10.0.0.1")})
		r.shows("after the list of the new source", "up01-a")
	})
}

// A Secret that is missing is told, and looked for.
func TestMissingSecret(t *testing.T) {
	discover(t, func(r *rig) {
		r.store(upstream("up01"))
		r.lead(true)
		r.condition("up01", v1alpha1.ConditionAccepted, v1alpha1.ReasonSecretMissing)
		r.store(secret("up01", "a"))
		r.source("up01", 1)
		r.condition("up01", v1alpha1.ConditionAccepted, v1alpha1.ReasonAccepted)
		r.remove(secret("up01", "a"))
		r.condition("up01", v1alpha1.ConditionAccepted, v1alpha1.ReasonSecretMissing)
	})
}

// A plane that does not lead shows what is stored, and asks no upstream.
func TestStandby(t *testing.T) {
	discover(t, func(r *rig) {
		r.store(upstream("up01"), secret("up01", "a"))
		r.lead(true)
		source := r.source("up01", 1)
		source.Replace([]*model.UpstreamService{app("a", "10.0.0.1")})
		r.shows("while it leads", "up01-a")
		r.lead(false)
		if !source.ended {
			t.Error("its source still runs")
		}
		r.shows("after it led, before anything was stored")
		r.lead(true)
		r.source("up01", 2)
	})
}

// A source that fails, or says nothing, changes nothing of another one, and its own services stay.
func TestOneUpstreamIsAway(t *testing.T) {
	discover(t, func(r *rig) {
		r.store(upstream("up01"), secret("up01", "a"), upstream("up02"), secret("up02", "a"))
		r.lead(true)
		one, two := r.source("up01", 1), r.source("up02", 1)
		one.Replace([]*model.UpstreamService{app("a", "10.0.0.1")})
		one.Contact(&cloud.Error{Reason: v1alpha1.ReasonTimeout, Err: errors.New("no answer")})
		two.Contact(nil)
		two.Replace([]*model.UpstreamService{app("a", "10.0.0.2")})
		r.shows("while up01 is away", "up01-a", "up02-a")
		r.condition("up01", v1alpha1.ConditionReachable, v1alpha1.ReasonTimeout)
		r.condition("up01", v1alpha1.ConditionCurrent, v1alpha1.ReasonStale)
		r.condition("up02", v1alpha1.ConditionCurrent, v1alpha1.ReasonCurrent)
		time.Sleep(time.Hour)
		r.shows("an hour later", "up01-a", "up02-a")
	})
}

// A write that the API refuses is told until the object is stored, or is not wanted any more. What it was to store is in effect.
func TestRefusedWritesAreTold(t *testing.T) {
	discover(t, func(r *rig) {
		r.store(upstream("up01"), secret("up01", "a"))
		r.lead(true)
		source := r.source("up01", 1)
		source.Contact(nil)
		source.Replace([]*model.UpstreamService{app("a", "10.0.0.1"), app("b", "10.0.0.2")})
		r.condition("up01", v1alpha1.ConditionStored, v1alpha1.ReasonStored)
		var slices, services []snapshot.Object
		for k, o := range r.offered {
			o.Tell(derive.Failed, errors.New("exceeded quota of "+k.Name.Name))
			if k.Kind == snapshot.KindService {
				services = append(services, o.Wanted.(snapshot.Object))
			} else {
				slices = append(slices, o.Wanted.(snapshot.Object))
			}
		}
		time.Sleep(tick)
		r.shows("while writes are refused", "up01-a", "up01-b")
		r.condition("up01", v1alpha1.ConditionStored, v1alpha1.ReasonWriteFailed)
		if got, want := r.statuses["up01"].Conditions[3].Message, "4 objects are not stored, or not deleted. What the upstream has is in effect all the same. The first is Service team/up01-a: exceeded quota of up01-a"; got != want {
			t.Errorf("the message is %q, want %q", got, want)
		}
		r.store(services...)
		r.store(slices[0])
		time.Sleep(countsPause + tick)
		r.condition("up01", v1alpha1.ConditionStored, v1alpha1.ReasonWriteFailed)
		if got, want := r.statuses["up01"].Conditions[3].Message, "1 objects are not stored"; !strings.HasPrefix(got, want) || !strings.Contains(got, slices[1].GetName()) {
			t.Errorf("the message is %q, want %q", got, want)
		}
		r.store(slices[1])
		time.Sleep(tick)
		r.condition("up01", v1alpha1.ConditionStored, v1alpha1.ReasonStored)
	})
}

// The Services of an Upstream that is deleted stay while something routes to them.
func TestUpstreamIsDeleted(t *testing.T) {
	discover(t, func(r *rig) {
		r.store(upstream("up01"), secret("up01", "a"))
		r.lead(true)
		r.source("up01", 1).Replace([]*model.UpstreamService{app("a", "10.0.0.1"), app("b", "10.0.0.2")})
		r.shows("while it exists", "up01-a", "up01-b")
		var stored []snapshot.Object
		for _, o := range r.offered {
			stored = append(stored, o.Wanted.(snapshot.Object))
		}
		clear(r.offered)
		r.store(stored...)
		r.remove(upstream("up01"))
		time.Sleep(2 * tick)
		r.shows("before it is known what is used", "up01-a", "up01-b")
		if len(r.orphans) != 2 || len(r.offered) != 0 {
			t.Errorf("orphans %v, %d objects offered", r.orphans, len(r.offered))
		}
		r.Use(map[snapshot.Name]bool{{Namespace: "team", Name: "up01-a"}: true, {Namespace: "team", Name: "up01-b"}: false})
		r.shows("when only a is used", "up01-a")
		for k, o := range r.offered {
			if !o.Absent || k.Name.Name[:6] != "up01-b" {
				t.Errorf("%s: absent %t", k, o.Absent)
			}
		}
		for _, o := range stored {
			if strings.HasPrefix(o.GetName(), "up01-b") {
				r.remove(o)
			}
		}
		r.store(upstream("up01"))
		r.shows("when it exists again", "up01-a")
	})
}

// Several hundred upstreams begin within seconds, and not all at once.
func TestManyUpstreamsBegin(t *testing.T) {
	discover(t, func(r *rig) {
		const n = 400
		var objects []snapshot.Object
		for i := range n {
			name := "up" + strconv.Itoa(i)
			objects = append(objects, upstream(name), secret(name, "a"))
		}
		r.store(objects...)
		r.lead(true)
		if len(r.opened) > startsPerTick {
			t.Errorf("%d sources began at once", len(r.opened))
		}
		time.Sleep(10 * tick)
		synctest.Wait()
		if len(r.opened) != n {
			t.Errorf("%d of %d sources began", len(r.opened), n)
		}
	})
}

// An upstream that was read and whose credentials cannot be used any more is not current, and each fault is told.
func TestUnusableCredentialsAreToldAnew(t *testing.T) {
	discover(t, func(r *rig) {
		r.store(upstream("up01"), secret("up01", "a"))
		r.lead(true)
		source := r.source("up01", 1)
		source.Contact(nil)
		source.Replace([]*model.UpstreamService{app("a", "10.0.0.1")})
		r.condition("up01", v1alpha1.ConditionCurrent, v1alpha1.ReasonCurrent)
		r.remove(secret("up01", "a"))
		r.condition("up01", v1alpha1.ConditionAccepted, v1alpha1.ReasonSecretMissing)
		r.condition("up01", v1alpha1.ConditionReachable, v1alpha1.ReasonNotTried)
		r.condition("up01", v1alpha1.ConditionCurrent, v1alpha1.ReasonStale)
		r.shows("without credentials", "up01-a")
		before := r.statuses["up01"].Conditions[0].Message
		changed := upstream("up01")
		changed.Spec.Kubernetes.Secret = "up02"
		r.store(changed)
		if after := r.statuses["up01"].Conditions[0].Message; after == before {
			t.Errorf("another fault is told as %q", after)
		}
	})
}
