package progress

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"fairlead.dev/internal/catalog"
	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/health"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/translate"
	"fairlead.dev/internal/xds"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// One resource that cannot be sent is left out and named; all others are delivered, what
// needs it is not called programmed, and it is sent as soon as it can be.
func TestUnfitResourceHurtsItselfOnly(t *testing.T) {
	const good, bad = "good.example", "bad.example"
	host := func(name, redirect string) *model.VirtualHost {
		h := routed(model.HostKey{Listener: "http-80", Host: name}, "g")
		h.Routes[0].Name = redirect
		return h
	}
	for name, spoil := range map[string]struct{ text, words string }{
		"not text":  {"\xff", "cannot be encoded"},
		"too large": {strings.Repeat("x", 20_000), "more bytes than the 16384 that one resource may have"},
	} {
		t.Run(name, func(t *testing.T) {
			c := catalog.New(catalog.Config{Health: health.New(), Limit: 16384})
			tr := New(c, Inputs{Serving: func(string, model.ListenerID) (bool, delta.Revision) { return true, delta.Revision{} }})
			tr.machines["edge-1"] = &Machine{Name: "edge-1"}
			object := func(name string) model.Object { return model.Object{Kind: "HTTPRoute", Name: name} }
			rev := delta.Revision{Epoch: 1}
			have := map[string]string{}
			step := func(hosts ...*model.VirtualHost) map[model.Object]State {
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
				for _, change := range c.Apply(ch)["all"] {
					if change.Resource == nil {
						delete(have, string(change.Type)+" "+change.Name)
					} else {
						have[string(change.Type)+" "+change.Name] = change.Resource.Version
					}
				}
				tr.Apply(rev, ch)
				tr.machines["edge-1"].Applied = rev
				return map[model.Object]State{object(good): tr.Judge(object(good)).State, object(bad): tr.Judge(object(bad)).State}
			}
			wants := func(got map[model.Object]State, ofBad State) {
				t.Helper()
				if want := map[model.Object]State{object(good): Programmed, object(bad): ofBad}; !maps.Equal(got, want) {
					t.Errorf("results %v, want %v", got, want)
				}
			}
			shard := func(h string) string { return xds.RouteConfigurationName("http-80", xds.Shard("http-80", h)) }
			routes := func(h string) string { return string(agentv1.RouteType) + " " + shard(h) }
			wants(step(host(good, "a"), host(bad, "a")), Programmed)
			before := maps.Clone(have)
			wants(step(host(good, "b"), host(bad, spoil.text)), Pending)
			if have[routes(good)] == before[routes(good)] || have[routes(bad)] != before[routes(bad)] || len(have) != len(before) {
				t.Error("the bad host's routes are not as before, or the good one's are")
			}
			problems := c.UnfitProblems()
			if len(problems) != 1 || problems[0].Subject != "host "+bad+" at http-80" || !strings.Contains(problems[0].Message, spoil.words) {
				t.Errorf("problems: %+v", problems)
			}
			// Nothing is sent, and yet it is known what is not there.
			wants(step(host(bad, spoil.text)), Pending)
			wants(step(host(bad, "c")), Programmed)
			if have[routes(bad)] == before[routes(bad)] || len(c.UnfitProblems()) != 0 {
				t.Errorf("it is mended, and not sent: %v", c.UnfitProblems())
			}
			// What no view holds any more is no problem.
			step(host(bad, spoil.text))
			rev.Number++
			gone := c.Apply(translate.Changes{Views: map[model.ViewID]*model.View{"all": nil}})["all"]
			if !slices.ContainsFunc(gone, func(d delta.Change) bool { return d.Name == shard(bad) && d.Resource == nil }) || len(c.AllUnfit()) != 0 {
				t.Errorf("the view is gone; unfit: %v", c.AllUnfit())
			}
		})
	}
}

// A certificate that has to be shown with a response is not sent before there is one: Envoy
// would refuse it. Who has an older version keeps it, and what is not concerned goes on.
func TestMustStapleWaitsForItsResponse(t *testing.T) {
	c := catalog.New(catalog.Config{Health: health.New()})
	tr := New(c, Inputs{})
	k := model.HostKey{Listener: "https-443", Host: "www.example.com"}
	owner := model.Object{Kind: "Gateway", Namespace: "team", Name: "edge"}
	first := translate.Changes{
		Listeners: map[model.ListenerID]*model.Listener{k.Listener: {ID: k.Listener, Port: 443, Protocol: model.ProtocolHTTPS}},
		Views:     map[model.ViewID]*model.View{"all": {ID: "all", Listeners: []model.ListenerID{k.Listener}}},
		TLSHosts:  map[model.HostKey]*model.TLSHost{k: {HostKey: k, Owner: owner, Certificates: []model.CertificateID{"team/www"}}},
	}
	certificate := func(chain string, response []byte) *model.Certificate {
		return &model.Certificate{ID: "team/www", Chain: chain, Key: "key", MustStaple: true, OCSP: response}
	}
	secrets := func(changes []delta.Change) (n int) {
		for _, change := range changes {
			if change.Type == agentv1.SecretType && change.Resource != nil {
				n++
			}
		}
		return n
	}
	step := func(number uint64, chain string, response []byte) (sent int, stale bool) {
		ch := translate.Changes{}
		if number == 1 {
			ch = first
		}
		ch.Certificates = map[model.CertificateID]*model.Certificate{"team/www": certificate(chain, response)}
		n := secrets(c.Apply(ch)["all"])
		tr.byHost[k] = map[model.Object]bool{owner: true}
		return n, tr.Apply(delta.Revision{Epoch: 1, Number: number}, ch)[owner]
	}
	target := &target{hosts: []model.HostKey{k}}
	if n, _ := step(1, "one", nil); n != 0 || !strings.Contains(tr.held(target), catalog.Unstapled) || len(c.UnfitProblems()) != 1 {
		t.Errorf("without a response %d secrets are sent; held: %q", n, tr.held(target))
	}
	if n, stale := step(2, "one", []byte("response")); n != 1 || !stale || tr.held(target) != "" || len(c.UnfitProblems()) != 0 {
		t.Errorf("with a response %d secrets are sent, the owner is judged again: %v; held: %q", n, stale, tr.held(target))
	}
	if n, _ := step(3, "two", nil); n != 0 || tr.held(target) != "" || len(c.UnfitProblems()) != 1 {
		t.Errorf("renewed without a response %d secrets are sent; held: %q", n, tr.held(target))
	}
	if n, _ := step(4, "two", []byte("response")); n != 1 || len(c.UnfitProblems()) != 0 {
		t.Errorf("renewed with a response %d secrets are sent", n)
	}
}
