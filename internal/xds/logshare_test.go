package xds_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
)

// TestSharesOfLines holds which requests have a line: the share that the nearest policy chose, failed requests always, and none
// of a route that wants none. The counts of a share of 50 % have a bound that random IDs miss less than once in 10^9.
func TestSharesOfLines(t *testing.T) {
	w := newWorld(t)
	w.group("shop/web/80", w.backend("web"))
	route := func(n int, path string, share *model.LogShare, group model.GroupID) model.Route {
		r := forward(fmt.Sprintf("HTTPRoute/shop/web/rules/%d/matches/0", n), path, string(group), 1)
		if share != nil {
			r.Policy = &model.RoutePolicy{AccessLog: share}
		}
		return r
	}
	routes := []model.Route{
		route(0, "/plain", nil, "shop/web/80"), route(1, "/broken", nil, ""),
		route(2, "/all", &model.LogShare{Percent: 100}, "shop/web/80"),
		route(3, "/half", &model.LogShare{Percent: 50}, "shop/web/80"),
		route(4, "/halfbroken", &model.LogShare{Percent: 50}, ""),
		route(5, "/errors", &model.LogShare{}, "shop/web/80"), route(6, "/errorsbroken", &model.LogShare{}, ""),
		route(7, "/none", &model.LogShare{None: true}, "shop/web/80"), route(8, "/nonebroken", &model.LogShare{None: true}, ""),
	}
	const n = 80
	for _, c := range []struct {
		name string
		log  *model.AccessLog
		host *model.LogShare
		want string // "1" all, "h" half, "0" none; by the routes above, and a path without a route
	}{
		{"all", nil, nil, "111h101001"},
		{"errors", &model.AccessLog{Errors: true}, nil, "011h101001"},
		{"half", &model.AccessLog{Percent: 50}, nil, "h11h101001"},
		{"host", nil, &model.LogShare{}, "011h101001"},
		{"host none", &model.AccessLog{Errors: true}, &model.LogShare{None: true}, "001h101001"},
	} {
		file := filepath.Join(t.TempDir(), "access.log")
		l := model.Listener{ID: model.ListenerID("http-" + strings.ReplaceAll(c.name, " ", "-")), Port: freePort(t), Protocol: model.ProtocolHTTP}
		if c.log != nil {
			l.Clients = &model.ClientSettings{AccessLog: c.log}
		}
		h := host(l.ID, "a.test", routes...)
		if c.host != nil {
			h.Policy = &model.RoutePolicy{AccessLog: c.host}
		}
		w.listen(l, xds.Options{AccessLog: file}, h)
		w.eventually("the routes", func() error {
			if a := w.get(l.Port, "a.test", "/plain/warm"); a.status != 200 {
				return fmt.Errorf("status %d", a.status)
			}
			return nil
		})
		ask := func(path string) {
			for i := range n {
				w.get(l.Port, "a.test", fmt.Sprintf("%s/%d", path, i), "X-Request-Id: 0") // the proxy gives it an ID of its own
			}
		}
		paths := []string{}
		for _, r := range routes {
			paths = append(paths, r.Match.Path.Value)
		}
		for _, path := range append(paths, "/nowhere") {
			ask(path)
		}
		ask("/nowhere/last") // its lines come behind all others
		var got map[string]int
		w.eventually("the last line", func() error {
			got = map[string]int{}
			for path := range lines(file) {
				if !strings.HasSuffix(path, "/warm") {
					got[path[:strings.LastIndex(path, "/")]]++
				}
			}
			if got["/nowhere/last"] < n {
				return fmt.Errorf("%v", got)
			}
			return nil
		})
		for i, path := range append(paths, "/nowhere") {
			count, ok := got[path], false
			switch c.want[i] {
			case '1':
				ok = count == n
			case '0':
				ok = count == 0
			case 'h':
				ok = count > 12 && count < n-12
			}
			if !ok {
				t.Errorf("%s: %d lines of %s, want %c", c.name, count, path, c.want[i])
			}
		}
	}
}
