// Package console serves what a process knows about itself, read-only, over HTTP:
// health, readiness, metrics and the status that people read; and renders that
// status as one screen of text.
//
// Package v1 below declares its answers, and a Client returns them.
//
// It changes nothing and stores nothing. Everything it shows is asked for at the
// moment of the request. One user leaves others room: answers, streams and taps have
// bounds, of which each user has a share.
//
// Files in reading order:
//   - console.go, paths.go: the handlers, and all that is read below /v1, in one table
//   - host.go, read.go, standby.go: which callers are answered, the right that a question
//     needs, and the leader that answers for a standby
//   - bound.go, meter.go: how many are answered at once, and what is refused
//   - page.go, stream.go: the forms of long answers
//   - routes.go, balancing.go, freeze.go, changes.go, upstream.go, top.go, requestmetrics.go,
//     tap.go, flowtap.go, explain.go, explainflow.go: one kind of answer each, with its handler,
//     the Client's method and its text for a terminal; freeze.go has revisions
//   - drops.go: dropped packets, at an agent's own socket
//   - client.go, watch.go, routewatch.go: the Client, lists that it watches, and the text of
//     watched routes
//   - text.go, network.go, explaintext.go, droptext.go, printable.go: more text; all of it is
//     printable
package console

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"fairlead.dev/internal/explain"
	"fairlead.dev/internal/model"
)

// Health says whether a process works, and whether it should be given work.
type Health interface {
	// Healthz is nil while the process works; otherwise restart it.
	Healthz(context.Context) error
	// Readyz is nil while the process serves; otherwise wait for it.
	Readyz(context.Context) error
}

// Config is what a console shows.
type Config struct {
	Health  Health
	Metrics prometheus.Gatherer
	// Status returns the value of v1.StatusPath, which has the JSON of a v1.Status or a v1.AgentStatus; nil where there is
	// none.
	Status func(context.Context) any
	// Explain says what becomes of a request; nil where nobody can tell.
	Explain func(context.Context, explain.Request) (explain.Explanation, error)
	// ExplainFlow says what becomes of a flow; nil where nobody can tell.
	ExplainFlow func(context.Context, explain.FlowRequest) (explain.FlowExplanation, error)
	// Revisions are the steps of routing, newest first; nil where there are none.
	Revisions func(context.Context) ([]model.Revision, error)
	// Changes are the last changes of objects, newest first; nil where there are none.
	Changes func(context.Context) ([]model.Change, error)
	// ChangedKind is why there are no changes of a kind of objects, in any case of letters; nil: there may be.
	ChangedKind func(kind string) error
	// Routes are the routes of the edges; nil where there are none.
	Routes *RouteList
	// Top is what proxies answer a second; nil where there is none.
	Top func(ctx context.Context, q TopQuestion) (model.Top, error)
	// RequestMetrics are the metrics of requests of all machines, or of one namespace; nil where there are none.
	RequestMetrics func(ctx context.Context, namespace string) (prometheus.Gatherer, error)
	// AwaitTop waits until there is a sample after one; nil: there always is.
	AwaitTop func(ctx context.Context, after uint64) error
	// Tap shows requests of clients until ctx is done or show fails; nil where there are none.
	Tap func(ctx context.Context, f model.TapFilter, show func(model.TapEvent) error) error
	// TapFlows shows flows of clients in the same way.
	TapFlows func(ctx context.Context, q model.FlowTapQuery, show func(model.FlowTapEvent) error) error
	// Upstreams are all upstreams, or one with its last changes; nil where there are none.
	Upstreams func(ctx context.Context, name string) ([]model.UpstreamStatus, error)
	// Backends are those of frontends, and Flows what flow tables have; nil where there are
	// none.
	Backends func(ctx context.Context, of string) ([]model.BackendStatus, error)
	Flows    func(ctx context.Context, f FlowFilter) (model.FlowList, error)
	// Watches wait for changes of the lists at those of the paths that can be watched.
	Watches map[string]Watch
	// Standby is why the process does not know what is asked of it: a Standby; nil where it
	// does, or always does.
	Standby func() error
	// Relay asks the read API of the plane that leads, with the credential of whoever asks; nil: nobody is asked for
	// this process.
	Relay func(*http.Request) (*http.Response, error)
	// User is the name of whoever asks, who has a share of what there is room for; empty, or nil: one who may have all.
	User func(context.Context) string
	// Bounds are the slots for answers, which other consoles of the process share; nil: it has its own.
	Bounds *Bounds
	// Meter counts what is refused and what is open; nil: nobody does.
	Meter *Meter
	// Loopback has what is below /v1 answer callers on this machine only.
	Loopback bool
	Log      *slog.Logger
}

// Handler serves /healthz, /readyz, /metrics and, where there are any, the status and
// explanations.
func Handler(c Config) http.Handler {
	probes := http.NewServeMux()
	probes.HandleFunc("GET /healthz", check(c.Health.Healthz))
	probes.HandleFunc("GET /readyz", check(c.Health.Readyz))
	scraped := promhttp.HandlerFor(c.Metrics, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError, EnableOpenMetrics: true, // only there are exemplars
	})
	probes.Handle("GET /metrics", newSlots(Config{}, kindAnswers).soon(made(scraped)))
	answers := Reads(c)
	if c.Loopback {
		answers = fromLoopback(answers)
	}
	probes.Handle("/v1/", answers)
	return ownHost(probes)
}

// Reads serves what is below /v1.
func Reads(c Config) http.Handler {
	mux, all := http.NewServeMux(), http.NewServeMux()
	answers := newSlots(c, kindAnswers).soon(mux)
	bounds := map[kind]http.Handler{
		kindAnswers: answers, kindTop: newSlots(c, kindTop).now(awaited(c, mux, answers)), kindFlowAnswers: newSlots(c, kindFlowAnswers).soon(mux), kindTaps: newSlots(c, kindTaps).now(mux),
	}
	all.Handle("/v1/", bounds[kindAnswers])
	for _, p := range paths {
		all.Handle(p.at, bounds[p.kind])
		mux.HandleFunc("GET "+p.at, p.answered(c))
	}
	return streamed(c, all)
}

// Serve answers on l until ctx is done. Slow and idle clients are cut off, and a
// request's header may hold 16 KiB.
func Serve(ctx context.Context, l net.Listener, c Config) error {
	return ServeHandler(ctx, l, Handler(c), c.Log)
}

// ServeHandler is Serve with a handler of one's own.
func ServeHandler(ctx context.Context, l net.Listener, h http.Handler, log *slog.Logger) error {
	s := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       60 * time.Second,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	stop := context.AfterFunc(ctx, func() {
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		if s.Shutdown(grace) != nil {
			_ = s.Close() // the grace is over; nothing is lost, the console only reads
		}
	})
	defer stop()
	if err := s.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the console at %s: %w", l.Addr(), err)
	}
	return nil
}

// Listen opens the console's address, which the flag of that name chooses. An address that is
// not loopback is allowed and said: whoever reaches it may read the status.
func Listen(address, flag string, log *slog.Logger) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for the console at %s (--%s chooses another): %w", address, flag, err)
	}
	if tcp, ok := l.Addr().(*net.TCPAddr); ok && !tcp.IP.IsLoopback() {
		log.Warn("the console is readable by everyone who reaches its address", "address", l.Addr().String())
	}
	return l, nil
}

func check(f func(context.Context) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
		defer cancel()
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		if err := f(ctx); err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			writeBody(w, []byte(err.Error()+"\n"))
			return
		}
		writeBody(w, []byte("ok\n"))
	}
}
