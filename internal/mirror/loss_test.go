package mirror

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
)

var errAway = errors.New("no route to host")

// four services with two endpoints each.
func four() []*model.UpstreamService {
	var all []*model.UpstreamService
	for i := range 4 {
		all = append(all, app(fmt.Sprintf("team/app%d", i), fmt.Sprintf("10.0.%d.1", i), fmt.Sprintf("10.0.%d.2", i)))
	}
	return all
}

const fourInEffect = `team/up-app0: 10.0.0.1 10.0.0.2
team/up-app1: 10.0.1.1 10.0.1.2
team/up-app2: 10.0.2.1 10.0.2.2
team/up-app3: 10.0.3.1 10.0.3.2`

// bare is a service without its endpoints.
func bare(key string) *model.UpstreamService { return app(key) }

func TestLoss(t *testing.T) {
	services := four()
	one := func(s string) string { return strings.Split(fourInEffect, "\n")[s[0]-'0'] }
	for _, c := range []struct {
		name      string
		threshold int32
		list      []*model.UpstreamService
		want      []string
		counts    string
	}{
		{"an empty list", 50, nil, []string{fourInEffect}, "seen 0/0 replicated 4/8 held 4/8"},
		{"half is gone", 50, services[:2], []string{one("0"), one("1")}, "seen 2/4 replicated 2/4 held 0/0"},
		{"more than half is gone", 50, services[:1], []string{fourInEffect}, "seen 1/2 replicated 4/8 held 3/6"},
		{
			"more than half is gone, and one is new", 50,
			[]*model.UpstreamService{services[0], app("team/new", "10.9.0.1")},
			[]string{fourInEffect, "team/up-new: 10.9.0.1"},
			"seen 2/3 replicated 5/9 held 3/6",
		},
		{
			"endpoints are more than half gone", 50,
			[]*model.UpstreamService{bare("team/app0"), bare("team/app1"), app("team/app2", "10.0.2.1"), services[3]},
			[]string{one("0"), one("1"), "team/up-app2: 10.0.2.1", one("3")},
			"seen 4/3 replicated 4/7 held 2/4",
		},
		{
			"half of the endpoints are gone", 50,
			[]*model.UpstreamService{bare("team/app0"), bare("team/app1"), services[2], services[3]},
			[]string{"team/up-app0:", "team/up-app1:", one("2"), one("3")},
			"seen 4/4 replicated 4/4 held 0/0",
		},
		{
			"all endpoints are others", 50,
			[]*model.UpstreamService{app("team/app0", "10.1.0.1", "10.1.0.2"), services[1], services[2], services[3]},
			[]string{"team/up-app0: 10.1.0.1 10.1.0.2", one("1"), one("2"), one("3")},
			"seen 4/8 replicated 4/8 held 0/0",
		},
		{"threshold 0, one is gone", 0, services[1:], []string{fourInEffect}, "seen 3/6 replicated 4/8 held 1/2"},
		{"threshold 0, nothing is gone", 0, services, []string{fourInEffect}, "seen 4/8 replicated 4/8 held 0/0"},
		{
			"threshold 0, an endpoint is gone", 0,
			[]*model.UpstreamService{app("team/app0", "10.0.0.1"), services[1], services[2], services[3]},
			[]string{fourInEffect},
			"seen 4/7 replicated 4/8 held 1/2",
		},
		{"threshold 100, an empty list", 100, nil, nil, "seen 0/0 replicated 0/0 held 0/0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, "team")
			w.set("up", threshold(c.threshold))
			w.list("up", services...)
			w.settle()
			expect(t, "in effect", w.inEffect(), fourInEffect)
			w.list("up", c.list...)
			w.settle()
			expect(t, "in effect", w.inEffect(), c.want...)
			expect(t, "stored", w.stored(), c.want...)
			expect(t, "counts", w.counts("up"), c.counts)

			// A restart judges the list as before, and writes nothing.
			w.restart(w.m.upstreams["up"].object)
			w.take()
			expect(t, "in effect after a restart", w.inEffect(), c.want...)
			w.list("up", c.list...)
			if changed := w.settle(); len(changed) > 0 {
				t.Errorf("after a restart it wrote %v", changed)
			}
			expect(t, "in effect after a restart and a list", w.inEffect(), c.want...)

			// The upstream has all again.
			w.list("up", services...)
			w.settle()
			w.list("up", services...)
			if s, _ := w.m.State("up", 0); s.Held != (Counts{}) || !s.HeldSince.IsZero() {
				t.Errorf("it holds %+v", s.Held)
			}
		})
	}
}

