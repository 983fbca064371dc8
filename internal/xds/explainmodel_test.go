package xds_test

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.dev/internal/explain"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
)

// modelGame asks a real Envoy and an explanation about a model that is made at random, in
// clear text and over TLS.
type modelGame struct {
	*rand.Rand
	t          *testing.T
	hosts      []model.VirtualHost
	tlsHosts   []xds.TLSHost
	sets       map[model.SetID]*model.BackendSet
	certs      map[model.CertificateID]*model.Certificate
	clear, tls model.Listener
}

func (g *modelGame) pick(from ...string) string { return from[g.IntN(len(from))] }

// one in n.
func (g *modelGame) one(n int) bool { return g.IntN(n) == 0 }

func (g *modelGame) edits(names ...string) *model.HeaderEdits {
	if g.one(2) {
		return nil
	}
	e := &model.HeaderEdits{}
	for _, name := range names {
		switch g.IntN(5) {
		case 0:
			e.Set = append(e.Set, model.Header{Name: name, Value: g.pick("set", "100%", "%REQ(x)%", "")})
		case 1:
			e.Add = append(e.Add, model.Header{Name: name, Value: "add"})
		case 2:
			e.Remove = append(e.Remove, name)
		}
	}
	if names[0] == "x-a" && g.one(6) {
		e.Set = append([]model.Header{{Name: "host", Value: "set.test"}}, e.Set...)
	}
	return e
}

func (g *modelGame) rewrite() *model.PathRewrite {
	switch g.IntN(4) {
	case 0:
		return &model.PathRewrite{Kind: model.RewritePrefix, Value: g.pick("/", "/x", "/x/", "", "/a")}
	case 1:
		return &model.PathRewrite{Kind: model.RewriteFull, Value: g.pick("/full", "/full/", "/")}
	}
	return nil
}

func (g *modelGame) policy() *model.RoutePolicy {
	if !g.one(3) {
		return nil
	}
	p := &model.RoutePolicy{}
	prefixes := func() (list []netip.Prefix) {
		for range g.IntN(3) {
			list = append(list, netip.MustParsePrefix(g.pick("127.0.0.2/32", "127.0.0.4/31", "10.0.0.0/8", "::/0", "127.0.0.0/29")))
		}
		return list
	}
	if g.one(2) {
		if a := (model.AddressFilter{Allow: prefixes(), Deny: prefixes()}); len(a.Allow)+len(a.Deny) > 0 {
			p.Addresses = &a
		}
	}
	if g.one(3) {
		p.RateLimit = &model.RateLimit{Requests: 1 << 20, Per: time.Second, Burst: 1 << 20}
	}
	if g.one(4) {
		p.MaxRequestBytes = 1 << 20
	}
	if g.one(3) {
		p.Authorization = &model.Authorization{Service: model.GroupID(g.pick("ns/yes/80", "ns/yes/80", "ns/none/80", "")), HTTP: true, FailOpen: g.one(2), Timeout: 5 * time.Second}
	}
	if g.one(4) {
		p.GlobalRateLimit = &model.GlobalRateLimit{
			Service: model.GroupID(g.pick("ns/none/80", "")), Domain: "d", FailOpen: g.one(2), Timeout: 5 * time.Second,
			Descriptors: []model.RateLimitSource{{Key: "k", Value: "v"}, {Key: "h", Header: "env"}},
		}
	}
	if is := p.RateLimit != nil; is || p.MaxRequestBytes > 0 { // without further draws
		p.GRPCWeb = &is
		p.Compression = &model.Compression{MinBytes: 1}
		if is {
			p.Compression.Algorithms = []model.CompressionAlgorithm{model.CompressionZstd, model.CompressionGzip, model.CompressionBrotli}
		}
	}
	return p
}

