package explain

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	"fairlead.dev/internal/model"
)

// TLS is what becomes of a client's handshake.
type TLS struct {
	// ServerName that the client asks for; empty is none.
	ServerName string `json:"serverName"`
	// LookedFor in order, until one is there; Host is the one that is.
	LookedFor []string `json:"lookedFor"`
	Host      string   `json:"host,omitempty"`
	By        []Source `json:"by,omitempty"`
	// ByMore there are than By names.
	ByMore int `json:"byMore,omitempty"`
	// Certificates to show; the client's algorithms choose among several.
	Certificates []Certificate `json:"certificates,omitempty"`
	MinVersion   string        `json:"minVersion,omitempty"`
	// ClientCertificate is required, optional or empty; Authorities must have signed it.
	ClientCertificate string              `json:"clientCertificate,omitempty"`
	Authorities       []model.AuthorityID `json:"authorities,omitempty"`
	// Passthrough hands the connection on as it is, TCP what is inside of it, as bytes.
	Passthrough bool `json:"passthrough,omitempty"`
	TCP         bool `json:"tcp,omitempty"`
	// Fails says why the handshake does; empty when it comes about.
	Fails string   `json:"fails,omitempty"`
	Notes []string `json:"notes,omitempty"`
}

// Certificate is what a server shows.
type Certificate struct {
	ID        model.CertificateID `json:"id"`
	By        Source              `json:"by"`
	Names     []string            `json:"names"`
	NotBefore time.Time           `json:"notBefore"`
	NotAfter  time.Time           `json:"notAfter"`
	// Problem is why clients refuse it; empty when they have no reason that is known here.
	Problem string `json:"problem,omitempty"`
}

// session is what a request over TLS inherits from its connection.
type session struct {
	name string
	// section is the wildcard that took the name; empty when an exact name did.
	section string
	// below are the listener's wildcards that are more specific than section.
	below []string
}

// serverName is what a client asks for in its handshake: the host of the URL, unless that
// is an address, or what --sni says.
func (r Request) serverName() string {
	if r.SNI != "" {
		return strings.ToLower(r.SNI)
	}
	host := strings.ToLower(strings.Trim(stripPort(r.urlHost()), "[]"))
	if _, err := netip.ParseAddr(host); err == nil {
		return ""
	}
	return strings.TrimSuffix(host, ".")
}

func (r Request) urlHost() string { return cmp.Or(r.Dial, r.Host) }

// handshake explains the TLS step. It returns nil where no request follows: the handshake
// fails, or bytes go on to backends; the answer is given then.
func (x *explainer) handshake(l *model.Listener) *session {
	name := x.request.serverName()
	t := &TLS{ServerName: name, LookedFor: []string{}}
	x.e.TLS = t
	fail := func(why string) *session {
		t.Fails = why
		x.refuse("the handshake fails: " + why)
		return nil
	}
	host := x.tlsHost(l, t, name)
	said := "the server name " + name
	if name == "" {
		said = "a client without a server name"
	}
	if host == nil {
		id := x.demanded(l, name)
		if id == "" {
			return fail("no certificate is there for " + said + " at " + string(l.ID))
		}
		x.certificates(t, []model.CertificateID{id}, name)
		t.Notes = append(t.Notes, "the certificate is of another port, where the server name is served; nothing has it at this one")
		return &session{name: name}
	}
	t.Host = host.Host
	t.By, t.ByMore = x.tlsSources(*host)
	if len(host.Certificates) == 0 && len(host.TCP) == 0 {
		return fail(host.Owner.String() + " has " + said + " and no certificate that can be shown")
	}
	t.Passthrough, t.TCP = len(host.Certificates) == 0, len(host.TCP) > 0
	if !t.Passthrough {
		var clients model.TLSVersion
		if l.Clients != nil {
			clients = l.Clients.MinTLS
		}
		least := model.LeastTLS(host.MinVersion, clients, x.world.MinTLS)
		if t.MinVersion = string(least); least != model.LeastTLS(host.MinVersion, clients, "") {
			t.Notes = append(t.Notes, "no older TLS than "+t.MinVersion+", by --minimum-tls-version of the plane")
		}
		x.certificates(t, host.Certificates, name)
		if v := l.ClientValidation; v != nil {
			t.ClientCertificate, t.Authorities = "required", v.Authorities
			if v.Optional {
				t.ClientCertificate = "optional"
			} else {
				t.Notes = append(t.Notes, "the handshake fails for clients without a certificate that these authorities have signed")
			}
		}
		if len(t.Certificates) == 0 {
			return fail("its certificate is not there")
		}
	}
	if t.TCP {
		x.bytes(host)
		return nil
	}
	s := &session{name: name}
	if strings.HasPrefix(host.Host, "*") {
		s.section = host.Host
		if x.world.TLSHosts != nil {
			for _, other := range x.world.TLSHosts(l.ID) {
				if other != s.section && strings.HasPrefix(other, "*") && covers(s.section, other) {
					s.below = append(s.below, other)
				}
			}
		}
	}
	return s
}

// covers says whether a wildcard holds a name, be it exact or a wildcard itself.
func covers(wild, name string) bool {
	return wild != name && (wild == "*" || strings.HasPrefix(wild, "*.") && strings.HasSuffix(name, wild[1:]))
}

