package agent

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	mutationv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	headerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"
	codecv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/upstream_codec/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/gate/gatetest"
	"fairlead.dev/internal/model"
)

// loadReports is what the bootstrap has for reports of loads.
const loadReports = `"cluster_manager": {"load_stats_config": {"api_type": "GRPC", "transport_api_version": "V3", "grpc_services": [{"envoy_grpc": {"cluster_name": "agent"}}]}},`

// group is a cluster of a group, as far as it matters whether that is measured.
func (b *bench) group(name string, measured bool) delta.Change {
	b.t.Helper()
	if !measured {
		return b.cluster(name, name)
	}
	filter := func(name string, config proto.Message) *hcmv3.HttpFilter {
		return &hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: gatetest.AnyOf(b.t, config)}}
	}
	note := &headerv3.HeaderMutation{Mutations: &headerv3.Mutations{ResponseMutations: []*mutationv3.HeaderMutation{{
		Action: &mutationv3.HeaderMutation_Append{Append: &corev3.HeaderValueOption{
			Header: &corev3.HeaderValue{Key: "endpoint-load-metrics", Value: "TEXT named_metrics." + model.FirstByteMetric + "=%COMMON_DURATION(US_TX_BEG:US_RX_BEG:us)%"},
		}},
	}}}}
	return b.cluster(name, name, func(c *clusterv3.Cluster) {
		c.LrsReportEndpointMetrics = []string{"named_metrics." + model.FirstByteMetric}
		c.TypedExtensionProtocolOptions = map[string]*anypb.Any{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": gatetest.AnyOf(b.t, &httpv3.HttpProtocolOptions{
			UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
				ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_HttpProtocolOptions{HttpProtocolOptions: &corev3.Http1ProtocolOptions{}},
			}},
			HttpFilters: []*hcmv3.HttpFilter{
				filter("envoy.filters.http.header_mutation", note), filter("envoy.filters.http.upstream_codec", &codecv3.UpstreamCodec{}),
			},
		})}
	})
}

// countingBackend is a backend that counts requests, and holds those for /hold until it is released.
type countingBackend struct {
	address  *net.TCPAddr
	requests atomic.Int64
	held     atomic.Int64 // requests that wait for release
	release  chan struct{}
	wait     atomic.Int64
}

func (b *bench) counts() *countingBackend {
	c := &countingBackend{release: make(chan struct{})}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		c.requests.Add(1)
		if q.Host == "h1.example" {
			c.held.Add(1)
			<-c.release
			c.held.Add(-1)
		}
		time.Sleep(time.Duration(c.wait.Load()))
		_, _ = io.WriteString(w, "ok")
	}))
	b.t.Cleanup(server.Close)
	c.address = server.Listener.Addr().(*net.TCPAddr)
	return c
}

// What an agent tells of the backends of a measured group is what they have counted.
func TestLoadsOfBackends(t *testing.T) {
	b := newBench(t)
	b.reports = loadReports
	one, two := b.counts(), b.counts()
	const slow = 100 * time.Millisecond
	two.wait.Store(int64(slow))
	b.plane(b.group("c", true), b.group("other", false), b.endpoints("c", one.address, two.address), b.endpoints("other", one.address), b.listener(""), gatetest.Routes(t, routesName, hosts(0, 2)...))
	b.startEnvoy()
	b.applies()
	began := time.Now()
	for range 40 {
		b.answers("h0", "ok")
	}
	waited := time.Since(began)
	load := func(of *countingBackend) (found model.BackendLoad) {
		for _, g := range b.relay.loads.all() {
			for _, l := range g.Backends {
				if g.Group == "c" && l.Address.String() == of.address.String() {
					found = l
				}
			}
		}
		return found
	}
	agrees := func(of *countingBackend, inFlight uint64) func() bool {
		return func() bool {
			n, l := uint64(of.requests.Load()), load(of)
			return l.Requests == n && l.Succeeded == n-inFlight && l.Timed == n-inFlight && l.Failed == 0 && l.InFlight == inFlight
		}
	}
	eventually(t, "the first backend's figures", agrees(one, 0))
	eventually(t, "the second backend's figures", agrees(two, 0))
	fast, late := load(one), load(two)
	if least := uint64(slow.Microseconds()) * late.Timed; late.Micros < least || fast.Micros+late.Micros > uint64(waited.Microseconds()) {
		t.Errorf("first bytes: %+v and %+v of requests that took %s", fast, late, waited)
	}
	for _, g := range b.relay.loads.all() {
		if g.Group != "c" {
			t.Errorf("%s is measured, too", g.Group)
		}
	}

	// A request that a backend holds is in flight.
	done, asked := make(chan error), int64(0)
	for one.held.Load() == 0 || two.held.Load() == 0 {
		asked++
		go func() {
			_, _, err := b.ask("h1")
			done <- err
		}()
		eventually(t, "a request to be held", func() bool { return one.held.Load()+two.held.Load() == asked })
	}
	eventually(t, "requests in flight at the first backend", agrees(one, uint64(one.held.Load())))
	eventually(t, "requests in flight at the second backend", agrees(two, uint64(two.held.Load())))
	close(one.release)
	close(two.release)
	for range asked {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	eventually(t, "no request in flight", func() bool { return agrees(one, 0)() && agrees(two, 0)() })

	// What metrics say is the same.
	registry := prometheus.NewRegistry()
	registry.MustRegister(newLoadCollector(b.relay))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			got[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetSummary().GetSampleCount())
		}
	}
	delete(got, "fairlead_agent_load_reports_total")
	want := map[string]float64{"fairlead_agent_backends_left_out": 0}
	for _, c := range []*countingBackend{one, two} {
		n := float64(c.requests.Load())
		want[fmt.Sprintf("fairlead_requests_by_backend_total %s ok c", c.address)] = n
		want[fmt.Sprintf("fairlead_requests_by_backend_total %s error c", c.address)] = 0
		want[fmt.Sprintf("fairlead_tries_by_backend_total %s c", c.address)] = n
		want[fmt.Sprintf("fairlead_requests_in_flight_by_backend %s c", c.address)] = 0
		want[fmt.Sprintf("fairlead_first_byte_seconds_by_backend %s c", c.address)] = n
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("metrics: %v\nwant %v", got, want)
	}

	// A backend that goes is forgotten, and so is a group that is measured no more.
	b.plane(b.endpoints("c", two.address))
	eventually(t, "the first backend to be forgotten", func() bool { return load(one).Requests == 0 && agrees(two, 0)() })
	b.plane(b.group("c", false))
	eventually(t, "the group to be forgotten", func() bool { return len(b.relay.loads.all()) == 0 })
	b.answers("h0", "ok")
}
