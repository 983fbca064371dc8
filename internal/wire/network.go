package wire

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"fairlead.dev/internal/model"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// VIPName is the resource name of a VIP.
func VIPName(a netip.Addr) string { return a.Unmap().String() }

// VIP is what a machine is told about a VIP. listener names the resource of a listener.
func VIP(v model.VIP, listener func(model.ListenerID) string) *agentv1.Vip {
	out := &agentv1.Vip{
		Address:    v.Address.AsSlice(),
		Pool:       v.Pool,
		Path:       pathOptions(v.Path),
		Candidates: v.Candidates,
		Interfaces: v.Interfaces,
		Awaited:    v.Awaited,
	}
	switch v.Mode {
	case model.AnnounceBGP:
		out.Announce = agentv1.Vip_ANNOUNCE_BGP
	case model.AnnounceL2:
		out.Announce = agentv1.Vip_ANNOUNCE_L2
	}
	for _, id := range v.Listeners {
		out.Listeners = append(out.Listeners, listener(id))
	}
	for _, k := range v.Frontends {
		out.Frontends = append(out.Frontends, FrontendName(k))
	}
	return out
}

// VIPOf is what a Vip says. Its listeners are names of resources. A way to announce that
// is not known is empty.
func VIPOf(v *agentv1.Vip) (model.VIP, error) {
	a := addr(v.GetAddress())
	if !a.IsValid() {
		return model.VIP{}, fmt.Errorf("a VIP's address has %d bytes, want 4 or 16", len(v.GetAddress()))
	}
	out := model.VIP{
		Address:    a,
		Pool:       v.GetPool(),
		Path:       pathOptionsOf(v.GetPath()),
		Candidates: v.GetCandidates(),
		Interfaces: v.GetInterfaces(),
		Awaited:    v.GetAwaited(),
	}
	switch v.GetAnnounce() {
	case agentv1.Vip_ANNOUNCE_BGP:
		out.Mode = model.AnnounceBGP
	case agentv1.Vip_ANNOUNCE_L2:
		out.Mode = model.AnnounceL2
	}
	for _, name := range v.GetListeners() {
		out.Listeners = append(out.Listeners, model.ListenerID(name))
	}
	for _, name := range v.GetFrontends() {
		k, err := model.ParseFrontend(name)
		if err != nil {
			return model.VIP{}, fmt.Errorf("VIP %s: %w", a, err)
		}
		out.Frontends = append(out.Frontends, k)
	}
	return out, nil
}

// Peer is what a machine is told about a peer, without its password.
func Peer(p model.Peer) *agentv1.BgpPeer {
	out := &agentv1.BgpPeer{
		Address:       p.Address.AsSlice(),
		Zone:          p.Address.Zone(),
		Interface:     p.Interface,
		Port:          uint32(p.Port),
		LocalAsn:      p.LocalASN,
		PeerAsn:       p.PeerASN,
		Ttl:           uint32(p.TTL),
		NeedsPassword: p.NeedsPassword,
		HoldTime:      durationpb.New(p.HoldTime),
		Keepalive:     durationpb.New(p.Keepalive),
		ConnectRetry:  durationpb.New(p.ConnectRetry),
		RestartTime:   durationpb.New(p.RestartTime),
		AddPath:       p.AddPath,
		Ipv4:          p.IPv4,
		Ipv6:          p.IPv6,
		NextHop4:      p.NextHop4.Addr().AsSlice(),
		NextHop6:      p.NextHop6.Addr().AsSlice(),
		NextHop4Bits:  networkBits(p.NextHop4),
		NextHop6Bits:  networkBits(p.NextHop6),
		TtlSecurity:   uint32(p.TTLSecurity),
		Role:          string(p.Role),
		StrictRole:    p.StrictRole,
		Connection:    string(p.Connection),
		Device:        p.Device,
		MaxPrefixes:   p.MaxPrefixes,
		EndAboveMax:   p.EndAboveMax,
		Path:          pathOptions(p.Path),
	}
	if p.Source.IsValid() {
		out.Source = p.Source.String()
	}
	if p.BFD != nil {
		out.Bfd = &agentv1.Bfd{Interval: durationpb.New(p.BFD.Interval), Multiplier: uint32(p.BFD.Multiplier), Mode: string(p.BFD.Mode)}
	}
	return out
}

