package watch

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.dev/internal/console"
	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/traffic"
)

// fake is a plane without machines.
type fake struct {
	epoch     uint64
	frontends []*model.Frontend
	err       error // of its loop
	statuses  *atomic.Int64
}

func (f fake) Serving() uint64           { return f.epoch }
func (f fake) Published() delta.Revision { return delta.Revision{Epoch: f.epoch, Number: 7} }
func (f fake) Ended() bool               { return false }

func (f fake) TapNote(context.Context, model.TapFilter) (string, error) { return "", nil }

func (f fake) Frontends(_ context.Context, wanted func(*model.Frontend) bool) (list []*model.Frontend, err error) {
	for _, one := range f.frontends {
		if wanted(one) {
			list = append(list, one)
		}
	}
	return list, f.err
}

func (f fake) Upstreams(context.Context) ([]model.UpstreamStatus, error) { return nil, f.err }
func (f fake) Backends(context.Context) ([]model.BackendStatus, error)   { return nil, f.err }

func (f fake) Status(context.Context) model.Status {
	n := f.statuses.Add(1)
	return model.Status{Plane: model.PlaneStatus{Revision: uint64(n)}}
}

// A plane that serves no machines asks none of them, whatever somebody wants to see.
func TestNobodyIsAskedBeforeThePlaneServes(t *testing.T) {
	v := &Viewers{config: Config{Plane: fake{}}} // has no machines: who asks them panics
	_, top := v.Top(t.Context(), traffic.Query{By: traffic.Routes}, 0)
	_, metrics := v.RequestMetrics(t.Context(), "")
	for what, err := range map[string]error{
		"top": top, "metrics": metrics,
		"tap":   v.Tap(t.Context(), "anna", model.TapFilter{}, nil),
		"flows": v.TapFlows(t.Context(), "anna", model.FlowTapQuery{}, nil),
	} {
		if !errors.Is(err, errNotServing) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Taps of both kinds have one bound, and a tap that is closed makes room for another.
func TestTapsAreBounded(t *testing.T) {
	v := &Viewers{}
	var releases []func()
	for range model.MaxTaps {
		release, err := v.open()
		if err != nil {
			t.Fatal(err)
		}
		releases = append(releases, release)
	}
	if _, err := v.open(); err == nil {
		t.Fatalf("more than %d taps are open", model.MaxTaps)
	}
	releases[0]()
	if _, err := v.open(); err != nil {
		t.Errorf("one was closed, and there is no room: %v", err)
	}
}

// Frontends are chosen by their name, VIP or owner, those of other namespaces are not even named, and there are no more than may be
// watched at once.
func TestFlowScope(t *testing.T) {
	frontend := func(port uint16, namespace string) *model.Frontend {
		return &model.Frontend{
			FrontendKey: model.FrontendKey{VIP: netip.MustParseAddr("192.0.2.1"), Transport: model.TCP, Port: port},
			Owner:       model.Object{Kind: "Service", Namespace: namespace, Name: "app"}, Machines: []string{"edge-1"},
		}
	}
	v := &Viewers{config: Config{Loop: fake{epoch: 1, frontends: []*model.Frontend{frontend(80, "shop"), frontend(81, "bank")}}}}
	for of, want := range map[string]int{"": 1, "shop/app": 1, "192.0.2.1": 1, "tcp://192.0.2.1:80": 1, "tcp://192.0.2.1:81": 0, "bank/app": 0} {
		s, err := v.flowScope(t.Context(), model.FlowTapQuery{Of: of, Namespace: "shop"})
		if len(s.owners) != want || (err == nil) != (want > 0) {
			t.Errorf("%q in shop means %v: %v", of, s.owners, err)
		}
		if err != nil && (!errors.Is(err, console.ErrNone) || strings.Contains(err.Error(), "did you mean bank")) {
			t.Errorf("%q in shop: %v", of, err)
		}
		for _, name := range s.names {
			if strings.Contains(name, "bank") || strings.Contains(name, ":81") {
				t.Errorf("%q in shop is told of %s", of, name)
			}
		}
	}
	many := fake{epoch: 1}
	for i := range maxTapFrontends + 1 {
		many.frontends = append(many.frontends, frontend(uint16(i+1), "shop"))
	}
	if _, err := (&Viewers{config: Config{Loop: many}}).flowScope(t.Context(), model.FlowTapQuery{}); !errors.Is(err, console.ErrNone) {
		t.Errorf("%d frontends match: %v", len(many.frontends), err)
	}
	away := fake{epoch: 1, err: errors.New("the loop is away")}
	if _, err := (&Viewers{config: Config{Loop: away}}).flowScope(t.Context(), model.FlowTapQuery{}); !errors.Is(err, away.err) {
		t.Errorf("the loop is away: %v", err)
	}
}

// A list that is made as a whole is made for all who watch it at once, and not at all when nobody does.
func TestPolledOnlyWhileWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var made atomic.Int64
		f := fake{epoch: 3, statuses: &made}
		v := New(Config{Plane: f, Lists: f, Machines: nobody{}, Now: time.Now})
		ctx, cancel := context.WithCancel(t.Context())
		first, err := v.WatchStatus(ctx, nil, "")
		if err != nil || !first.Reset || first.At.Epoch != 3 || first.At.Revision != 7 {
			t.Fatalf("the list begins with %+v: %v", first, err)
		}
		for range 20 {
			go func() {
				for at := &first.At; ; {
					next, err := v.WatchStatus(ctx, at, "")
					if err != nil {
						return
					}
					at = &next.At
				}
			}()
		}
		time.Sleep(10*pollGap + pollGap/2)
		if n := made.Load(); n != 11 {
			t.Errorf("for 20 who watch it was made %d times in ten gaps", n)
		}
		cancel()
		time.Sleep(2 * pollGap)
		was := made.Load()
		time.Sleep(time.Hour)
		if n := made.Load(); n != was {
			t.Errorf("nobody watches, and it was made %d times more", n-was)
		}
	})
}

// nobody is no machine.
type nobody struct{ Machines }
