package collector

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"sync"
	"time"

	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	resourcev1 "go.opentelemetry.io/proto/otlp/resource/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

const (
	// maxWaiting is how many traces wait to be sent, and maxSent how many of them a message has: with the largest
	// traces it is within the 4 MiB that servers of gRPC accept.
	maxWaiting = 64
	maxSent    = 8
	// patience is how long an answer of the collector may take.
	patience = 10 * time.Second
	// pause and maxPause are between attempts while the collector is away.
	pause    = time.Second
	maxPause = 30 * time.Second
)

// The results of a trace.
const (
	// Sent was taken by the collector.
	Sent Result = "sent"
	// Refused was refused by the collector.
	Refused Result = "refused"
	// Dropped was not sent: too many waited, or the program ended.
	Dropped Result = "dropped"
)

// Result says what became of a trace.
type Result string

// Results are all of them.
func Results() []Result { return []Result{Sent, Refused, Dropped} }

// Config is what a Collector is told.
type Config struct {
	// URL is http://HOST:PORT, or https://HOST:PORT for TLS with the system's authorities; see Parse.
	URL string
	// Service, Instance and Version say whose spans they are.
	Service, Instance, Version string
	Log                        *slog.Logger
	// Count is told of results.
	Count func(Result, int)
	// pause and patience replace the constants; 0 does not.
	pause, patience time.Duration
}

// Parse reads a URL of a collector.
func Parse(text string) (target string, secure bool, err error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https":
		return "", false, fmt.Errorf("%q is not the URL of a collector: want http://HOST:PORT, or https://HOST:PORT for TLS", text)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Path != "" && u.Path != "/":
		return "", false, fmt.Errorf("%q has more than a scheme, a host and a port: spans are sent by gRPC, which has no path", text)
	}
	port := u.Port()
	if port == "" {
		port = "4317"
	}
	return net.JoinHostPort(u.Hostname(), port), u.Scheme == "https", nil
}

// Collector sends traces.
type Collector struct {
	config   Config
	conn     *grpc.ClientConn
	resource *resourcev1.Resource
	wake     chan struct{}

	mu      sync.Mutex
	waiting [][]*tracev1.Span
}

// New returns a Collector. Nothing is sent before Run.
func New(c Config) (*Collector, error) {
	target, secure, err := Parse(c.URL)
	if err != nil {
		return nil, err
	}
	if c.pause == 0 {
		c.pause = pause
	}
	if c.patience == 0 {
		c.patience = patience
	}
	transport := insecure.NewCredentials()
	if secure {
		transport = credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12})
	}
	conn, err := grpc.NewClient("dns:///"+target, grpc.WithTransportCredentials(transport), grpc.WithDisableServiceConfig(), grpc.WithMaxHeaderListSize(64<<10))
	if err != nil {
		return nil, fmt.Errorf("prepare the connection to the collector %s: %w", c.URL, err)
	}
	resource := &resourcev1.Resource{}
	for _, a := range [][2]string{{"service.name", c.Service}, {"service.instance.id", c.Instance}, {"service.version", c.Version}} {
		resource.Attributes = append(resource.Attributes, &commonv1.KeyValue{Key: a[0], Value: &commonv1.AnyValue{Value: &commonv1.AnyValue_StringValue{StringValue: a[1]}}})
	}
	return &Collector{config: c, conn: conn, resource: resource, wake: make(chan struct{}, 1)}, nil
}

// Send has a trace sent. It never waits: the oldest trace makes room.
func (c *Collector) Send(trace []*tracev1.Span) {
	c.mu.Lock()
	dropped := c.put(trace)
	c.mu.Unlock()
	c.count(Dropped, dropped)
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *Collector) put(trace []*tracev1.Span) (dropped int) {
	c.waiting = append(c.waiting, trace)
	if dropped = max(0, len(c.waiting)-maxWaiting); dropped > 0 {
		clear(c.waiting[:dropped])
		c.waiting = c.waiting[dropped:]
	}
	return dropped
}

// Run sends what waits until ctx is done. What waits then is dropped.
func (c *Collector) Run(ctx context.Context) {
	defer func() {
		_ = c.conn.Close() // nothing uses it any more
		c.mu.Lock()
		left := len(c.waiting)
		c.waiting = nil
		c.mu.Unlock()
		c.count(Dropped, left)
	}()
	again, ill := c.config.pause, false
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		}
		for {
			traces := c.take()
			if len(traces) == 0 {
				break
			}
			err := c.export(ctx, traces)
			if ctx.Err() != nil && err != nil {
				c.count(Dropped, len(traces))
				return
			}
			c.tell(&ill, err)
			switch {
			case err == nil:
				again = c.config.pause
				continue
			case !passes(err):
				c.count(Refused, len(traces))
				continue
			}
			c.putBack(traces)
			select {
			case <-ctx.Done():
				return
			case <-time.After(again):
			}
			again = min(2*again, maxPause)
		}
	}
}

// take takes the oldest traces of those that wait.
func (c *Collector) take() [][]*tracev1.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := min(len(c.waiting), maxSent)
	traces := c.waiting[:n:n]
	c.waiting = c.waiting[n:]
	return traces
}

// putBack lets traces wait again, before those that came meanwhile.
func (c *Collector) putBack(traces [][]*tracev1.Span) {
	c.mu.Lock()
	later := c.waiting
	c.waiting = nil
	dropped := 0
	for _, t := range append(traces, later...) {
		dropped += c.put(t)
	}
	c.mu.Unlock()
	c.count(Dropped, dropped)
}

// passes says whether what a collector answered may pass: others are answers to these traces.
func passes(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Aborted, codes.ResourceExhausted:
		return true
	}
	return false
}

// export sends traces in one message.
func (c *Collector) export(ctx context.Context, traces [][]*tracev1.Span) error {
	ctx, cancel := context.WithTimeout(ctx, c.config.patience)
	defer cancel()
	scope := &tracev1.ScopeSpans{Scope: &commonv1.InstrumentationScope{Name: "fairlead.dev"}}
	for _, t := range traces {
		scope.Spans = append(scope.Spans, t...)
	}
	answer, err := collectorv1.NewTraceServiceClient(c.conn).Export(ctx, &collectorv1.ExportTraceServiceRequest{
		ResourceSpans: []*tracev1.ResourceSpans{{Resource: c.resource, ScopeSpans: []*tracev1.ScopeSpans{scope}}},
	})
	if err != nil {
		return err
	}
	if n := answer.GetPartialSuccess().GetRejectedSpans(); n > 0 {
		return fmt.Errorf("the collector refused %d of %d spans: %.200q", n, len(scope.GetSpans()), answer.GetPartialSuccess().GetErrorMessage())
	}
	c.count(Sent, len(traces))
	return nil
}

// tell says once that the collector does not take traces, and once that it does again.
func (c *Collector) tell(ill *bool, err error) {
	switch {
	case err != nil && !*ill:
		message := err.Error()
		c.config.Log.Warn("the collector does not take traces; they are kept for a while, then dropped", "collector", c.config.URL, "error", message[:min(len(message), 500)])
	case err == nil && *ill:
		c.config.Log.Info("the collector takes traces again", "collector", c.config.URL)
	}
	*ill = err != nil
}

func (c *Collector) count(r Result, n int) {
	if n > 0 && c.config.Count != nil {
		c.config.Count(r, n)
	}
}
