package explain

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairlead.dev/internal/model"
)

// overTLS is a world with one HTTPS listener, server names and certificates.
func overTLS(now time.Time, hosts ...model.TLSHost) given {
	g := given{}
	g.Listeners = []model.Listener{{ID: "https-443", Port: 443, Protocol: model.ProtocolHTTPS}}
	g.Now = now
	g.TLSHost = func(k model.HostKey) *model.TLSHost {
		for i := range hosts {
			if hosts[i].HostKey == k {
				return &hosts[i]
			}
		}
		return nil
	}
	g.TLSHosts = func(model.ListenerID) (names []string) {
		for _, h := range hosts {
			names = append(names, h.Host)
		}
		return names
	}
	g.Certificate = func(id model.CertificateID) *model.Certificate {
		_, name, _ := strings.Cut(string(id), "/")
		return &model.Certificate{ID: id, Names: []string{name}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour)}
	}
	return g
}

func serverName(host string, certificates ...model.CertificateID) model.TLSHost {
	return model.TLSHost{
		HostKey: model.HostKey{Listener: "https-443", Host: host}, Owner: model.Object{Kind: "IngressRoute", Namespace: "team", Name: "root"}, Certificates: certificates,
	}
}

func TestHandshakes(t *testing.T) {
	now := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	tcp := serverName("bytes.test", "ns/bytes.test")
	tcp.TCP = []model.WeightedGroup{{Group: "ns/app/443", Weight: 1}}
	passed := serverName("passed.test")
	passed.TCP = []model.WeightedGroup{{Group: "ns/app/443", Weight: 1}, {Weight: 1}}
	g := overTLS(now, serverName("a.test", "ns/a.test"), serverName("*.wild.test", "ns/*.wild.test"), serverName("none.test"), serverName("wrong.test", "ns/other.test"), tcp, passed)
	g.sets = []model.BackendSet{{ID: "ns/app/443", Backends: []model.Backend{{Address: netip.MustParseAddrPort("10.0.0.1:443")}}}}
	for _, name := range []string{"a.test", "x.wild.test", "wrong.test"} {
		h := host(name, route(0, model.Match{}))
		h.Listener, h.Section = "https-443", name
		if name == "x.wild.test" {
			h.Section = "*.wild.test"
		}
		g.hosts = append(g.hosts, h)
	}
	for _, c := range []struct {
		url, sni, says, certificate string
		connects                    bool
	}{
		{"https://a.test/", "", "the proxy answers 299", "", true},
		{"https://x.wild.test/", "y.wild.test", "the proxy answers 299", "", true},
		{"https://a.test/", "y.wild.test", "the proxy answers 421", "", true},
		{"https://x.wild.test/", "a.test", "the proxy answers 421", "", true},
		{"https://wrong.test/", "", "the proxy answers 299", "it is not for wrong.test", true},
		{"https://none.test/", "", "IngressRoute team/root has the server name none.test and no certificate", "", false},
		{"https://other.test/", "", "no certificate is there for the server name other.test", "", false},
		{"https://192.0.2.1/", "", "no certificate is there for a client without a server name", "", false},
		{"https://bytes.test/", "", "it decrypts the connection and forwards it to a backend as TCP", "", true},
		{"https://passed.test/", "", "the connection is closed to 50%: the reference to the backend is broken", "", true},
		{"http://a.test:443/", "", "closes connections in clear text", "", false},
	} {
		e := Explain(ask(t, Options{URL: c.url, SNI: c.sni}), g.world())
		if !strings.Contains(e.Answer.Text, c.says) || e.Answer.Connects != c.connects && e.Network.Nobody == "" {
			t.Errorf("%s by %q: %+v, want %q", c.url, c.sni, e.Answer, c.says)
		}
		if c.certificate != "" && !strings.Contains(e.TLS.Certificates[0].Problem, c.certificate) {
			t.Errorf("%s: %+v, want %q", c.url, e.TLS.Certificates, c.certificate)
		}
	}
	g.Now = now.Add(2 * time.Hour)
	e := Explain(ask(t, Options{URL: "https://a.test/"}), g.world())
	if c := e.TLS.Certificates[0]; !strings.Contains(c.Problem, "it ended at 2026-05-01T01:00:00Z") || c.By.String() != "Secret ns/a.test data" {
		t.Errorf("%+v", c)
	}
	if _, err := NewRequest(Options{URL: "http://a.test/", SNI: "b.test"}); err == nil || !strings.Contains(err.Error(), "sni") {
		t.Errorf("a server name in clear text: %v", err)
	}
}