func (g *modelGame) route(name string) model.Route {
	r := model.Route{Name: name, RequestHeaders: g.edits("x-a", "x-b"), ResponseHeaders: g.edits("x-r"), Policy: g.policy()}
	r.Match.Path = model.PathMatch{
		Kind:  []model.PathMatchKind{model.PathExact, model.PathSegments, model.PathSegments, model.PathPrefix}[g.IntN(4)],
		Value: g.pick("/", "/", "/a", "/a", "/a/b", "/b", "/b/", "/ab", "/a/b/c", "/c"),
	}
	if g.one(10) {
		r.Match.Path = model.PathMatch{Kind: model.PathRegex, Value: g.pick("/a/.*", "/b.*", "/(a|c)")}
	}
	if g.one(4) {
		r.Match.Method = g.pick("GET", "POST", "OPTIONS", "PUT")
	}
	if g.one(4) {
		r.Match.Headers = []model.ValueMatch{{Name: g.pick("env", "x-forwarded-proto"), Value: g.pick("canary", "http", "https")}}
	}
	if g.one(3) {
		r.CORS = &model.CORS{
			Origins: []string{g.pick("*", "https://*.page.test", "http://page.test:80", "https://page.test")},
			Methods: []string{"PUT"}, Credentials: g.one(2), MaxAge: time.Minute,
		}
	}
	switch g.IntN(5) {
	case 0:
		r.Respond = &model.Respond{Status: 200 + 3*uint32(g.IntN(2)), Body: name}
	case 1:
		r.Redirect = &model.Redirect{
			Scheme: g.pick("", "", "http", "https"), Host: g.pick("", "", "to.test"), Port: []uint16{0, 0, 80, 443, 8443}[g.IntN(5)],
			Path: g.rewrite(), Status: []uint32{301, 302, 303, 307, 308}[g.IntN(5)],
		}
	default:
		r.Forward = &model.Forward{Path: g.rewrite(), Host: g.pick("", "", "", "rewritten.test"), Stream: g.one(6), WebSocket: g.one(4)}
		for range 1 + g.IntN(2) {
			b := model.WeightedGroup{Group: model.GroupID(g.pick("ns/b/80", "ns/b/80", "ns/c/80", "ns/none/80", "")), Weight: uint32(g.IntN(3))}
			if g.one(4) {
				b.RequestHeaders, b.ResponseHeaders = g.edits("x-a", "x-b"), g.edits("x-r")
			}
			if !slices.ContainsFunc(r.Forward.Backends, func(o model.WeightedGroup) bool { return o.Group == b.Group }) {
				r.Forward.Backends = append(r.Forward.Backends, b)
			}
		}
		r.Forward.Backends[0].Weight++
	}
	return r
}

func (g *modelGame) host(l model.ListenerID, name, section string) {
	h := model.VirtualHost{HostKey: model.HostKey{Listener: l, Host: name}, Section: section, Policy: g.policy()}
	routes := 1 + g.IntN(8)
	if g.one(5) {
		routes = 40 // a tree
	}
	for i := range routes {
		h.Routes = append(h.Routes, g.route(fmt.Sprintf("%s-%d", name, i)))
	}
	g.hosts = append(g.hosts, h)
}

func (g *modelGame) world(l model.Listener) explain.World {
	return explain.World{
		Listeners: []model.Listener{l},
		VirtualHost: func(k model.HostKey) *model.VirtualHost {
			if i := slices.IndexFunc(g.hosts, func(h model.VirtualHost) bool { return h.HostKey == k }); i >= 0 {
				return &g.hosts[i]
			}
			return nil
		},
		TLSHost: func(k model.HostKey) *model.TLSHost {
			if i := slices.IndexFunc(g.tlsHosts, func(h xds.TLSHost) bool { return h.HostKey == k }); i >= 0 {
				return &g.tlsHosts[i].TLSHost
			}
			return nil
		},
		TLSHosts: func(model.ListenerID) (names []string) {
			for _, h := range g.tlsHosts {
				names = append(names, h.Host)
			}
			return names
		},
		Certificate: func(id model.CertificateID) *model.Certificate { return g.certs[id] },
		Group:       func(id model.GroupID) *model.BackendGroup { return &model.BackendGroup{ID: id, Set: model.SetID(id)} },
		Set:         func(id model.SetID) *model.BackendSet { return g.sets[id] },
		Serving:     func(model.ListenerID) []string { return []string{"edge-1"} },
		Machines: []model.MachineStatus{
			{Name: "edge-1", Connected: true, Addresses: []string{"127.0.0.1"}, Proxy: model.ProxyStatus{State: "ready"}},
		},
	}
}

