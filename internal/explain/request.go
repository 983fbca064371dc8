package explain

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"fairlead.dev/internal/model"
)

// Request is the request to explain, as a client would send it.
type Request struct {
	Method string `json:"method"`
	Scheme string `json:"scheme"` // http or https
	// Host is the value of the Host header, with a port where the client sends one.
	Host string `json:"host"`
	// Port is where the client connects to.
	Port  uint16 `json:"port"`
	Path  string `json:"path"` // escaped, as it is sent; begins with "/"
	Query string `json:"query,omitempty"`
	// Headers besides Host, in the order in which they are sent.
	Headers []Header `json:"headers,omitempty"`
	// VIP is the address that the client connects to; zero leaves it open.
	VIP netip.Addr `json:"vip,omitzero"`
	// From is the address that the connection comes from; zero leaves it open.
	From netip.Addr `json:"from,omitzero"`
	// SNI is the server name that the client asks for in its handshake, where that is not
	// the host of the URL. Dial is the latter where the Host header replaces it.
	SNI  string `json:"sni,omitempty"`
	Dial string `json:"dial,omitempty"`
}

// Header is one header field of a request.
type Header struct {
	Name  string `json:"name"` // lower case
	Value string `json:"value"`
}

// Options are a request as people write it.
type Options struct {
	URL     string
	Method  string   // default GET
	Headers []string // "name: value"; Host replaces the URL's
	VIP     string   // default: the URL's host when that is an address
	From    string
	SNI     string // default: the URL's host unless that is an address
}

// URL is the request's, with the port where it is not the scheme's own.
func (r Request) URL() string {
	u := r.Scheme + "://" + r.Host + r.Path
	if r.Query != "" {
		u += "?" + r.Query
	}
	return u
}

// NewRequest reads a request. Its errors say what is wrong and what is wanted; they name
// the field as "url", "method", "header", "vip", "from" or "sni".
func NewRequest(o Options) (Request, error) {
	r := Request{Method: cmp.Or(o.Method, "GET")}
	if err := r.readURL(o.URL); err != nil {
		return Request{}, err
	}
	if !isToken(r.Method) {
		return Request{}, fmt.Errorf("method %q: want a word like GET", r.Method)
	}
	if r.Method == "CONNECT" {
		return Request{}, errors.New("method CONNECT: it asks for a tunnel, not for a URL; edges refuse it")
	}
	for _, text := range o.Headers {
		name, value, ok := strings.Cut(text, ":")
		name = strings.ToLower(strings.TrimSpace(name))
		value = strings.Trim(value, " \t")
		if !ok || !isToken(name) || strings.ContainsAny(value, "\r\n\x00") {
			return Request{}, fmt.Errorf("header %q: want \"name: value\"", text)
		}
		if name == "host" {
			if value == "" {
				return Request{}, fmt.Errorf("header %q: want a host", text)
			}
			if r.Scheme == "https" {
				r.Dial = r.urlHost()
			}
			r.Host = value
			continue
		}
		r.Headers = append(r.Headers, Header{name, value})
	}
	for _, a := range []struct {
		field, text string
		to          *netip.Addr
	}{{"vip", o.VIP, &r.VIP}, {"from", o.From, &r.From}} {
		if a.text == "" {
			continue
		}
		address, err := netip.ParseAddr(a.text)
		if err != nil {
			return Request{}, fmt.Errorf("%s %q: want an IP address", a.field, a.text)
		}
		*a.to = address.Unmap()
	}
	if o.SNI != "" {
		switch {
		case r.Scheme != "https":
			return Request{}, fmt.Errorf("sni %q: only clients of https:// URLs send a server name", o.SNI)
		case !possibleHost(o.SNI) || strings.ContainsAny(o.SNI, ":[]"):
			return Request{}, fmt.Errorf("sni %q: want a host name", o.SNI)
		}
		r.SNI = o.SNI
	}
	return r, nil
}

// readURL takes in scheme, host, port, path and query.
func (r *Request) readURL(text string) error {
	bad := func(why string) error {
		return fmt.Errorf("url %q: %s; want http://HOST[:PORT]/PATH, https:// likewise, tcp://HOST:PORT or udp://HOST:PORT", text, why)
	}
	if text == "" {
		return errors.New("url: must be given, like http://app.example.com/path")
	}
	if !strings.Contains(text, "://") {
		return bad("it has no scheme")
	}
	u, err := url.Parse(text)
	if err != nil {
		var parse *url.Error
		if errors.As(err, &parse) {
			err = parse.Err
		}
		return bad(err.Error())
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return bad("the scheme " + strconv.Quote(u.Scheme) + " is neither http nor https")
	}
	if u.Hostname() == "" {
		return bad("it has no host")
	}
	r.Scheme, r.Host, r.Query = u.Scheme, u.Host, u.RawQuery
	r.Port = 80
	if r.Scheme == "https" {
		r.Port = 443
	}
	if text := u.Port(); text != "" {
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil || port == 0 {
			return bad("port " + text + " is not in the range 1-65535")
		}
		if uint16(port) == r.Port {
			r.Host = strings.TrimSuffix(r.Host, ":"+text) // clients leave it out
		}
		r.Port = uint16(port)
	} else {
		r.Host = strings.TrimSuffix(r.Host, ":")
	}
	if r.Path = u.EscapedPath(); r.Path == "" {
		r.Path = "/"
	}
	if address, err := netip.ParseAddr(u.Hostname()); err == nil {
		r.VIP = address.Unmap()
	}
	return nil
}

// dialHost is the Host header without its port, as somebody would look it up.
func (r Request) dialHost() string {
	return strings.Trim(stripPort(r.Host), "[]")
}

// isToken reports whether a text is a token of RFC 9110, section 5.6.2.
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return s != ""
}

