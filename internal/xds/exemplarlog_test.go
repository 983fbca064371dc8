package xds_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
)

// The agent is sent requests whose trace is sampled, with the trace, the group and the route. It is sent none whose trace is not
// sampled, and none of a listener without tracing. A forged header gives no trace.
func TestTracedRequestsAreExemplars(t *testing.T) {
	const sampled, unsampled = "4bf92f3577b34da6a3ce929d0e0e4736", "4bf92f3577b34da6a3ce929d0e0e4737"
	const route = "HTTPRoute/team/app/rules/0/matches/0"
	w := newWorld(t)
	newCollector(t, w)
	w.serveGroup(model.BackendGroup{ID: "team/app/80", Upstream: "east"}, w.backend("app"))
	traced := model.Listener{ID: "http-1", Port: freePort(t), Protocol: model.ProtocolHTTP, Clients: &model.ClientSettings{
		Tracing: &model.Tracing{Collector: "ns/otel/4317", Percent: 0},
	}}
	untraced := model.Listener{ID: "http-2", Port: freePort(t), Protocol: model.ProtocolHTTP}
	for _, l := range []model.Listener{untraced, traced} {
		w.listen(l, xds.Options{}, model.VirtualHost{HostKey: model.HostKey{Listener: l.ID, Host: "a.test"}, Routes: []model.Route{{
			Name: route, Match: model.Match{Path: prefix("/")}, Forward: &model.Forward{Backends: []model.WeightedGroup{{Group: "team/app/80", Weight: 1}}},
		}}})
	}
	w.eventually("a record of the traced request", func() error {
		w.get(untraced.Port, "a.test", "/untraced", "traceparent: 00-"+sampled+"-00f067aa0ba902b7-01")
		w.get(traced.Port, "a.test", "/unsampled", "traceparent: 00-"+unsampled+"-00f067aa0ba902b7-00")
		w.get(traced.Port, "a.test", "/none")
		w.get(traced.Port, "a.test", "/forged", "traceparent: forged-01")
		w.get(traced.Port, "a.test", "/sampled", "traceparent: 00-"+sampled+"-00f067aa0ba902b7-01")
		for {
			select {
			case r := <-w.ads.Samples.Exemplars:
				common := r.GetCommonProperties()
				tags := common.GetCustomTags()
				if r.GetRequest().GetPath() == "/forged" && tags[model.ExemplarTrace] == "" || common.GetRouteName() == "" {
					continue // the agent ignores it: forged, or from before the routes were there
				}
				if r.GetRequest().GetPath() != "/sampled" || tags[model.ExemplarTrace] != sampled || tags[model.TapGroup] != "team/app/80" || common.GetRouteName() != route ||
					common.GetTimeToLastRxByte() == nil || common.GetTimeToLastUpstreamRxByte() == nil {
					t.Fatalf("record: %v", r)
				}
				return nil
			default:
				return fmt.Errorf("none yet")
			}
		}
	})
	if n := len(w.ads.Samples.Records); n > 0 {
		t.Errorf("%d records of taps, and nobody looks", n)
	}
}

// The share of traced requests that the agent is sent bounds the cost. Where few requests begin a trace, all of them are sent.
func TestShareOfExemplars(t *testing.T) {
	for percent, want := range map[float64]uint32{0: 100, 0.5: 100, 9.9: 100, 10: 10, 100: 10} {
		l := model.Listener{ID: "http-1", Port: 80, Protocol: model.ProtocolHTTP, Clients: &model.ClientSettings{
			Tracing: &model.Tracing{Collector: "ns/otel/4317", Percent: percent},
		}}
		text, err := protojson.Marshal(xds.Listener(l, nil, xds.Options{}))
		must(t, err)
		share := regexp.MustCompile(`"runtimeKey":\s*"fairlead\.exemplars",\s*"percentSampled":\s*{"numerator":\s*(\d+)}`).FindStringSubmatch(string(text))
		if share == nil || share[1] != strconv.FormatUint(uint64(want), 10) {
			t.Errorf("of %v %%: %q, want %d in %s", percent, share, want, text)
		}
		l.Clients = nil
		if text, err = protojson.Marshal(xds.Listener(l, nil, xds.Options{})); err != nil || strings.Contains(string(text), "exemplars") {
			t.Errorf("a listener without tracing has %s, %v", text, err)
		}
	}
}