// TestExplanationsOfModelsAreWhatEnvoyDoes covers what routes, policies and TLS can do
// besides matching.
func TestExplanationsOfModelsAreWhatEnvoyDoes(t *testing.T) {
	w, authority := newWorld(t), newCA(t)
	g := &modelGame{Rand: rand.New(rand.NewPCG(3, 4)), t: t, sets: map[model.SetID]*model.BackendSet{}, certs: map[model.CertificateID]*model.Certificate{}}
	clear, secure := freePort(t), freePort(t)
	hops := uint32(1)
	g.clear = model.Listener{ID: model.ListenerID(fmt.Sprint("http-", clear)), Port: clear, Protocol: model.ProtocolHTTP}
	g.tls = model.Listener{
		ID: model.ListenerID(fmt.Sprint("https-", secure)), Port: secure, Protocol: model.ProtocolHTTPS, Clients: &model.ClientSettings{TrustedHops: &hops},
	}
	for _, name := range []string{"b", "c"} {
		g.serve(w, name, func(rw http.ResponseWriter, q *http.Request) {
			saw, err := json.Marshal(map[string]string{"a": strings.Join(q.Header.Values("X-A"), ","), "b": strings.Join(q.Header.Values("X-B"), ",")})
			if err != nil {
				t.Error(err)
			}
			rw.Header().Set("Backend", "ns/"+name+"/80")
			rw.Header().Set("X-R", "own")
			fmt.Fprintf(rw, "%s%s %s", q.Host, q.URL.RequestURI(), saw)
		})
	}
	g.serve(w, "yes", func(http.ResponseWriter, *http.Request) {})
	w.group("ns/none/80")
	g.sets["ns/none/80"] = &model.BackendSet{ID: "ns/none/80"}

	for _, name := range []string{"h0.test", "h1.test", "h2.test", "h3.test", "h4.test", "h5.test", "x.wild.test", "*.wild.test", "*"} {
		g.host(g.clear.ID, name, "")
	}
	cert := func(host string, names ...string) model.CertificateID {
		c := authority.issue("ns/"+strings.Trim(host, "*."), false, names...)
		g.certs[c.ID] = &c
		w.set(xds.Secret(xds.SecretName(c.ID), c))
		if !strings.HasPrefix(host, "*") {
			w.set(xds.Secret(xds.HostSecretName(host), c))
		}
		return c.ID
	}
	for _, name := range []string{"h0.test", "h1.test", "h2.test", "y.wild.test", "*.wild.test", "*.deep.wild.test"} {
		h := tlsHost(g.tls.ID, name, cert(name, name))
		if name == "h1.test" {
			h.MinVersion = "1.3"
		}
		g.tlsHosts = append(g.tlsHosts, h)
		g.host(g.tls.ID, name, name)
	}
	g.tlsHosts = append(g.tlsHosts, tlsHost(g.tls.ID, "nocert.test"), tlsHost(g.tls.ID, "routeless.test", cert("routeless.test", "routeless.test")))
	g.host(g.tls.ID, "x.wild.test", "*.wild.test")
	g.host(g.tls.ID, "x.deep.wild.test", "*.deep.wild.test")
	at := func(l model.Listener) (list []model.VirtualHost) {
		for _, h := range g.hosts {
			if h.Listener == l.ID {
				list = append(list, h)
			}
		}
		return list
	}
	w.listen(g.clear, xds.Options{}, at(g.clear)...)
	w.tlsListen(g.tls, xds.Options{}, g.tlsHosts, at(g.tls)...)

	seen := map[string]int{}
	for range 3000 {
		kind := g.question()
		seen[kind]++
		if t.Failed() && len(seen) > 0 && seen["wrong"] > 10 {
			break
		}
	}
	t.Logf("answers by kind: %v", seen)
	for _, kind := range []string{"backend", "redirect", "200", "403", "404", "421", "500", "503", "preflight", "closed", "grpc"} {
		if seen[kind] < 10 {
			t.Errorf("only %d answers of kind %s: the questions do not try enough", seen[kind], kind)
		}
	}
}