// seen is the request as Envoy's routes see it.
type seen struct {
	scheme    string
	method    string
	authority string // the Host header without trailing dot
	host      string // lower case, without port and trailing dot
	path      string // normalised
	query     string
	// escapedSlashes: the path had some, which are slashes in it now.
	escapedSlashes bool
	headers        map[string][]string // the values of each name, one a field
	upgrade        string              // what the connection is to become, lower case
	client         netip.Addr          // behind the trusted hops; zero when that is not known
	notes          []string            // what was changed on the way
}

// knownMethod says whether the proxy reads a method in HTTP/1.1; it answers 400 to others.
func knownMethod(method string) bool {
	switch method {
	case "ACL", "BIND", "CHECKOUT", "CONNECT", "COPY", "DELETE", "GET", "HEAD", "LINK", "LOCK", "MERGE", "MKACTIVITY",
		"MKCALENDAR", "MKCOL", "MOVE", "MSEARCH", "NOTIFY", "OPTIONS", "PATCH", "POST", "PROPFIND", "PROPPATCH", "PURGE", "PUT", "REBIND", "REPORT",
		"SEARCH", "SOURCE", "SUBSCRIBE", "TRACE", "UNBIND", "UNLINK", "UNLOCK", "UNSUBSCRIBE":
		return true
	}
	return false
}

// see brings a request into the form that is routed. ok is false when the path cannot be
// normalised: Envoy answers 400.
func see(r Request, l *model.Listener, w World) (s seen, ok bool) {
	s = seen{scheme: r.Scheme, method: r.Method, authority: stripDot(strings.TrimSuffix(r.Host, ":")), query: r.Query, headers: map[string][]string{}}
	s.host = strings.ToLower(stripPort(s.authority))
	if s.host != strings.ToLower(stripPort(r.Host)) {
		s.notes = append(s.notes, "the dot at the end of the host is left out")
	}
	s.path, s.escapedSlashes, ok = slashes(r.Path, l)
	if ok && s.path != r.Path {
		s.notes = append(s.notes, "the path is routed as "+s.path)
	}
	for _, h := range r.Headers {
		switch {
		case h.Name == scopeHeader || strings.HasPrefix(h.Name, "x-envoy-"):
			s.notes = append(s.notes, "the header "+h.Name+" is the proxy's own and left out")
		case strings.Contains(h.Name, "_") && !w.AllowUnderscores:
			s.notes = append(s.notes, "the header "+h.Name+" is left out: its name has a \"_\"")
		default:
			s.headers[h.Name] = append(s.headers[h.Name], h.Value)
		}
	}
	s.becomes()
	s.headers["host"] = []string{s.authority}
	// An edge that clients reach directly believes nobody who says otherwise.
	hops := trustedHops(l, w)
	if hops == 0 || s.headers["x-forwarded-proto"] == nil {
		s.headers["x-forwarded-proto"] = []string{r.Scheme}
	}
	s.client = clientAddress(r.From, hops, s.headers)
	if s.client != r.From {
		s.notes = append(s.notes, "the client's address is "+s.client.String()+", by x-forwarded-for of trusted proxies")
	}
	switch own := s.headers["x-request-id"] != nil; {
	case own && hops > 0: // a trusted proxy's
	case own:
		s.notes = append(s.notes, "the header x-request-id is replaced by the proxy's own")
		fallthrough
	default:
		s.headers["x-request-id"] = []string{someRequestID}
	}
	s.forwarded(l, hops > 0)
	if r.From.IsValid() {
		s.headers[forwardedFor] = []string{strings.Join(append(s.headers[forwardedFor], r.From.String()), ",")}
	}
	return s, ok
}

// forwarded adds what backends are told of what the client asked for.
func (s *seen) forwarded(l *model.Listener, trusted bool) {
	if l.Clients == nil {
		return
	}
	set := func(name, value string) {
		if !trusted || s.headers[name] == nil {
			s.headers[name] = []string{value}
		}
	}
	if l.Clients.ForwardedHost {
		set("x-forwarded-host", s.authority)
	}
	if l.Clients.ForwardedPort {
		set("x-forwarded-port", strconv.Itoa(int(l.Port)))
	}
}

// someRequestID stands for the random one that the proxy gives a request.
const someRequestID = "00000000-0000-4000-8000-000000000000"

// scopeHeader is how proxies look routes up; what a client sends in it is removed.
const scopeHeader = "x-fairlead-scope"

// becomes finds the upgrade that the request asks for. The proxy knows no h2c and no TLS
// by upgrade and serves those requests as they are; hop-by-hop headers stop at it.
func (s *seen) becomes() {
	asks := slices.ContainsFunc(strings.Split(strings.Join(s.headers["connection"], ","), ","), func(t string) bool {
		return strings.EqualFold(strings.TrimSpace(t), "upgrade")
	})
	upgrade := strings.Join(s.headers["upgrade"], ",")
	ignored := strings.EqualFold(upgrade, "h2c") || strings.HasPrefix(upgrade, "TLS/")
	if asks && upgrade != "" && !ignored {
		s.upgrade = strings.ToLower(upgrade)
		return
	}
	delete(s.headers, "connection")
	delete(s.headers, "upgrade")
}

// stripPort takes a port away: digits after the last colon.
func stripPort(host string) string {
	if i := strings.LastIndexByte(host, ':'); i >= 0 && i+1 < len(host) && strings.Trim(host[i+1:], "0123456789") == "" {
		return host[:i]
	}
	return host
}

// stripDot takes one dot away at the end of the name, before the port if there is one.
func stripDot(authority string) string {
	host := stripPort(authority)
	return strings.TrimSuffix(host, ".") + authority[len(host):]
}
