package agent

import (
	"crypto/x509"
	"regexp"
	"strings"
	"syscall"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// hindrance is what can be in the way between a machine and its plane.
type hindrance struct {
	text []string // of the error, any of them
	said string   // what it is, and what to do
}

// hindrances are looked for in this order. gRPC tells why there is no connection as text only;
// the texts are those of errno, of Go's resolver, of crypto/tls and of x509.
var hindrances = []hindrance{
	{
		[]string{syscall.ECONNREFUSED.Error()},
		"connection refused: nothing listens at that address and port; start the plane, or name its agent port (7443 without --agent-port)",
	},
	{
		[]string{syscall.EHOSTUNREACH.Error(), syscall.ENETUNREACH.Error()},
		"no route: this machine or a router on the path has no route to that address; check the address and the routes (`ip route get`)",
	},
	{
		[]string{"no such host"},
		"name not found: DNS has no address of that name; check the name, or name the plane by its address",
	},
	{
		[]string{"server misbehaving", ": lookup "},
		"name not resolved: the DNS server gives no answer; check /etc/resolv.conf, or name the plane by its address",
	},
	{
		[]string{x509.UnknownAuthorityError{}.Error(), errPin.Error()},
		"certificate of another plane: the server at this address has a certificate of an authority that this machine does not know; check the address",
	},
	{
		[]string{"certificate has expired or is not yet valid"},
		"certificate out of date: by this machine's clock the plane's certificate is not valid now; check the clocks of both machines",
	},
	{
		[]string{"first record does not look like a TLS handshake", "missing selected ALPN property", "error reading server preface", "protocol version not supported"},
		"no plane: the server at this address is not the agents' endpoint of a plane; check the port (7443 without --agent-port)",
	},
	{
		[]string{"i/o timeout", syscall.ETIMEDOUT.Error(), "deadline exceeded", "keepalive ping failed"},
		"no answer: packets are lost or dropped between this machine and the plane, or the plane hangs; check the address and the firewalls",
	},
	{
		[]string{syscall.ECONNRESET.Error(), "EOF", syscall.EPIPE.Error(), "server closed the stream", "closing transport due to", "received prior goaway"},
		"connection closed: the plane stopped or restarted, or a firewall or proxy in between closed it; if it happens again, check the plane's log",
	},
}

// wrapping is what gRPC puts around the text of an error of the connection.
var wrapping = regexp.MustCompile(`(connection error: desc = |transport: |Error while dialing: |authentication handshake failed: )+`)

// explainConnection words an error of a connection to a plane in the words of people who operate one. The
// plane's own answers stay as they are, without gRPC's words around them.
func explainConnection(err error) string {
	text := status.Convert(err).Message()
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Internal, codes.Unknown:
	default:
		return text // the plane's own
	}
	for _, h := range hindrances {
		for _, t := range h.text {
			if strings.Contains(text, t) {
				return h.said
			}
		}
	}
	return strings.ReplaceAll(wrapping.ReplaceAllString(text, ""), `"`, "")
}

// explained is an error of a connection in words. What gRPC says of it remains: its code and
// the leader that a standby names.
type explained struct{ error }

// Error implements error.
func (e explained) Error() string { return explainConnection(e.error) }

// Unwrap gives gRPC's error.
func (e explained) Unwrap() error { return e.error }