// The listener that is bound to an address takes what comes to it, the shared one the rest.
func TestAddressesChooseTheListener(t *testing.T) {
	own := model.Listener{ID: "http-80_team_web", Port: 80, Protocol: model.ProtocolHTTP, Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.80")}}
	g := given{hosts: []model.VirtualHost{host("shared.test", route(0, model.Match{}))}}
	mine := host("own.test", route(0, model.Match{}))
	mine.Listener = own.ID
	g.hosts = append(g.hosts, mine)
	g.Offline = true
	g.Listeners = []model.Listener{{ID: "http-80", Port: 80, Protocol: model.ProtocolHTTP}, own}
	for _, c := range []struct {
		url, vip string
		want     model.ListenerID
		status   uint32
	}{
		{"http://own.test/", "", own.ID, 299},
		{"http://shared.test/", "", "http-80", 299},
		{"http://shared.test/", "192.0.2.80", own.ID, 404},
		{"http://own.test/", "192.0.2.81", "http-80", 404},
		{"http://nobody.test/", "", "http-80", 404},
	} {
		e := Explain(ask(t, Options{URL: c.url, VIP: c.vip}), g.world())
		if e.Listener.ID != c.want || e.Answer.Outcomes[0].Status != c.status {
			t.Errorf("%s at %q: %s, %+v; want %s, %d", c.url, c.vip, e.Listener.ID, e.Answer, c.want, c.status)
		}
		if (len(e.Listener.Others) > 0) != (c.vip == "") {
			t.Errorf("%s at %q: other listeners %v", c.url, c.vip, e.Listener.Others)
		}
	}
}

func TestPoliciesNameWhoDecides(t *testing.T) {
	h := host("a.test", route(0, model.Match{}))
	h.Policy = &model.RoutePolicy{Addresses: &model.AddressFilter{Allow: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}, MaxRequestBytes: 10}
	contour := model.ContourEncoding()
	h.Policy.GRPCWeb = contour.GRPCWeb // nobody said it
	h.Routes[0].Policy = &model.RoutePolicy{MaxRequestBytes: 20, Compression: model.UsualCompression(), ErrorPages: &model.ErrorPages{Pages: []model.ErrorPage{{Statuses: []string{"5xx"}, Body: "sorry"}}}}
	g := given{hosts: []model.VirtualHost{h}}
	g.PoliciesOf = func(model.HostKey, *model.Route) (route, host []Says) {
		policy := func(name string) model.Object {
			return model.Object{Kind: "RoutePolicy", Namespace: "team", Name: name}
		}
		return []Says{{policy("near"), *h.Routes[0].Policy}}, []Says{{policy("far"), model.RoutePolicy{Addresses: h.Policy.Addresses, MaxRequestBytes: 10}}}
	}
	e := Explain(ask(t, Options{URL: "http://a.test/", From: "192.0.2.7"}), g.world())
	if o := e.Answer.Outcomes; len(o) != 1 || o[0].Status != 403 || !strings.Contains(o[0].Why, "192.0.2.7 is not among those that are allowed") {
		t.Errorf("%+v", o)
	}
	var by []string
	for _, p := range e.Route.Policies {
		if len(p.By) == 0 {
			by = append(by, p.Text)
			continue
		}
		by = append(by, p.By[0].String())
	}
	if got, want := strings.Join(by, ", "), "requests of gRPC-Web (application/grpc-web, application/grpc-web-text) go to the backend as gRPC (every IngressRoute has this unless a policy says otherwise), "+
		"RoutePolicy team/far spec.addresses, RoutePolicy team/near spec.maxRequestBytes, RoutePolicy team/near spec.compression, RoutePolicy team/near spec.errorPages"; got != want {
		t.Errorf("decided by %s, want %s", got, want)
	}
	if e := Explain(ask(t, Options{URL: "http://a.test/", From: "10.1.2.3"}), g.world()); e.Answer.Outcomes[0].Status != 299 {
		t.Errorf("%+v", e.Answer)
	}
	g.Freeze = &model.FreezeStatus{Reason: "holidays"}
	g.Held = func(hosts []model.HostKey, _ []model.ListenerID) bool { return hosts[0].Host == "a.test" }
	if e := Explain(ask(t, Options{URL: "http://a.test/"}), g.world()); e.Frozen == nil || !e.Frozen.Held || !strings.Contains(e.Route.Policies[1].Text, "give --from") {
		t.Errorf("%+v %+v", e.Frozen, e.Route.Policies)
	}
}

// A machine's own addresses do not lead to a listener that is bound to others.
func TestNobodyAnnouncesTheOwnListener(t *testing.T) {
	own := model.Listener{ID: "http-80_team_web", Port: 80, Protocol: model.ProtocolHTTP, Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.80")}}
	h := host("own.test", route(0, model.Match{}))
	h.Listener = own.ID
	g := given{hosts: []model.VirtualHost{h}}
	g.Listeners = []model.Listener{own}
	v := vip("192.0.2.80", model.AnnounceBGP)
	v.Listeners = []model.ListenerID{own.ID}
	for _, vips := range [][]model.VIPStatus{nil, {v}} {
		g.VIPs = vips
		if e := Explain(ask(t, Options{URL: "http://own.test/"}), g.world()); e.Answer.Connects || len(e.Network.Edges) > 0 || e.Network.Nobody == "" {
			t.Errorf("%+v %+v", e.Network, e.Answer)
		}
	}
}

// The operator's floor holds for hosts that ask for less, and is named.
func TestFloorOfTLS(t *testing.T) {
	now := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	old, strict := serverName("old.test", "ns/old.test"), serverName("strict.test", "ns/strict.test")
	old.MinVersion, strict.MinVersion = "1.1", "1.3"
	g := overTLS(now, old, strict)
	for _, c := range []struct {
		floor            model.TLSVersion
		host, want, note string
	}{
		{"", "old.test", "1.1", ""}, {"1.2", "old.test", "1.2", "--minimum-tls-version"}, {"1.2", "strict.test", "1.3", ""},
	} {
		w := g.world()
		w.MinTLS = c.floor
		e := Explain(ask(t, Options{URL: "https://" + c.host + "/"}), w)
		if notes := strings.Join(e.TLS.Notes, "; "); e.TLS.MinVersion != c.want || (c.note == "") != (notes == "") || !strings.Contains(notes, c.note) {
			t.Errorf("%s with floor %q: %s, %s", c.host, c.floor, e.TLS.MinVersion, notes)
		}
	}
}
