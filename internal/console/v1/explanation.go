package v1

import (
	"net/netip"
	"time"
)

// Explanation is what becomes of a request, step by step. A step that is not reached is
// nil; Answer says why.
type Explanation struct {
	Request ExplainedRequest `json:"request"`
	// Notes say what the proxy changes before it looks for a route.
	Notes    []string      `json:"notes,omitempty"`
	Network  NetworkStep   `json:"network"`
	Listener *ListenerStep `json:"listener,omitempty"`
	TLS      *TLSStep      `json:"tls,omitempty"`
	Host     *HostStep     `json:"host,omitempty"`
	Routes   *RoutesStep   `json:"routes,omitempty"`
	Route    *RouteStep    `json:"route,omitempty"`
	Groups   []GroupStep   `json:"groups,omitempty"`
	Answer   Answer        `json:"answer"`
	// OfOthers name the request's host, and nothing of them is served here.
	OfOthers []OfOther `json:"ofOthers,omitempty"`
	// OfOthersMore there are than OfOthers has.
	OfOthersMore int `json:"ofOthersMore,omitempty"`
	// Frozen says that changes are held back while routing is frozen.
	Frozen *Frozen `json:"frozen,omitempty"`
	// Problems that concern the request, in the order in which they were given.
	Problems []Problem `json:"problems"`
}

// ExplainedRequest is the request to explain, as a client would send it.
type ExplainedRequest struct {
	Method string `json:"method"`
	Scheme string `json:"scheme"` // http or https
	// Host is the value of the Host header, with a port where the client sends one.
	Host string `json:"host"`
	// Port is where the client connects to.
	Port  uint16 `json:"port"`
	Path  string `json:"path"` // escaped, as it is sent; begins with "/"
	Query string `json:"query,omitempty"`
	// Headers besides Host, in the order in which they are sent.
	Headers []RequestHeader `json:"headers,omitempty"`
	// VIP is the address that the client connects to; zero leaves it open.
	VIP netip.Addr `json:"vip,omitzero"`
	// From is the address that the connection comes from; zero leaves it open.
	From netip.Addr `json:"from,omitzero"`
	// SNI is the server name that the client asks for in its handshake, where that is not
	// the host of the URL. Dial is the latter where the Host header replaces it.
	SNI  string `json:"sni,omitempty"`
	Dial string `json:"dial,omitempty"`
}

// RequestHeader is one header field of a request.
type RequestHeader struct {
	Name  string `json:"name"` // lower case
	Value string `json:"value"`
}

// NetworkStep is how the request gets to a machine.
type NetworkStep struct {
	// VIPs that lead to the listener, or the one that was asked for.
	VIPs []VIPStep `json:"vips"`
	// Edges that may take the connection.
	Edges []EdgeStep `json:"edges"`
	// How the edge is chosen, in a sentence.
	How string `json:"how"`
	// Nobody says why no machine takes the connection; empty when one does.
	Nobody string `json:"nobody,omitempty"`
}

// VIPStep is an address that leads to the listener.
type VIPStep struct {
	Address  netip.Addr `json:"address"`
	Owner    Source     `json:"owner"`
	Pool     Source     `json:"pool"`
	Announce Announce   `json:"announce"`
	State    string     `json:"state"`
	Message  string     `json:"message,omitempty"`
	// Machines that the pool selects.
	Machines []string `json:"machines"`
	// By are the machines that announce it.
	By []string `json:"by"`
	// Not are the pool's other machines.
	Not  []NotAnnouncing `json:"not,omitempty"`
	Note string          `json:"note,omitempty"`
}

// Source is the resource that decided something, and the field that says so.
type Source struct {
	Object
	Field string `json:"field,omitempty"` // path, like "spec.rules[0].matches[1]"
	Where string `json:"where,omitempty"` // file:line, where manifests are explained
}

// NotAnnouncing is a machine of the pool that does not announce a VIP.
type NotAnnouncing struct {
	Machine string   `json:"machine"`
	State   VIPState `json:"state,omitempty"` // empty: it does not report
	Why     string   `json:"why"`
}

// EdgeStep is a machine that may take the connection.
type EdgeStep struct {
	Machine string `json:"machine"`
	// Through are the addresses by which it is reached: VIPs, or its own.
	Through []string `json:"through"`
	// Note says what may be different there.
	Note string `json:"note,omitempty"`
}

