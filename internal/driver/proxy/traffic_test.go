package proxy

import (
	"io"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"fairlead.dev/internal/model"
)

func TestTrafficIsRead(t *testing.T) {
	got, err := readTraffic(strings.NewReader(`cluster.fairlead-agent.membership_total: 1
cluster.fairlead-agent.upstream_rq_total: 1
cluster.team@prod|eu.membership_healthy: 1
cluster.team@prod|eu.membership_total: 2
cluster.team@prod|eu.upstream_rq_2xx: 37
cluster.team@prod|eu.upstream_rq_5xx: 3
cluster.team@prod|eu.upstream_rq_retry: 5
cluster.team@prod|eu.upstream_rq_rx_reset: 6
cluster.team@prod|eu.upstream_rq_tx_reset: 7
cluster.team@prod|eu.upstream_cx_tx_bytes_total: 800
cluster.team@prod|eu.upstream_cx_rx_bytes_total: 900
cluster.team@.upstream_rq_2xx: 5
cluster.idle@.upstream_rq_2xx: 0
cluster.odd
cluster.odd@.upstream_rq_2xx: many
cluster.fairlead-agent.upstream_rq_2xx: 9
fairlead.requests.@listener.http-80.@host.a.test.@route.HTTPRoute/team/app/rules/0/matches/0.@group.team/a/80.@class.2xx: 12
fairlead.requests.@listener.http-80.@host.a.test.@route.HTTPRoute/team/app/rules/0/matches/0.@group..@class.4xx: 1
http.admin.downstream_cx_rx_bytes_total: 1000
http.http-80_team_web.v1.downstream_cx_active: 9
http.http-80_team_web.v1.downstream_cx_rx_bytes_total: 10
http.http-80_team_web.v1.downstream_cx_tx_bytes_total: 20
http.http-80_team_web.v1.downstream_rq_rx_reset: 1
http.http-80_team_web.v1.downstream_rq_tx_reset: 2
listener.http-80_team_web.v1.downstream_cx_active: 3
listener.http-80_team_web.v1.downstream_cx_total: 4
listener.http-80_team_web.v1.worker_0.downstream_cx_total: 4
listener.admin.downstream_cx_total: 77
listener.admin.main_thread.downstream_cx_active: 1
listener.admin.main_thread.downstream_cx_total: 77
tcp.tcp-5432.downstream_cx_rx_bytes_total: 30
tcp.tcp-5432.downstream_cx_tx_bytes_total: 40
cluster.team@prod|eu.upstream_rq_time:
  totals=0,0:3, 3,0.1:2, 120,10:1
  intervals=0,0:3
  summary=P0(nan,0) P25(nan,0)
http.admin.downstream_rq_time:
  totals=2,0.1:1
http.http-80_team_web.v1.downstream_rq_time:
  totals=50,1:1
vhost.a.test.route.HTTPRoute/team/app.upstream_rq_time:
  totals=50,1:1
vhost.b.test.route.HTTPRoute/team/app.upstream_rq_time:
  totals=50,1:1
`))
	if err != nil {
		t.Fatal(err)
	}
	times := func(seconds ...float64) (h model.Histogram) {
		for _, s := range seconds {
			h.Add(s, 1)
		}
		return h
	}
	want := model.Traffic{
		Requests: []model.RequestFigures{
			{Listener: "http-80", Host: "a.test", Route: "HTTPRoute/team/app/rules/0/matches/0", Classes: [model.StatusClasses]uint64{4: 1}},
			{Listener: "http-80", Host: "a.test", Route: "HTTPRoute/team/app/rules/0/matches/0", Group: "team/a/80", Classes: [model.StatusClasses]uint64{2: 12}},
		},
		Services: []model.ServiceTraffic{
			{Namespace: "team", Volume: model.Volume{Answers: [model.StatusClasses]uint64{2: 5}}},
			{Namespace: "team", Upstream: "prod.eu", Volume: model.Volume{
				Received: 800, Sent: 900, Retries: 5, Resets: 13, Answers: [model.StatusClasses]uint64{2: 37, 5: 3},
				Seconds: times(.0005, .0005, .0005, .0035, .0035, .125),
			}},
		},
		Listeners: []model.ListenerTraffic{
			{Listener: "http-80_team_web.v1", Volume: model.Volume{Received: 10, Sent: 20, Resets: 3, Open: 3, Connections: 4, Seconds: times(.0505)}},
			{Listener: "tcp-5432", Volume: model.Volume{Received: 30, Sent: 40}},
		},
		Routes: []model.RouteTraffic{{Owner: "HTTPRoute/team/app", Volume: model.Volume{Seconds: times(.0505, .0505)}}},
		Hosts: []model.HostTraffic{
			{Host: "a.test", Volume: model.Volume{Seconds: times(.0505)}}, {Host: "b.test", Volume: model.Volume{Seconds: times(.0505)}},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	if sum := want.Services[1].Seconds.Micros; math.Abs(float64(sum)-133500) > 1 {
		t.Errorf("the sum is %d µs, want 133,500", sum)
	}
}

// The question is one that Envoy answers: with what it has counted of our questions.
func TestTrafficOfARealProxy(t *testing.T) {
	r := begin(t, configure(t, runDir(t)))
	r.ready(1)
	deadline := time.Now().Add(patience)
	for text := ""; !strings.Contains(text, "http.admin.downstream_rq_time:\n  totals="); {
		if time.Now().After(deadline) {
			t.Fatalf("it has not counted our questions, but\n%s", text)
		}
		if _, err := r.s.Traffic(t.Context()); err != nil {
			t.Fatal(err)
		}
		body, err := r.s.admin.open(t.Context(), trafficStats)
		if err != nil {
			t.Fatal(err)
		}
		all, err := io.ReadAll(body)
		body.Close()
		if text = string(all); err != nil {
			t.Fatal(err)
		}
	}
}
