package plane

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/internal/plane/status"
	"fairlead.dev/internal/snapshot"
)

// logLines keeps what a plane logs at level info and above.
type logLines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logLines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// since are the lines behind the first n, without their times.
func (l *logLines) since(n int) (lines []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if n--; n < 0 {
			_, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
			lines = append(lines, rest)
		}
	}
	return lines
}

// TestLogIsQuietUntilSomethingChanges holds that a plane logs nothing while nothing changes, one line when something does, and
// one for all objects of a batch.
func TestLogIsQuietUntilSomethingChanges(t *testing.T) {
	r := newRig(t)
	r.world()
	var log logLines
	at := &clock{}
	p := r.plane("one", func(c *Config) {
		c.Log, c.Now = slog.New(slog.NewTextHandler(&log, nil)), at.Now
	}).awaitReady()
	a := r.joined(p, "edge-1")
	a.connect(p.AgentAddress().String())
	a.await("has the route", a.holdsHost("app.example"))
	route := httpRoute("app", "", "")
	await(r, route, "the route is programmed", routeIs(metav1.ConditionTrue, status.ReasonProgrammed, ""))

	// do runs a function in the loop.
	do := func(f func(*loop)) {
		t.Helper()
		done := make(chan struct{})
		p.calls <- func(l *loop) { f(l); close(done) }
		<-done
	}
	beats := func(n int) {
		t.Helper()
		for range n {
			do(func(l *loop) { l.beat(t.Context()) })
		}
	}
	do(func(l *loop) { // the machine's own object was published
		l.announcements.last = time.Time{}
		l.beat(t.Context())
	})
	seen := len(log.since(0))
	if seen == 0 {
		t.Fatal("a plane that begins to lead and gets a machine says nothing")
	}
	quiet := func(what string) {
		t.Helper()
		beats(100)
		if more := log.since(seen); len(more) > 0 {
			t.Fatalf("%s:\n%s", what, strings.Join(more, "\n"))
		}
	}
	says := func(what string, words ...string) {
		t.Helper()
		var more []string
		eventually(t, what, func() error {
			beats(1)
			if more = log.since(seen); len(more) == 0 {
				return fmt.Errorf("nothing is said")
			}
			return nil
		})
		beats(100)
		if more = log.since(seen); len(more) != 1 {
			t.Fatalf("%s:\n%s", what, strings.Join(more, "\n"))
		}
		for _, w := range append(words, `level=INFO msg=published revision=`, "machines=1") {
			if !strings.Contains(more[0], w) {
				t.Errorf("%s: %s lacks %q", what, more[0], w)
			}
		}
		seen++
	}
	quiet("nothing changes")

	r.create(httpRoute("second", "second.example", "app"))
	a.await("has the second route", a.holdsHost("second.example"))
	says("a route is created", `changes=1 objects="HTTPRoute default/second"`)
	quiet("nothing changes again")

	// A batch of many objects is one line, and so are batches that follow each other at once.
	do(func(l *loop) {
		for part := range 2 {
			var b snapshot.Batch
			for i := range 20 {
				o := httpRoute(fmt.Sprintf("many-%d-%02d", part, i), fmt.Sprintf("many-%d-%d.example", part, i), "app")
				b.Changes = append(b.Changes, snapshot.Change{Key: snapshot.Key{Kind: snapshot.KindHTTPRoute, Name: snapshot.Name{Namespace: o.Namespace, Name: o.Name}}, Object: o})
			}
			l.announcements.last = at.Now() // a line was just written
			l.change(context.Background(), b)
		}
	})
	says("many routes are created", "changes=40", "and 32 more")

	// Endpoints change by themselves, and often: a line a minute.
	endpoints := func(address string) {
		t.Helper()
		s := slice("app", "10.1.0.1", address)
		do(func(l *loop) {
			key := snapshot.Key{Kind: snapshot.KindEndpointSlice, Name: snapshot.Name{Namespace: s.Namespace, Name: s.Name}}
			l.change(context.Background(), snapshot.Batch{Changes: []snapshot.Change{{Key: key, Object: s}}})
		})
	}
	do(func(l *loop) { l.announcements.last = at.Now() })
	for i := range 5 {
		endpoints(fmt.Sprintf("10.1.0.%d", 10+i))
	}
	quiet("endpoints change within a minute")
	do(func(l *loop) { l.announcements.last = l.announcements.last.Add(-tellEndpointsEvery) })
	says("endpoints have changed", "endpoint_slices=5")
}
