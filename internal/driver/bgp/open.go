package bgp

import (
	"net/netip"
	"time"

	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"fairlead.dev/internal/model"
)

// agreed is what both OPENs of a session came to.
type agreed struct {
	peerID     netip.Addr
	hold       time.Duration // 0: never
	fourOctets bool
	families   map[packet.Family]bool
	addPath    map[packet.Family]packet.BGPAddPathMode // of what we send
	// Messages may have 65,535 bytes (RFC 8654).
	longMessages bool
	// ipv4OverIPv6 takes IPv6 next hops for IPv4 prefixes (RFC 8950).
	ipv4OverIPv6 bool
	restarts     bool // both speak graceful restart (RFC 4724)
	// enhancedRefresh is that both mark beginning and end of what is sent again (RFC 7313).
	enhancedRefresh bool
}

func families(c model.Peer) []packet.Family {
	var out []packet.Family
	if c.IPv4 {
		out = append(out, packet.RF_IPv4_UC)
	}
	if c.IPv6 {
		out = append(out, packet.RF_IPv6_UC)
	}
	return out
}

// open is our OPEN. The restarted flag is set until the peer has once heard us: it must not wait for our End-of-RIB
// before it speaks.
func open(c model.Peer, id netip.Addr, restarted bool) (*packet.BGPMessage, error) {
	capabilities := []packet.ParameterCapabilityInterface{packet.NewCapRouteRefresh(), packet.NewCapEnhancedRouteRefresh(), packet.NewCapExtendedMessage()}
	for _, f := range families(c) {
		capabilities = append(capabilities, packet.NewCapMultiProtocol(f))
	}
	capabilities = append(capabilities, packet.NewCapFourOctetASNumber(c.LocalASN))
	if role, told := roleCodes[c.Role]; told {
		capabilities = append(capabilities, packet.NewCapUnknown(capabilityRole, []byte{role}))
	}
	if c.IPv4 && c.Address.Is6() {
		capabilities = append(capabilities, packet.NewCapExtendedNexthop([]*packet.CapExtendedNexthopTuple{
			packet.NewCapExtendedNexthopTuple(packet.RF_IPv4_UC, packet.AFI_IP6),
		}))
	}
	if c.RestartTime > 0 {
		var tuples []*packet.CapGracefulRestartTuple
		for _, f := range families(c) {
			// Forwarding is preserved: traffic does not go through this process.
			tuples = append(tuples, packet.NewCapGracefulRestartTuple(f, true))
		}
		// Without the flag of RFC 8538, a NOTIFICATION still takes the routes away.
		capabilities = append(capabilities, packet.NewCapGracefulRestart(restarted, false, min(seconds(c.RestartTime), 0xfff), tuples))
	}
	if c.AddPath {
		var tuples []*packet.CapAddPathTuple
		for _, f := range families(c) {
			tuples = append(tuples, packet.NewCapAddPathTuple(f, packet.BGP_ADD_PATH_SEND))
		}
		capabilities = append(capabilities, packet.NewCapAddPath(tuples))
	}
	return packet.NewBGPOpenMessage(shortASN(c.LocalASN), seconds(c.HoldTime), id,
		[]packet.OptionParameterInterface{packet.NewOptionParameterCapability(capabilities)})
}

// seconds rounds up.
func seconds(d time.Duration) uint16 {
	return uint16(min((d+time.Second-1)/time.Second, 0xffff))
}

// agree makes of the peer's OPEN what both can.
func agree(c model.Peer, id netip.Addr, o *theirOpen) (agreed, *failure) {
	a := agreed{
		peerID:          o.id,
		fourOctets:      o.fourOctets,
		longMessages:    o.longMessages,
		enhancedRefresh: o.enhancedRefresh,
		ipv4OverIPv6:    o.ipv4OverIPv6,
		restarts:        o.restarts && c.RestartTime > 0,
		families:        map[packet.Family]bool{},
		addPath:         map[packet.Family]packet.BGPAddPathMode{},
	}
	for _, f := range families(c) {
		a.families[f] = o.families[f]
		if c.AddPath && o.receivesMany[f] {
			a.addPath[f] = packet.BGP_ADD_PATH_SEND
		}
	}
	const code = packet.BGP_ERROR_OPEN_MESSAGE_ERROR
	switch {
	case o.version != 4:
		return a, refuse(c, model.SessionProtocolError, code, packet.BGP_ERROR_SUB_UNSUPPORTED_VERSION_NUMBER, []byte{0, 4},
			"it speaks BGP version %d; this machine speaks 4 only", o.version)
	case o.as != c.PeerASN:
		return a, refuse(c, model.SessionWrongAS, code, packet.BGP_ERROR_SUB_BAD_PEER_AS, nil,
			"it has AS %d, and AS %d is expected: correct the peer's AS here or at the router", o.as, c.PeerASN)
	case o.id.IsUnspecified():
		return a, refuse(c, model.SessionProtocolError, code, packet.BGP_ERROR_SUB_BAD_BGP_IDENTIFIER, nil,
			"its router id is 0.0.0.0: set one at the router")
	case o.as == c.LocalASN && o.id == id: // only within an AS: RFC 6286, 2.2
		return a, refuse(c, model.SessionProtocolError, code, packet.BGP_ERROR_SUB_BAD_BGP_IDENTIFIER, nil,
			"it has our own router id %s: give this machine or the router another", id)
	case o.hold == 1 || o.hold == 2:
		return a, refuse(c, model.SessionProtocolError, code, packet.BGP_ERROR_SUB_UNACCEPTABLE_HOLD_TIME, nil,
			"it offers a hold time of %ds, which the protocol forbids: set 0 or at least 3s at the router", o.hold)
	}
	if f := fits(c, o.roles); f != nil {
		return a, f
	}
	a.hold = time.Duration(min(o.hold, seconds(c.HoldTime))) * time.Second
	return a, nil
}
