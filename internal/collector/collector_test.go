package collector

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// server is a collector whose answers a test decides.
type server struct {
	collectorv1.UnimplementedTraceServiceServer
	answer func(context.Context, *collectorv1.ExportTraceServiceRequest) error
}

func (s *server) Export(ctx context.Context, q *collectorv1.ExportTraceServiceRequest) (*collectorv1.ExportTraceServiceResponse, error) {
	return &collectorv1.ExportTraceServiceResponse{}, s.answer(ctx, q)
}

// counts are what became of traces, and what was logged.
type counts struct {
	mu    sync.Mutex
	news  chan struct{}
	n     map[Result]int
	lines strings.Builder
}

func (c *counts) count(r Result, n int) {
	c.mu.Lock()
	c.n[r] += n
	c.mu.Unlock()
	c.signal()
}

func (c *counts) signal() {
	select {
	case c.news <- struct{}{}:
	default:
	}
}

func (c *counts) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.signal()
	return c.lines.Write(b)
}

// await waits until so many traces have a result.
func (c *counts) await(t *testing.T, r Result, n int) {
	t.Helper()
	c.until(t, func() bool { return c.n[r] >= n })
}

func (c *counts) until(t *testing.T, is func() bool) {
	t.Helper()
	limit := time.After(time.Minute)
	for {
		c.mu.Lock()
		done := is()
		c.mu.Unlock()
		if done {
			return
		}
		select {
		case <-c.news:
		case <-limit:
			t.Fatalf("results are %v, the log is\n%s", c.n, c.lines.String())
		}
	}
}

// begin runs a Collector that sends to a server with these answers.
func begin(t *testing.T, answer func(context.Context, *collectorv1.ExportTraceServiceRequest) error) (*Collector, *counts, func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	collectorv1.RegisterTraceServiceServer(g, &server{answer: answer})
	go func() { _ = g.Serve(l) }()
	t.Cleanup(g.Stop)
	n := &counts{n: map[Result]int{}, news: make(chan struct{}, 1)}
	c, err := New(Config{
		URL: "http://" + l.Addr().String(), Service: "fairlead", Log: slog.New(slog.NewTextHandler(n, nil)), Count: n.count,
		pause: time.Millisecond, patience: 50 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { c.Run(ctx) })
	end := func() { cancel(); running.Wait() }
	t.Cleanup(end)
	return c, n, end
}

func trace() []*tracev1.Span { return []*tracev1.Span{{Name: "change", TraceId: make([]byte, 16)}} }

// TestCollectorThatHangs: who sends never waits, what is beyond the bound is dropped and counted, and it is said once. When the
// collector answers again, the newest traces arrive.
func TestCollectorThatHangs(t *testing.T) {
	var hangs sync.Map
	hangs.Store("hangs", true)
	c, n, end := begin(t, func(ctx context.Context, _ *collectorv1.ExportTraceServiceRequest) error {
		if _, is := hangs.Load("hangs"); is {
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	})
	const many = 10 * maxWaiting
	for range many {
		c.Send(trace())
	}
	n.await(t, Dropped, many-maxWaiting-maxSent)
	n.until(t, func() bool { return strings.Contains(n.lines.String(), "does not take traces") })
	hangs.Delete("hangs")
	n.await(t, Sent, maxWaiting)
	end()
	n.mu.Lock()
	defer n.mu.Unlock()
	if got := n.n[Sent] + n.n[Dropped]; got != many || n.n[Refused] != 0 {
		t.Errorf("%d traces have a result: %v", got, n.n)
	}
	if s := n.lines.String(); strings.Count(s, "does not take traces") != 1 || strings.Count(s, "takes traces again") != 1 {
		t.Errorf("it logs\n%s", s)
	}
}

// TestCollectorThatRefuses: what a collector refuses is not sent again.
func TestCollectorThatRefuses(t *testing.T) {
	c, n, end := begin(t, func(context.Context, *collectorv1.ExportTraceServiceRequest) error {
		return status.Error(codes.PermissionDenied, "no")
	})
	for range 3 {
		c.Send(trace())
	}
	n.await(t, Refused, 3)
	end()
	if n.n[Sent]+n.n[Dropped] != 0 || strings.Count(n.lines.String(), "\n") != 1 {
		t.Errorf("results are %v, the log is\n%s", n.n, n.lines.String())
	}
}

// TestCollectorThatIsAway: nobody listens. What waits at the end is counted, too.
func TestCollectorThatIsAway(t *testing.T) {
	n := &counts{n: map[Result]int{}, news: make(chan struct{}, 1)}
	c, err := New(Config{URL: "http://127.0.0.1:1", Log: slog.New(slog.NewTextHandler(n, nil)), Count: n.count, pause: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { c.Run(ctx) })
	for range maxWaiting + 2 {
		c.Send(trace())
	}
	cancel()
	running.Wait()
	if n.n[Dropped] != maxWaiting+2 {
		t.Errorf("results are %v", n.n)
	}
}

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"http://otel:4317": "otel:4317", "https://otel": "otel:4317", "http://[2001:db8::1]:55": "[2001:db8::1]:55",
		"otel:4317": "", "http://": "", "http://otel/v1/traces": "", "http://u:p@otel": "", "grpc://otel": "",
	} {
		got, _, err := Parse(text)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v; want %q", text, got, err, want)
		}
	}
	if _, err := New(Config{URL: "x"}); err == nil || errors.Unwrap(err) != nil {
		t.Errorf("New: %v", err)
	}
}
