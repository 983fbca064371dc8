package catalog

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairlead.dev/internal/health"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/translate"
)

func TestEmptySets(t *testing.T) {
	at := func(s string, state model.BackendState) model.Backend {
		return model.Backend{Address: netip.MustParseAddrPort(s), State: state}
	}
	for _, c := range []struct {
		name     string
		backends []model.Backend
		weight   uint32
		noHost   bool
		ill      []string // fail their check
		presumed bool     // that nobody asked for
		refusal  string   // of endpoints
		says     string   // empty: there is no problem
	}{
		{name: "no endpoints", weight: 1, says: "no EndpointSlice labelled kubernetes.io/service-name: web has an address for port 80; what is sent there is answered 503, at a.example"},
		{name: "all endpoints refused", weight: 1, refusal: "1 endpoint address is refused: 192.0.2.1 is in AddressPool edge", says: "port 80 has no backend: 1 endpoint address is refused: 192.0.2.1 is in AddressPool edge; what is sent there is answered 503, at a.example"},
		{name: "none ready", weight: 1, backends: []model.Backend{at("192.0.2.1:80", model.BackendUnready), at("192.0.2.2:80", model.BackendUnready)}, says: "none of the 2 endpoints of port 80 is ready"},
		{name: "one ready", weight: 1, backends: []model.Backend{at("192.0.2.1:80", model.BackendUnready), at("192.0.2.2:80", model.BackendReady)}},
		{name: "one draining", weight: 1, backends: []model.Backend{at("192.0.2.1:80", model.BackendDraining)}},
		{name: "one of two ill", weight: 1, ill: []string{"192.0.2.1:80"}, backends: []model.Backend{at("192.0.2.1:80", model.BackendReady), at("192.0.2.2:80", model.BackendReady)}},
		{
			name: "all that are ready ill", weight: 1, ill: []string{"192.0.2.1:80"}, backends: []model.Backend{at("192.0.2.1:80", model.BackendReady), at("192.0.2.2:80", model.BackendUnready)},
			says: "every endpoint of port 80 fails its health check, such as 192.0.2.1:80: answered 503, want 200 (edge-1); what is sent there is answered 503, at a.example",
		},
		{
			name: "all ill, and nobody asked", weight: 1, presumed: true, ill: []string{"192.0.2.1:80"}, backends: []model.Backend{at("192.0.2.1:80", model.BackendReady)},
			says: "every endpoint of port 80 fails its health check, such as 192.0.2.1:80: answered 503, want 200 (edge-1); no policy asked for the check, so all are used, at a.example",
		},
		{name: "ill without a route", noHost: true, ill: []string{"192.0.2.1:80"}, backends: []model.Backend{at("192.0.2.1:80", model.BackendReady)}},
		{name: "weight 0", weight: 0},
		{name: "no route", weight: 1, noHost: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			key := model.HostKey{Listener: "http-80", Host: "a.example"}
			group := model.GroupID("team/web/80")
			ch := translate.Changes{
				Listeners: map[model.ListenerID]*model.Listener{"http-80": {ID: "http-80", Port: 80, Protocol: model.ProtocolHTTP}},
				Groups:    map[model.GroupID]*model.BackendGroup{group: {ID: group, Set: "team/web/80"}},
				Sets:      map[model.SetID]*model.BackendSet{"team/web/80": {ID: "team/web/80", Backends: c.backends, Refusal: c.refusal}},
				VirtualHosts: map[model.HostKey]*model.VirtualHost{key: {HostKey: key, Routes: []model.Route{
					{Forward: &model.Forward{Backends: []model.WeightedGroup{{Group: group, Weight: c.weight}}}},
				}}},
			}
			if c.noHost {
				ch.VirtualHosts = nil
			}
			reason := ReasonNoBackends
			if len(c.ill) > 0 {
				ch.Groups[group].HealthCheck, reason = &model.HealthCheck{Path: "/"}, ReasonNoHealthy
			}
			if c.presumed {
				ch.Groups[group].HealthCheck, ch.Groups[group].Protocol = nil, model.BackendTCP
			}
			checks := health.New()
			sets := New(Config{Health: checks})
			checks.Members([]string{"edge-1"})
			sets.Apply(ch)
			var results []model.CheckResult
			for _, b := range c.ill {
				check, _ := ch.Groups[group].Check(netip.MustParseAddrPort(b))
				results = append(results, model.CheckResult{ID: check.ID, Health: model.Unhealthy, Message: "answered 503, want 200"})
			}
			checks.Report("edge-1", results, nil, time.Time{})
			checks.Judge()
			problems := sets.EmptySets()
			switch {
			case c.says == "" && len(problems) > 0:
				t.Errorf("there is a problem: %+v", problems)
			case c.says != "" && (len(problems) != 1 || !strings.Contains(problems[0].Message, c.says)):
				t.Errorf("%+v, want one that says %q", problems, c.says)
			case c.says != "" && (problems[0].Subject != "Service team/web" || problems[0].Reason != reason):
				t.Errorf("%+v is of something else", problems[0])
			}
		})
	}
}
