package bgp

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"fairlead.dev/internal/driver/bgp/discovery"
	"fairlead.dev/internal/model"
)

// Subcodes of Cease (RFC 4486, RFC 9384).
const (
	subcodeMaxPrefixes  = packet.BGP_ERROR_SUB_MAXIMUM_NUMBER_OF_PREFIXES_REACHED
	subcodeShutdown     = packet.BGP_ERROR_SUB_ADMINISTRATIVE_SHUTDOWN
	subcodeDeconfigured = packet.BGP_ERROR_SUB_PEER_DECONFIGURED
	subcodeConfigChange = packet.BGP_ERROR_SUB_OTHER_CONFIGURATION_CHANGE
	subcodeBFDDown      = 10
)

// failure is why there is no session.
type failure struct {
	reason      model.SessionReason
	message     string
	blocked     bool          // no use in trying before something changes
	unconnected bool          // there was no TCP connection
	passes      bool          // what the peer said should not last
	lost        bool          // the session was established
	lasted      time.Duration // how long it was
	pause       time.Duration // at least, before the next attempt
	// notify is what to tell the peer before closing; nil is nothing.
	notify *packet.BGPMessage
}

// where begins a message about the session with c.
func where(c model.Peer) string {
	return fmt.Sprintf("peer %s (%s): ", c.Name, location(c))
}

// location is where the peer is.
func location(c model.Peer) string {
	if c.Interface != "" && !c.Address.IsValid() {
		return "interface " + c.Interface
	}
	return addrPort(c).String()
}

func addrPort(c model.Peer) netip.AddrPort {
	port := c.Port
	if port == 0 {
		port = packet.BGP_PORT
	}
	return netip.AddrPortFrom(c.Address, port)
}

func fail(c model.Peer, reason model.SessionReason, format string, args ...any) *failure {
	return &failure{reason: reason, message: where(c) + fmt.Sprintf(format, args...)}
}

// refuse is a failure that the peer is told of.
func refuse(c model.Peer, reason model.SessionReason, code, subcode uint8, data []byte, format string, args ...any) *failure {
	f := fail(c, reason, format, args...)
	f.notify = packet.NewBGPNotificationMessage(code, subcode, data)
	return f
}

// check returns why the session cannot be tried, or nil.
func check(c model.Peer) *failure {
	f := func() *failure {
		switch {
		case c.NeedsPassword && c.Password == "":
			return fail(c, model.SessionMissingPassword, "the session needs a password, and its Secret is missing or empty: create it or correct its name")
		case len(c.Password) > maxPassword:
			return fail(c, model.SessionProtocolError, "the password has %d bytes; TCP MD5 allows at most %d: shorten it here and at the router", len(c.Password), maxPassword)
		case !c.Address.IsValid():
			return fail(c, model.SessionUnreachable, "the peer has no address: give it one")
		case c.LocalASN == 0 || c.PeerASN == 0:
			return fail(c, model.SessionWrongAS, "the AS numbers are %d here and %d there; both must be set", c.LocalASN, c.PeerASN)
		case c.HoldTime < 0 || c.HoldTime > 0 && c.HoldTime < 3*time.Second || c.HoldTime > 65535*time.Second:
			return fail(c, model.SessionProtocolError, "a hold time of %s is not possible: want 0 (never) or 3s to 65535s", c.HoldTime)
		case !c.IPv4 && !c.IPv6:
			return fail(c, model.SessionNoFamily, "the session carries no address family: allow IPv4 or IPv6")
		case c.Source.IsValid() && c.Source.Addr().Is4() != c.Address.Is4():
			return fail(c, model.SessionNoLocalAddress, "the source address %s is of another family than the peer's: give one of the same family or none", c.Source)
		}
		return nil
	}()
	if f != nil {
		f.blocked = true
	}
	return f
}

