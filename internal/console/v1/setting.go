package v1

import (
	"net/netip"
	"time"
)

// ClientSettings is how a listener treats clients. Zero values are the defaults of an
// edge that clients reach directly.
type ClientSettings struct {
	// TrustedHops is how many proxies in front append to X-Forwarded-For; nil leaves it to
	// the machine.
	TrustedHops *uint32 `json:"trustedHops,omitempty"`
	// AcceptProxyProtocol takes the client's address from a PROXY header (v1 or v2) that
	// every connection must begin with.
	AcceptProxyProtocol bool `json:"acceptProxyProtocol,omitempty"`
	// HTTP3 serves HTTP/3 at the same port over UDP, and says so (RFC 7838).
	HTTP3 bool `json:"http3,omitempty"`
	// EscapedSlashes is what becomes of paths with %2F or %5C; empty is to redirect.
	EscapedSlashes EscapedSlashes `json:"escapedSlashes,omitempty"`
	// KeepSlashes leaves "//" in paths as it is; else it is "/".
	KeepSlashes bool `json:"keepSlashes,omitempty"`
	// ForwardedHost and ForwardedPort tell backends what the client asked for (X-Forwarded-Host, -Port).
	ForwardedHost bool `json:"forwardedHost,omitempty"`
	ForwardedPort bool `json:"forwardedPort,omitempty"`
	// ErrorPages are shown in place of the proxy's own errors.
	ErrorPages []ErrorPage `json:"errorPages,omitempty"`
	// MaxConnections at one machine; more are refused. 0 is no limit but the machine's.
	MaxConnections uint32 `json:"maxConnections,omitempty"`
	// MaxHeaderBytes of a request; 0 is 60 KiB. MaxHeaders is their number; 0 is 100.
	MaxHeaderBytes uint32 `json:"maxHeaderBytes,omitempty"`
	MaxHeaders     uint32 `json:"maxHeaders,omitempty"`
	// MaxRequestsPerConnection after which a connection is closed in order; 0 is none.
	MaxRequestsPerConnection uint32 `json:"maxRequestsPerConnection,omitempty"`
	// MaxStreams under way at once on one HTTP/2 or HTTP/3 connection; 0 is 100.
	MaxStreams uint32 `json:"maxStreams,omitempty"`
	// HeadersTimeout, RequestTimeout and IdleTimeout bound how long clients may take to send
	// the headers (0 is 10 s), the whole request (0 is none), and nothing at all (0 is 5 min).
	HeadersTimeout time.Duration `json:"headersTimeoutNanoseconds,omitempty"`
	RequestTimeout time.Duration `json:"requestTimeoutNanoseconds,omitempty"`
	IdleTimeout    time.Duration `json:"idleTimeoutNanoseconds,omitempty"`
	// MinTLS is the least version for server names that ask for none themselves.
	MinTLS TLSVersion `json:"minTLS,omitempty"`
	// AccessLog replaces the machine's own choice.
	AccessLog *AccessLog `json:"accessLog,omitempty"`
	Tracing   *Tracing   `json:"tracing,omitempty"`
}

// EscapedSlashes is what becomes of paths with escaped slashes.
type EscapedSlashes string

// The ways.
const (
	SlashesRedirect EscapedSlashes = ""
	SlashesUnescape EscapedSlashes = "unescape"
	SlashesReject   EscapedSlashes = "reject"
	SlashesKeep     EscapedSlashes = "keep"
)

// ErrorPage is what clients are shown in place of errors.
type ErrorPage struct {
	// Statuses are sorted: "404", "5xx".
	Statuses    []string `json:"statuses"`
	ContentType string   `json:"contentType"`
	Body        string   `json:"body"`
	// Backends says that it stands in place of backends' answers, too.
	Backends bool `json:"backends,omitempty"`
}

// TLSVersion is "1.0" to "1.3"; empty is the default, 1.2.
type TLSVersion string

// AccessLog is where a line a request goes.
type AccessLog struct {
	Off bool `json:"off,omitempty"`
	// Fields to write, as names of the documented set; empty is all.
	Fields []string `json:"fields,omitempty"`
	// Template makes lines of text; empty makes JSON.
	Template []LogPart `json:"template,omitempty"`
	// Collector takes them over OTLP (gRPC); empty writes lines to the machine's file.
	Collector GroupID `json:"collector,omitempty"`
	// Errors writes requests only that were answered 4xx or 5xx or not at all, and calls of gRPC that failed.
	Errors bool `json:"errors,omitempty"`
	// Percent of the other requests are written, too; 0 is all of them.
	Percent float64 `json:"percent,omitempty"`
}