func TestLossEnds(t *testing.T) {
	held := func(t *testing.T, options ...func(*v1alpha1.Upstream)) *world {
		w := newWorld(t, "team")
		w.set("up", options...)
		w.list("up", four()...)
		w.settle()
		w.after(time.Minute)
		w.list("up", four()[0])
		w.settle()
		expect(t, "counts", w.counts("up"), "seen 1/2 replicated 4/8 held 3/6")
		if s, _ := w.m.State("up", 0); s.HeldSince != w.now {
			t.Errorf("it holds since %v", s.HeldSince)
		}
		return w
	}
	gone := "team/up-app0: 10.0.0.1 10.0.0.2"
	for _, c := range []struct {
		name string
		end  func(t *testing.T, w *world)
		want string
	}{
		{"a list as short as before", func(_ *testing.T, w *world) { w.list("up", four()[0]) }, fourInEffect},
		{"an hour", func(_ *testing.T, w *world) { w.after(time.Hour) }, fourInEffect},
		{"a confirmation from before it", func(_ *testing.T, w *world) { w.set("up", confirmed(w.now.Add(-time.Second))) }, fourInEffect},
		{"a confirmation of the same second", func(_ *testing.T, w *world) { w.set("up", confirmed(w.now)) }, gone},
		{"a confirmation that is no time", func(_ *testing.T, w *world) {
			w.set("up", func(u *v1alpha1.Upstream) { u.Annotations = map[string]string{v1alpha1.AnnotationConfirmedAt: "yes"} })
		}, fourInEffect},
		{"just before keepFor ends", func(t *testing.T, w *world) {
			w.set("up", keepFor(time.Hour))
			if next := w.after(time.Hour - 1); next != w.now.Add(1) {
				t.Errorf("it has to do again at %v", next)
			}
		}, fourInEffect},
		{"keepFor", func(t *testing.T, w *world) {
			w.set("up", keepFor(time.Hour))
			if next := w.after(time.Hour); !next.IsZero() {
				t.Errorf("it has to do again at %v", next)
			}
		}, gone},
		{"the upstream says that one is gone", func(_ *testing.T, w *world) {
			w.m.Remove("up", w.now, model.UpstreamKey{Scope: "team", Name: "app1"})
		}, "team/up-app0: 10.0.0.1 10.0.0.2\nteam/up-app2: 10.0.2.1 10.0.2.2\nteam/up-app3: 10.0.3.1 10.0.3.2"},
		{"the upstream gives one without endpoints", func(_ *testing.T, w *world) { w.m.Put("up", w.now, bare("team/app1")) }, fourInEffect},
		{
			"the upstream gives one with other endpoints", func(_ *testing.T, w *world) { w.m.Put("up", w.now, app("team/app1", "10.5.0.1", "10.5.0.2")) },
			strings.Replace(fourInEffect, "10.0.1.1 10.0.1.2", "10.5.0.1 10.5.0.2", 1),
		},
		{"other limits", func(_ *testing.T, w *world) { w.set("up", threshold(0)) }, fourInEffect},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := held(t)
			c.end(t, w)
			w.settle()
			expect(t, "in effect", w.inEffect(), c.want)
			expect(t, "stored", w.stored(), c.want)
		})
	}
}