// tlsHost finds the server name: the exact one, then the wildcards from the longest
// suffix, then "*".
func (x *explainer) tlsHost(l *model.Listener, t *TLS, name string) *model.TLSHost {
	if x.world.TLSHost == nil {
		return nil
	}
	for _, candidate := range candidates(name) {
		t.LookedFor = append(t.LookedFor, candidate)
		if host := x.world.TLSHost(model.HostKey{Listener: l.ID, Host: candidate}); host != nil {
			return host
		}
	}
	return nil
}

// candidates are the hosts that take a name, the most specific first.
func candidates(name string) []string {
	var list []string
	if name != "" {
		list = append(list, name)
	}
	for i := 1; i < len(name); i++ {
		if name[i] == '.' {
			list = append(list, "*"+name[i:])
		}
	}
	return append(list, "*")
}

// demanded is the certificate that proxies find by a server name although the listener does
// not have it: another one that is shared does, and they ask by the name alone.
func (x *explainer) demanded(l *model.Listener, name string) model.CertificateID {
	if l.ID.Own() || name == "" || x.world.TLSHost == nil || x.world.TLSHost(model.HostKey{Listener: l.ID, Host: "*"}) != nil {
		return ""
	}
	var found []model.CertificateID
	for _, other := range x.world.Listeners {
		if other.ID.Own() || other.ID == l.ID || other.Protocol != model.ProtocolHTTPS {
			continue
		}
		h := x.world.TLSHost(model.HostKey{Listener: other.ID, Host: name})
		if h != nil && len(h.Certificates) == 1 && len(h.TCP) == 0 {
			found = append(found, h.Certificates[0])
		}
	}
	slices.Sort(found)
	if found = slices.Compact(found); len(found) == 1 {
		return found[0]
	}
	return ""
}

func (x *explainer) tlsSources(h model.TLSHost) (by []Source, more int) {
	if x.world.TLSBy != nil {
		if by := x.world.TLSBy(h); len(by) > 0 {
			return x.sources(by...)
		}
	}
	return []Source{x.source(Source{Object: h.Owner})}, 0
}

// certificates looks certificates up, and at what clients will say of them.
func (x *explainer) certificates(t *TLS, ids []model.CertificateID, name string) {
	for _, id := range ids {
		var c *model.Certificate
		if x.world.Certificate != nil {
			c = x.world.Certificate(id)
		}
		if c == nil {
			continue
		}
		namespace, secret, _ := strings.Cut(string(id), "/")
		one := Certificate{
			ID: id, By: x.source(Source{Object: model.Object{Kind: "Secret", Namespace: namespace, Name: secret}, Field: "data"}),
			Names: append([]string{}, c.Names...), NotBefore: c.NotBefore, NotAfter: c.NotAfter,
		}
		now := x.world.Now
		switch {
		case !now.IsZero() && now.After(c.NotAfter):
			one.Problem = "it ended at " + c.NotAfter.UTC().Format(time.RFC3339) + ": clients refuse it"
		case !now.IsZero() && now.Before(c.NotBefore):
			one.Problem = "it begins at " + c.NotBefore.UTC().Format(time.RFC3339) + ": clients refuse it until then"
		case name != "" && !slices.ContainsFunc(c.Names, func(n string) bool { return isNamed(n, name) }):
			one.Problem = "it is not for " + name + ": clients refuse it"
		}
		t.Certificates = append(t.Certificates, one)
	}
}

// isNamed compares a name of a certificate with a server name: "*" is one label (RFC 6125,
// section 6.4.3).
func isNamed(name, server string) bool {
	name = strings.ToLower(name)
	if suffix, wild := strings.CutPrefix(name, "*"); wild {
		_, rest, more := strings.Cut(server, ".")
		return more && "."+rest == suffix
	}
	return name == server
}

// bytes explains a connection whose bytes go on to backends.
func (x *explainer) bytes(h *model.TLSHost) {
	x.groups(h.TCP)
	var outcomes []Outcome
	for _, g := range x.e.Groups {
		switch {
		case g.Weight == 0:
		case g.Group == "":
			outcomes = append(outcomes, Outcome{Percent: g.Percent, Closed: true, Why: "the reference to the backend is broken"})
		case g.Ready == 0:
			outcomes = append(outcomes, Outcome{Percent: g.Percent, Closed: true, Group: g.Group, Why: noBackends(g)})
		default:
			outcomes = append(outcomes, Outcome{Percent: g.Percent, Group: g.Group})
		}
	}
	if len(outcomes) == 0 {
		outcomes = []Outcome{{Percent: 100, Closed: true, Why: "no backend has a weight above 0"}}
	}
	what := "it decrypts the connection and forwards it to a backend as TCP"
	if x.e.TLS.Passthrough {
		what = "it forwards the connection to a backend, which terminates TLS itself"
	}
	x.e.Answer = Answer{Connects: true, Outcomes: outcomes, Text: "the proxy does not read requests: " + what}
	if text := outcomeText(outcomes); text != "a backend answers" {
		x.e.Answer.Text += "; " + text
	}
}

// misdirected says why a request's host is not served under the server name of its
// connection (421); empty when it is.
func (c *session) misdirected(host string) string {
	if c == nil || host == c.name {
		return ""
	}
	why := "the host " + host + " is not served under the server name " + quote(c.name)
	if c.section == "" || c.section != "*" && !covers(c.section, host) {
		return why
	}
	for _, below := range c.below {
		if covers(below, host) {
			return why + ": " + below + " is a section of its own"
		}
	}
	return ""
}