// networkBits is the length of a network, 0 for that of one address.
func networkBits(p netip.Prefix) uint32 {
	if !p.IsValid() || p.IsSingleIP() {
		return 0
	}
	return uint32(p.Bits())
}

// network is what networkBits and the address say.
func network(address []byte, bits uint32) netip.Prefix {
	a := addr(address)
	if !a.IsValid() {
		return netip.Prefix{}
	}
	if bits == 0 {
		return netip.PrefixFrom(a, a.BitLen())
	}
	return netip.PrefixFrom(a, int(min(bits, 255)))
}

// PeerOf is what a BgpPeer of that name says.
func PeerOf(name string, p *agentv1.BgpPeer) (model.Peer, error) {
	out := model.Peer{
		Name:          name,
		Address:       addr(p.GetAddress()).WithZone(p.GetZone()),
		Interface:     p.GetInterface(),
		Port:          uint16(p.GetPort()),
		LocalASN:      p.GetLocalAsn(),
		PeerASN:       p.GetPeerAsn(),
		TTL:           uint8(p.GetTtl()),
		NeedsPassword: p.GetNeedsPassword(),
		HoldTime:      p.GetHoldTime().AsDuration(),
		Keepalive:     p.GetKeepalive().AsDuration(),
		ConnectRetry:  p.GetConnectRetry().AsDuration(),
		RestartTime:   p.GetRestartTime().AsDuration(),
		AddPath:       p.GetAddPath(),
		IPv4:          p.GetIpv4(),
		IPv6:          p.GetIpv6(),
		NextHop4:      network(p.GetNextHop4(), p.GetNextHop4Bits()),
		NextHop6:      network(p.GetNextHop6(), p.GetNextHop6Bits()),
		TTLSecurity:   uint8(p.GetTtlSecurity()),
		Role:          model.Role(p.GetRole()),
		StrictRole:    p.GetStrictRole(),
		Connection:    model.Connection(p.GetConnection()),
		Device:        p.GetDevice(),
		MaxPrefixes:   p.GetMaxPrefixes(),
		EndAboveMax:   p.GetEndAboveMax(),
		Path:          pathOptionsOf(p.GetPath()),
	}
	if out.Address.IsValid() && out.Interface != "" {
		return model.Peer{}, fmt.Errorf("BGP peer %s has both an address and an interface", name)
	}
	if !out.Address.IsValid() && (out.Interface == "" || len(p.GetAddress()) > 0) {
		return model.Peer{}, fmt.Errorf("the address of BGP peer %s has %d bytes, want 4 or 16", name, len(p.GetAddress()))
	}
	if text := p.GetSource(); text != "" {
		source, err := netip.ParsePrefix(text)
		if err != nil {
			return model.Peer{}, fmt.Errorf("the source of BGP peer %s: %w", name, err)
		}
		out.Source = source
	}
	if b := p.GetBfd(); b != nil {
		out.BFD = &model.BFD{Interval: b.GetInterval().AsDuration(), Multiplier: uint8(b.GetMultiplier()), Mode: model.BFDMode(b.GetMode())}
	}
	return out, nil
}

func pathOptions(o model.PathOptions) *agentv1.PathOptions {
	return &agentv1.PathOptions{
		Communities: o.Communities, LocalPreference: o.LocalPreference, Med: o.MED, Prepend: uint32(o.Prepend),
	}
}

func pathOptionsOf(o *agentv1.PathOptions) model.PathOptions {
	if o == nil {
		return model.PathOptions{}
	}
	return model.PathOptions{
		Communities: o.Communities, LocalPreference: o.LocalPreference, MED: o.Med, Prepend: uint8(o.Prepend),
	}
}

// maxText bounds one message of a report: there may be thousands, and a plane reads no
// report of more than a few megabytes.
const maxText = 512

