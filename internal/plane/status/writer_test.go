package status

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
)

// memoryAPI is an API of Machines with optimistic locking, as far as the status writer
// uses one.
type memoryAPI struct {
	client.Client
	mu      sync.Mutex
	objects map[string]*v1alpha1.Machine
	away    bool
	refuse  bool
	bare    bool // no subresource for the status
	writes  int
	asked   int // requests of any kind
}

func (m *memoryAPI) Status() client.SubResourceWriter { return memoryStatus{api: m} }

func (m *memoryAPI) Get(_ context.Context, k client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked++
	if m.away {
		return errors.New("connection refused")
	}
	o := m.objects[k.Name]
	if o == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "machines"}, k.Name)
	}
	o.DeepCopyInto(into.(*v1alpha1.Machine))
	return nil
}

type memoryStatus struct {
	client.SubResourceWriter
	api *memoryAPI
}

func (s memoryStatus) Update(_ context.Context, o client.Object, _ ...client.SubResourceUpdateOption) error {
	m, in := s.api, o.(*v1alpha1.Machine)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked++
	r := schema.GroupResource{Resource: "machines"}
	switch at := m.objects[in.Name]; {
	case m.away:
		return errors.New("connection refused")
	case m.refuse:
		return apierrors.NewInvalid(schema.GroupKind{Kind: "Machine"}, in.Name, nil)
	case at == nil || m.bare:
		return apierrors.NewNotFound(r, in.Name)
	case at.ResourceVersion != in.ResourceVersion:
		return apierrors.NewConflict(r, in.Name, errors.New("changed"))
	}
	m.writes++
	stored := in.DeepCopy()
	m.bump(stored)
	m.objects[in.Name] = stored
	stored.DeepCopyInto(in)
	return nil
}

func (m *memoryAPI) bump(o *v1alpha1.Machine) {
	n, _ := strconv.Atoi(o.ResourceVersion)
	o.ResourceVersion = strconv.Itoa(n + 1)
}

// change edits an object as somebody else would, and returns it.
func (m *memoryAPI) change(name string, f func(*v1alpha1.Machine)) *v1alpha1.Machine {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.objects[name]
	if o == nil {
		o = &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u", Generation: 1, ResourceVersion: "0"}}
	}
	o = o.DeepCopy()
	f(o)
	m.bump(o)
	m.objects[name] = o
	return o
}

func (m *memoryAPI) get(name string) *v1alpha1.Machine {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.objects[name]
}

func (m *memoryAPI) with(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

type writerRig struct {
	*Writer
	outcomes
	api    *memoryAPI
	cancel context.CancelFunc // of the term
}

// outcomes is a Meter that keeps what it counts.
type outcomes struct {
	mu     sync.Mutex
	counts map[Outcome]int
}

func (m *outcomes) Count(_ string, o Outcome) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.counts == nil {
		m.counts = map[Outcome]int{}
	}
	m.counts[o]++
}

func (m *outcomes) Time(time.Duration, time.Duration) {}

func (m *outcomes) count(o Outcome) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.counts[o]
}

func tellNobody(client.Object, client.Object) {}

func newWriterRig(t *testing.T) *writerRig {
	t.Helper()
	r := &writerRig{api: &memoryAPI{objects: map[string]*v1alpha1.Machine{}}}
	r.Writer = NewWriter(Config{
		Client: r.api, Rate: 1000, Log: slog.New(slog.DiscardHandler), Now: time.Now, After: Timer, Random: rand.New(rand.NewPCG(1, 1)), Meter: r,
	})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { r.Run(ctx, tellNobody); close(done) }()
	t.Cleanup(func() { stop(); <-done })
	term, cancel := context.WithCancel(ctx)
	r.cancel = cancel
	t.Cleanup(cancel)
	r.Enable(term)
	return r
}

// showing is a status that says an agent version.
func showing(live *v1alpha1.Machine, v string, delay time.Duration) Write {
	return Write{
		Object: model.Object{Kind: "Machine", Name: live.Name}, Generation: live.Generation, Live: live, Delay: delay,
		Apply: func(o client.Object, _ metav1.Time) client.Object {
			m := o.(*v1alpha1.Machine)
			if m.Status.AgentVersion == v {
				return nil
			}
			n := m.DeepCopy()
			n.Status.AgentVersion = v
			return n
		},
	}
}

func (r *writerRig) awaitVersion(t *testing.T, name, v string) {
	t.Helper()
	soon(t, name+" shows "+v, func() error {
		if got := r.api.get(name).Status.AgentVersion; got != v {
			return fmt.Errorf("it shows %q", got)
		}
		return nil
	})
}

func TestStatusNewestWinsAndDifferencesOnly(t *testing.T) {
	r := newWriterRig(t)
	live := r.api.change("m", func(*v1alpha1.Machine) {})
	r.Offer(showing(live, "1", time.Hour))
	r.Offer(showing(live, "2", time.Hour))
	r.Offer(showing(live, "3", 0))
	r.awaitVersion(t, "m", "3")
	// The watch has not shown the write yet: the same status is no write, another is
	// one without a conflict.
	r.Offer(showing(live, "3", 0))
	if r.Pending() != 0 {
		t.Error("an unchanged status waits to be written")
	}
	r.Offer(showing(live, "4", 0))
	r.awaitVersion(t, "m", "4")
	if r.api.writes != 2 || r.count(outcomeConflict) != 0 {
		t.Errorf("%d writes, %d conflicts", r.api.writes, r.count(outcomeConflict))
	}
}

