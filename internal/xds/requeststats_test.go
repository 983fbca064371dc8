package xds_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
)

// Envoy counts each request once, by listener, host, route, group and class of the status.
func TestRequestsAreCounted(t *testing.T) {
	w := newWorld(t)
	l := model.Listener{ID: "shared/http", Port: freePort(t), Protocol: model.ProtocolHTTP}
	answers := func(name, path string, status uint32) model.Route {
		return model.Route{
			Name: name, Match: model.Match{Path: model.PathMatch{Kind: model.PathPrefix, Value: path}}, Respond: &model.Respond{Status: status},
		}
	}
	// Groups that share the rest of their statistics have counters of their own here.
	for _, id := range []model.GroupID{"team/app/80", "team/next/80"} {
		w.serveGroup(model.BackendGroup{ID: id, Upstream: "east"}, w.backend(string(id)))
	}
	w.listen(l, xds.Options{},
		model.VirtualHost{HostKey: model.HostKey{Listener: l.ID, Host: "a.test"}, Routes: []model.Route{
			answers("HTTPRoute/team/app/rules/0/matches/0", "/good", 204), answers("HTTPRoute/team/app/rules/1/matches/0", "/bad", 503),
			forward("HTTPRoute/team/app/rules/2/matches/0", "/app", "team/app/80", 1), forward("HTTPRoute/team/app/rules/3/matches/0", "/next", "team/next/80", 1),
		}},
		model.VirtualHost{HostKey: model.HostKey{Listener: l.ID, Host: "*.b.test"}, Routes: []model.Route{answers("HTTPRoute/other/web.v1/rules/0/matches/0", "/", 404)}},
	)
	for range 3 {
		w.get(l.Port, "a.test", "/good")
	}
	w.get(l.Port, "a.test", "/bad")
	w.get(l.Port, "a.test", "/app")
	w.get(l.Port, "a.test", "/next")
	w.get(l.Port, "a.test", "/elsewhere")
	w.get(l.Port, "x.b.test", "/")
	w.get(l.Port, "c.test", "/")
	name := func(host, route, group, class string) string {
		return fmt.Sprintf("fairlead.requests.@listener.shared/http.@host.%s.@route.%s.@group.%s.@class.%s", host, route, group, class)
	}
	want := []string{
		name("*.b.test", "HTTPRoute/other/web.v1/rules/0/matches/0", "", "4xx") + ": 1",
		name("", "", "", "4xx") + ": 1",
		name("a.test", "", "", "4xx") + ": 1",
		name("a.test", "HTTPRoute/team/app/rules/0/matches/0", "", "2xx") + ": 3",
		name("a.test", "HTTPRoute/team/app/rules/1/matches/0", "", "5xx") + ": 1",
		name("a.test", "HTTPRoute/team/app/rules/2/matches/0", "team/app/80", "2xx") + ": 1",
		name("a.test", "HTTPRoute/team/app/rules/3/matches/0", "team/next/80", "2xx") + ": 1",
	}
	w.eventually("nine requests", func() error {
		text, err := w.envoy.Admin(w.ctx, http.MethodGet, "/stats?filter=^fairlead[.]")
		if err != nil {
			return err
		}
		if got := slices.Sorted(strings.SplitSeq(strings.TrimSpace(text), "\n")); !slices.Equal(got, want) {
			return fmt.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		return nil
	})
}