// ListenerStep is where the proxies take the request.
type ListenerStep struct {
	Listener
	By []Source `json:"by,omitempty"`
	// ByMore there are than By names.
	ByMore int `json:"byMore,omitempty"`
	// ClientsBy are the ClientPolicies behind its settings for clients.
	ClientsBy []Source `json:"clientsBy,omitempty"`
	// Machines that serve it.
	Machines []string `json:"machines"`
	// Others listen at the same port, at other addresses; the first few.
	Others []ListenerID `json:"others,omitempty"`
	Notes  []string     `json:"notes,omitempty"`
}

// TLSStep is what becomes of a client's handshake.
type TLSStep struct {
	// ServerName that the client asks for; empty is none.
	ServerName string `json:"serverName"`
	// LookedFor in order, until one is there; Host is the one that is.
	LookedFor []string `json:"lookedFor"`
	Host      string   `json:"host,omitempty"`
	By        []Source `json:"by,omitempty"`
	// ByMore there are than By names.
	ByMore int `json:"byMore,omitempty"`
	// Certificates to show; the client's algorithms choose among several.
	Certificates []ShownCertificate `json:"certificates,omitempty"`
	MinVersion   string             `json:"minVersion,omitempty"`
	// ClientCertificate is required, optional or empty; Authorities must have signed it.
	ClientCertificate string        `json:"clientCertificate,omitempty"`
	Authorities       []AuthorityID `json:"authorities,omitempty"`
	// Passthrough hands the connection on as it is, TCP what is inside of it, as bytes.
	Passthrough bool `json:"passthrough,omitempty"`
	TCP         bool `json:"tcp,omitempty"`
	// Fails says why the handshake does; empty when it comes about.
	Fails string   `json:"fails,omitempty"`
	Notes []string `json:"notes,omitempty"`
}

// ShownCertificate is what a server shows.
type ShownCertificate struct {
	ID        CertificateID `json:"id"`
	By        Source        `json:"by"`
	Names     []string      `json:"names"`
	NotBefore time.Time     `json:"notBefore"`
	NotAfter  time.Time     `json:"notAfter"`
	// Problem is why clients refuse it; empty when they have no reason that is known here.
	Problem string `json:"problem,omitempty"`
}

// HostStep is how the virtual host was found.
type HostStep struct {
	// Name that was looked up: lower case, without port and trailing dot.
	Name string `json:"name"`
	// LookedFor in order, until one is there.
	LookedFor []string `json:"lookedFor"`
	// VirtualHost that was found, empty when none was.
	VirtualHost string `json:"virtualHost,omitempty"`
	// Kind is exact, wildcard or any.
	Kind string   `json:"kind,omitempty"`
	By   []Source `json:"by,omitempty"`
	// ByMore there are than By names.
	ByMore int `json:"byMore,omitempty"`
	// Routes of the virtual host.
	Routes int    `json:"routes"`
	Note   string `json:"note,omitempty"`
}

// RoutesStep are those that do not take the request, in the order in which they are tried.
type RoutesStep struct {
	// Tried counts the routes before the one that takes the request.
	Tried int `json:"tried"`
	// Passed are some of them, those first whose path matches, with the reason.
	Passed []PassedRoute `json:"passed"`
	// Also would take the request if no route before them did; the first few.
	Also []Source `json:"also,omitempty"`
}

// PassedRoute is a route that does not take the request.
type PassedRoute struct {
	Source
	Match string `json:"match"`
	Why   string `json:"why"`
}

// RouteStep is the one that takes the request.
type RouteStep struct {
	// Name as the proxies log it.
	Name string `json:"name"`
	By   Source `json:"by"`
	// Match in words.
	Match string `json:"match"`
	// One of these is set.
	Respond  *Respond      `json:"respond,omitempty"`
	Redirect *RedirectStep `json:"redirect,omitempty"`
	Forward  *ForwardStep  `json:"forward,omitempty"`
	// Policies that the request passes, in order.
	Policies []PolicyStep `json:"policies,omitempty"`
	CORS     *CORSStep    `json:"cors,omitempty"`
	// ResponseHeaders are edited on the way back.
	ResponseHeaders *HeaderEdits `json:"responseHeaders,omitempty"`
}