// LogPart is a part of a template. Exactly one field is set.
type LogPart struct {
	Text string `json:"text,omitempty"`
	// Field is a name of the documented set.
	Field string `json:"field,omitempty"`
	// Request and Response are names of headers, in lower case.
	Request  string `json:"request,omitempty"`
	Response string `json:"response,omitempty"`
}

// Tracing reports spans to an OpenTelemetry collector over gRPC.
type Tracing struct {
	Collector GroupID `json:"collector"`
	// Percent of requests that begin a trace, 0 to 100; traces that clients began go on.
	Percent     float64 `json:"percent"`
	ServiceName string  `json:"serviceName,omitempty"`
}

// ClientValidation asks clients for certificates (mutual TLS).
type ClientValidation struct {
	Authorities []AuthorityID `json:"authorities"` // sorted; one of them must have signed
	// Optional lets clients in without a certificate, or with one that does not verify
	// (Gateway API: AllowInsecureFallback).
	Optional bool `json:"optional,omitempty"`
}

// AuthorityID identifies a bundle of CA certificates: "ConfigMap/namespace/name" or
// "Secret/namespace/name".
type AuthorityID string

// Listener is a port at which proxies take requests.
type Listener struct {
	ID       ListenerID `json:"id"`
	Port     uint16     `json:"port"`
	Protocol Protocol   `json:"protocol"`
	// Addresses at which it listens, sorted; empty is every address of the machine.
	Addresses []netip.Addr `json:"addresses,omitempty"`
	// ClientValidation asks TLS clients for certificates, whatever server name they want.
	ClientValidation *ClientValidation `json:"clientValidation,omitempty"`
	// Clients is how a policy wants clients treated; nil is the defaults.
	Clients *ClientSettings `json:"clients,omitempty"`
}

// Frontend is a VIP, a port and a protocol, with how its flows reach backends. Zero
// values are the defaults.
type Frontend struct {
	FrontendKey
	// Owner is the Service, the Gateway, or the resource that has the VIP.
	Owner Object `json:"owner"`
	// Listener is set for a listener of the proxies: the backends are the proxies of the
	// machines that have the VIP, and Targets is empty.
	Listener ListenerID `json:"listener,omitempty"`
	// Targets are the sets that share the flows, sorted by set.
	Targets []Target `json:"targets,omitempty"`
	// Machines that have the VIP, sorted.
	Machines  []string      `json:"machines"`
	Mode      ForwardMode   `json:"mode,omitempty"`
	DataPlane DataPlaneKind `json:"dataPlane,omitempty"`
	Hash      FlowHash      `json:"hash,omitempty"`
	// Affinity keeps a client address at its backend until it has been silent for so long;
	// 0 is none.
	Affinity time.Duration `json:"affinityNanoseconds,omitempty"`
	// Sources that may be clients, sorted; empty is everybody.
	Sources []netip.Prefix `json:"sources,omitempty"`
	// NewFlows that a machine takes in a second; more are dropped. 0 is no limit.
	NewFlows uint32 `json:"newFlows,omitempty"`
	// Drain is how long a backend that is to take no new flow keeps its flows.
	Drain time.Duration `json:"drainNanoseconds,omitempty"`
	// LocalOnly takes new flows to backends of the machine that they reach only, which
	// announces the VIP while it has one (externalTrafficPolicy: Local).
	LocalOnly bool `json:"localOnly,omitempty"`
	// Panic is the share of healthy backends, percent, below which all count as healthy; 0
	// is never.
	Panic uint8        `json:"panicPercent,omitempty"`
	Check *HealthCheck `json:"check,omitempty"`
	QUIC  *QUICServer  `json:"quic,omitempty"`
	// Weights of single backends among their set, by address; 100 where nothing is said.
	Weights map[netip.Addr]uint32 `json:"weights,omitempty"`
	// Drained backends take no new flow, by address.
	Drained []netip.Addr `json:"drained,omitempty"`
	// Scheduler of IPVS: wlc, wrr or mh; empty is mh. Other data planes hash always.
	Scheduler string `json:"scheduler,omitempty"`
	// MaxFlows to one backend (IPVS: uthreshold); 0 is no limit.
	MaxFlows uint32 `json:"maxFlows,omitempty"`
}

