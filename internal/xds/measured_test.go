package xds_test

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	loadv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
)

// Envoy reports what it counts of each backend, and the time until the first byte, of a group that is measured. Neither its
// own note nor what a backend claims reaches clients.
func TestMeasuredGroups(t *testing.T) {
	w := newWorld(t)
	l := model.Listener{ID: "http", Port: freePort(t), Protocol: model.ProtocolHTTP}
	var counted, handled [2]atomic.Int64 // requests, and how long they were handled, in microseconds
	const slow = 100 * time.Millisecond
	serve := func(i int, wait time.Duration) http.HandlerFunc {
		return func(rw http.ResponseWriter, q *http.Request) {
			counted[i].Add(1)
			began := time.Now()
			time.Sleep(wait)
			handled[i].Add(time.Since(began).Microseconds())
			rw.Header().Set("Endpoint-Load-Metrics", "TEXT named_metrics."+model.FirstByteMetric+"=1e30")
			rw.Header().Set("Endpoint-Load-Metrics-Bin", "AAAA")
			if q.URL.Path == "/fail" {
				rw.WriteHeader(http.StatusServiceUnavailable)
			}
			fmt.Fprint(rw, "ok")
		}
	}
	addresses := []string{}
	a, b := w.serve(serve(0, 0)), w.serve(serve(1, slow))
	addresses = append(addresses, a.String(), b.String())
	w.ads.Samples.Measure("ns/app/1")
	w.serveGroup(model.BackendGroup{ID: "ns/app/1", Measured: true}, a, b)
	w.listen(l, xds.Options{}, model.VirtualHost{HostKey: model.HostKey{Listener: l.ID, Host: "a.test"}, Routes: []model.Route{{
		Match:   model.Match{Path: model.PathMatch{Kind: model.PathPrefix, Value: "/"}},
		Forward: &model.Forward{Backends: []model.WeightedGroup{{Group: "ns/app/1", Weight: 1}}},
	}}})
	began := time.Now()
	for i := range 40 {
		path := "/"
		if i%4 < 2 {
			path = "/fail"
		}
		answer := w.get(l.Port, "a.test", path)
		if load := fmt.Sprint(answer.headers["Endpoint-Load-Metrics"], answer.headers["Endpoint-Load-Metrics-Bin"]); load != "[] []" {
			t.Fatalf("a client is told of loads: %s", load)
		}
	}
	waited := float64(time.Since(began).Microseconds())
	type sums struct {
		issued, ok, failed, timed uint64
		micros                    float64
	}
	got := map[string]*sums{addresses[0]: {}, addresses[1]: {}}
	take := func(m *loadv3.LoadStatsRequest) {
		for _, c := range m.GetClusterStats() {
			for _, locality := range c.GetUpstreamLocalityStats() {
				for _, e := range locality.GetUpstreamEndpointStats() {
					at := e.GetAddress().GetSocketAddress()
					s := got[fmt.Sprintf("%s:%d", at.GetAddress(), at.GetPortValue())]
					s.issued += e.GetTotalIssuedRequests()
					s.ok += e.GetTotalSuccessfulRequests()
					s.failed += e.GetTotalErrorRequests()
					for _, load := range e.GetLoadMetricStats() {
						s.timed += load.GetNumRequestsFinishedWithMetric()
						s.micros += load.GetTotalMetricValue()
					}
				}
			}
		}
	}
	w.eventually("the reports", func() error {
		select {
		case m := <-w.ads.Samples.Loads:
			take(m)
		case <-time.After(time.Second):
		}
		for i, address := range addresses {
			s, n := got[address], uint64(counted[i].Load())
			if s.issued != n || s.ok != n/2 || s.failed != n/2 || s.timed != n {
				return fmt.Errorf("%s: %+v of %d requests", address, *s, n)
			}
		}
		return nil
	})
	// Between what the slow backend itself measured, cut to microseconds, and what clients waited in all.
	fast, late := got[addresses[0]], got[addresses[1]]
	if handled := float64(handled[1].Load()); late.micros < handled || fast.micros+late.micros > waited {
		t.Errorf("times: %+v and %+v, handled in %.0f µs, all answered in %.0f µs", *fast, *late, handled, waited)
	}
	t.Logf("first bytes of the slow backend took %.3f of what it waited", late.micros/float64(handled[1].Load()))
}
