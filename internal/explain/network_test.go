package explain

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"fairlead.dev/internal/model"
)

// vip is a VIP of Gateway default/edge in pool public, at machines edge-1 to edge-3.
func vip(address string, mode model.Announce, at ...model.VIPAt) model.VIPStatus {
	v := model.VIPStatus{
		Assignment: model.Assignment{
			Address: netip.MustParseAddr(address), Pool: "public", Mode: mode, Listeners: []model.ListenerID{"http-80"},
			Owner: model.Object{Kind: "Gateway", Namespace: "default", Name: "edge"}, Machines: []string{"edge-1", "edge-2", "edge-3"},
		},
		State: "announced", At: at,
	}
	if !slices.ContainsFunc(at, func(a model.VIPAt) bool { return a.State == model.VIPAnnounced }) {
		v.State, v.Message = "withheld", "nobody can"
	}
	return v
}

func at(machine string, state model.VIPState, message string) model.VIPAt {
	return model.VIPAt{Machine: machine, VIPObserved: model.VIPObserved{State: state, Message: message}}
}

func edges(e Explanation) string {
	var names []string
	for _, edge := range e.Network.Edges {
		names = append(names, edge.Machine+"="+strings.Join(edge.Through, ","))
	}
	return strings.Join(names, " ")
}

func TestNetwork(t *testing.T) {
	const a, s, w = model.VIPAnnounced, model.VIPStandby, model.VIPWithheld
	bgp := vip("192.0.2.80", model.AnnounceBGP, at("edge-1", a, ""), at("edge-2", a, ""))
	l2 := vip("192.0.2.81", model.AnnounceL2, at("edge-1", s, ""), at("edge-2", a, ""))
	none := vip("192.0.2.82", model.AnnounceBGP, at("edge-1", w, "the proxy is not ready"))
	other := vip("192.0.2.83", model.AnnounceBGP, at("edge-2", a, ""))
	other.Listeners = []model.ListenerID{"http-8080"}
	for _, c := range []struct {
		name, url, vip string
		vips           []model.VIPStatus
		edges, how     string
		connects       bool
	}{
		{"no VIP", "http://a.test/", "", nil, "edge-1=10.0.0.1,fd00::1 edge-2=10.0.0.2", "at their own addresses", true},
		{"ECMP", "http://a.test/", "", []model.VIPStatus{bgp, other}, "edge-1=192.0.2.80 edge-2=192.0.2.80", "each new one may take another", true},
		{"the owner", "http://a.test/", "", []model.VIPStatus{l2}, "edge-2=192.0.2.81", "it alone", true},
		{"both", "http://a.test/", "", []model.VIPStatus{bgp, l2}, "edge-1=192.0.2.80 edge-2=192.0.2.80,192.0.2.81", "ECMP", true},
		{"withheld", "http://a.test/", "", []model.VIPStatus{none}, "edge-1=10.0.0.1,fd00::1 edge-2=10.0.0.2", "no VIP is announced; clients reach", false},
		{"asked for", "http://a.test/", "192.0.2.81", []model.VIPStatus{bgp, l2}, "edge-2=192.0.2.81", "it alone", true},
		{"asked for and withheld", "http://a.test/", "192.0.2.82", []model.VIPStatus{bgp, none}, "", "no machine announces 192.0.2.82", false},
		{"asked for, of another owner", "http://a.test/", "192.0.2.83", []model.VIPStatus{other}, "edge-2=192.0.2.83", "it alone", true},
		{"a machine's address", "http://a.test/", "fd00::1", []model.VIPStatus{bgp}, "edge-1=fd00::1", "of the machine itself", true},
		{"nobody's address", "http://a.test/", "203.0.113.1", []model.VIPStatus{bgp}, "", "no VIP and no address of a machine", false},
		{"no listener", "http://a.test:81/", "", []model.VIPStatus{bgp}, "", "no listener", false},
		{"TLS", "https://a.test/", "", nil, "", "no listener", false},
		{"TLS to a plain listener", "https://a.test:80/", "", nil, "edge-1=10.0.0.1,fd00::1 edge-2=10.0.0.2", "own addresses", false},
	} {
		g := given{hosts: []model.VirtualHost{host("a.test", route(0, model.Match{}))}}
		g.VIPs = c.vips
		e := Explain(ask(t, Options{URL: c.url, VIP: c.vip}), g.world())
		if got := edges(e); got != c.edges || !strings.Contains(e.Network.How, c.how) || e.Answer.Connects != c.connects {
			t.Errorf("%s: edges %q, %q, %+v", c.name, got, e.Network.How, e.Answer)
		}
		if c.connects != (len(e.Answer.Outcomes) > 0) {
			t.Errorf("%s: %+v", c.name, e.Answer)
		}
	}
}

