package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/internal/console"
	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/model"
)

// watchedPlane is a console whose routes are watched: each call of next is one look for changes.
func watchedPlane(t *testing.T, next func(ctx context.Context, after *console.Position) (console.Update, error)) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(console.Handler(console.Config{
		Health: &served{}, Metrics: prometheus.NewRegistry(),
		Watches: map[string]console.Watch{v1.RoutesPath: func(ctx context.Context, after *console.Position, _ string) (console.Update, error) {
			return next(ctx, after)
		}},
	}))
	t.Cleanup(s.Close)
	return s
}

func routeBlock(host string) console.Block {
	return console.Block{Key: "http-80 " + host, Rows: []model.RouteRow{{Host: host, Owner: model.Object{Kind: "HTTPRoute", Namespace: "shop", Name: "a"}}}}
}

// endsAt keeps what is written, and calls end once a text is there.
type endsAt struct {
	strings.Builder
	text string
	end  func()
}

func (e *endsAt) Write(b []byte) (int, error) {
	n, err := e.Builder.Write(b)
	if strings.Contains(e.String(), e.text) {
		e.end()
	}
	return n, err
}

// TestWatchRoutes: a stream that breaks goes on where it was, and Ctrl-C is no failure.
func TestWatchRoutes(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	looks, resumed := 0, console.Position{}
	s := watchedPlane(t, func(ctx context.Context, after *console.Position) (console.Update, error) {
		looks++
		switch looks {
		case 1:
			return console.Update{At: console.Position{Epoch: 2, Revision: 7, Change: 1}, Reset: true, Blocks: []console.Block{routeBlock("a.test"), routeBlock("b.other")}}, nil
		case 2:
			return console.Update{}, errors.New("the plane ends")
		case 3:
			resumed = *after
			return console.Update{At: console.Position{Epoch: 2, Revision: 8, Change: 2}, Blocks: []console.Block{{Key: "http-80 a.test", Rows: []model.RouteRow{}}}}, nil
		}
		<-ctx.Done()
		return console.Update{}, ctx.Err()
	})
	root := newRoot()
	out, notes := endsAt{text: `"revision":8}`, end: stop}, strings.Builder{}
	root.SetOut(&out)
	root.SetErr(&notes)
	root.SetArgs([]string{"routes", "*.test", "--watch", "-o", "json", "--plane-console", s.URL})
	if err := root.ExecuteContext(ctx); err != nil {
		t.Fatal(err)
	}
	if resumed != (console.Position{Epoch: 2, Revision: 7, Change: 1}) {
		t.Errorf("the stream goes on after %s", resumed)
	}
	lines := strings.Split(out.String(), "\n")
	want := []string{
		`{"event":"block","key":"http-80 a.test","rows":[{`, `{"event":"current","epoch":2,"revision":7}`,
		`{"event":"block","key":"http-80 a.test","rows":[]}`, `{"event":"current","epoch":2,"revision":8}`, "",
	}
	for i := range want {
		if len(lines) != len(want) || !strings.HasPrefix(lines[i], want[i]) {
			t.Fatalf("it prints %q, want lines that begin with %q", lines, want)
		}
	}
	if n := notes.String(); n != "the stream has ended, and goes on as soon as a plane answers\nthe plane answers again\n" {
		t.Errorf("it notes %q", n)
	}
}

// TestWatchEnds: a watcher goes on only where a later answer may be another one.
func TestWatchEnds(t *testing.T) {
	answers := []int{}
	plane := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		status := answers[0]
		answers = answers[1:]
		if status != http.StatusOK {
			http.Error(w, "no", status)
			return
		}
		_, _ = w.Write([]byte("event: reset\ndata: {}\n\nevent: current\nid: 1.1.1\ndata: {\"epoch\":1,\"revision\":1}\n\n"))
	}))
	defer plane.Close()
	full := errors.New("full")
	for _, c := range []struct {
		name    string
		answers []int
		shows   error
		says    string
		waits   int
	}{
		{name: "refused at first", answers: []int{403}, says: "no"},
		{name: "no plane at first", answers: []int{503}, says: "503"},
		{name: "the right is gone", answers: []int{200, 403}, says: "no", waits: 1},
		{name: "a failover", answers: []int{200, 503, 421, 200, 401}, says: "no", waits: 4},
		{name: "a full disk", answers: []int{200}, shows: full, says: "full"},
	} {
		t.Run(c.name, func(t *testing.T) {
			answers = c.answers
			var waits []time.Duration
			w := watcher{
				path: v1.RoutesPath, connect: func() (console.Client, error) { return console.Client{URL: plane.URL, HTTP: plane.Client()}, nil },
				show: func(console.Watched) error { return c.shows }, notes: &strings.Builder{},
				wait: func(_ context.Context, d time.Duration) error { waits = append(waits, d); return nil },
			}
			err := w.run(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.says) || len(answers) != 0 || len(waits) != c.waits {
				t.Errorf("%v after %v, %d answers are left", err, waits, len(answers))
			}
			if c.waits == 4 && (waits[0] != watchAgain || waits[1] != 2*watchAgain || waits[2] != 4*watchAgain || waits[3] != watchAgain) {
				t.Errorf("it waits %v", waits)
			}
		})
	}
}
