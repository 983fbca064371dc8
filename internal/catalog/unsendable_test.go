package catalog

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/health"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/translate"
	"fairlead.dev/internal/xds"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// TestLargeHostHurtsItselfOnly: hosts of two namespaces are in one shard, and one of them grows until
// the shard is too large. The other one's changes go on, also in a plane that begins then.
func TestLargeHostHurtsItselfOnly(t *testing.T) {
	const victim = "victim.example"
	attacker := ""
	for i := 0; attacker == ""; i++ {
		if name := fmt.Sprintf("a%d.example", i); xds.Shard("http-80", name) == xds.Shard("http-80", victim) {
			attacker = name
		}
	}
	host := func(name, namespace, text string) *model.VirtualHost {
		h := hostTo(model.HostKey{Listener: "http-80", Host: name}, "g")
		h.Routes[0].Name, h.Routes[0].Owner.Namespace = text, namespace
		return h
	}
	shard := RoutesKey("http-80", xds.Shard("http-80", victim))
	type sentHosts map[string]*routev3.VirtualHost
	begin := func(hosts ...*model.VirtualHost) (*Catalog, func(hosts ...*model.VirtualHost) sentHosts) {
		c := New(Config{Health: health.New()})
		c.limit = 16384
		sent := sentHosts{}
		apply := func(ch translate.Changes, hosts []*model.VirtualHost) sentHosts {
			ch.VirtualHosts = map[model.HostKey]*model.VirtualHost{}
			for _, h := range hosts {
				ch.VirtualHosts[h.HostKey] = h
			}
			for _, change := range c.Apply(ch)["all"] {
				if change.Name != shard.Name || change.Type != agentv1.RouteType {
					continue
				}
				var rc routev3.RouteConfiguration
				if err := change.Resource.Body.UnmarshalTo(&rc); err != nil {
					t.Fatal(err)
				}
				clear(sent)
				for _, h := range rc.GetVirtualHosts() {
					sent[h.GetName()] = h
				}
			}
			return sent
		}
		apply(translate.Changes{
			Listeners: map[model.ListenerID]*model.Listener{"http-80": {ID: "http-80", Port: 80, Protocol: model.ProtocolHTTP}},
			Groups:    map[model.GroupID]*model.BackendGroup{"g": {ID: "g", Set: "s"}},
			Views:     map[model.ViewID]*model.View{"all": {ID: "all", Listeners: []model.ListenerID{"http-80"}}},
		}, hosts)
		return c, func(hosts ...*model.VirtualHost) sentHosts { return apply(translate.Changes{}, hosts) }
	}
	name := func(h *routev3.VirtualHost) string {
		if len(h.GetRoutes()) == 0 {
			return ""
		}
		return h.GetRoutes()[0].GetName()
	}
	long := strings.Repeat("x", 18_000)
	c, step := begin(host(victim, "team-a", "a"), host(attacker, "team-b", "b"))
	sent := step(host(victim, "team-a", "aa"), host(attacker, "team-b", long))
	if name(sent[victim]) != "aa" || name(sent[attacker]) != "b" {
		t.Errorf("sent are %q and %q, want the one anew and the other one as it was", name(sent[victim]), name(sent[attacker]))
	}
	sent = step(host(victim, "team-a", "aaa"))
	if name(sent[victim]) != "aaa" || name(sent[attacker]) != "b" {
		t.Errorf("sent are %q and %q, want the next change", name(sent[victim]), name(sent[attacker]))
	}
	if problems := c.UnfitProblems(); len(problems) != 1 || problems[0].Subject != "host "+attacker+" at http-80" || !strings.Contains(problems[0].Message, "namespace team-b") {
		t.Errorf("problems: %+v", problems)
	}
	c, step = begin(host(victim, "team-a", "aaa"), host(attacker, "team-b", long))
	if sent = step(host(victim, "team-a", "a4")); name(sent[victim]) != "a4" || sent[attacker].GetRoutes()[0].GetDirectResponse().GetStatus() != 503 {
		t.Errorf("a plane that begins sends %v", sent)
	}
	if sent = step(host(attacker, "team-b", "c")); name(sent[attacker]) != "c" || len(c.UnfitProblems()) != 0 || len(c.listeners["http-80"].sent) != 0 {
		t.Errorf("it is mended: %v, %+v", sent, c.UnfitProblems())
	}
}

// TestNewViewsHaveWhatCannotBeSent: a view that is new, since a machine moved, has a resource that cannot be
// made anew as another view has it.
func TestNewViewsHaveWhatCannotBeSent(t *testing.T) {
	c := New(Config{Health: health.New()})
	sent := map[model.ViewID]map[string]*delta.Resource{}
	c.last = func(_ delta.Type, name string) (delta.Resource, bool) {
		for _, resources := range sent {
			if r := resources[name]; r != nil {
				return *r, true
			}
		}
		return delta.Resource{}, false
	}
	apply := func(ch translate.Changes) {
		for view, changes := range c.Apply(ch) {
			for _, change := range changes {
				if change.Type != agentv1.ListenerType {
					continue
				}
				if sent[view] == nil {
					sent[view] = map[string]*delta.Resource{}
				}
				sent[view][change.Name] = change.Resource
			}
		}
	}
	view := func(id model.ViewID) map[model.ViewID]*model.View {
		return map[model.ViewID]*model.View{id: {ID: id, Listeners: []model.ListenerID{"http-80"}}}
	}
	listener := func(address string) map[model.ListenerID]*model.Listener {
		l := &model.Listener{ID: "http-80", Port: 80, Protocol: model.ProtocolHTTP}
		if address != "" {
			l.Addresses = []netip.Addr{netip.MustParseAddr(address)}
		}
		return map[model.ListenerID]*model.Listener{"http-80": l}
	}
	apply(translate.Changes{Listeners: listener("192.0.2.1"), Views: view("old")})
	good := sent["old"]["http-80"]
	if good == nil {
		t.Fatal("the listener was not sent")
	}
	c.limit = 16
	apply(translate.Changes{Listeners: listener("192.0.2.2")})
	if sent["old"]["http-80"].Version != good.Version || len(c.unfit) == 0 {
		t.Errorf("what is too large was sent; unfit: %v", c.unfit)
	}
	apply(translate.Changes{Views: view("new")})
	if got := sent["new"]["http-80"]; got == nil || got.Version != good.Version {
		t.Errorf("the new view has %v, want the listener as the old one has it", got)
	}
}