func TestVIPSaysWhoDoesNotAnnounceIt(t *testing.T) {
	g := given{hosts: []model.VirtualHost{host("a.test", route(0, model.Match{}))}}
	g.VIPs = []model.VIPStatus{vip("192.0.2.80", model.AnnounceBGP, at("edge-1", model.VIPAnnounced, ""), at("edge-2", model.VIPWithheld, "the machine is cordoned"))}
	g.Problems = []model.Problem{{Subject: "VIP 192.0.2.80"}, {Subject: "VIP 192.0.2.99"}, {Subject: "Machine edge-1"}, {Subject: "Machine edge-9"}, {Subject: "HTTPRoute team/app"}}
	e := Explain(ask(t, Options{URL: "http://a.test/"}), g.world())
	v := e.Network.VIPs[0]
	if !slices.Equal(v.By, []string{"edge-1"}) || len(v.Not) != 2 || v.Not[0].Why != "the machine is cordoned" || v.Not[1].Machine != "edge-3" {
		t.Errorf("%+v", v)
	}
	if v.Owner.String() != "Gateway default/edge" || v.Pool.String() != "AddressPool public spec.addresses" {
		t.Errorf("owner %s, pool %s", v.Owner, v.Pool)
	}
	var concern []string
	for _, p := range e.Problems {
		concern = append(concern, p.Subject)
	}
	if want := []string{"VIP 192.0.2.80", "Machine edge-1", "HTTPRoute team/app"}; !slices.Equal(concern, want) {
		t.Errorf("problems of %q, want %q", concern, want)
	}
}

func TestEdgesSayWhatMayBeDifferentThere(t *testing.T) {
	g := given{hosts: []model.VirtualHost{host("a.test", route(0, model.Match{}))}}
	g.Machines = []model.MachineStatus{
		{Name: "edge-1", Connected: true, Proxy: model.ProxyStatus{State: "backoff"}, Applied: 1, Wanted: 2, Refused: []model.RefusedItem{{}}, Cordoned: true},
		{Name: "edge-2"},
	}
	e := Explain(ask(t, Options{URL: "http://a.test/"}), g.world())
	for i, words := range [][]string{{"backoff", "last change", "refuses", "cordoned"}, {"does not report"}} {
		for _, word := range words {
			if note := e.Network.Edges[i].Note; !strings.Contains(note, word) {
				t.Errorf("%q does not say %q", note, word)
			}
		}
	}
	g.Machines, g.Serving = []model.MachineStatus{}, func(model.ListenerID) []string { return []string{} }
	if e := Explain(ask(t, Options{URL: "http://a.test/"}), g.world()); e.Answer.Connects || !strings.Contains(e.Answer.Text, "none has joined") {
		t.Errorf("%+v", e.Answer)
	}
}