// Confirmations are for losses: what the upstream gave while the loss was held comes into effect.
func TestLossEndsWithNewest(t *testing.T) {
	w := newWorld(t, "team")
	w.set("up")
	w.list("up", four()...)
	w.list("up", four()[0])
	w.m.Put("up", w.now, bare("team/app1"))
	w.set("up", confirmed(w.now))
	w.settle()
	expect(t, "in effect", w.inEffect(), "team/up-app0: 10.0.0.1 10.0.0.2", "team/up-app1:")
	expect(t, "counts", w.counts("up"), "seen 2/2 replicated 2/2 held 0/0")
}

// Operators who select fewer want the loss.
func TestSelectingFewerIsNoLoss(t *testing.T) {
	exclude := func(u *v1alpha1.Upstream) { u.Spec.Namespaces.Exclude = []string{"team"} }
	for _, c := range []struct {
		name string
		spec func(*v1alpha1.Upstream)
		held string
	}{
		{"namespaces", exclude, "held 0/0"},
		{"another credential", func(u *v1alpha1.Upstream) { u.Spec.Kubernetes.Secret = "other" }, "held 4/8"},
		{"other networks", func(u *v1alpha1.Upstream) { u.Spec.Addresses = []string{"10.0.0.0/8"} }, "held 4/8"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, "team", "other")
			w.set("up")
			w.list("up", append(four(), app("other/app", "10.4.0.1"))...)
			w.settle()
			w.set("up", c.spec)
			w.list("up", app("other/app", "10.4.0.1"))
			w.settle()
			if have := w.counts("up"); !strings.HasSuffix(have, c.held) {
				t.Errorf("%s, expected %s", have, c.held)
			}
		})
	}
	// The plane was away meanwhile. Something else is gone, too, and it is no loss.
	w := newWorld(t, "team", "other")
	w.set("up")
	w.list("up", append(four(), app("other/app", "10.4.0.1"), app("other/gone", "10.4.0.2"))...)
	w.settle()
	w.restart(anUpstream("up", exclude))
	w.list("up", app("other/app", "10.4.0.1"))
	w.settle()
	expect(t, "in effect", w.inEffect(), "other/up-app: 10.4.0.1")
	expect(t, "stored", w.stored(), "other/up-app: 10.4.0.1")
}

func TestAway(t *testing.T) {
	w := newWorld(t, "team")
	w.set("up", keepFor(time.Hour))
	w.list("up", four()...)
	w.m.Contact("up", nil, w.now)
	w.settle()
	since := w.now
	w.m.Contact("up", errAway, w.now)
	if next := w.after(time.Minute); next != since.Add(time.Hour) {
		t.Errorf("it has to do again at %v", next)
	}
	w.m.Contact("up", errors.New("another reason"), w.now)
	w.settle()
	expect(t, "in effect while it is away", w.inEffect(), fourInEffect)
	if s, _ := w.m.State("up", 0); s.Failing != since || s.Err.Error() != "another reason" || s.LastContact != since || s.Expired {
		t.Errorf("its state is %+v", s)
	}
	if next := w.after(time.Hour); !next.IsZero() {
		t.Errorf("it has to do again at %v", next)
	}
	w.settle()
	none := "team/up-app0:\nteam/up-app1:\nteam/up-app2:\nteam/up-app3:"
	expect(t, "in effect after keepFor", w.inEffect(), none)
	expect(t, "stored after keepFor", w.stored(), none)
	if s, _ := w.m.State("up", 0); !s.Expired || s.Seen != (Counts{4, 8}) || s.Replicated != (Counts{4, 0}) {
		t.Errorf("its state is %+v", s)
	}
	w.m.Contact("up", nil, w.now)
	w.settle()
	expect(t, "in effect when it is back", w.inEffect(), fourInEffect)
	if s, _ := w.m.State("up", 0); s.Expired || s.Err != nil || !s.Failing.IsZero() {
		t.Errorf("its state is %+v", s)
	}
}

