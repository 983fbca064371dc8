package bgp

import (
	"fmt"
	"net/netip"

	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"fairlead.dev/internal/model"
)

// Codes and subcodes of NOTIFICATIONs that the packet library does not name.
const (
	subcodeRoleMismatch = 11 // of an OPEN Message Error (RFC 9234)
	subcodeHardReset    = 9  // of Cease (RFC 8538)
	codeSendHoldExpired = 8  // RFC 9687
)

// notificationName is what IANA's registry "BGP Parameters" calls a code and its subcode.
func notificationName(code, subcode uint8) string {
	name, subcodes := codeName(code)
	switch {
	case name == "":
		return fmt.Sprintf("code %d, which is not registered", code)
	case len(subcodes) == 0 && subcode == 0:
		return name
	case int(subcode) < len(subcodes) && subcodes[subcode] != "":
		return name + ": " + subcodes[subcode]
	}
	return fmt.Sprintf("%s: subcode %d, which is not registered", name, subcode)
}

func codeName(code uint8) (name string, subcodes []string) {
	switch code {
	case packet.BGP_ERROR_MESSAGE_HEADER_ERROR:
		return "Message Header Error", []string{"Unspecific", "Connection Not Synchronized", "Bad Message Length", "Bad Message Type"}
	case packet.BGP_ERROR_OPEN_MESSAGE_ERROR:
		return "OPEN Message Error", []string{
			"Unspecific", "Unsupported Version Number", "Bad Peer AS", "Bad BGP Identifier", "Unsupported Optional Parameter",
			"Authentication Failure", "Unacceptable Hold Time", "Unsupported Capability", "", "", "", "Role Mismatch",
		}
	case packet.BGP_ERROR_UPDATE_MESSAGE_ERROR:
		return "UPDATE Message Error", []string{
			"Unspecific", "Malformed Attribute List", "Unrecognized Well-known Attribute", "Missing Well-known Attribute", "Attribute Flags Error",
			"Attribute Length Error", "Invalid ORIGIN Attribute", "AS Routing Loop", "Invalid NEXT_HOP Attribute", "Optional Attribute Error",
			"Invalid Network Field", "Malformed AS_PATH",
		}
	case packet.BGP_ERROR_HOLD_TIMER_EXPIRED:
		return "Hold Timer Expired", nil
	case packet.BGP_ERROR_FSM_ERROR:
		return "Finite State Machine Error", []string{
			"Unspecified Error", "Receive Unexpected Message in OpenSent State", "Receive Unexpected Message in OpenConfirm State",
			"Receive Unexpected Message in Established State",
		}
	case packet.BGP_ERROR_CEASE:
		return "Cease", []string{
			"Unspecific", "Maximum Number of Prefixes Reached", "Administrative Shutdown", "Peer De-configured", "Administrative Reset",
			"Connection Rejected", "Other Configuration Change", "Connection Collision Resolution", "Out of Resources", "Hard Reset", "BFD Down",
		}
	case packet.BGP_ERROR_ROUTE_REFRESH_MESSAGE_ERROR:
		return "ROUTE-REFRESH Message Error", []string{"", "Invalid Message Length"}
	case codeSendHoldExpired:
		return "Send Hold Timer Expired", nil
	case 9: // RFC 9815
		return "Loss of LSDB Synchronization", nil
	}
	return "", nil
}