// text is a message that can be sent: one that is not UTF-8, because it quotes what a
// peer sent, would keep the whole report from being written.
func text(s string) string {
	s = strings.ToValidUTF8(s, "?")
	if len(s) <= maxText {
		return s
	}
	return strings.ToValidUTF8(s[:maxText-3], "") + "..."
}

// Sessions words what a machine sees of its peers.
func Sessions(sessions []model.Session) []*agentv1.Session {
	var out []*agentv1.Session
	for _, s := range sessions {
		w := &agentv1.Session{
			Peer:         s.Peer,
			Address:      s.Address.AsSlice(),
			Zone:         s.Address.Zone(),
			Interface:    s.Interface,
			State:        string(s.State),
			Reason:       string(s.Reason),
			Message:      text(s.Message),
			Since:        timestamp(s.Since),
			Flaps:        s.Flaps,
			Panics:       s.Panics,
			Bfd:          s.BFD,
			Received:     s.Received,
			LocalAsn:     s.LocalASN,
			PeerAsn:      s.PeerASN,
			RouterId:     s.RouterID.AsSlice(),
			PeerRouterId: s.PeerID.AsSlice(),
			HoldTime:     durationpb.New(s.HoldTime),
		}
		for _, p := range s.Advertised {
			w.Advertised = append(w.Advertised, p.String())
		}
		out = append(out, w)
	}
	return out
}

// SessionsOf is what a report says of sessions, sorted by peer. Prefixes that are none
// are left out.
func SessionsOf(sessions []*agentv1.Session) []model.Session {
	var out []model.Session
	for _, s := range sessions {
		m := model.Session{
			Peer:      s.GetPeer(),
			Address:   addr(s.GetAddress()).WithZone(s.GetZone()),
			Interface: s.GetInterface(),
			State:     model.SessionState(s.GetState()),
			Reason:    model.SessionReason(s.GetReason()),
			Message:   s.GetMessage(),
			Since:     timeOf(s.GetSince()),
			Flaps:     s.GetFlaps(),
			Panics:    s.GetPanics(),
			BFD:       s.GetBfd(),
			Received:  s.GetReceived(),
			LocalASN:  s.GetLocalAsn(),
			PeerASN:   s.GetPeerAsn(),
			RouterID:  addr(s.GetRouterId()),
			PeerID:    addr(s.GetPeerRouterId()),
			HoldTime:  s.GetHoldTime().AsDuration(),
		}
		for _, text := range s.GetAdvertised() {
			if p, err := netip.ParsePrefix(text); err == nil {
				m.Advertised = append(m.Advertised, p)
			}
		}
		out = append(out, m)
	}
	return out
}

// VIPStates words what a machine does about its VIPs.
func VIPStates(vips []model.VIPObserved) []*agentv1.VipState {
	var out []*agentv1.VipState
	for _, v := range vips {
		out = append(out, &agentv1.VipState{
			Address: v.Address.AsSlice(), State: string(v.State), Message: text(v.Message), Since: timestamp(v.Since),
		})
	}
	return out
}

// VIPStatesOf is what a report says of VIPs, sorted by address.
func VIPStatesOf(vips []*agentv1.VipState) []model.VIPObserved {
	var out []model.VIPObserved
	for _, v := range vips {
		if a := addr(v.GetAddress()); a.IsValid() {
			out = append(out, model.VIPObserved{
				Address: a, State: model.VIPState(v.GetState()), Message: v.GetMessage(), Since: timeOf(v.GetSince()),
			})
		}
	}
	slices.SortFunc(out, func(a, b model.VIPObserved) int { return a.Address.Compare(b.Address) })
	return out
}

// addr is the address of 4 or 16 bytes, or the zero address.
func addr(b []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(b)
	return a.Unmap()
}

func timestamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// timeOf is a time that a machine says. One that JSON does not have is none: an answer with it could not be told to anybody.
func timeOf(t *timestamppb.Timestamp) time.Time {
	if !t.IsValid() {
		return time.Time{}
	}
	return t.AsTime()
}