// Target is a share of a frontend's flows.
type Target struct {
	Set    SetID  `json:"set"`
	Weight uint32 `json:"weight"`
}

// SetID identifies a backend set: "namespace/service/port".
type SetID string

// FlowHash is what of a packet chooses its row in the lookup table.
type FlowHash string

// The hashes. The zero value is the 5-tuple.
const (
	HashFiveTuple  FlowHash = ""
	HashThreeTuple FlowHash = "ThreeTuple" // client address, VIP, protocol: all ports of a client
	HashSource     FlowHash = "Source"     // client address only
)

// HealthCheck asks each backend whether it works. Zero values are the defaults.
type HealthCheck struct {
	Kind     CheckKind     `json:"kind,omitempty"`
	Port     uint16        `json:"port,omitempty"` // 0 is the backend's own
	Path     string        `json:"path"`
	Host     string        `json:"host"` // Host header
	Interval time.Duration `json:"intervalNanoseconds"`
	Timeout  time.Duration `json:"timeoutNanoseconds,omitempty"`
	// Jitter is the share of the interval, percent, that is drawn at random; 0 is 10.
	Jitter    uint8  `json:"jitterPercent,omitempty"`
	Unhealthy uint32 `json:"unhealthy"` // failures in a row until a backend is out (fall)
	Healthy   uint32 `json:"healthy"`   // successes in a row until it is back (rise)
	// Codes of HTTP that are healthy, as ranges from and to; empty is 200.
	Codes   [][2]uint16 `json:"codes,omitempty"`
	Service string      `json:"service,omitempty"` // of gRPC's health protocol
	// Send is what a UDP check sends, Expect what the answer must begin with.
	Send   []byte `json:"send,omitempty"`
	Expect []byte `json:"expect,omitempty"`
	// ServerName that a TLS handshake asks for; empty is Host.
	ServerName string `json:"serverName,omitempty"`
	// SendProxyProtocol begins connections with a PROXY header (v2) of nobody in particular.
	SendProxyProtocol bool `json:"sendProxyProtocol,omitempty"`
	// Presumed says that nobody asked for the check, so that it must not do harm. A machine says
	// nothing of a backend before it has seen it answer well: something on its way may keep it
	// out, but not clients. And where all backends of a frontend are out, all are in.
	Presumed bool `json:"presumed,omitempty"`
}

// CheckKind is how a backend is asked.
type CheckKind string

// The kinds. The zero value is HTTP/1.1.
const (
	CheckHTTP  CheckKind = ""
	CheckHTTP2 CheckKind = "HTTP2" // from the first byte, without TLS
	CheckHTTPS CheckKind = "HTTPS" // HTTP/2 or HTTP/1.1; the certificate is not verified
	CheckTCP   CheckKind = "TCP"   // a connection
	CheckTLS   CheckKind = "TLS"   // a handshake; the certificate is not verified
	CheckGRPC  CheckKind = "GRPC"  // grpc.health.v1
	CheckGRPCS CheckKind = "GRPCS" // the same over TLS; the certificate is not verified
	CheckUDP   CheckKind = "UDP"   // a payload, and an answer
	CheckNone  CheckKind = "None"  // not at all; only where a policy says so, never of a frontend
)

// QUICServer says where in a connection ID (RFC 9000, 5.1) the server wrote who it is, so
// that a client that changes its address stays (draft-ietf-quic-load-balancers, plaintext).
type QUICServer struct {
	Offset uint8 `json:"offset"` // of the server ID in the connection ID, bytes
	Length uint8 `json:"length"` // of the server ID, 1 to 8 bytes
}

// BackendTLS speaks TLS with backends and verifies them.
type BackendTLS struct {
	// ServerName is sent, and must be in the certificate unless Names says other names. Empty
	// sends none; then Names or Unverified is set.
	ServerName string `json:"serverName"`
	// Names of which the certificate must have one.
	Names []AltName `json:"names,omitempty"`
	// Authorities that may have signed; empty are those of the machine's system.
	Authorities []AuthorityID `json:"authorities,omitempty"`
	// Unverified takes whatever certificate the backend shows.
	Unverified bool `json:"unverified,omitempty"`
	// Certificate that the proxy shows; empty is none.
	Certificate CertificateID `json:"certificate,omitempty"`
}

