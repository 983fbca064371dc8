package xds_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"testing"
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
)

// listed is the virtual host as a plain list of routes: it is cut into pieces too small for
// a tree.
func listed(h model.VirtualHost) *routev3.VirtualHost {
	whole := xds.VirtualHost(h)
	whole.Matcher, whole.Routes = nil, nil
	for _, r := range h.Routes {
		piece := h
		piece.Routes = []model.Route{r}
		whole.Routes = append(whole.Routes, xds.VirtualHost(piece).GetRoutes()...)
	}
	return whole
}

// TestTreesAnswerAsLists asks a real Envoy the same of random hosts in both forms.
func TestTreesAnswerAsLists(t *testing.T) {
	w := newWorld(t)
	l := model.Listener{ID: "http-1", Port: freePort(t), Protocol: model.ProtocolHTTP}
	r := rand.New(rand.NewPCG(7, 8))
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	path := func() string {
		p := "/"
		for range r.IntN(4) {
			p += pick("a", "b", "ab", "a/", "b/", "a/b", "/", "aa", "%41", "a.b", ".")
		}
		return p
	}
	var trees []model.VirtualHost
	shapes := 0
	for n := range 12 {
		h := host(l.ID, fmt.Sprintf("tree%d.test", n))
		for i := range 64 + r.IntN(40) {
			route := says(fmt.Sprint(i), model.PathMatch{})
			switch k := r.IntN(20); {
			case k < 9:
				route.Match.Path = prefix(path())
			case k < 14:
				route.Match.Path = model.PathMatch{Kind: model.PathPrefix, Value: path()}
			case k < 18:
				route.Match.Path = model.PathMatch{Kind: model.PathExact, Value: path()}
			case n%3 != 0: // a few hosts have expressions
				route.Match.Path = model.PathMatch{Kind: model.PathRegex, Value: pick("/a.*", "/[ab]/.*", "/ab", "(/a|/b).*", "/(a)b.*", "/a?b", "/ab+", ".*", "\\*", "/(?i)A", "/a/b{1,2}") + pick("", "", "c")}
			}
			if n%2 == 0 && len(route.Match.Path.Value) < 3 {
				route.Match.Path = prefix("/a/b") // else "/" takes all that falls through
			}
			if k := route.Match.Path.Kind; r.IntN(10) == 0 && (k == model.PathExact || k == model.PathPrefix) {
				route.Match.Path.Value += "?q=1" // takes nothing, and must hide nothing
			}
			// Most have a condition, so that much falls through.
			switch r.IntN(8) {
			case 0, 1:
				route.Match.Method = "DELETE"
			case 2, 3:
				route.Match.Headers = []model.ValueMatch{{Name: "env", Value: "canary"}}
			case 4, 5:
				route.Match.Query = []model.ValueMatch{{Name: "q", Value: "1"}}
			}
			if r.IntN(10) == 0 {
				route.Match.Path = model.PathMatch{Kind: route.Match.Path.Kind, Value: route.Match.Path.Value + fmt.Sprint(i)}
				if route.Match.Path.Kind == "" {
					route.Match.Path = model.PathMatch{}
				}
			}
			h.Routes = append(h.Routes, route)
		}
		if xds.VirtualHost(h).GetMatcher() != nil {
			shapes++
		}
		trees = append(trees, h)
	}
	if shapes < 8 {
		t.Errorf("only %d of %d hosts have a tree", shapes, len(trees))
	}
	w.listen(l, xds.Options{}, trees...)
	for _, h := range trees {
		rc := xds.RouteConfiguration(l.ID, xds.Shard(l.ID, "list."+h.Host), nil)
		plain := listed(h)
		plain.Name = "list." + h.Host
		plain.Domains = []string{plain.Name}
		rc.VirtualHosts = append(rc.VirtualHosts, plain)
		for _, other := range trees { // who shares the shard stays
			if xds.RouteConfigurationName(l.ID, xds.Shard(l.ID, other.Host)) == rc.Name {
				rc.VirtualHosts = append(rc.VirtualHosts, xds.VirtualHost(other))
			}
		}
		w.route(rc)
	}
	answers := map[int]int{}
	for range 2500 {
		h := trees[r.IntN(len(trees))]
		target := path() + pick("", "", "?q=1", "?q=2", "?q=a/b", "/c", "c", fmt.Sprint(r.IntN(90)))
		method := pick("GET", "GET", "DELETE")
		env := pick("X-A: 1", "Env: canary")
		if r.IntN(100) == 0 {
			method, target = "OPTIONS", "*"
		}
		request := func(name string) string {
			return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\n%s\r\n\r\n", method, target, name, env)
		}
		tree, list := w.raw(l.Port, request(h.Host)), w.raw(l.Port, request("list."+h.Host))
		answers[list.status]++
		if tree.status != list.status || tree.body != list.body {
			t.Fatalf("%s %s %s at %s: the tree says %d %q, the list %d %q", method, target, env, h.Host, tree.status, tree.body, list.status, list.body)
		}
	}
	t.Logf("answers by status: %v", answers)
	if answers[200] < 500 || answers[404] < 100 {
		t.Errorf("the questions try too little: %v", answers)
	}
}

// TestTreeIsSmall holds that a tree has few routes more than the list, and that expressions
// everywhere do not multiply them.
func TestTreeIsSmall(t *testing.T) {
	h := host("http-1", "h")
	for i := range 5000 {
		h.Routes = append(h.Routes, says("r", prefix(fmt.Sprintf("/svc-%d", i))))
	}
	h.Routes = append(h.Routes, says("all", prefix("/")))
	v := xds.VirtualHost(h)
	if v.GetMatcher() == nil || len(v.GetRoutes()) > 0 {
		t.Fatal("no tree")
	}
	tree, list := len(bytesOf(t, v)), len(bytesOf(t, listed(h)))
	if tree > 6*list {
		t.Errorf("%d bytes for %d of a list", tree, list)
	}
	limited := h
	limited.Routes = slices.Clone(h.Routes)
	limited.Routes[17].Policy = &model.RoutePolicy{RateLimit: &model.RateLimit{Requests: 1, Per: time.Second, Burst: 1}}
	if v := xds.VirtualHost(limited); v.GetMatcher() == nil {
		t.Error("a limited route that stands once needs no list")
	}
	limited.Routes[5000].Policy = limited.Routes[17].Policy
	if v := xds.VirtualHost(limited); v.GetMatcher() != nil {
		t.Error("the limit of / would be counted once a leaf")
	}
	for i := range h.Routes {
		if i%2 == 0 {
			h.Routes[i].Match.Path = model.PathMatch{Kind: model.PathRegex, Value: ".*" + regexp.QuoteMeta(fmt.Sprint("/", i))}
		}
	}
	if v := xds.VirtualHost(h); v.GetMatcher() != nil {
		t.Error("half of the routes may take any path, and still there is a tree")
	}
	if v := xds.VirtualHost(host("http-1", "h", says("a", prefix("/")))); v.GetMatcher() != nil {
		t.Error("a tree for one route")
	}
}
