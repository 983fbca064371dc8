package xds_test

import (
	"fmt"
	"testing"

	datav3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
)

// Envoy sends no record before the key is set, and then each request with its route, its group and the headers that may be recorded:
// none that is a credential, whatever the client sends.
func TestRequestsAreTapped(t *testing.T) {
	w := newWorld(t)
	l := model.Listener{ID: "shared/http", Port: freePort(t), Protocol: model.ProtocolHTTP}
	const route = "HTTPRoute/team/app/rules/0/matches/0"
	w.serveGroup(model.BackendGroup{ID: "team/app/80", Upstream: "east"}, w.backend("app"))
	w.listen(l, xds.Options{}, model.VirtualHost{HostKey: model.HostKey{Listener: l.ID, Host: "a.test"}, Routes: []model.Route{{
		Name: route, Match: model.Match{Path: model.PathMatch{Kind: model.PathPrefix, Value: "/"}}, Forward: &model.Forward{Backends: []model.WeightedGroup{{Group: "team/app/80", Weight: 1}}},
	}}})
	w.get(l.Port, "a.test", "/before")
	w.ads.Samples.Set(map[string]any{model.TapKey: 100})
	var first *datav3.HTTPAccessLogEntry
	w.eventually("a record", func() error {
		w.get(l.Port, "a.test", "/after", "X-Version: two", "Authorization: Bearer hunter2", "Cookie: a=hunter2", "X-Api-Key: hunter2")
		select {
		case first = <-w.ads.Samples.Records:
			return nil
		default:
			return fmt.Errorf("none yet")
		}
	})
	request := first.GetRequest()
	if request.GetPath() != "/after" || first.GetCommonProperties().GetRouteName() != route || first.GetResponse().GetResponseCode().GetValue() != 200 ||
		first.GetCommonProperties().GetCustomTags()[model.TapGroup] != "team/app/80" {
		t.Errorf("record: %v", first)
	}
	if headers := request.GetRequestHeaders(); headers["x-version"] != "two" || headers["authorization"] != "" || headers["cookie"] != "" || headers["x-api-key"] != "" {
		t.Errorf("headers: %v", headers)
	}
}
