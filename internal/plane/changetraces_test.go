package plane

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	"fairlead.dev/internal/collector"
	"fairlead.dev/internal/trail"
)

// otlp is a collector of OpenTelemetry that keeps the spans that it is sent. While it hangs it answers nothing.
type otlp struct {
	collectorv1.UnimplementedTraceServiceServer
	address string

	mu     sync.Mutex
	hangs  bool
	called int
	spans  []*tracev1.Span
}

func newOTLP(t *testing.T) *otlp {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o, g := &otlp{address: "http://" + l.Addr().String()}, grpc.NewServer()
	collectorv1.RegisterTraceServiceServer(g, o)
	go func() { _ = g.Serve(l) }()
	t.Cleanup(g.Stop)
	return o
}

func (o *otlp) Export(ctx context.Context, q *collectorv1.ExportTraceServiceRequest) (*collectorv1.ExportTraceServiceResponse, error) {
	o.mu.Lock()
	hangs := o.hangs
	o.called++
	for _, r := range q.GetResourceSpans() {
		for _, s := range r.GetScopeSpans() {
			if !hangs {
				o.spans = append(o.spans, s.GetSpans()...)
			}
		}
	}
	o.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &collectorv1.ExportTraceServiceResponse{}, nil
}

// traceOf are the spans of the trace in which an object is written, by "parent/name" with the machine; nil: there is none.
func (o *otlp) traceOf(object string) map[string]*tracev1.Span {
	o.mu.Lock()
	defer o.mu.Unlock()
	id, names := "", map[string]string{}
	for _, s := range o.spans {
		names[hex.EncodeToString(s.GetSpanId())] = s.GetName()
		for _, a := range s.GetAttributes() {
			if a.GetKey() == "fairlead.object.name" && a.GetValue().GetStringValue() == object {
				id = string(s.GetTraceId())
			}
		}
	}
	if id == "" {
		return nil
	}
	spans := map[string]*tracev1.Span{}
	for _, s := range o.spans {
		if string(s.GetTraceId()) != id {
			continue
		}
		name := s.GetName()
		if parent := names[hex.EncodeToString(s.GetParentSpanId())]; parent != "" {
			name = parent + "/" + name
		}
		for _, a := range s.GetAttributes() {
			if a.GetKey() == "fairlead.machine" {
				name += " " + a.GetValue().GetStringValue()
			}
		}
		spans[name] = s
	}
	return spans
}

// TestAChangeIsATrace: a route that somebody writes is one trace, from the API to the machines, at a real receiver.
func TestAChangeIsATrace(t *testing.T) {
	r := newRig(t)
	r.world()
	o := newOTLP(t)
	p := r.plane("one", func(c *Config) { c.Collector = o.address }).awaitReady()
	for _, name := range []string{"edge-1", "edge-2"} {
		a := r.joined(p, name)
		defer a.connect(p.AgentAddress().String())()
		a.await("has the first route", a.holdsHost("app.example"))
	}
	r.create(httpRoute("www", "www.example", "app"))
	var spans map[string]*tracev1.Span
	eventually(t, "the trace arrives", func() error {
		if spans = o.traceOf("www"); spans == nil {
			return fmt.Errorf("it has not")
		}
		return nil
	})
	root := spans["change"]
	for _, name := range []string{
		"change", "change/api", "change/translate", "change/publish",
		"change/machine edge-1", "machine/acknowledge edge-1", "machine/activate edge-1",
		"change/machine edge-2", "machine/acknowledge edge-2", "machine/activate edge-2",
	} {
		s := spans[name]
		if s == nil {
			t.Errorf("no span %s among %v", name, spans)
			continue
		}
		if s.GetStatus().GetCode() != tracev1.Status_STATUS_CODE_UNSET || s.GetStartTimeUnixNano() < root.GetStartTimeUnixNano() || s.GetEndTimeUnixNano() > root.GetEndTimeUnixNano() {
			t.Errorf("span %s is %v; the whole is %v", name, s, root)
		}
	}
	if len(spans) != 10 {
		t.Errorf("%d spans: %v", len(spans), spans)
	}
}

// TestCollectorThatHangsStopsNobody: changes reach machines while the collector hangs, traces are dropped and counted, and the
// plane stops.
func TestCollectorThatHangsStopsNobody(t *testing.T) {
	r := newRig(t)
	r.world()
	o := newOTLP(t)
	o.hangs = true
	p := r.plane("one", func(c *Config) { c.Collector = o.address }).awaitReady()
	a := r.joined(p, "edge-1")
	defer a.connect(p.AgentAddress().String())()
	a.await("has the first route", a.holdsHost("app.example"))
	for i := range 5 {
		name := fmt.Sprint("www", i)
		r.create(httpRoute(name, name+".example", "app"))
		a.await("has the route", a.holdsHost(name+".example"))
	}
	eventually(t, "the collector is asked", func() error {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.called == 0 {
			return fmt.Errorf("it is not")
		}
		return nil
	})
	p.stop()
	if got := testutil.ToFloat64(p.metrics.traces.WithLabelValues(string(collector.Dropped))); got == 0 {
		t.Error("no trace is counted as dropped")
	}
}

// TestFollowedTracesEnd: a machine that does not run a revision holds its trace for a bounded time.
func TestFollowedTracesEnd(t *testing.T) {
	var sent []trail.Trail
	began := time.Unix(1000, 0)
	tr := traces{send: func(t trail.Trail) { sent = append(sent, t) }}
	for i, waits := range []map[string]bool{{"edge-1": true}, {}} {
		tr.followed = append(tr.followed, &followed{
			trail: trail.Trail{Revision: uint64(i), Published: began}, machines: map[string]*trail.Machine{"edge-1": {Name: "edge-1"}}, waits: waits,
		})
	}
	tr.expire(began.Add(followedFor))
	if len(sent) != 1 || sent[0].Revision != 1 {
		t.Fatalf("sent are %+v", sent)
	}
	tr.expire(began.Add(followedFor + 1))
	if len(sent) != 2 || len(tr.followed) != 0 || sent[1].Ended.IsZero() || len(sent[1].Machines) != 1 {
		t.Fatalf("sent are %+v", sent)
	}
}

// TestATraceDoesNotWaitForMachinesThatAreAway: the trace of a change arrives, and says which machine did not get it.
func TestATraceDoesNotWaitForMachinesThatAreAway(t *testing.T) {
	r := newRig(t)
	r.world()
	o := newOTLP(t)
	p := r.plane("one", func(c *Config) { c.Collector = o.address }).awaitReady()
	for _, name := range []string{"edge-1", "edge-2"} {
		a := r.joined(p, name)
		disconnect := a.connect(p.AgentAddress().String())
		defer disconnect()
		a.await("has the first route", a.holdsHost("app.example"))
		if name == "edge-2" {
			disconnect()
		}
	}
	eventually(t, "the plane sees that one is away", func() error {
		if state, known := p.server.Machine("edge-2"); !known || state.Connected {
			return fmt.Errorf("it is %+v", state)
		}
		return nil
	})
	r.create(httpRoute("www", "www.example", "app"))
	eventually(t, "the trace arrives", func() error {
		spans := o.traceOf("www")
		if spans["change/machine edge-1"].GetStatus().GetCode() != tracev1.Status_STATUS_CODE_UNSET ||
			spans["change/machine edge-2"].GetStatus().GetCode() != tracev1.Status_STATUS_CODE_ERROR || spans["change"].GetStatus().GetMessage() == "" {
			return fmt.Errorf("spans are %v", spans)
		}
		return nil
	})
}