// RedirectStep is a redirect with where it leads.
type RedirectStep struct {
	Redirect
	// Location as clients are told.
	Location string `json:"location"`
}

// ForwardStep is how a route sends requests to backends.
type ForwardStep struct {
	// Path is what backends see, with the query.
	Path string `json:"path"`
	// By says the weights.
	By Source `json:"by"`
	// Rewrite makes Path; nil when it stays.
	Rewrite *PathRewrite `json:"rewrite,omitempty"`
	// Host that backends see; empty is the client's.
	Host string `json:"host,omitempty"`
	// Mirrors get copies.
	Mirrors []Mirror `json:"mirrors,omitempty"`
	// Timeout of the whole request; 0 is none.
	Timeout time.Duration `json:"timeoutNanoseconds"`
	// Idle is how long nothing may happen; 0 is for ever.
	Idle time.Duration `json:"idleNanoseconds"`
	// Attempts after the first one. Those of failed connections are made in any case;
	// RetryAny says that 5xx answers are retried too, RetryCodes which other answers are.
	Attempts   uint32   `json:"attempts"`
	RetryAny   bool     `json:"retryAny"`
	RetryCodes []uint32 `json:"retryCodes,omitempty"`
	// RetryBroken says that the request is also sent again when a connection broke before an
	// answer began.
	RetryBroken   bool          `json:"retryBroken,omitempty"`
	PerTryTimeout time.Duration `json:"perTryTimeoutNanoseconds,omitempty"`
	// WebSocket: connections are meant to become some. Others may, too, unless NoUpgrade is set.
	WebSocket bool `json:"websocket"`
	NoUpgrade bool `json:"noUpgrade,omitempty"`
	// Stream: gRPC and the like, which no default timeout bounds.
	Stream bool `json:"stream,omitempty"`
	// Sticky keeps a client at the backend that it got first.
	Sticky *Sticky `json:"sticky,omitempty"`
	// Headers that the route's edits change for every backend.
	Headers []ChangedHeader `json:"headers,omitempty"`
}

// ChangedHeader is a header that edits change on the way to the backend.
type ChangedHeader struct {
	Name string `json:"name"`
	// Values that the client sends, and that the backend gets, one a field; none when it is
	// removed.
	Before []string `json:"before,omitempty"`
	Values []string `json:"values"`
}

// PolicyStep is what a request must pass before the route does what it does.
type PolicyStep struct {
	Kind PolicyKind `json:"kind"`
	By   []Source   `json:"by,omitempty"`
	// Text says it in words.
	Text string `json:"text"`
	// Service that is asked, with the number of its backends that take requests.
	Service GroupID `json:"service,omitempty"`
	Ready   int     `json:"ready,omitempty"`
	// Status of the answer to the request when it does not pass, and why. 0 is that it
	// passes, or that this cannot be known from here.
	Status uint32 `json:"status,omitempty"`
	Why    string `json:"why,omitempty"`
}

// PolicyKind is the matter of a policy.
type PolicyKind string

// The matters, in the order in which proxies look at them.
const (
	PolicyGRPCWeb       PolicyKind = "grpcWeb"
	PolicyAddresses     PolicyKind = "addresses"
	PolicyRateLimit     PolicyKind = "rateLimit"
	PolicyBody          PolicyKind = "maxRequestBytes"
	PolicyAuthorization PolicyKind = "authorization"
	PolicyGlobalLimit   PolicyKind = "globalRateLimit"
	PolicyCompression   PolicyKind = "compression" // of the answer
	PolicyErrorPages    PolicyKind = "errorPages"
	PolicyAccessLog     PolicyKind = "accessLog"
)

// CORSStep is how a route treats a request of a browser for a page of another origin.
type CORSStep struct {
	// Origin of the page, and whether its scripts may read the answer.
	Origin  string `json:"origin"`
	Allowed bool   `json:"allowed"`
	// Preflight says that the proxy answers by itself what the browser asks beforehand.
	Preflight bool `json:"preflight"`
}