// What no machine takes in is not answered by a backend.
func TestNobodyTakesTheConnection(t *testing.T) {
	const listener = "type.googleapis.com/envoy.config.listener.v3.Listener"
	refuses := func(name, id string) model.MachineStatus {
		return model.MachineStatus{Name: name, Connected: true, Proxy: model.ProxyStatus{State: "ready"}, Refused: []model.RefusedItem{
			{Kind: "refused", Type: listener, Name: id, Message: "port 80 is taken by nginx"},
		}}
	}
	takes := refuses("edge-2", "http-8080")
	none := vip("192.0.2.80", model.AnnounceBGP, at("edge-1", model.VIPWithheld, "no session"))
	for _, c := range []struct {
		name     string
		machines []model.MachineStatus
		vips     []model.VIPStatus
		says     string
		connects bool
	}{
		{
			"the only one refuses",
			[]model.MachineStatus{refuses("edge-1", "http-80")},
			nil,
			"no machine takes the connection: edge-1 refuses the listener http-80: port 80 is taken by nginx; fix the cause there (for example, free the port): the proxy retries by itself; if one did, ", false,
		},
		{"its half over UDP", []model.MachineStatus{refuses("edge-1", "http-80/udp")}, nil, "edge-1 refuses the listener http-80: port 80", false},
		{"both refuse alike", []model.MachineStatus{refuses("edge-1", "http-80"), refuses("edge-2", "http-80")}, nil, "each of edge-1, edge-2 refuses the listener", false},
		{"another takes it", []model.MachineStatus{refuses("edge-1", "http-80"), takes}, nil, "", true},
		{"another may take it", []model.MachineStatus{refuses("edge-1", "http-80"), {Name: "edge-2"}}, nil, "", true},
		{"the proxy does not run", []model.MachineStatus{{Name: "edge-1", Connected: true, Proxy: model.ProxyStatus{State: "backoff"}}}, nil, "edge-1 has a proxy in state backoff", false},
		{"no proxy is to run there", []model.MachineStatus{{Name: "edge-1", Connected: true, Proxy: model.ProxyStatus{State: "none"}}}, nil, "no machine takes the connection: edge-1 runs no proxy; if one did, ", false},
		{
			"nobody announces the VIP",
			[]model.MachineStatus{takes},
			[]model.VIPStatus{none},
			"no machine announces 192.0.2.80, so that no connection gets to one: nobody can (`fairlead bgp` shows the sessions); only the machines' own addresses lead there; if one did, ", false,
		},
	} {
		g := given{hosts: []model.VirtualHost{host("a.test", route(0, model.Match{}))}}
		g.Machines, g.VIPs = c.machines, c.vips
		e := Explain(ask(t, Options{URL: "http://a.test/"}), g.world())
		if e.Answer.Connects != c.connects || !strings.Contains(e.Answer.Text, c.says) {
			t.Errorf("%s: %+v", c.name, e.Answer)
		}
	}
}

func TestProblemsOfWhoNamesTheHost(t *testing.T) {
	g := given{}
	g.NamedBy = func(name string) []model.Object {
		return []model.Object{{Kind: "HTTPRoute", Namespace: "team", Name: name}}
	}
	// A root that asks for the listener too has nothing to do with this host.
	g.ListenerBy = func(model.ListenerID) []Source {
		return []Source{{Object: model.Object{Kind: "IngressRoute", Namespace: "team", Name: "root"}}, {Object: model.Object{Kind: "Gateway", Namespace: "team", Name: "edge"}}}
	}
	g.Problems = []model.Problem{{Subject: "HTTPRoute team/a.test"}, {Subject: "IngressRoute team/root"}, {Subject: "Gateway team/edge"}}
	e := Explain(ask(t, Options{URL: "http://A.test:80/"}), g.world())
	if len(e.Problems) != 2 || e.Problems[1].Subject != "Gateway team/edge" || e.Answer.Outcomes[0].Status != 404 {
		t.Errorf("%+v %+v", e.Problems, e.Answer)
	}
}

func TestStandbyAndOfflineSayThatTheyDoNotKnow(t *testing.T) {
	g := given{hosts: []model.VirtualHost{host("a.test", route(0, model.Match{}))}}
	g.VIPs = []model.VIPStatus{vip("192.0.2.80", model.AnnounceBGP)}
	g.Standby = "192.0.2.1:7443"
	e := Explain(ask(t, Options{URL: "http://a.test/"}), g.world())
	if !strings.Contains(e.Network.How, "ask the leader at 192.0.2.1:7443") || !e.Answer.Connects {
		t.Errorf("%+v %+v", e.Network, e.Answer)
	}
	g.Standby, g.Offline = "", true
	e = Explain(ask(t, Options{URL: "http://a.test/"}), g.world())
	if !strings.Contains(e.Network.How, "manifests do not say") || !e.Answer.Connects || len(e.Network.VIPs[0].Not) > 0 {
		t.Errorf("%+v %+v", e.Network, e.Answer)
	}
}
