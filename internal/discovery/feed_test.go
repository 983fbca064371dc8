package discovery

import (
	"fmt"
	"testing"
	"time"

	"fairlead.dev/internal/model"
)

// A source that says very much is heard a part at a time, and each service only in its last form; others have their turns.
func TestFeedTakesTurns(t *testing.T) {
	f := newFeed()
	loud, quiet := sink{f, "loud", 1, time.Now}, sink{f, "quiet", 2, time.Now}
	service := func(name string, n int) *model.UpstreamService {
		return &model.UpstreamService{Key: model.UpstreamKey{Scope: "team", Name: name}, Object: fmt.Sprint(n)}
	}
	for i := range 100_000 {
		loud.Put(service(fmt.Sprint("app", i%5000), i))
		loud.Contact(nil)
	}
	quiet.Put(service("app", 1))
	quiet.Remove(model.UpstreamKey{Scope: "team", Name: "app"})
	quiet.Put(service("app", 2))
	first := f.take()
	if len(first) > 2*roundServices {
		t.Errorf("%d events in a round", len(first))
	}
	var ofQuiet []string
	for _, e := range first {
		if e.upstream == "quiet" {
			ofQuiet = append(ofQuiet, e.services[0].Object)
		}
	}
	if fmt.Sprint(ofQuiet) != "[2]" {
		t.Errorf("of the quiet one the first round has %v", ofQuiet)
	}
	last := map[string]string{}
	for events := first; len(events) > 0; events = f.take() {
		for _, e := range events {
			if e.upstream == "loud" && e.what == put {
				if _, twice := last[e.services[0].Key.Name]; twice {
					t.Fatalf("%s is heard of twice", e.services[0].Key.Name)
				}
				last[e.services[0].Key.Name] = e.services[0].Object
			}
		}
	}
	if len(last) != 5000 || last["app4999"] != "99999" {
		t.Errorf("%d services, the last form of one is %s", len(last), last["app4999"])
	}
	select {
	case <-f.some:
	default:
		t.Error("nothing was signalled")
	}
	if len(f.lines)+len(f.turns) > 0 {
		t.Errorf("%d lines and %d turns are left", len(f.lines), len(f.turns))
	}
}

// Services with very many endpoints take longer. Of one upstream there is one in a round, so that the others need not wait.
func TestFeedCountsEndpoints(t *testing.T) {
	f := newFeed()
	loud, quiet := sink{f, "loud", 1, time.Now}, sink{f, "quiet", 2, time.Now}
	endpoints := make([]model.UpstreamEndpoint, 100_000)
	for i := range 10 {
		loud.Put(&model.UpstreamService{Key: model.UpstreamKey{Scope: "team", Name: fmt.Sprint("app", i)}, Slices: []model.UpstreamSlice{{Endpoints: endpoints}}})
	}
	quiet.Put(&model.UpstreamService{Key: model.UpstreamKey{Scope: "team", Name: "app"}})
	of := map[string]int{}
	for range 2 {
		for _, e := range f.take() {
			of[e.upstream]++
		}
	}
	if of["loud"] > 2 || of["quiet"] != 1 {
		t.Errorf("of two rounds, %v", of)
	}
	for events := f.take(); len(events) > 0; events = f.take() {
		of["loud"] += len(events)
	}
	if of["loud"] != 10 {
		t.Errorf("of all rounds, %v", of)
	}
}

// A complete list takes the place of changes that came before it, and changes after it follow it.
func TestFeedKeepsTheOrder(t *testing.T) {
	f := newFeed()
	s := sink{f, "up", 1, time.Now}
	a, b := &model.UpstreamService{Key: model.UpstreamKey{Name: "a"}}, &model.UpstreamService{Key: model.UpstreamKey{Name: "b"}}
	s.Put(a)
	s.Replace([]*model.UpstreamService{a, b})
	s.Remove(a.Key)
	var said []string
	for events := f.take(); len(events) > 0; events = f.take() {
		for _, e := range events {
			said = append(said, fmt.Sprint(e.what, len(e.services), e.keys))
		}
	}
	if want := fmt.Sprint([]string{fmt.Sprint(replaced, 2, []model.UpstreamKey(nil)), fmt.Sprint(removed, 0, []model.UpstreamKey{a.Key})}); fmt.Sprint(said) != want {
		t.Errorf("said %v, want %s", said, want)
	}
	s.Put(a)
	f.forget(1)
	if events := f.take(); len(events) > 0 {
		t.Errorf("of a source that was stopped there is %v", events)
	}
}
