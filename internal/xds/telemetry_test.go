package xds_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
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
	traces map[string]bool // services and the IDs of their spans' traces
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
			}
		}
	}
	return &tracev1.ExportTraceServiceResponse{}, nil
}

// TestTelemetry: lines and spans arrive at a collector; a trace that a client began goes on.
func TestTelemetry(t *testing.T) {
	w := newWorld(t)
	c := &collector{hosts: map[string]bool{}, traces: map[string]bool{}}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	s := grpc.NewServer()
	logsv1.RegisterLogsServiceServer(s, c)
	tracev1.RegisterTraceServiceServer(s, tracer{collector: c})
	go func() { _ = s.Serve(listener) }()
	t.Cleanup(s.Stop)
	w.serveGroup(model.BackendGroup{ID: "ns/otel/4317", Protocol: model.BackendHTTP2}, netip.MustParseAddrPort(listener.Addr().String()))
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
