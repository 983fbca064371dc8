package xds_test

import (
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
)

// TestLoopsEnd holds that a request which comes back to an edge again and again is answered 508, and
// that copies for mirrors do not multiply for ever.
func TestLoopsEnd(t *testing.T) {
	w := newWorld(t)
	l := model.Listener{ID: "http-1", Port: freePort(t), Protocol: model.ProtocolHTTP}
	var reached atomic.Int64
	var marks atomic.Value
	w.group("ns/b/80", w.serve(func(_ http.ResponseWriter, q *http.Request) {
		reached.Add(1)
		marks.Store(strings.Join(q.Header.Values(model.LoopHeader), ","))
	}))
	w.group("ns/self/80", netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), l.Port))
	mirrored := forward("mirrored", "/mirrored", "ns/b/80", 1)
	again := model.Mirror{Group: "ns/self/80", Numerator: 1, Denominator: 1}
	mirrored.Forward.Mirrors = []model.Mirror{again, again}
	w.listen(l, xds.Options{}, host(l.ID, "a.test", mirrored, forward("round", "/round", "ns/self/80", 1), forward("rest", "/", "ns/b/80", 1)))
	get := func(target string, headers ...string) answer {
		t.Helper()
		a, err := ask(l.Port, strings.Join(append([]string{"GET " + target + " HTTP/1.1", "Host: a.test", "Connection: close"}, headers...), "\r\n")+"\r\n\r\n")
		must(t, err)
		return a
	}
	if a := get("/"); a.status != 200 || marks.Load() != "fairlead" {
		t.Errorf("an answer %d, and the backend sees the marks %q", a.status, marks.Load())
	}
	if a := get("/", "CDN-Loop: other, fairlead; a=b", "CDN-Loop: fairlead"); a.status != 200 {
		t.Errorf("at the third edge: %d", a.status)
	}
	for _, headers := range [][]string{{"CDN-Loop: fairlead, other, fairlead", "CDN-Loop: fairlead"}, {"CDN-Loop: fairlead,fairlead,fairlead,fairlead"}, {"CDN-Loop: \xff", "CDN-Loop: fairlead,\xfe,fairlead", "CDN-Loop: fairlead"}} {
		if a := get("/", headers...); a.status != 508 || !strings.Contains(a.body, "508 loop") {
			t.Errorf("%q: %d %s", headers, a.status, a.body)
		}
	}
	if a := get("/round"); a.status != 508 {
		t.Errorf("round and round: %d %s", a.status, a.body)
	}
	reached.Store(0)
	get("/mirrored")
	// One request, two copies, and two of each of these.
	must(t, w.envoy.Until(w.ctx, "seven requests", func() bool { return reached.Load() >= 7 }))
	const before = 4 // refused
	must(t, w.envoy.Until(w.ctx, "the eight copies after these to be refused", func() bool {
		return w.envoy.Stat(w.ctx, "http."+string(l.ID)+".rbac.denied") == before+8
	}))
	if n := reached.Load(); n != 7 {
		t.Errorf("the backend gets %d requests of one, want 7", n)
	}
}
