package agent

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	datav3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/traffic"
)

const someTrace = "4bf92f3577b34da6a3ce929d0e0e4736"

// tracedEntry is a request of the proxy's log for exemplars.
func tracedEntry(route, group, trace string, took time.Duration) *datav3.HTTPAccessLogEntry {
	return &datav3.HTTPAccessLogEntry{CommonProperties: &datav3.AccessLogCommon{
		RouteName: route, CustomTags: map[string]string{model.ExemplarTrace: trace, model.TapGroup: group},
		TimeToLastRxByte: durationpb.New(time.Millisecond), TimeToLastUpstreamRxByte: durationpb.New(took + time.Millisecond),
	}}
}

// recordStream is one stream of the proxy's records.
type recordStream struct {
	grpc.ServerStream
	messages []*accesslogv3.StreamAccessLogsMessage
}

func (s *recordStream) Recv() (*accesslogv3.StreamAccessLogsMessage, error) {
	if len(s.messages) == 0 {
		return nil, context.Canceled
	}
	m := s.messages[0]
	s.messages = s.messages[1:]
	return m, nil
}

func (s *recordStream) SendAndClose(*accesslogv3.StreamAccessLogsResponse) error { return nil }

// message has records; the first of a stream has the name of the log, too.
func message(log string, entries ...*datav3.HTTPAccessLogEntry) *accesslogv3.StreamAccessLogsMessage {
	m := &accesslogv3.StreamAccessLogsMessage{LogEntries: &accesslogv3.StreamAccessLogsMessage_HttpLogs{
		HttpLogs: &accesslogv3.StreamAccessLogsMessage_HTTPAccessLogEntries{LogEntry: entries},
	}}
	if log != "" {
		m.Identifier = &accesslogv3.StreamAccessLogsMessage_Identifier{LogName: log}
	}
	return m
}

// Traced requests are exemplars in OpenMetrics, in the buckets of their durations, and taps do not see them. The text of
// Prometheus, which has no exemplars, is as before.
func TestExemplarsAreExposed(t *testing.T) {
	now := time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC)
	meter := newMeter(&counting{answer: func(context.Context) (model.Traffic, error) { return trafficOf(3), nil }}, func() time.Time { return now })
	meter.read(t.Context())
	s := newSampler()
	s.exemplars = meter.exemplars.take
	tapped := 0
	s.want(&sampling{take: func(*datav3.HTTPAccessLogEntry) { tapped++ }}, wholeSample)
	const cart, other = "HTTPRoute/shop/cart/rules/0/matches/0", "HTTPRoute/shop/other/rules/0/matches/0"
	const slow = "00000000000000000000000000000abc"
	server := recordServer{sampler: s}
	_ = server.StreamAccessLogs(&recordStream{messages: []*accesslogv3.StreamAccessLogsMessage{
		message(model.ExemplarLog, tracedEntry(cart, "shop/cart/80", someTrace, 30*time.Millisecond)),
		message("", tracedEntry(other, "shop/other/80", slow, 20*time.Second)),
	}})
	if tapped != 0 {
		t.Errorf("taps see %d records of traced requests", tapped)
	}
	_ = server.StreamAccessLogs(&recordStream{messages: []*accesslogv3.StreamAccessLogsMessage{
		message(model.TapLayer, tracedEntry(cart, "shop/cart/80", "11111111111111111111111111111111", 200*time.Millisecond)),
	}})
	if tapped != 1 {
		t.Errorf("taps see %d records, want the one of theirs", tapped)
	}

	registry := prometheus.NewRegistry()
	registry.MustRegister(newRequestCollector(meter))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	text := func(format expfmt.Format) string {
		var b bytes.Buffer
		encoder := expfmt.NewEncoder(&b, format)
		for _, f := range families {
			if err := encoder.Encode(f); err != nil {
				t.Fatal(err)
			}
		}
		return b.String()
	}
	open := text(expfmt.NewFormat(expfmt.TypeOpenMetrics))
	for _, want := range []string{
		`fairlead_request_seconds_by_namespace_bucket{namespace="shop",le="0.05"} 3 # {trace_id="` + someTrace + `"} 0.03 `,
		`fairlead_request_seconds_by_namespace_bucket{namespace="shop",le="+Inf"} 6 # {trace_id="` + slow + `"} 20.0 `,
		`fairlead_request_seconds_by_route_bucket{route="HTTPRoute/shop/cart",le="0.05"} 3 # {trace_id="` + someTrace + `"} 0.03 `,
	} {
		if !strings.Contains(open, want) {
			t.Errorf("no line begins with %s in\n%s", want, open)
		}
	}
	if n := strings.Count(open, "# {trace_id="); n != 3 {
		t.Errorf("%d exemplars, want 3:\n%s", n, open)
	}
	if classic := text(expfmt.NewFormat(expfmt.TypeTextPlain)); strings.Contains(classic, "trace_id") || strings.Count(classic, `namespace="shop",le="+Inf"`) != 1 {
		t.Errorf("the text without exemplars has\n%s", classic)
	}
}

// Exemplars have no more names than the histograms, last ten minutes, and are only of requests with a trace that a backend has answered.
func TestExemplarsAreBounded(t *testing.T) {
	now := time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC)
	x := newExemplars(func() time.Time { return now }, func(string) bool { return true })
	unanswered := tracedEntry("", "shop/cart/80", someTrace, 0)
	unanswered.CommonProperties.TimeToLastUpstreamRxByte = nil
	x.take(unanswered)
	for _, trace := range []string{"", "hunter2", strings.Repeat("0", 32), strings.Repeat("A", 32), someTrace + "00", strings.Repeat("\u202e", 11)[:32]} {
		x.take(tracedEntry("", "shop/cart/80", trace, 0))
	}
	x.take(tracedEntry("", "", someTrace, 0))
	if len(x.names[traffic.Namespaces])+len(x.names[traffic.Routes]) != 0 {
		t.Errorf("exemplars of requests that have none: %v", x.names)
	}

	fill := func(prefix string) {
		for i := range 2 * mostNamespaces {
			x.take(tracedEntry(fmt.Sprintf("HTTPRoute/%s%d/app/rules/0/matches/0", prefix, i), fmt.Sprintf("%s%d/app/80", prefix, i), someTrace, time.Second))
		}
	}
	sizes := func() [2]int { return [2]int{len(x.names[traffic.Namespaces]), len(x.names[traffic.Routes])} }
	fill("a")
	if got, want := sizes(), [2]int{mostNamespaces, mostRoutes}; got != want {
		t.Errorf("%v names, want %v", got, want)
	}
	if got := x.of(traffic.Namespaces, "a0"); len(got) != 1 || got[0].Trace != someTrace || got[0].Seconds != 1 {
		t.Errorf("exemplars of the first namespace: %v", got)
	}
	now = now.Add(exemplarLife)
	if got := x.of(traffic.Namespaces, "a0"); len(got) != 0 {
		t.Errorf("exemplars after %v: %v", exemplarLife, got)
	}
	fill("b")
	if got, want := sizes(), [2]int{mostNamespaces, mostRoutes}; got != want || len(x.of(traffic.Routes, "HTTPRoute/b0/app")) != 1 {
		t.Errorf("%v names, want %v, and the new ones", got, want)
	}
}
