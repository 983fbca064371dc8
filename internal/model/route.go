package model

import (
	"cmp"
	"strings"
	"time"
)

// HostKey identifies a virtual host.
type HostKey struct {
	Listener ListenerID `json:"listener"`
	// Host is lower case: an exact name, "*.suffix", or "*" for every other host.
	Host string `json:"host"`
}

// Compare orders keys by listener and host.
func (k HostKey) Compare(l HostKey) int {
	return cmp.Or(cmp.Compare(k.Listener, l.Listener), cmp.Compare(k.Host, l.Host))
}

// VirtualHost holds the routes of one host name at one listener. A request whose
// host has a virtual host and matches none of its routes is answered 404; it
// never falls through to a wildcard host.
type VirtualHost struct {
	HostKey
	// Section is the pattern of server names under which TLS clients may ask for the host:
	// "www.example.com", "*.example.com" or "*"; empty at listeners in clear text. A request
	// whose server name belongs to another section is answered 421 (RFC 9110, 15.5.20).
	Section string `json:"section,omitempty"`
	// Policy holds for routes that say nothing else of the same matter.
	Policy *RoutePolicy `json:"policy,omitempty"`
	// Routes in the order in which they are tried.
	Routes []Route `json:"routes"`
}

// NoUpgrade reports whether the host as a whole accepts no WebSockets, whatever a route does: it has
// an exact name and routes that forward, and none of these accepts any.
func (h *VirtualHost) NoUpgrade() bool {
	if strings.HasPrefix(h.Host, "*") {
		return false
	}
	refused := false
	for i := range h.Routes {
		f := h.Routes[i].Forward
		if f != nil && !f.NoUpgrade {
			return false
		}
		refused = refused || f != nil
	}
	return refused
}

// Route is one match and what happens to the requests that it matches.
type Route struct {
	// Name is unique within the virtual host and says where the route was written:
	// "HTTPRoute/team/app/rules/0/matches/1".
	Name  string `json:"name"`
	Owner Object `json:"owner"`
	Match Match  `json:"match"`
	// Exactly one of Forward, Redirect and Respond is set.
	Forward  *Forward  `json:"forward,omitempty"`
	Redirect *Redirect `json:"redirect,omitempty"`
	Respond  *Respond  `json:"respond,omitempty"`
	// RequestHeaders are edited on the way to the backend, ResponseHeaders on the way
	// back to the client, also of responses that the proxy makes itself.
	RequestHeaders  *HeaderEdits `json:"requestHeaders,omitempty"`
	ResponseHeaders *HeaderEdits `json:"responseHeaders,omitempty"`
	CORS            *CORS        `json:"cors,omitempty"`
	// Policy is what policies ask of the route; routes share it.
	Policy *RoutePolicy `json:"policy,omitempty"`
	// Measured says that the owner has metrics of its own.
	Measured bool `json:"measured,omitempty"`
}

// Match holds the conditions of a route; all of them must hold.
type Match struct {
	Path    PathMatch    `json:"path"`
	Method  string       `json:"method,omitempty"` // "GET"; empty is every method
	Headers []ValueMatch `json:"headers,omitempty"`
	Query   []ValueMatch `json:"query,omitempty"`
}

// PathMatchKind says how a path is compared.
type PathMatchKind string

const (
	// PathExact matches the whole path.
	PathExact PathMatchKind = "Exact"
	// PathSegments matches a prefix that ends at a "/": "/a" matches "/a" and "/a/b",
	// not "/ab" (Gateway API's PathPrefix).
	PathSegments PathMatchKind = "Segments"
	// PathPrefix matches any string prefix: "/a" matches "/ab" (IngressRoute's match).
	PathPrefix PathMatchKind = "Prefix"
	// PathRegex matches the whole path by an RE2 expression.
	PathRegex PathMatchKind = "Regex"
)

// PathMatch compares the path without its query.
type PathMatch struct {
	Kind  PathMatchKind `json:"kind"`
	Value string        `json:"value"`
}

// ValueMatch compares a header or a query parameter. Header names are lower case.
type ValueMatch struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	Regex bool   `json:"regex,omitempty"` // Value is an RE2 expression for the whole value
}

// Forward sends requests to backends, in proportion to the weights.
type Forward struct {
	// Backends has at least one entry with a weight above zero.
	Backends []WeightedGroup `json:"backends"`
	// Path replaces the path, or the part of it that matched.
	Path *PathRewrite `json:"path,omitempty"`
	// Host replaces the Host header; empty leaves it alone.
	Host string `json:"host,omitempty"`
	// Mirrors get copies of requests; their answers are dropped.
	Mirrors []Mirror `json:"mirrors,omitempty"`
	// Timeout bounds the time from the end of the request to the end of its answer; with 0 only
	// silence ends it, as long as the listener says, and with Never not even that.
	Timeout time.Duration `json:"timeoutNanoseconds,omitempty"`
	// TryTimeout bounds one try at one backend; 0 is bounded by Timeout only.
	TryTimeout time.Duration `json:"tryTimeoutNanoseconds,omitempty"`
	Stream     bool          `json:"stream,omitempty"` // gRPC and the like: no default timeout bounds it
	Sticky     *Sticky       `json:"sticky,omitempty"`
	Retry      *Retry        `json:"retry,omitempty"`
	// RetryMethods are those, besides GET, HEAD and OPTIONS, whose requests may be sent again
	// after a connection broke before an answer began; sorted.
	RetryMethods []string `json:"retryMethods,omitempty"`
	// WebSocket says that connections are meant to become WebSockets, which may be quiet for an
	// hour. Others may become some, too, unless NoUpgrade is set.
	WebSocket bool `json:"websocket,omitempty"`
	// NoUpgrade refuses WebSockets: backends speak HTTP/2, or the kind of route wants to be asked
	// for them and was not.
	NoUpgrade bool `json:"noUpgrade,omitempty"`
	// StartHeader tells backends when the request came, by the header x-request-start.
	StartHeader bool `json:"startHeader,omitempty"`
}

// Never is the timeout that never fires.
const Never time.Duration = -1

// Retry repeats requests that failed.
type Retry struct {
	// Attempts beyond the first one.
	Attempts uint32 `json:"attempts"`
	// ServerErrors retries every 5xx response; Codes retries the responses that it lists.
	// Connections that could not be made are always retried; so are tries without a response of
	// GET, HEAD and OPTIONS, of Forward.RetryMethods, and with ServerErrors of every method.
	ServerErrors bool     `json:"serverErrors,omitempty"`
	Codes        []uint32 `json:"codes,omitempty"` // sorted
	// Backoff is the least time before a try; 0 is the proxy's default (25 ms).
	Backoff time.Duration `json:"backoffNanoseconds,omitempty"`
}

// WeightedGroup is a share of a route's requests.
type WeightedGroup struct {
	// Group takes the share; empty means that the reference is broken and the share
	// is answered 500 (Gateway API, HTTPBackendRef), or 503 where Stream is set, which gRPC
	// clients read as UNAVAILABLE (GRPCBackendRef).
	Group  GroupID `json:"group"`
	Weight uint32  `json:"weight"`
	// Edits for the requests of this share only, after those of the route.
	RequestHeaders  *HeaderEdits `json:"requestHeaders,omitempty"`
	ResponseHeaders *HeaderEdits `json:"responseHeaders,omitempty"`
}

// Respond answers without a backend.
type Respond struct {
	Status uint32 `json:"status"`
	Body   string `json:"body,omitempty"`
}
