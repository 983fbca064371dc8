package model

import (
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// ListenerID identifies a listener over all machines: "http-80" is the one that is
// shared by all who want the port at the machines' own addresses, "http-80_team_web" the
// one of Gateway team/web at addresses of its own.
type ListenerID string

// SharedListener is the listener of a port at the machines' own addresses.
func SharedListener(p Protocol, port uint16) ListenerID {
	return ListenerID(strings.ToLower(string(p)) + "-" + strconv.Itoa(int(port)))
}

// OwnListener is the listener of a port at the addresses of one Gateway. Names of
// Kubernetes have no "_", so no two Gateways get the same.
func OwnListener(p Protocol, port uint16, namespace, name string) ListenerID {
	return SharedListener(p, port) + ListenerID("_"+namespace+"_"+name)
}

// Own reports whether the listener is one Gateway's.
func (id ListenerID) Own() bool { return strings.Contains(string(id), "_") }

// Entry is the protocol and the port that the ID says; the port is 0 if it says none.
func (id ListenerID) Entry() (Protocol, uint16) {
	shared, _, _ := strings.Cut(string(id), "_")
	protocol, number, _ := strings.Cut(shared, "-")
	port, err := strconv.ParseUint(number, 10, 16)
	if err != nil {
		port = 0
	}
	return Protocol(strings.ToUpper(protocol)), uint16(port)
}

// Protocol is what a listener speaks with clients.
type Protocol string

const (
	// ProtocolHTTP is HTTP/1.1 and HTTP/2 in clear text.
	ProtocolHTTP Protocol = "HTTP"
	// ProtocolHTTPS is HTTP over TLS; a server name may also be handed on as it is.
	ProtocolHTTPS Protocol = "HTTPS"
)

// Listener is a port at which proxies accept requests.
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

// HTTP3 reports whether it serves HTTP/3 at the same port over UDP.
func (l *Listener) HTTP3() bool { return l.Clients != nil && l.Clients.HTTP3 }

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

// EscapedSlashes is what becomes of paths with escaped slashes at a listener.
func (l Listener) EscapedSlashes() EscapedSlashes {
	if l.Clients == nil {
		return SlashesRedirect
	}
	return l.Clients.EscapedSlashes
}

// Tracing reports spans to an OpenTelemetry collector over gRPC.
type Tracing struct {
	Collector GroupID `json:"collector"`
	// Percent of requests that begin a trace, 0 to 100; traces that clients began go on.
	Percent     float64 `json:"percent"`
	ServiceName string  `json:"serviceName,omitempty"`
}