// notified says what a NOTIFICATION from the peer means.
func notified(c model.Peer, id netip.Addr, state model.SessionState, n *packet.BGPNotification) *failure {
	code := fmt.Sprintf("NOTIFICATION %d/%d", n.ErrorCode, n.ErrorSubcode)
	if n.ErrorCode == packet.BGP_ERROR_CEASE && n.ErrorSubcode == subcodeHardReset && len(n.Data) >= 2 {
		// The reason of a hard reset is a NOTIFICATION within it (RFC 8538, 3.1).
		n = &packet.BGPNotification{ErrorCode: n.Data[0], ErrorSubcode: n.Data[1], Data: n.Data[2:]}
		code = fmt.Sprintf("%s, Hard Reset, for %d/%d", code, n.ErrorCode, n.ErrorSubcode)
	}
	switch n.ErrorCode {
	case packet.BGP_ERROR_OPEN_MESSAGE_ERROR:
		switch n.ErrorSubcode {
		case packet.BGP_ERROR_SUB_BAD_PEER_AS:
			return fail(c, model.SessionWrongAS, "it refuses our AS %d (%s): correct the AS of this machine at the router, or the peer's local AS here", c.LocalASN, code)
		case packet.BGP_ERROR_SUB_BAD_BGP_IDENTIFIER:
			return fail(c, model.SessionNotified, "it refuses our router id %s (%s): another speaker has the same one; give this machine or the router another", id, code)
		case packet.BGP_ERROR_SUB_UNSUPPORTED_CAPABILITY:
			return fail(c, model.SessionNoFamily, "it has no address family in common with this machine, which offers %s (%s): activate one for this machine at the router", offered(c), code)
		case packet.BGP_ERROR_SUB_UNACCEPTABLE_HOLD_TIME:
			return fail(c, model.SessionNotified, "it refuses our hold time of %s (%s): choose one that the router allows", c.HoldTime, code)
		case subcodeRoleMismatch:
			return fail(c, model.SessionNotified, "it refuses our BGP role (%s): correct the role of this machine at the router", code)
		}
	case packet.BGP_ERROR_HOLD_TIMER_EXPIRED:
		return fail(c, model.SessionNotified, "it heard nothing from us within the hold time (%s): check for an overloaded machine or a one-way link", code).forNow()
	case codeSendHoldExpired:
		return fail(c, model.SessionNotified, "it could not send us anything within its send hold time (%s): check for an overloaded machine", code).forNow()
	case packet.BGP_ERROR_CEASE:
		text := ""
		if said := communication(n); said != "" {
			text = fmt.Sprintf(", and says %q", said)
		}
		switch n.ErrorSubcode {
		case subcodeMaxPrefixes:
			return fail(c, model.SessionNotified, "it accepts fewer prefixes than we send (%s): raise its limit for this machine", code)
		case subcodeShutdown:
			return fail(c, model.SessionNotified, "it is shut down for us (%s)%s: enable the session at the router", code, text)
		case packet.BGP_ERROR_SUB_ADMINISTRATIVE_RESET:
			f := fail(c, model.SessionNotified, "the session was reset at the router (%s)%s", code, text)
			if text == "" {
				f.forNow()
			}
			return f
		case subcodeDeconfigured, packet.BGP_ERROR_SUB_CONNECTION_REJECTED:
			return fail(c, model.SessionNotified, "it does not know this machine as a neighbour (%s): add it at the router", code).forNow()
		case packet.BGP_ERROR_SUB_CONNECTION_COLLISION_RESOLUTION:
			return fail(c, model.SessionNotified, "it keeps another connection instead of this one (%s): check for a second BGP speaker with this machine's address or its router id %s", code, id).forNow()
		case subcodeBFDDown:
			return fail(c, model.SessionNotified, "its BFD lost us (%s): check for an overloaded machine or a one-way link", code).forNow()
		}
	}
	f := fail(c, model.SessionNotified, "it ended the session in state %s (%s; %s)", state, code, notificationName(n.ErrorCode, n.ErrorSubcode))
	if n.ErrorCode == packet.BGP_ERROR_CEASE && (n.ErrorSubcode == subcodeConfigChange || n.ErrorSubcode == packet.BGP_ERROR_SUB_OUT_OF_RESOURCES) {
		f.forNow()
	}
	return f
}

// communication is the text of an administrative shutdown or reset (RFC 9003), "" where there is none. It may be any
// bytes.
func communication(n *packet.BGPNotification) string {
	if n.ErrorSubcode != subcodeShutdown && n.ErrorSubcode != packet.BGP_ERROR_SUB_ADMINISTRATIVE_RESET {
		return ""
	}
	if len(n.Data) == 0 {
		return ""
	}
	length, text := int(n.Data[0]), n.Data[1:]
	if length > len(text) {
		return ""
	}
	return string(text[:length])
}