// GroupStep is a share of the route's requests and who takes it.
type GroupStep struct {
	// Group is empty when the reference is broken; the share is answered 500.
	Group   GroupID `json:"group"`
	Weight  uint32  `json:"weight"`
	Percent float64 `json:"percent"`
	// By are the Service and the EndpointSlices behind the share.
	By []Source `json:"by,omitempty"`
	// ByMore there are than By names.
	ByMore int `json:"byMore,omitempty"`
	// Upstream says of what the Service was discovered; nil: it was not.
	Upstream *Discovered `json:"upstream,omitempty"`
	Balance  Balance     `json:"balance,omitempty"`
	// Check is the path of a health check.
	Check string `json:"check,omitempty"`
	// PolicyBy are the BackendPolicies and the BackendTLSPolicy that hold for the backends.
	PolicyBy      []Source          `json:"policyBy,omitempty"`
	Protocol      BackendProtocol   `json:"protocol,omitempty"`
	TLS           *BackendTLS       `json:"tls,omitempty"`
	ProxyProtocol bool              `json:"proxyProtocol,omitempty"`
	Outlier       *OutlierDetection `json:"outlier,omitempty"`
	Limits        *BackendLimits    `json:"limits,omitempty"`
	IdleTimeout   time.Duration     `json:"idleTimeoutNanoseconds,omitempty"`
	// Host and Headers that this share's backends see otherwise than the route says.
	Host            string          `json:"host,omitempty"`
	Headers         []ChangedHeader `json:"headers,omitempty"`
	ResponseHeaders *HeaderEdits    `json:"responseHeaders,omitempty"`
	Ready           int             `json:"ready"` // backends that take new requests
	Backends        []GroupBackend  `json:"backends"`
	// Refusal says which endpoints are no backends, and why; empty where none is refused.
	Refusal string `json:"refusal,omitempty"`
}

// Discovered is what a discovered Service is of.
type Discovered struct {
	Upstream string `json:"upstream"`
	Object   string `json:"object"` // of the upstream: "Service team01/app"
	// Age is how long ago the upstream gave what is in effect, and Contact how long ago it answered last; 0: it is not known.
	Age     time.Duration `json:"ageNanoseconds,omitempty"`
	Contact time.Duration `json:"contactNanoseconds,omitempty"`
	// Held is since when the upstream does not list it like this; zero: it does, or that is not known.
	Held time.Time `json:"held,omitzero"`
	// Failing is since when the upstream does not answer; zero: it does, or that is not known.
	Failing time.Time `json:"failing,omitzero"`
}

// GroupBackend is one backend with its share of the route's requests.
type GroupBackend struct {
	Address netip.AddrPort `json:"address"`
	State   string         `json:"state"` // ready, draining or unready
	// Backup says that requests come to it only while no other backend is able to take them.
	Backup bool `json:"backup,omitempty"`
	// Weight among the group's backends; 0 counts as 1.
	Weight uint32 `json:"weight,omitempty"`
	Zone   string `json:"zone,omitempty"`
	// Health is what its checks came to; empty where there are none, or nobody knows here.
	Health Health `json:"health,omitempty"`
	// Percent is what comes to it in the long run, all clients together.
	Percent float64 `json:"percent"`
}

// Answer is what the client gets.
type Answer struct {
	// Connects is false when nothing takes the connection, or not what the client speaks.
	Connects bool `json:"connects"`
	// Text says it in a sentence.
	Text string `json:"text"`
	// Outcomes add up to 100 percent when the client connects.
	Outcomes []Outcome `json:"outcomes"`
}

// Outcome is what becomes of a share of such requests.
type Outcome struct {
	Percent float64 `json:"percent"`
	// Status of an answer that the proxy gives; 0 when a backend answers.
	Status uint32 `json:"status,omitempty"`
	// GRPC is the status as gRPC clients get it, with HTTP status 200.
	GRPC string `json:"grpc,omitempty"`
	// Closed says that the connection is closed instead of an answer.
	Closed bool    `json:"closed,omitempty"`
	Group  GroupID `json:"group,omitempty"`
	Why    string  `json:"why,omitempty"`
}

// OfOther is an IngressRoute that has the request's host, and whose class is another controller's.
type OfOther struct {
	Source
	Class string `json:"class"`
}

// Frozen is a Freeze, seen from the request.
type Frozen struct {
	Since  time.Time `json:"since"`
	AsOf   time.Time `json:"asOf"`
	Reason string    `json:"reason,omitempty"`
	// Held says that a change of the listener or the host waits for the end of the freeze.
	Held bool `json:"held"`
}
