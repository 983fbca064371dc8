package xds_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
)

// Envoy has the statistics that somebody reads, and few others of what there may be many of.
func TestStatisticsAreChosen(t *testing.T) {
	w := newWorld(t)
	l := model.Listener{ID: "http-80_team_web.v1", Port: freePort(t), Protocol: model.ProtocolHTTP}
	w.serveGroup(model.BackendGroup{
		ID: "ns/app/1", Set: "ns/app/1", Upstream: "prod.eu", Outlier: &model.OutlierDetection{ConsecutiveErrors: 100, Interval: time.Second, EjectionTime: time.Second, MaxEjected: 50},
	}, w.serve(func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprint(rw, "ok") }))
	w.listen(l, xds.Options{}, model.VirtualHost{HostKey: model.HostKey{Listener: l.ID, Host: "a.test"}, Routes: []model.Route{{
		Name: "HTTPRoute/team/app/rules/0/matches/0", Match: model.Match{Path: model.PathMatch{Kind: model.PathPrefix, Value: "/"}},
		Forward: &model.Forward{Backends: []model.WeightedGroup{{Group: "ns/app/1", Weight: 1}}},
		Owner:   model.Object{Kind: "HTTPRoute", Namespace: "team", Name: "app"}, Measured: true,
	}}})
	w.get(l.Port, "a.test", "/")
	const cluster = "cluster.ns@prod|eu."
	want := []string{
		cluster + "upstream_rq_2xx: 1",
		cluster + "upstream_rq_retry: 0", cluster + "upstream_rq_rx_reset: 0", cluster + "upstream_rq_tx_reset: 0",
		cluster + "upstream_cx_rx_bytes_total: ", cluster + "upstream_cx_tx_bytes_total: ", cluster + "upstream_rq_time:",
		"http.http-80_team_web.v1.downstream_cx_rx_bytes_total: ", "http.http-80_team_web.v1.downstream_rq_time:",
		"http.http-80_team_web.v1.downstream_rq_completed: 1", "vhost.a.test.route.HTTPRoute/team/app.upstream_rq_time:",
		"listener.http-80_team_web.v1.downstream_cx_total: ", "fairlead.requests.@listener.", "cluster_manager.active_clusters: ", "server.live: ",
	}
	w.eventually("the statistics", func() error {
		text, err := w.envoy.Admin(w.ctx, http.MethodGet, "/stats")
		if err != nil {
			return err
		}
		for _, statistic := range want {
			if !strings.Contains("\n"+text, "\n"+statistic) {
				return fmt.Errorf("there is no %s in\n%s", statistic, text)
			}
		}
		if many := regexp.MustCompile(`(?m)^(vhost\..*(rq_total|xx|rq_retry)|sds\.|scoped_rds\.|.*\.rds\.|.*\.ssl\.certificate\.|.*outlier_detection\.|.*\.external\.).*`).FindString(text); many != "" {
			return fmt.Errorf("there is %s", many)
		}
		if n := strings.Count("\n"+text, "\n"+cluster); n > 10 {
			return fmt.Errorf("a cluster has %d statistics, at most 10 are wanted", n)
		}
		return nil
	})
}

func TestSharedStat(t *testing.T) {
	for name, want := range map[string]string{"ns@": "ns  true", "ns@prod": "ns prod true", "ns@a|b|c": "ns a.b.c true", "fairlead-agent": "fairlead-agent  false", "ns/app/80@prod": "ns/app/80 prod false"} {
		namespace, upstream, ok := xds.SharedStat(name)
		if got := fmt.Sprint(namespace, " ", upstream, " ", ok); got != want {
			t.Errorf("%s is of %q, want %q", name, got, want)
		}
	}
}