// An upstream that is back with a short list after its endpoints have expired does not lose them for good.
func TestAwayThenLoss(t *testing.T) {
	for _, first := range []string{"contact", "list"} {
		w := newWorld(t, "team")
		w.set("up", keepFor(time.Hour))
		w.list("up", four()...)
		w.m.Contact("up", errAway, w.now)
		w.after(time.Hour)
		w.settle()
		if first == "contact" {
			w.m.Contact("up", nil, w.now)
			w.list("up", four()[0])
		} else {
			w.list("up", four()[0])
			w.m.Contact("up", nil, w.now)
		}
		w.settle()
		expect(t, "in effect, "+first+" first", w.inEffect(), fourInEffect)
		expect(t, "counts, "+first+" first", w.counts("up"), "seen 1/2 replicated 4/8 held 3/6")
		w.after(time.Hour)
		w.settle()
		expect(t, "in effect, "+first+" first", w.inEffect(), "team/up-app0: 10.0.0.1 10.0.0.2")
	}
}

// Operators can confirm that an upstream is gone, and the plane may have started after it went.
func TestAwayBeforeTheStart(t *testing.T) {
	for _, end := range []string{"keepFor", "confirm"} {
		w := newWorld(t, "team")
		w.set("up")
		w.list("up", four()...)
		w.settle()
		w.restart(anUpstream("up", keepFor(time.Hour)))
		w.m.Contact("up", errAway, w.now)
		w.after(time.Minute)
		w.settle()
		expect(t, "in effect", w.inEffect(), fourInEffect)
		if end == "confirm" {
			w.set("up", confirmed(w.now))
		} else {
			w.after(time.Hour)
		}
		w.settle()
		none := "team/up-app0:\nteam/up-app1:\nteam/up-app2:\nteam/up-app3:"
		expect(t, "in effect after "+end, w.inEffect(), none)
		expect(t, "stored after "+end, w.stored(), none)
		w.m.Contact("up", nil, w.now)
		w.list("up", four()...)
		w.settle()
		expect(t, "in effect when it is back", w.inEffect(), fourInEffect)
	}
}

// A confirmation with a time to come, by a typing error or a clock, confirms no later losses.
func TestConfirmationOfTheFuture(t *testing.T) {
	w := newWorld(t, "team")
	w.set("up", confirmed(w.now.Add(24*365*time.Hour)))
	w.list("up", four()...)
	w.settle()
	w.after(time.Minute)
	w.list("up")
	w.after(time.Minute)
	w.settle()
	expect(t, "in effect", w.inEffect(), fourInEffect)
	w.set("up", confirmed(w.now.Add(confirmAhead))) // the other clock is a little ahead
	w.settle()
	expect(t, "in effect", w.inEffect())
}

// Before the first complete list, a service that has lost its endpoints stays as it is stored; the list decides about all of them.
func TestLossBeforeTheFirstList(t *testing.T) {
	w := newWorld(t, "team")
	w.set("up")
	w.list("up", app("team/app0", "10.0.0.1", "10.0.0.2"), app("team/app1", "10.1.0.1", "10.1.0.2"))
	w.settle()
	before := w.inEffect()
	w.restart(w.m.upstreams["up"].object)
	w.m.Put("up", w.now, bare("team/app0"))
	w.m.Put("up", w.now, bare("team/app1"))
	w.settle()
	if have := w.inEffect(); have != before {
		t.Errorf("in effect before the list: %s, want %s", have, before)
	}
	w.list("up", bare("team/app0"), bare("team/app1"))
	w.settle()
	if have := w.inEffect(); have != before || len(w.m.upstreams["up"].holds) != 2 {
		t.Errorf("in effect after the list: %s, want %s, held", have, before)
	}
	w.restart(w.m.upstreams["up"].object)
	w.m.Put("up", w.now, app("team/app0", "10.0.0.2", "10.0.0.3")) // others take the place
	w.settle()
	if have := w.inEffect(); have == before {
		t.Errorf("another form is not in effect: %s", have)
	}
}
