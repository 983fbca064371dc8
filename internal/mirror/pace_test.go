package mirror

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
)

func returnTime(d time.Duration) func(*v1alpha1.Upstream) {
	return func(u *v1alpha1.Upstream) { u.Spec.Loss.ReturnTime = &metav1.Duration{Duration: d} }
}

// many services with an endpoint each.
func many(n int) []*model.UpstreamService {
	var all []*model.UpstreamService
	for i := range n {
		all = append(all, app(fmt.Sprintf("team/app%03d", i), addresses("10.0", n)[i]))
	}
	return all
}

// returning is a world whose upstream was away for so long and answers again.
func returning(t *testing.T, away time.Duration, services []*model.UpstreamService, options ...func(*v1alpha1.Upstream)) *world {
	w := newWorld(t, "team")
	w.set("up", options...)
	w.list("up", services...)
	w.settle()
	w.m.Contact("up", errAway, w.now)
	w.after(away)
	w.m.Contact("up", nil, w.now)
	return w
}

// Additions come at once. What is taken away is spread evenly, and all of it is gone at the end.
func TestReturn(t *testing.T) {
	services := many(200)
	w := returning(t, 30*time.Second, services, returnTime(10*time.Second))
	w.list("up", append(services[80:], app("team/new", "10.9.0.1"))...)
	w.settle()
	expect(t, "counts", w.counts("up"), "seen 121/121 replicated 201/201 held 0/0")
	if s, _ := w.m.State("up", 0); !s.Returning {
		t.Error("it does not say that it returns")
	}
	for step := 1; step <= 40; step++ {
		next := w.m.Advance(w.now)
		if next != w.now.Add(250*time.Millisecond) {
			t.Fatalf("step %d: the next one is in %v", step, next.Sub(w.now))
		}
		w.after(250 * time.Millisecond)
		s, _ := w.m.State("up", 0)
		if left := s.Replicated.Services - 121; left < 80-2*step || left > 80-2*step+1 {
			t.Fatalf("step %d: %d are left", step, left)
		}
	}
	if next := w.m.Advance(w.now); !next.IsZero() {
		t.Errorf("it has to do again at %v", next)
	}
	w.settle()
	expect(t, "counts", w.counts("up"), "seen 121/121 replicated 121/121 held 0/0")
	if s, _ := w.m.State("up", 0); s.Returning {
		t.Error("it says that it still returns")
	}
}

func TestReturnInOneService(t *testing.T) {
	ports := func(s *model.UpstreamService, port uint16) *model.UpstreamService {
		s.Slices[0].Ports = []model.UpstreamPort{{Name: "http", Port: port, Protocol: "TCP"}}
		return s
	}
	draining := app("team/app", "10.0.0.1", "10.0.0.2")
	draining.Slices[0].Endpoints[1].Ready = false
	for _, c := range []struct {
		name       string
		next       *model.UpstreamService
		first, end string
	}{
		{"an endpoint more", app("team/app", "10.0.0.1", "10.0.0.2", "10.0.0.3"), "10.0.0.1 10.0.0.2 10.0.0.3", "10.0.0.1 10.0.0.2 10.0.0.3"},
		{"other endpoints", app("team/app", "10.0.0.2", "10.0.0.3"), "10.0.0.1 10.0.0.2 10.0.0.3", "10.0.0.2 10.0.0.3"},
		{"an endpoint drains", draining, "10.0.0.1 10.0.0.2", "10.0.0.1 10.0.0.2!"},
		{"other ports", ports(app("team/app", "10.0.0.3", "10.0.0.4"), 9090), "10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.4", "10.0.0.3 10.0.0.4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := returning(t, time.Minute, []*model.UpstreamService{app("team/app", "10.0.0.1", "10.0.0.2")}, threshold(0))
			w.list("up", c.next)
			w.settle()
			expect(t, "in effect at once", w.inEffect(), "team/up-app: "+c.first)
			w.list("up", c.next) // the same again is no loss
			w.settle()
			expect(t, "in effect at once", w.inEffect(), "team/up-app: "+c.first)
			w.after(10 * time.Second)
			w.settle()
			expect(t, "in effect at the end", w.inEffect(), "team/up-app: "+c.end)
			expect(t, "stored at the end", w.stored(), "team/up-app: "+c.end)
		})
	}
}

func TestReturnAtOnce(t *testing.T) {
	services := many(4)
	gone := func(w *world) string {
		w.list("up", services[2:]...)
		w.settle()
		return w.counts("up")
	}
	want := "seen 2/2 replicated 2/2 held 0/0"
	expect(t, "away for a moment", gone(returning(t, 30*time.Second-1, services)), want)
	expect(t, "returnTime 0s", gone(returning(t, time.Hour, services, returnTime(0))), want)
	w := returning(t, time.Hour, services)
	w.after(10 * time.Second)
	expect(t, "after the return", gone(w), want)
}

func TestReturnWithClockSetBack(t *testing.T) {
	services := many(40)
	w := returning(t, time.Minute, services)
	w.list("up", services[20:]...)
	w.after(-time.Hour)
	w.settle()
	expect(t, "counts", w.counts("up"), "seen 20/20 replicated 40/40 held 0/0")
	w.after(5 * time.Second)
	if s, _ := w.m.State("up", 0); s.Replicated.Services < 29 || s.Replicated.Services > 31 {
		t.Errorf("halfway %d are in effect", s.Replicated.Services)
	}
	w.after(5 * time.Second)
	w.settle()
	expect(t, "counts", w.counts("up"), "seen 20/20 replicated 20/20 held 0/0")
}

// While an upstream returns, newer forms count.
func TestReturnWithChanges(t *testing.T) {
	w := returning(t, time.Minute, four())
	w.list("up", four()[1:]...)
	key := func(n int) model.UpstreamKey { return four()[n].Key }
	w.m.Remove("up", w.now, key(1))
	w.m.Put("up", w.now, four()[0], app("team/app2", "10.7.0.1", "10.7.0.2"))
	w.settle()
	expect(t, "in effect", w.inEffect(), strings.Replace(fourInEffect, "10.0.2.2", "10.0.2.2 10.7.0.1 10.7.0.2", 1))
	expect(t, "counts", w.counts("up"), "seen 3/6 replicated 4/10 held 0/0")
	w.after(10 * time.Second)
	w.settle()
	expect(t, "in effect at the end", w.inEffect(),
		"team/up-app0: 10.0.0.1 10.0.0.2", "team/up-app2: 10.7.0.1 10.7.0.2", "team/up-app3: 10.0.3.1 10.0.3.2")
	expect(t, "counts", w.counts("up"), "seen 3/6 replicated 3/6 held 0/0")
}