func TestStatusMeetsOthersChanges(t *testing.T) {
	r := newWriterRig(t)
	live := r.api.change("m", func(*v1alpha1.Machine) {})
	r.api.change("m", func(m *v1alpha1.Machine) { m.Status.Addresses = []string{"192.0.2.1"} })
	r.Offer(showing(live, "1", 0))
	r.awaitVersion(t, "m", "1")
	if got := r.api.get("m"); len(got.Status.Addresses) != 1 {
		t.Errorf("somebody else's status is gone: %+v", got.Status)
	}
	if r.count(outcomeConflict) != 1 {
		t.Errorf("%d conflicts", r.count(outcomeConflict))
	}
	// A status of an older generation is not written onto a newer one.
	old := r.api.get("m")
	r.api.change("m", func(m *v1alpha1.Machine) { m.Generation++ })
	r.Offer(showing(old, "2", 0))
	soon(t, "it is dropped", func() error {
		if r.count(outcomeUnchanged) != 1 {
			return fmt.Errorf("counts are %v", r.counts)
		}
		return nil
	})
	if got := r.api.get("m").Status.AgentVersion; got != "1" {
		t.Errorf("a stale status was written: %s", got)
	}
	// A status of an object that is gone neither.
	r.api.with(func() { delete(r.api.objects, "m") })
	r.Offer(showing(old, "3", 0))
	soon(t, "it is dropped", func() error {
		if r.count(outcomeGone) != 1 {
			return fmt.Errorf("counts are %v", r.counts)
		}
		return nil
	})
}

func TestStatusWaitsForTheAPI(t *testing.T) {
	r := newWriterRig(t)
	live := r.api.change("m", func(*v1alpha1.Machine) {})
	r.api.with(func() { r.api.away = true })
	r.Offer(showing(live, "1", 0))
	soon(t, "the first try failed", func() error {
		if r.count(outcomeError) == 0 {
			return errors.New("no try yet")
		}
		return nil
	})
	r.Offer(showing(live, "2", 0))
	r.api.with(func() { r.api.away = false })
	r.awaitVersion(t, "m", "2")
	if r.api.writes != 1 {
		t.Errorf("%d writes", r.api.writes)
	}
	if r.Pending() != 0 {
		t.Error("something is left")
	}
}

func TestStatusEndsWithTheTerm(t *testing.T) {
	r := newWriterRig(t)
	live := r.api.change("m", func(*v1alpha1.Machine) {})
	r.Offer(showing(live, "1", 50*time.Millisecond))
	r.cancel()
	r.Disable()
	r.Offer(showing(live, "2", 0))
	// A later term writes what it was offered and nothing of before.
	term, cancel := context.WithCancel(context.Background())
	defer cancel()
	r.Enable(term)
	other := r.api.change("other", func(*v1alpha1.Machine) {})
	r.Offer(showing(other, "3", 200*time.Millisecond)) // behind the first in the queue
	r.awaitVersion(t, "other", "3")
	if got := r.api.get("m").Status.AgentVersion; got != "" {
		t.Errorf("the old term wrote %q", got)
	}
}

func TestStatusThatIsRefusedHoldsUpNobody(t *testing.T) {
	r := newWriterRig(t)
	live := r.api.change("m", func(*v1alpha1.Machine) {})
	r.api.with(func() { r.api.refuse = true })
	r.Offer(showing(live, "1", 0))
	soon(t, "it is refused", func() error {
		if r.count(outcomeRefused) != 1 {
			return errors.New("not yet")
		}
		return nil
	})
	r.api.with(func() { r.api.refuse = false })
	other := r.api.change("other", func(*v1alpha1.Machine) {})
	r.Offer(showing(other, "1", 0))
	r.awaitVersion(t, "other", "1")
	if n := r.count(outcomeRefused); n != 1 {
		t.Errorf("the refused status was tried %d times at once", n)
	}
}

// TestFencedStatus is written over the version that it was made from, or not at all.
func TestFencedStatus(t *testing.T) {
	t.Parallel()
	r := newWriterRig(t)
	old := r.api.change("m", func(*v1alpha1.Machine) {})
	r.api.change("m", func(m *v1alpha1.Machine) { m.Status.AgentVersion = "of another leader" })
	fenced := func(live *v1alpha1.Machine, v string) Write {
		s := showing(live, v, 0)
		s.Fenced = true
		return s
	}
	r.Offer(fenced(old, "stale"))
	soon(t, "the conflict is met", func() error {
		if r.count(outcomeConflict) != 1 || r.Pending() != 0 {
			return fmt.Errorf("%d conflicts, %d pending", r.count(outcomeConflict), r.Pending())
		}
		return nil
	})
	if got := r.api.get("m").Status.AgentVersion; got != "of another leader" || r.api.asked != 1 {
		t.Errorf("it shows %q after %d requests", got, r.api.asked)
	}
	// The watch brings the newer one, and what follows from it is written.
	r.Offer(fenced(r.api.get("m"), "fresh"))
	r.awaitVersion(t, "m", "fresh")
}