// AltName is a subject alternative name. One of them is set.
type AltName struct {
	DNS string `json:"dns,omitempty"`
	URI string `json:"uri,omitempty"`
}

// BackendLimits bound what one machine sends to a group at once (circuit breaker). 0 is
// no limit.
type BackendLimits struct {
	MaxConnections uint32 `json:"maxConnections,omitempty"`
	MaxPending     uint32 `json:"maxPending,omitempty"`
	MaxRequests    uint32 `json:"maxRequests,omitempty"`
	MaxRetryBudget uint32 `json:"maxRetryBudgetPercent,omitempty"`
	// MaxRetries is how many retries may be under way; MaxRetryBudget goes first.
	MaxRetries uint32 `json:"maxRetries,omitempty"`
}

// OutlierDetection takes a backend out for a while that keeps failing.
type OutlierDetection struct {
	ConsecutiveErrors uint32        `json:"consecutiveErrors"` // 5xx or no answer
	Interval          time.Duration `json:"intervalNanoseconds"`
	EjectionTime      time.Duration `json:"ejectionTimeNanoseconds"`
	MaxEjected        uint32        `json:"maxEjectedPercent"`
}

// HeaderEdits change headers: Remove first, then Set, then Add. Names are lower case and
// sorted.
type HeaderEdits struct {
	Set    []Header `json:"set,omitempty"`
	Add    []Header `json:"add,omitempty"`
	Remove []string `json:"remove,omitempty"`
}

// Header is one header.
type Header struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Sticky keeps a client at the backend that it got first (session persistence, GEP-1619).
type Sticky struct {
	Name string `json:"name"` // of the cookie or header
	// Header carries the session in a header instead of a cookie.
	Header bool `json:"header,omitempty"`
	// Lifetime of the cookie; 0 lets it end with the client's session.
	Lifetime time.Duration `json:"lifetimeNanoseconds,omitempty"`
	Path     string        `json:"path,omitempty"` // of the cookie
}

// Mirror sends copies of a share of requests to a group.
type Mirror struct {
	Group       GroupID `json:"group"`
	Numerator   uint32  `json:"numerator"`
	Denominator uint32  `json:"denominator"`
}

// Respond answers without a backend.
type Respond struct {
	Status uint32 `json:"status"`
	Body   string `json:"body,omitempty"`
}

// Redirect answers with another location. What is empty stays as the client asked, but
// the port: without Port it is the scheme's own if Scheme is set, else the listener's.
type Redirect struct {
	Scheme string       `json:"scheme,omitempty"`
	Host   string       `json:"host,omitempty"`
	Port   uint16       `json:"port,omitempty"`
	Path   *PathRewrite `json:"path,omitempty"`
	Status uint32       `json:"status"` // 301, 302, 303, 307 or 308
}

// PathRewrite replaces a path.
type PathRewrite struct {
	Kind  PathRewriteKind `json:"kind"`
	Value string          `json:"value"` // begins with "/", or is empty for Prefix
}

// PathRewriteKind says which part of a path is replaced.
type PathRewriteKind string

const (
	// RewritePrefix replaces what the route's path match took.
	RewritePrefix PathRewriteKind = "Prefix"
	// RewriteFull replaces the whole path; the query stays.
	RewriteFull PathRewriteKind = "Full"
)

// Balance is how a proxy picks a backend of a group.
type Balance string

// The ways to balance. The zero value is round robin.
const (
	BalanceRoundRobin   Balance = ""
	BalanceLeastRequest Balance = "LeastRequest"
	BalanceRandom       Balance = "Random"
	// BalanceCookie keeps a client at one backend by a cookie and a ring hash.
	BalanceCookie Balance = "Cookie"
)

// BackendProtocol is what backends of a group speak.
type BackendProtocol string

// The protocols of backends.
const (
	BackendHTTP1 BackendProtocol = ""
	// BackendHTTP2 is HTTP/2 from the first byte (h2c), or by ALPN where the group has TLS.
	BackendHTTP2 BackendProtocol = "HTTP2"
	// BackendAuto is HTTP/2 or HTTP/1.1 as the backend chooses by ALPN; only with TLS.
	BackendAuto BackendProtocol = "Auto"
	// BackendTCP takes bytes.
	BackendTCP BackendProtocol = "TCP"
)