func (g *modelGame) serve(w *world, name string, h http.HandlerFunc) {
	address := w.serve(h)
	id := "ns/" + name + "/80"
	w.group(id, address)
	g.sets[model.SetID(id)] = &model.BackendSet{ID: model.SetID(id), Backends: []model.Backend{{Address: address}}}
}

// question asks both, and returns what kind of answer came.
func (g *modelGame) question() string {
	method := g.pick("GET", "GET", "POST", "PUT", "OPTIONS")
	target := "/" + g.pick("", "a", "a/b", "b", "ab", "c", "a/b/c") + g.pick("", "", "/", "/a", "x") + g.pick("", "", "?q=1")
	var headers []string
	maybe := func(n int, list ...string) {
		if g.one(n) {
			headers = append(headers, g.pick(list...))
		}
	}
	maybe(3, "env: canary", "env: blue")
	maybe(4, "x-a: one", "x-a: two")
	maybe(4, "x-forwarded-for: 127.0.0.4", "x-forwarded-for: 10.1.1.1, 127.0.0.2", "x-forwarded-for: nobody")
	maybe(8, "x-forwarded-proto: https")
	maybe(2, "Origin: https://page.test", "Origin: https://a.page.test", "Origin: http://page.test", "Origin: https://stranger.test")
	if method == "OPTIONS" {
		maybe(1, "Access-Control-Request-Method: PUT", "Access-Control-Request-Method: POST")
	}
	maybe(6, "content-type: application/grpc")
	from := g.pick("127.0.0.1", "127.0.0.2", "127.0.0.4", "127.0.0.9")
	l, scheme, sni := g.clear, "http", ""
	name := g.pick("h0.test", "h1.test", "h2.test", "h3.test", "h4.test", "h5.test", "x.wild.test", "z.wild.test", "a.z.wild.test", "other.test", "H1.test:8080", "z.wild.test:80", "z.wild.test.")
	if g.one(2) {
		l, scheme = g.tls, "https"
		names := []string{"h0.test", "h1.test", "h2.test", "y.wild.test", "x.wild.test", "z.wild.test", "x.deep.wild.test", "q.deep.wild.test", "nocert.test", "unknown.test", "routeless.test"}
		sni = g.pick(names...)
		name = sni + g.pick("", "", "", ":443", ".")
		if g.one(3) {
			name = g.pick(names...)
		}
	}
	request := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\nContent-Length: 0\r\n", method, target, name)
	for _, h := range headers {
		request += h + "\r\n"
	}
	a, err := askFrom(from, l.Port, sni, request+"\r\n")

	r, bad := explain.NewRequest(explain.Options{URL: scheme + "://x" + target, Method: method, Headers: append([]string{"Host: " + name}, headers...), From: from, SNI: sni})
	must(g.t, bad)
	r.Port = l.Port
	e := explain.Explain(r, g.world(l))
	got, kind := "closed", "closed"
	if err == nil {
		got, kind = gotText(a)
	}
	want := wantTexts(e)
	if !slices.Contains(want, got) {
		g.t.Errorf("%s %s %s%s %q from %s:\nEnvoy gives      %q (%v)\nexplained is %q\nbecause %s\nby %+v", method, sni, name, target, headers, from, got, err, want, e.Answer.Text, e.Route)
		return "wrong"
	}
	if e.Route != nil && e.Route.CORS != nil && e.Route.CORS.Preflight && kind == "200" {
		return "preflight"
	}
	return kind
}

var grpcNumbers = map[string]string{
	"UNKNOWN": "2", "PERMISSION_DENIED": "7", "UNIMPLEMENTED": "12", "INTERNAL": "13", "UNAVAILABLE": "14", "UNAUTHENTICATED": "16",
}

