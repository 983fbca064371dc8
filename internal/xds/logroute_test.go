package xds_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
)

// lines are those of an access log, by the path of the request.
func lines(file string) map[string]map[string]any {
	text, _ := os.ReadFile(file)
	found := map[string]map[string]any{}
	for line := range strings.Lines(string(text)) {
		var said map[string]any
		if json.Unmarshal([]byte(line), &said) == nil {
			path, _ := said["path"].(string)
			found[path] = said
		}
	}
	return found
}

// TestLinesSayWhatWasDecided holds that a line of the access log has the route and its owner, where the request went, and if no backend answered, why.
func TestLinesSayWhatWasDecided(t *testing.T) {
	w := newWorld(t)
	file := filepath.Join(t.TempDir(), "access.log")
	w.group("shop/web/80", w.backend("web"))
	w.group("shop/empty/80")
	w.group("shop/ends/80", w.scripted(""))
	w.group("shop/dead/80", netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), freePort(t)))
	l := model.Listener{ID: "http-1", Port: freePort(t), Protocol: model.ProtocolHTTP}
	named := func(name, path, group string) model.Route { return forward(name, path, group, 1) }
	redirect := model.Route{Name: "HTTPRoute/shop/web/rules/5/matches/0", Match: model.Match{Path: prefix("/moved")}, Redirect: &model.Redirect{Scheme: "https", Status: 301}}
	w.listen(l, xds.Options{AccessLog: file}, host(l.ID, "a.test",
		named("HTTPRoute/shop/web.v1/rules/0/matches/12", "/web", "shop/web/80"),
		named("IngressRoute/shop/old/routes/3", "/empty", "shop/empty/80"),
		named("GRPCRoute/shop/call/rules/1/matches/0", "/ends", "shop/ends/80"),
		named("HTTPRoute/shop/web/rules/2/matches/0", "/dead", "shop/dead/80"),
		named("HTTPRoute/shop/web/rules/3/matches/0", "/broken", ""),
		model.Route{Name: "IngressRoute/shop/old/refused", Match: model.Match{Path: prefix("/refused")}, Respond: &model.Respond{Status: 503}},
		redirect,
	))
	want := map[string][5]any{ // route, owner, group, decision, status
		"/web":     {"HTTPRoute/shop/web.v1/rules/0/matches/12", "HTTPRoute shop/web.v1", "shop/web/80", "the backend answered", 200.},
		"/empty":   {"IngressRoute/shop/old/routes/3", "IngressRoute shop/old", "shop/empty/80", "no backend is available", 503.},
		"/ends":    {"GRPCRoute/shop/call/rules/1/matches/0", "GRPCRoute shop/call", "shop/ends/80", "the backend ended the connection", 503.},
		"/dead":    {"HTTPRoute/shop/web/rules/2/matches/0", "HTTPRoute shop/web", "shop/dead/80", "the backend cannot be reached", 503.},
		"/broken":  {"HTTPRoute/shop/web/rules/3/matches/0", "HTTPRoute shop/web", nil, "the route refers to an object that does not exist or that it may not use", 500.},
		"/refused": {"IngressRoute/shop/old/refused", "IngressRoute shop/old", nil, "the route has no valid backend", 503.},
		"/moved":   {"HTTPRoute/shop/web/rules/5/matches/0", "HTTPRoute shop/web", nil, "the route redirects", 301.},
		"/none":    {nil, nil, nil, "nothing is served here", 404.},
	}
	w.eventually("the routes", func() error {
		if a := w.get(l.Port, "a.test", "/web"); a.status != 200 {
			return fmt.Errorf("status %d", a.status)
		}
		return nil
	})
	for path := range want {
		w.get(l.Port, "a.test", path)
	}
	w.eventually("the lines", func() error {
		if n := len(lines(file)); n != len(want) {
			return fmt.Errorf("%d lines", n)
		}
		return nil
	})
	for path, said := range lines(file) {
		got := [5]any{said["route"], said["owner"], said["group"], said["decision"], said["status"]}
		if got != want[path] {
			t.Errorf("%s:\ngot  %v\nwant %v (details %v, flags %v)", path, got, want[path], said["details"], said["flags"])
		}
		if (said["backend"] != nil) != (path == "/web" || path == "/ends" || path == "/dead") {
			t.Errorf("%s: backend %v", path, said["backend"])
		}
	}
}
