package xds_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
)

// TestPoliciesChangeUnderLoad replaces the filters of a route while requests are in them:
// each request must be answered by its policy, the old one or the new one.
func TestPoliciesChangeUnderLoad(t *testing.T) {
	w := newWorld(t)
	l := model.Listener{ID: "http-1", Port: freePort(t), Protocol: model.ProtocolHTTP}
	w.group("ns/a/80", w.backend("a"))
	var one, two judge
	w.serveGroup(model.BackendGroup{ID: "ns/one/1", Protocol: model.BackendHTTP2}, w.grpc(&one))
	w.serveGroup(model.BackendGroup{ID: "ns/two/1", Protocol: model.BackendHTTP2}, w.grpc(&two))
	version := func(n int) model.VirtualHost {
		service := model.GroupID("ns/one/1")
		if n%2 == 1 {
			service = "ns/two/1"
		}
		return host(l.ID, "a.test", under(forward(fmt.Sprint(n), "/", "ns/a/80", 1), &model.RoutePolicy{
			RateLimit:     &model.RateLimit{Requests: uint32(1_000_000 + n), Per: time.Second, Burst: 1_000_000},
			Authorization: &model.Authorization{Service: service, Timeout: 10 * time.Second},
			GlobalRateLimit: &model.GlobalRateLimit{
				Service: service, Domain: fmt.Sprint("d", n), Timeout: 10 * time.Second,
				Descriptors: []model.RateLimitSource{{Key: "from", ClientAddress: true}},
			},
		}))
	}
	w.listen(l, xds.Options{}, version(0))
	stop := make(chan struct{})
	var clients sync.WaitGroup
	var requests atomic.Int64
	for i := range 4 {
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				path, want := "/", 200
				if i == 3 {
					path, want = "/bad", 401
				}
				a, err := ask(l.Port, "GET "+path+" HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n")
				if err != nil || a.status != want {
					t.Errorf("%s: %d %q %v, want %d", path, a.status, a.body, err, want)
					return
				}
				requests.Add(1)
			}
		})
	}
	for n := range 200 {
		w.route(xds.RouteConfiguration(l.ID, xds.Shard(l.ID, "a.test"), []model.VirtualHost{version(n + 1)}))
		before := requests.Load()
		must(t, w.envoy.Until(w.ctx, "requests to go on", func() bool { return t.Failed() || requests.Load() > before+4 }))
	}
	close(stop)
	clients.Wait()
	t.Logf("%d requests over 200 changes", requests.Load())
}
