package xds_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
)

// monsterPath compiles to a program of thousands of instructions.
var monsterPath = model.PathMatch{Kind: model.PathRegex, Value: `/(([a-c0-3x-z.~_é-]{1,50}){1,20}x){1,1}`}

// TestRefusedShardAtStart holds that a shard that Envoy refuses from the start does not
// keep the listener closed. What came with it in one response may be missing until it is
// sent again, which is why a refused response is halved.
func TestRefusedShardAtStart(t *testing.T) {
	w := newWorld(t)
	l := model.Listener{ID: "http-1", Port: freePort(t), Protocol: model.ProtocolHTTP}
	bad, good := host(l.ID, "bad.test", says("bad", monsterPath)), host(l.ID, "good.test", says("good", prefix("/")))
	for _, rc := range shards(l.ID, []model.VirtualHost{bad, good, host(l.ID, "*", says("any", prefix("/")))}) {
		w.set(rc)
	}
	for _, s := range xds.Scopes(l.ID) {
		w.set(s)
	}
	w.set(xds.Listener(l, nil, xds.Options{}))
	w.accepting(l)
	must(t, w.envoy.Until(w.ctx, "envoy to refuse the monster", func() bool { return len(w.ads.Nacks()) > 0 }))
	if a := w.get(l.Port, "bad.test", "/"); a.status != 404 {
		t.Errorf("refused host: got %d %q, want 404", a.status, a.body)
	}
	good.Routes = []model.Route{says("good again", prefix("/"))}
	w.set(xds.RouteConfiguration(l.ID, xds.Shard(l.ID, good.Host), []model.VirtualHost{good}))
	must(t, w.envoy.Until(w.ctx, "the good shard, sent again", func() bool {
		return w.get(l.Port, "good.test", "/").body == "good again"
	}))
}

// TestRegexSize lets ordinary expressions in and refuses monsters with their shard.
func TestRegexSize(t *testing.T) {
	w := newWorld(t)
	l := model.Listener{ID: "http-1", Port: freePort(t), Protocol: model.ProtocolHTTP}
	h := host(l.ID, "r.test")
	for _, fine := range []string{
		`/api/v[1-9][0-9]*/(users|groups)/[a-zA-Z0-9_-]{1,64}(/.*)?`,
		`/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`,
		`/.*\.(png|jpe?g|gif|svg|webp|css|js|map|woff2?|ttf)`,
		// About the largest that the plane lets pass: see TestRegexOfRE2 of translate.
		`/.{490}`, `/[^/?#]{245}`, `/\pL{80}`, `/[\pL\pN]{50}`, `/(?i:é){100}`, `/[\x{0}-\x{ff}]{900}`, `/[[:alpha:]]{490}`, `/a{990}`,
		// Of these RE2 has more than the plane counts.
		`/(?:a+){498}`, `/(?:\b*){332}`, `/(?:(?:[a-z]|[a-z0-9_.-]|(?s:.))){997}`,
	} {
		h.Routes = append(h.Routes, says("fine", model.PathMatch{Kind: model.PathRegex, Value: fine}))
	}
	w.listen(l, xds.Options{}, h)
	if a := w.get(l.Port, "r.test", "/img/logo.jpeg"); a.body != "fine" {
		t.Errorf("got %d %q", a.status, a.body)
	}
	monster := host(l.ID, "r.test", says("monster", monsterPath))
	rc := xds.RouteConfiguration(l.ID, xds.Shard(l.ID, h.Host), []model.VirtualHost{monster})
	w.set(rc)
	n, err := w.ads.Refused(w.ctx, rdsURL, rc.Name)
	must(t, err)
	if !strings.Contains(n.Message, "program size") {
		t.Errorf("refused for another reason: %s", n.Message)
	}
	if a := w.get(l.Port, "r.test", "/img/logo.jpeg"); a.body != "fine" {
		t.Errorf("after the refusal: got %d %q, want the last good routes", a.status, a.body)
	}
}

// TestRegexClasses holds which names of classes Envoy takes: all of Go's but two, which would have it refuse the hosts
// of others with them.
func TestRegexClasses(t *testing.T) {
	w := newWorld(t)
	l := model.Listener{ID: "http-1", Port: freePort(t), Protocol: model.ProtocolHTTP}
	h := host(l.ID, "r.test")
	class := func(name string) model.Route {
		return says(name, model.PathMatch{Kind: model.PathRegex, Value: `/\p{` + name + `}`})
	}
	strange := []string{"Cn", "LC"}
	for _, name := range slices.Concat([]string{"Any"}, slices.Collect(maps.Keys(unicode.Categories)), slices.Collect(maps.Keys(unicode.Scripts))) {
		if !slices.Contains(strange, name) {
			h.Routes = append(h.Routes, class(name))
		}
	}
	h.Routes = append(h.Routes, says("all", prefix("/")))
	w.listen(l, xds.Options{}, h)
	if a := w.get(l.Port, "r.test", "/"); a.body != "all" {
		t.Fatalf("with all classes: %d %q", a.status, a.body)
	}
	for _, name := range strange {
		bad := host(l.ID, strings.ToLower(name)+".test", class(name))
		rc := xds.RouteConfiguration(l.ID, xds.Shard(l.ID, bad.Host), []model.VirtualHost{bad})
		w.set(rc)
		n, err := w.ads.Refused(w.ctx, rdsURL, rc.Name)
		must(t, err)
		if !strings.Contains(n.Message, name) {
			t.Errorf("%s is refused for another reason: %s", name, n.Message)
		}
	}
}