// gotText is an answer in one line: who answers, what backends saw, and the headers that
// routes are to change.
func gotText(a answer) (text, kind string) {
	marks := fmt.Sprintf(" r=%s allow=%s", strings.Join(a.headers.Values("X-R"), ","), a.headers.Get("Access-Control-Allow-Origin"))
	switch {
	case a.headers.Get("Backend") != "":
		return a.headers.Get("Backend") + " " + a.body + marks, "backend"
	case a.headers.Get("Grpc-Status") != "":
		return "grpc " + a.headers.Get("Grpc-Status"), "grpc"
	case a.headers.Get("Location") != "":
		return fmt.Sprint(a.status, " ", a.headers.Get("Location"), marks), "redirect"
	case a.status < 300:
		return fmt.Sprint(a.status, " ", a.body, marks), "200"
	}
	return fmt.Sprint(a.status), fmt.Sprint(a.status)
}

// wantTexts are the lines that an explanation allows.
func wantTexts(e explain.Explanation) (all []string) {
	if !e.Answer.Connects {
		return []string{"closed"}
	}
	edited := func(value string, list ...*model.HeaderEdits) string {
		var values []string
		if value != "" {
			values = []string{value}
		}
		for _, edits := range list {
			if edits == nil {
				continue
			}
			if len(edits.Remove) > 0 {
				values = nil
			}
			for _, h := range edits.Set {
				values = []string{h.Value}
			}
			for _, h := range edits.Add {
				values = append(values, h.Value)
			}
		}
		return strings.Join(values, ",")
	}
	for _, o := range e.Answer.Outcomes {
		allow := ""
		if e.Route != nil && e.Route.CORS != nil && e.Route.CORS.Allowed {
			allow = e.Route.CORS.Origin
		}
		switch {
		case o.GRPC != "":
			all = append(all, "grpc "+grpcNumbers[o.GRPC])
		case o.Status == 0:
			i := slices.IndexFunc(e.Groups, func(g explain.Group) bool { return g.Group == o.Group })
			share, f := e.Groups[i], e.Route.Forward
			saw := map[string]string{"a": "", "b": ""}
			for _, h := range e.Request.Headers {
				if h.Name == "x-a" {
					saw["a"] = h.Value
				}
			}
			for _, h := range append(slices.Clone(f.Headers), share.Headers...) {
				saw[strings.TrimPrefix(h.Name, "x-")] = strings.Join(h.Values, ",")
			}
			text, _ := json.Marshal(saw)
			host := strings.TrimSuffix(e.Request.Host, ".")
			if f.Host != "" {
				host = f.Host
			}
			if share.Host != "" {
				host = share.Host
			}
			all = append(all, fmt.Sprintf("%s %s%s %s r=%s allow=%s", o.Group, host, f.Path, text, edited("own", e.Route.ResponseHeaders, share.ResponseHeaders), allow))
		case o.Status/100 == 3:
			all = append(all, fmt.Sprintf("%d %s r=%s allow=%s", o.Status, e.Route.Redirect.Location, edited("", e.Route.ResponseHeaders), allow))
		case o.Status < 300 && e.Route.CORS != nil && e.Route.CORS.Preflight:
			all = append(all, fmt.Sprintf("%d  r=%s allow=%s", o.Status, "", allow))
		case o.Status < 300:
			all = append(all, fmt.Sprintf("%d %s r=%s allow=%s", o.Status, e.Route.Respond.Body, edited("", e.Route.ResponseHeaders), allow))
		default:
			all = append(all, fmt.Sprint(o.Status))
		}
	}
	return all
}

// askFrom asks from an address, over TLS when there is a server name.
func askFrom(from string, port uint16, sni, request string) (a answer, err error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 20 * time.Second}
	raw, err := d.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return a, err
	}
	c := raw
	defer raw.Close()
	// Nothing is left of the connection: its port would be in the way of those who listen
	// at all addresses.
	if err := raw.(*net.TCPConn).SetLinger(0); err != nil {
		return a, err
	}
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return a, err
	}
	if sni != "" {
		c = tls.Client(c, &tls.Config{ServerName: sni, InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
	}
	if _, err := io.WriteString(c, request); err != nil {
		return a, err
	}
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return a, err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	return answer{r.StatusCode, r.Header, string(body)}, err
}
