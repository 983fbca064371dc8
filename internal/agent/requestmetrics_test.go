package agent

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"fairlead.dev/internal/model"
)

// counting is a proxy that has counted something.
type counting struct {
	mu     sync.Mutex
	asked  int
	answer func(ctx context.Context) (model.Traffic, error)
}

func (c *counting) Traffic(ctx context.Context) (model.Traffic, error) {
	c.mu.Lock()
	c.asked++
	answer := c.answer
	c.mu.Unlock()
	return answer(ctx)
}

// traffic is what a proxy has counted after n requests.
func trafficOf(n uint64) model.Traffic {
	v := model.Volume{Received: 10 * n, Sent: 20 * n, Retries: n, Resets: n, Connections: n, Open: 1, Answers: [model.StatusClasses]uint64{2: n}}
	v.Seconds.Add(0.03, n)
	v.Seconds.Add(0.2, n)
	const route = "HTTPRoute/shop/cart/rules/0/matches/0"
	return model.Traffic{
		Requests:  []model.RequestFigures{{Listener: "http-80", Host: "a.test", Route: route, Classes: [model.StatusClasses]uint64{2: n}}},
		Services:  []model.ServiceTraffic{{Namespace: "shop", Upstream: "east", Volume: v}},
		Listeners: []model.ListenerTraffic{{Listener: "http-80", Volume: v}},
		Routes:    []model.RouteTraffic{{Owner: "HTTPRoute/shop/cart", Volume: model.Volume{Seconds: v.Seconds}}},
	}
}

func TestRequestMetrics(t *testing.T) {
	proxy := &counting{answer: func(context.Context) (model.Traffic, error) { return trafficOf(3), nil }}
	collector := newRequestCollector(newMeter(proxy, time.Now))
	const want = `
# HELP fairlead_connections_by_listener_total Connections of clients by listener.
# TYPE fairlead_connections_by_listener_total counter
fairlead_connections_by_listener_total{listener="http-80"} 3
# HELP fairlead_received_bytes_by_upstream_total Bytes from clients by upstream.
# TYPE fairlead_received_bytes_by_upstream_total counter
fairlead_received_bytes_by_upstream_total{upstream="east"} 30
# HELP fairlead_request_seconds_by_namespace Duration of requests by namespace.
# TYPE fairlead_request_seconds_by_namespace histogram
fairlead_request_seconds_by_namespace_bucket{namespace="shop",le="0.005"} 0
fairlead_request_seconds_by_namespace_bucket{namespace="shop",le="0.01"} 0
fairlead_request_seconds_by_namespace_bucket{namespace="shop",le="0.025"} 0
fairlead_request_seconds_by_namespace_bucket{namespace="shop",le="0.05"} 3
fairlead_request_seconds_by_namespace_bucket{namespace="shop",le="0.1"} 3
fairlead_request_seconds_by_namespace_bucket{namespace="shop",le="0.25"} 6
fairlead_request_seconds_by_namespace_bucket{namespace="shop",le="0.5"} 6
fairlead_request_seconds_by_namespace_bucket{namespace="shop",le="1"} 6
fairlead_request_seconds_by_namespace_bucket{namespace="shop",le="2.5"} 6
fairlead_request_seconds_by_namespace_bucket{namespace="shop",le="10"} 6
fairlead_request_seconds_by_namespace_bucket{namespace="shop",le="+Inf"} 6
fairlead_request_seconds_by_namespace_sum{namespace="shop"} 0.69
fairlead_request_seconds_by_namespace_count{namespace="shop"} 6
# HELP fairlead_requests_by_route_total Requests by the class of the status and by route.
# TYPE fairlead_requests_by_route_total counter
fairlead_requests_by_route_total{class="2xx",route="HTTPRoute/shop/cart"} 3
`
	if err := testutil.CollectAndCompare(collector, strings.NewReader(want), "fairlead_connections_by_listener_total",
		"fairlead_received_bytes_by_upstream_total", "fairlead_request_seconds_by_namespace", "fairlead_requests_by_route_total"); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.CollectAndLint(collector); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

// Those who come together ask the proxy once, and a proxy that hangs holds nobody longer than three seconds.
func TestReadsOfTheProxy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		proxy := &counting{answer: func(context.Context) (model.Traffic, error) {
			time.Sleep(100 * time.Millisecond)
			return trafficOf(3), nil
		}}
		m := newMeter(proxy, time.Now)
		collector := newRequestCollector(m)
		registry := prometheus.NewRegistry()
		registry.MustRegister(collector)
		gather := func() map[string]*dto.MetricFamily {
			list, err := registry.Gather()
			if err != nil {
				t.Error(err)
			}
			by := map[string]*dto.MetricFamily{}
			for _, f := range list {
				by[f.GetName()] = f
			}
			return by
		}
		var together sync.WaitGroup
		for range 5 {
			together.Go(func() { gather() })
			together.Go(func() { m.read(t.Context()) })
		}
		together.Wait()
		if proxy.asked != 1 {
			t.Errorf("ten that came together have asked the proxy %d times, want once", proxy.asked)
		}
		proxy.mu.Lock()
		proxy.answer = func(ctx context.Context) (model.Traffic, error) {
			<-ctx.Done()
			return model.Traffic{}, errors.New("no answer")
		}
		proxy.mu.Unlock()
		time.Sleep(2 * time.Second)
		begin := time.Now()
		gather()
		if took := time.Since(begin); took > 3*time.Second {
			t.Errorf("a scrape has waited %v for a proxy that hangs, want 3 s at most", took)
		}
		synctest.Wait()
		after := gather()
		if n := after["fairlead_requests_by_listener_total"].GetMetric()[0].GetCounter().GetValue(); n != 3 {
			t.Errorf("without an answer there are %v requests, want 3 as before", n)
		}
		if after["fairlead_agent_proxy_read_current"].GetMetric()[0].GetGauge().GetValue() != 0 {
			t.Error("nothing says that the proxy has not answered")
		}
	})
}
