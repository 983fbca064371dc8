package wire

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"fairlead.dev/internal/model"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// over is m after a journey in bytes.
func over[M proto.Message](t *testing.T, m, empty M) M {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if err := proto.Unmarshal(b, empty); err != nil {
		t.Fatal(err)
	}
	return empty
}

func TestVIPGoesThereAndBack(t *testing.T) {
	preference := uint32(0)
	for _, v := range []model.VIP{
		{
			Address: netip.MustParseAddr("192.0.2.1"), Pool: "public", Mode: model.AnnounceBGP, Listeners: []model.ListenerID{"http-80", "http-81"},
			Frontends: []model.FrontendKey{{VIP: netip.MustParseAddr("192.0.2.1"), Transport: model.UDP, Port: 53}},
			Path:      model.PathOptions{Communities: []string{"65000:1"}, LocalPreference: &preference, Prepend: 2},
		},
		{Address: netip.MustParseAddr("2001:db8::1"), Mode: model.AnnounceL2, Candidates: []string{"a", "b"}, Interfaces: []string{"eth0"}, Awaited: []string{"a"}},
	} {
		got, err := VIPOf(over(t, VIP(v, func(id model.ListenerID) string { return string(id) }), &agentv1.Vip{}))
		if err != nil || !reflect.DeepEqual(got, v) {
			t.Errorf("came back as %+v, %v; want %+v", got, err, v)
		}
	}
	if _, err := VIPOf(&agentv1.Vip{Address: []byte{1, 2, 3}}); err == nil {
		t.Error("an address of 3 bytes is taken")
	}
	if _, err := VIPOf(&agentv1.Vip{Address: []byte{192, 0, 2, 1}, Frontends: []string{"x"}}); err == nil {
		t.Error("a frontend without an address is taken")
	}
}

func TestPeerGoesThereAndBackWithoutItsPassword(t *testing.T) {
	med := uint32(7)
	p := model.Peer{
		Name: "router", Address: netip.MustParseAddr("fe80::1%eth0"), Port: 1179, LocalASN: 65001, PeerASN: 4200000000, TTL: 3, NeedsPassword: true,
		HoldTime: 9 * time.Second, Keepalive: 3 * time.Second, ConnectRetry: 10 * time.Second, BFD: &model.BFD{Interval: 300 * time.Millisecond, Multiplier: 3},
		RestartTime: 15 * time.Second, AddPath: true, IPv4: true, IPv6: true, NextHop4: netip.MustParsePrefix("192.0.2.9/32"), NextHop6: netip.MustParsePrefix("2001:db8::/64"),
		TTLSecurity: 1, Role: model.RoleCustomer, StrictRole: true, Connection: model.ConnectionBoth, Source: netip.MustParsePrefix("192.0.2.0/24"), Device: "red", EndAboveMax: true, MaxPrefixes: 10,
		Path: model.PathOptions{MED: &med},
	}
	q := p
	q.Password = "hidden"
	got, err := PeerOf("router", over(t, Peer(q), &agentv1.BgpPeer{}))
	if err != nil || !reflect.DeepEqual(got, p) {
		t.Errorf("came back as %+v, %v; want %+v", got, err, p)
	}
	if _, err := PeerOf("router", nil); err == nil {
		t.Error("a peer without an address is taken")
	}
	p.Address, p.Interface = netip.Addr{}, "eth1"
	if got, err := PeerOf("router", over(t, Peer(p), &agentv1.BgpPeer{})); err != nil || !reflect.DeepEqual(got, p) {
		t.Errorf("a peer of an interface came back as %+v, %v; want %+v", got, err, p)
	}
	p.Address = netip.MustParseAddr("fe80::1%eth1")
	if _, err := PeerOf("router", Peer(p)); err == nil {
		t.Error("a peer with an address and an interface is taken")
	}
	for _, s := range []model.Session{{Peer: "a", Interface: "eth1"}, {Peer: "a", Interface: "eth1", Address: p.Address}} {
		if got := SessionsOf(Sessions([]model.Session{s})); len(got) != 1 || got[0].Interface != s.Interface || got[0].Address != s.Address {
			t.Errorf("session %+v came back as %+v", s, got)
		}
	}
}

func TestReportsOfTheNetworkGoThereAndBack(t *testing.T) {
	since := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	sessions := []model.Session{{
		Peer: "router", Address: netip.MustParseAddr("192.0.2.254"), State: model.SessionEstablished, Reason: model.SessionUnwanted, Message: "why", Since: since,
		Flaps: 2, Panics: 4, BFD: "up", Advertised: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")}, Received: 3, LocalASN: 1, PeerASN: 2,
		RouterID: netip.MustParseAddr("192.0.2.3"), PeerID: netip.MustParseAddr("192.0.2.254"), HoldTime: 9 * time.Second,
	}, {Peer: "silent", Address: netip.MustParseAddr("2001:db8::2"), State: model.SessionActive}}
	vips := []model.VIPObserved{{Address: netip.MustParseAddr("192.0.2.1"), State: model.VIPWithheld, Message: "why", Since: since}}
	report := over(t, &agentv1.Report{Sessions: Sessions(sessions), Vips: VIPStates(vips)}, &agentv1.Report{})
	if got := SessionsOf(report.GetSessions()); !reflect.DeepEqual(got, sessions) {
		t.Errorf("came back as %+v, want %+v", got, sessions)
	}
	if got := VIPStatesOf(report.GetVips()); !reflect.DeepEqual(got, vips) {
		t.Errorf("came back as %+v, want %+v", got, vips)
	}
}

// TestReportOfAnyMessage can be written and read, whatever a peer made somebody say, and however many VIPs say it.
func TestReportOfAnyMessage(t *testing.T) {
	garbage := "it sent \xff\xfe"
	long := strings.Repeat("ä", 2000)
	report := over(t, &agentv1.Report{
		Sessions: Sessions([]model.Session{{Peer: "router", Message: garbage}}),
		Vips:     VIPStates([]model.VIPObserved{{Address: netip.MustParseAddr("192.0.2.1"), Message: garbage}, {Address: netip.MustParseAddr("192.0.2.2"), Message: long}}),
	}, &agentv1.Report{})
	if got := report.GetSessions()[0].GetMessage(); got != "it sent ?" {
		t.Errorf("the session says %q", got)
	}
	if got := report.GetVips()[0].GetMessage(); got != "it sent ?" {
		t.Errorf("the VIP says %q", got)
	}
	if got := report.GetVips()[1].GetMessage(); len(got) > maxText || !strings.HasPrefix(got, "ää") || !strings.HasSuffix(got, "ä...") {
		t.Errorf("the long message is %d bytes: %q", len(got), got)
	}
}