// unconnected says why there is no TCP connection.
func unconnected(c model.Peer, err error, hasFamily bool) *failure {
	family := familyName(c.Address)
	f := func() *failure {
		var timeout net.Error
		switch {
		case errors.Is(err, syscall.ECONNREFUSED):
			return fail(c, model.SessionRefused, "the connection is refused: let the router's BGP listen on this address and port, and accept this machine as a neighbour")
		case errors.Is(err, syscall.EADDRNOTAVAIL) && c.Source.IsValid():
			return fail(c, model.SessionNoLocalAddress, "this machine does not have the source address %s: add it to an interface, or correct the peer's sourceAddress", c.Source.Addr())
		case errors.Is(err, syscall.ENODEV) && c.Device != "":
			return fail(c, model.SessionNoLocalAddress, "this machine has no device %s: create the VRF, or correct the peer's vrf", c.Device)
		// Linux: the scope in tcp_v6_connect.
		case errors.Is(err, syscall.EINVAL) && c.Address.Zone() != "" && c.Device != "":
			return fail(c, model.SessionNoLocalAddress, "the interface %s is not in the VRF %s: add it to the VRF, or correct the peer's vrf", c.Address.Zone(), c.Device)
		case errors.Is(err, discovery.ErrNoInterface):
			return fail(c, model.SessionNoLocalAddress, "this machine has no interface %s: correct the peer's address, or the machines that it selects", c.Address.Zone())
		case errors.Is(err, syscall.EAFNOSUPPORT), errors.Is(err, syscall.EADDRNOTAVAIL), !hasFamily && !errors.Is(err, os.ErrPermission):
			return fail(c, model.SessionNoLocalAddress, "this machine has no %s address to connect from: enable %s on it (for IPv6 see the sysctl net.ipv6.conf.*.disable_ipv6), or use a peer address of the other family", family, family)
		case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETDOWN), errors.Is(err, syscall.EHOSTDOWN):
			return fail(c, model.SessionUnreachable, "%s: check this machine's routes and link to the peer, and whether the peer is up", errno(err))
		case errors.Is(err, syscall.ECONNRESET):
			return fail(c, model.SessionReset, "the connection is reset while it opens: check for a firewall in between")
		case errors.As(err, &timeout) && timeout.Timeout():
			if c.TTLSecurity > 0 {
				return fail(c, model.SessionWrongPassword, "nothing answers: the router is more than %d hops away or does not send with TTL 255 (ttlSecurityHops needs TTL security, GTSM, at both ends), the password differs, or a firewall drops the packets", c.TTLSecurity)
			}
			if c.Password != "" {
				return fail(c, model.SessionWrongPassword, "nothing answers: the password differs at the router (TCP MD5 answers nothing then), or a firewall drops the packets")
			}
			return fail(c, model.SessionWrongPassword, "nothing answers: the router wants a password (TCP MD5 answers nothing without), or a firewall drops the packets")
		}
		return fail(c, model.SessionUnreachable, "cannot connect: %s", errno(err))
	}()
	f.unconnected = true
	return f
}

// errno returns the innermost text of a network error: the rest repeats the addresses, with a port that changes.
func errno(err error) string {
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	var number syscall.Errno
	if errors.As(err, &number) {
		return number.Error()
	}
	return err.Error()
}

// broken says why a connection stopped carrying messages in a state, when the peer sent no NOTIFICATION.
func broken(c model.Peer, state model.SessionState, err error, limit time.Duration) *failure {
	var malformed *packet.MessageError
	switch {
	case errors.As(err, &malformed):
		return refuse(c, model.SessionProtocolError, malformed.TypeCode, malformed.SubTypeCode, malformed.Data,
			"in state %s it sent no valid BGP message (%s): check whether a BGP speaker has this address and port", state, malformed.Message)
	case errors.Is(err, os.ErrDeadlineExceeded):
		f := refuse(c, model.SessionHoldExpired, packet.BGP_ERROR_HOLD_TIMER_EXPIRED, 0, nil, "")
		switch state {
		case model.SessionOpenSent:
			f.message = where(c) + fmt.Sprintf("it accepts the connection but sends no OPEN within %s: check whether its BGP process hangs or does not know this machine", limit)
			if c.TTLSecurity > 0 {
				f.message += fmt.Sprintf(", or is more than %d hops away, or sends with a TTL below 255 (ttlSecurityHops needs TTL security, GTSM, with TTL 255 at both ends)", c.TTLSecurity)
			}
		case model.SessionOpenConfirm:
			f.message = where(c) + fmt.Sprintf("it sends OPEN but no KEEPALIVE within %s: check whether its BGP process hangs", limit)
		default:
			f.message = where(c) + fmt.Sprintf("nothing came within the hold time of %s: check whether the link, the router or its BGP process hangs", limit)
		}
		return f
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		if state == model.SessionEstablished {
			return fail(c, model.SessionReset, "it closed the connection without saying why: check whether its BGP process restarted")
		}
		return fail(c, model.SessionReset, "it closed the connection in state %s without saying why: check whether the router has this machine as a neighbour, with this address", state)
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.ETIMEDOUT), errors.Is(err, syscall.ENETDOWN):
		return fail(c, model.SessionUnreachable, "the connection broke (%s): check the link and the routes to the peer", errno(err))
	}
	return fail(c, model.SessionReset, "the connection broke: %s", errno(err))
}

func familyName(a netip.Addr) string {
	if a.Is4() || a.Is4In6() {
		return "IPv4"
	}
	return "IPv6"
}

func offered(c model.Peer) string {
	switch {
	case c.IPv4 && c.IPv6:
		return "IPv4 and IPv6"
	case c.IPv4:
		return "IPv4"
	default:
		return "IPv6"
	}
}
