package plane

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/health"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/translate"
	"fairlead.dev/internal/xds"
)

// One resource that cannot be sent is left out and named; all others are delivered, what
// needs it is not called programmed, and it is sent as soon as it can be.
func TestUnfitResourceHurtsItselfOnly(t *testing.T) {
	const good, bad = "good.example", "bad.example"
	host := func(name, redirect string) *model.VirtualHost {
		h := hostTo(model.HostKey{Listener: "http-80", Host: name}, "g")
		h.Routes[0].Name = redirect
		return h
	}
	for name, spoil := range map[string]struct{ text, words string }{
		"not text":  {"\xff", "cannot be encoded"},
		"too large": {strings.Repeat("x", 20_000), "more bytes than the 16384 that one resource may have"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCatalog(xds.Options{}, health.New())
			c.limit = 16384
			tr := newTracker(c)
			tr.machines["edge-1"] = &standing{name: "edge-1"}
			tr.serving = func(string, model.ListenerID) (bool, delta.Revision) { return true, delta.Revision{} }
			object := func(name string) model.Object { return model.Object{Kind: "HTTPRoute", Name: name} }
			rev := delta.Revision{Epoch: 1}
			have := map[string]string{}
			step := func(hosts ...*model.VirtualHost) map[model.Object]verdictState {
				t.Helper()
				ch := translate.Changes{VirtualHosts: map[model.HostKey]*model.VirtualHost{}}
				if rev.Number++; rev.Number == 1 {
					ch.Listeners = map[model.ListenerID]*model.Listener{"http-80": {ID: "http-80", Port: 80, Protocol: model.ProtocolHTTP}}
					ch.Groups = map[model.GroupID]*model.BackendGroup{"g": {ID: "g", Set: "s"}}
					ch.Views = map[model.ViewID]*model.View{
						"all":  {ID: "all", Listeners: []model.ListenerID{"http-80"}},
						"none": {ID: "none"},
					}
					ch.Statuses = map[model.Object]*translate.Status{}
					for _, h := range []string{good, bad} {
						ch.Statuses[object(h)] = &translate.Status{Hosts: []model.HostKey{{Listener: "http-80", Host: h}}}
					}
				}
				for _, h := range hosts {
					ch.VirtualHosts[h.HostKey] = h
				}
				for _, change := range c.apply(ch)["all"] {
					if change.Resource == nil {
						delete(have, string(change.Type)+" "+change.Name)
					} else {
						have[string(change.Type)+" "+change.Name] = change.Resource.Version
					}
				}
				tr.changed(rev, ch)
				tr.machines["edge-1"].applied = rev
				return map[model.Object]verdictState{object(good): tr.judge(object(good)).State, object(bad): tr.judge(object(bad)).State}
			}
			wants := func(got map[model.Object]verdictState, ofBad verdictState) {
				t.Helper()
				if want := map[model.Object]verdictState{object(good): verdictProgrammed, object(bad): ofBad}; !maps.Equal(got, want) {
					t.Errorf("verdicts %v, want %v", got, want)
				}
			}
			shard := func(h string) string { return xds.RouteConfigurationName("http-80", xds.Shard("http-80", h)) }
			routes := func(h string) string { return string(typeRoute) + " " + shard(h) }
			wants(step(host(good, "a"), host(bad, "a")), verdictProgrammed)
			before := maps.Clone(have)
			wants(step(host(good, "b"), host(bad, spoil.text)), verdictPending)
			if have[routes(good)] == before[routes(good)] || have[routes(bad)] != before[routes(bad)] || len(have) != len(before) {
				t.Error("the bad host's routes are not as before, or the good one's are")
			}
			problems := c.unfitProblems()
			if len(problems) != 1 || problems[0].Subject != "host "+bad+" at http-80" || !strings.Contains(problems[0].Message, spoil.words) {
				t.Errorf("problems: %+v", problems)
			}
			// Nothing is sent, and yet it is known what is not there.
			wants(step(host(bad, spoil.text)), verdictPending)
			wants(step(host(bad, "c")), verdictProgrammed)
			if have[routes(bad)] == before[routes(bad)] || len(c.unfitProblems()) != 0 {
				t.Errorf("it is mended, and not sent: %v", c.unfitProblems())
			}
			// What no view holds any more is no problem.
			step(host(bad, spoil.text))
			rev.Number++
			gone := c.apply(translate.Changes{Views: map[model.ViewID]*model.View{"all": nil}})["all"]
			if !slices.ContainsFunc(gone, func(d delta.Change) bool { return d.Name == shard(bad) && d.Resource == nil }) || len(c.unfit) != 0 {
				t.Errorf("the view is gone; unfit: %v", c.unfit)
			}
		})
	}
}

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
	shard := routesKey("http-80", xds.Shard("http-80", victim))
	type sentHosts map[string]*routev3.VirtualHost
	begin := func(hosts ...*model.VirtualHost) (*catalog, func(hosts ...*model.VirtualHost) sentHosts) {
		c := newCatalog(xds.Options{}, health.New())
		c.limit = 16384
		sent := sentHosts{}
		apply := func(ch translate.Changes, hosts []*model.VirtualHost) sentHosts {
			ch.VirtualHosts = map[model.HostKey]*model.VirtualHost{}
			for _, h := range hosts {
				ch.VirtualHosts[h.HostKey] = h
			}
			for _, change := range c.apply(ch)["all"] {
				if change.Name != shard.name || change.Type != typeRoute {
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
	if problems := c.unfitProblems(); len(problems) != 1 || problems[0].Subject != "host "+attacker+" at http-80" || !strings.Contains(problems[0].Message, "namespace team-b") {
		t.Errorf("problems: %+v", problems)
	}
	c, step = begin(host(victim, "team-a", "aaa"), host(attacker, "team-b", long))
	if sent = step(host(victim, "team-a", "a4")); name(sent[victim]) != "a4" || sent[attacker].GetRoutes()[0].GetDirectResponse().GetStatus() != 503 {
		t.Errorf("a plane that begins sends %v", sent)
	}
	if sent = step(host(attacker, "team-b", "c")); name(sent[attacker]) != "c" || len(c.unfitProblems()) != 0 || len(c.listeners["http-80"].sent) != 0 {
		t.Errorf("it is mended: %v, %+v", sent, c.unfitProblems())
	}
}

// TestNewViewsHaveWhatCannotBeSent: a view that is new, since a machine moved, has a resource that cannot be
// made anew as another view has it.
func TestNewViewsHaveWhatCannotBeSent(t *testing.T) {
	c := newCatalog(xds.Options{}, health.New())
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
		for view, changes := range c.apply(ch) {
			for _, change := range changes {
				if change.Type != typeListener {
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
