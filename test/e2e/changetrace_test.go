package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	"fairlead.dev/lab"
	"fairlead.dev/lab/rig"
)

// collector keeps the spans that planes send.
type collector struct {
	collectorv1.UnimplementedTraceServiceServer

	mu    sync.Mutex
	spans map[string][]*tracev1.Span // by their trace
}

// startCollector runs a collector in a machine, and returns its URL.
func startCollector(t *testing.T, m *lab.Machine) (*collector, string) {
	t.Helper()
	address := netip.AddrPortFrom(m.Addr4(), 4317)
	l, err := m.Listen(t.Context(), "tcp", address.String())
	if err != nil {
		t.Fatal(err)
	}
	c, s := &collector{spans: map[string][]*tracev1.Span{}}, grpc.NewServer()
	collectorv1.RegisterTraceServiceServer(s, c)
	var ended sync.WaitGroup
	ended.Go(func() { _ = s.Serve(l) })
	t.Cleanup(func() {
		s.Stop()
		ended.Wait()
	})
	return c, "http://" + address.String()
}

func (c *collector) Export(_ context.Context, q *collectorv1.ExportTraceServiceRequest) (*collectorv1.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range q.GetResourceSpans() {
		for _, s := range r.GetScopeSpans() {
			for _, span := range s.GetSpans() {
				id := string(span.GetTraceId())
				c.spans[id] = append(c.spans[id], span)
			}
		}
	}
	return &collectorv1.ExportTraceServiceResponse{}, nil
}

// traceOf are the spans of the trace with a change of an object, by their name and machine.
func (c *collector) traceOf(kind, name string) (map[string]*tracev1.Span, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	text := func(s *tracev1.Span, key string) string {
		for _, a := range s.GetAttributes() {
			if a.GetKey() == key {
				return a.GetValue().GetStringValue()
			}
		}
		return ""
	}
	for _, spans := range c.spans {
		found, is := map[string]*tracev1.Span{}, false
		for _, s := range spans {
			found[strings.TrimSpace(s.GetName()+" "+text(s, "fairlead.machine"))] = s
			is = is || text(s, "fairlead.object.kind") == kind && text(s, "fairlead.object.name") == name
		}
		if is {
			return found, nil
		}
	}
	return nil, fmt.Errorf("none of %d traces has a change of %s %s", len(c.spans), kind, name)
}

// TestAChangeIsATrace: a collector is told when a route's change was seen, translated and published, when the agent had it, and when its
// real Envoy ran it, which is the last.
func TestAChangeIsATrace(t *testing.T) {
	s := newLab(t, "trace", client, edge1, os1, plane)
	told, at := startCollector(t, s.Lab.Machine(client.Name))
	if err := s.start(t.Context(), rig.PlaneOptions{Args: []string{"--trace-collector", at}}); err != nil {
		t.Fatal(err)
	}
	s.namespace(t, "traced")
	s.apply(t, service("traced", "app", s.backends["os1-a"]), ingressRoute("traced", "app", "traced.example.com", "{match: /, services: [{name: app, port: 80}]}"))
	s.awaitIngress(t, ref("IngressRoute traced/app"), "valid", "valid IngressRoute")
	s.awaitAnswer(t, request{host: "traced.example.com"}, 200, "os1-a")
	var spans map[string]*tracev1.Span
	s.await(t, "the trace of the route", func(context.Context) (err error) {
		if spans, err = told.traceOf("IngressRoute", "app"); err == nil && len(spans) < 7 {
			err = errors.New("it is not whole: " + strings.Join(slices.Sorted(maps.Keys(spans)), ", "))
		}
		return err
	})
	before := uint64(0)
	for _, name := range []string{"translate", "publish", "acknowledge " + edge1.Name, "activate " + edge1.Name} {
		span := spans[name]
		if span == nil {
			t.Fatalf("there is no span %s, only %s", name, strings.Join(slices.Sorted(maps.Keys(spans)), ", "))
		}
		if span.GetStartTimeUnixNano() < before || span.GetEndTimeUnixNano() < span.GetStartTimeUnixNano() {
			t.Errorf("%s begins before the step before it has ended, or ends before it begins", name)
		}
		before = span.GetEndTimeUnixNano()
	}
	root := spans["change"]
	if root.GetStatus().GetCode() == tracev1.Status_STATUS_CODE_ERROR || root.GetEndTimeUnixNano() != before {
		t.Errorf("the change is %v, and ends %d ns after its proxy ran it", root.GetStatus(), int64(root.GetEndTimeUnixNano()-before)) //nolint:gosec // a difference
	}
}
