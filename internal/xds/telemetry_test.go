package xds_test

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	logsv1 "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
)

// collector is an OpenTelemetry collector that remembers the hosts of the lines and the
// traces that it gets.
type collector struct {
	logsv1.UnimplementedLogsServiceServer

	mu     sync.Mutex
	hosts  map[string]bool
	traces map[string]bool     // services and the IDs of their spans' traces
	spans  []map[string]string // the attributes of each
}

func (c *collector) Export(_ context.Context, q *logsv1.ExportLogsServiceRequest) (*logsv1.ExportLogsServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range q.GetResourceLogs() {
		for _, s := range r.GetScopeLogs() {
			for _, l := range s.GetLogRecords() {
				for _, a := range l.GetAttributes() {
					if a.GetKey() == "host" {
						c.hosts[a.GetValue().GetStringValue()] = true
					}
				}
			}
		}
	}
	return &logsv1.ExportLogsServiceResponse{}, nil
}

// tracer is the collector's other service, whose method has the same name.
type tracer struct {
	tracev1.UnimplementedTraceServiceServer
	*collector
}

func (c tracer) Export(_ context.Context, q *tracev1.ExportTraceServiceRequest) (*tracev1.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range q.GetResourceSpans() {
		service := ""
		for _, a := range r.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" {
				service = a.GetValue().GetStringValue()
			}
		}
		for _, s := range r.GetScopeSpans() {
			for _, span := range s.GetSpans() {
				c.traces[service+" "+hex.EncodeToString(span.GetTraceId())] = true
				attributes := map[string]string{}
				for _, a := range span.GetAttributes() {
					attributes[a.GetKey()] = a.GetValue().GetStringValue()
				}
				c.spans = append(c.spans, attributes)
			}
		}
	}
	return &tracev1.ExportTraceServiceResponse{}, nil
}

// newCollector runs a collector, which Envoy knows as the group ns/otel/4317.
func newCollector(t *testing.T, w *world) *collector {
	t.Helper()
	c := &collector{hosts: map[string]bool{}, traces: map[string]bool{}}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	s := grpc.NewServer()
	logsv1.RegisterLogsServiceServer(s, c)
	tracev1.RegisterTraceServiceServer(s, tracer{collector: c})
	go func() { _ = s.Serve(listener) }()
	t.Cleanup(s.Stop)
	w.serveGroup(model.BackendGroup{ID: "ns/otel/4317", Protocol: model.BackendHTTP2}, netip.MustParseAddrPort(listener.Addr().String()))
	return c
}

// TestSpansSayWhereARequestWent: a span has the route, the group and the backend of its request. A header that a client sends is
// neither the name nor the value of such an attribute.
func TestSpansSayWhereARequestWent(t *testing.T) {
	w := newWorld(t)
	c := newCollector(t, w)
	backend := w.backend("one")
	w.group("ns/one/80", backend)
	l := model.Listener{ID: "http-1", Port: freePort(t), Protocol: model.ProtocolHTTP, Clients: &model.ClientSettings{
		Tracing: &model.Tracing{Collector: "ns/otel/4317", Percent: 100},
	}}
	to := model.Route{
		Name: "HTTPRoute/shop/web/rules/0/matches/0", Match: model.Match{Path: prefix("/")},
		Forward: &model.Forward{Backends: []model.WeightedGroup{{Group: "ns/one/80", Weight: 1}}},
	}
	w.listen(l, xds.Options{}, host(l.ID, "a.test", says("HTTPRoute/shop/web/rules/1/matches/0", prefix("/answer")), to))
	of := func(route string, wants map[string]string) func() error {
		return func() error {
			c.mu.Lock()
			defer c.mu.Unlock()
			for _, a := range c.spans {
				if a["fairlead.route"] != route {
					continue
				}
				for k, v := range wants {
					if a[k] != v {
						return fmt.Errorf("a span has %v", a)
					}
				}
				return nil
			}
			return fmt.Errorf("none of %d spans is of %s", len(c.spans), route)
		}
	}
	forwarded := of(to.Name, map[string]string{"fairlead.group": "ns/one/80", "fairlead.backend": backend.String()})
	w.eventually("a span of a request", func() error {
		w.get(l.Port, "a.test", "/", "fairlead.route: forged", "x-stranger: forged", "fairlead.backend: forged", "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "tracestate: forged=1", "baggage: forged=forged")
		w.get(l.Port, "a.test", "/answer")
		return cmp.Or(forwarded(), of("HTTPRoute/shop/web/rules/1/matches/0", map[string]string{"fairlead.backend": ""})())
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.spans {
		for k, v := range a {
			if strings.Contains(k+v, "forged") || strings.Contains(k, "stranger") {
				t.Errorf("a span has %s = %s", k, v)
			}
		}
	}
}

// TestTelemetry: lines and spans arrive at a collector; a trace that a client began goes on.
func TestTelemetry(t *testing.T) {
	w := newWorld(t)
	c := newCollector(t, w)
	l := model.Listener{ID: "http-1", Port: freePort(t), Protocol: model.ProtocolHTTP, Clients: &model.ClientSettings{
		AccessLog: &model.AccessLog{Collector: "ns/otel/4317"},
		Tracing:   &model.Tracing{Collector: "ns/otel/4317", Percent: 0, ServiceName: "edge"},
	}}
	w.listen(l, xds.Options{}, host(l.ID, "a.test", says("r", prefix("/"))))
	const sampled, unsampled = "4bf92f3577b34da6a3ce929d0e0e4736", "4bf92f3577b34da6a3ce929d0e0e4737"
	w.eventually("a line and a span", func() error {
		w.get(l.Port, "a.test", "/", "traceparent: 00-"+unsampled+"-00f067aa0ba902b7-00")
		w.get(l.Port, "a.test", "/")
		w.get(l.Port, "a.test", "/", "traceparent: 00-"+sampled+"-00f067aa0ba902b7-01")
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.hosts["a.test"] || !c.traces["edge "+sampled] {
			return fmt.Errorf("hosts %v, traces %v", c.hosts, c.traces)
		}
		return nil
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.traces) != 1 {
		t.Errorf("traces %v, want the one that the client began", c.traces)
	}
}
