package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/lab"
	"fairlead.dev/lab/rig"
	"fairlead.dev/lab/router"
)

// TestPeerOfALink has an edge find its router on an interface: on one that it lacks, on one where no router advertises
// itself, and on one where FRR does, which is told no address either. VIPs of both families come by link-local addresses.
func TestPeerOfALink(t *testing.T) {
	if err := router.FRR.Find(); err != nil {
		t.Skip(err)
	}
	s := routed(t)
	began := s.Now()
	s.kubectl(t, "delete", "bgppeer", "upstream")
	s.kubectl(t, "label", "machine", "edge-1", "leaf=one")
	t.Cleanup(func() {
		s.kubectl(t, "delete", "bgppeer", "leaf")
		s.kubectl(t, "label", "machine", "edge-1", "leaf-")
	})
	// The other edge is on the same segment: it would be another router there.
	at, _, _ := upstream.Machine().On(lab.SegmentEdges)
	peer := strings.Replace(rig.PeerManifest("leaf", upstream.Machine(), append(watched, "machines: {matchLabels: {leaf: one}}")...), "address: "+at.String(), "interface: eth0", 1)
	accepted := condition{"Accepted", "True", "Accepted", "the peer is accepted"}
	fails := func(link, reason, why string) {
		t.Helper()
		s.awaitConditions(t, "BGPPeer leaf", accepted, condition{"Established", "False", reason, "edge-1: peer leaf (interface " + link + "): " + why})
		s.awaitVIP(t, vip4, "withheld", "edge-1 withheld: no BGP session advertises it: session with leaf (…) is not established (blocked): …"+why+", edge-2 withheld: …")
		s.awaitBGP(t, "interface "+link, reason+": peer leaf (interface "+link+"): "+why)
	}
	s.apply(t, strings.Replace(peer, "eth0", "eth7", 1))
	fails("eth7", "NoLocalAddress", "this machine has no interface eth7: correct the peer's interface, or the machines that it selects")
	s.apply(t, peer)
	fails("eth0", "NoRouter", "no router advertises itself on the link: let the router send Router Advertisements there (FRR does for a neighbor with interface; BIRD with protocol radv)")

	c := s.routerConfig()
	c.Neighbors, c.Ranges = []router.Neighbor{{Interface: "eth0", Peering: c.Ranges[0].Peering}}, nil
	s.replaceUpstream(t, router.FRR, c)
	edge, theirs := linkLocal(t, s.Lab.Machine("edge-1")), linkLocal(t, upstream.Machine()).WithZone("eth0")
	s.awaitSessions(t, func(x v1.SessionStatus) error {
		if x.State != v1.SessionEstablished || x.BFD != "up" || x.Address != theirs || x.Interface != "eth0" {
			return fmt.Errorf("%s to %s at %s, interface %s, is %s, BFD %s: %s", x.Machine, x.Peer, x.Address, x.Interface, x.State, x.BFD, x.Message)
		}
		return nil
	}, "edge-1")
	for _, vip := range []netip.Addr{vip4, vip6} {
		s.await(t, fmt.Sprintf("the router to have %s over %s", vip, edge), func(ctx context.Context) error {
			got, err := upstream.Routes(ctx, netip.PrefixFrom(vip, vip.BitLen()))
			if err == nil && !slices.Equal(got, []netip.Addr{edge}) {
				return fmt.Errorf("it has it over %v", got)
			}
			return err
		})
		s.awaitAnswerOf(t, "the way to "+vip.String(), request{at: vip, host: vipHost}, 200, "os1-a", "os1-b")
	}
	s.awaitConditions(t, "BGPPeer leaf", accepted, condition{"Established", "True", "Established", "sessions with edge-1"})
	s.awaitBGP(t, theirs.String(), "established", "203.0.113.16/32  edge-1 to leaf", "2001:db8:77::10/128  edge-1 to leaf")
	t.Logf("it took %s", s.Now().Sub(began))
}

// linkLocal is a machine's link-local address on its first segment.
func linkLocal(t *testing.T, m *lab.Machine) netip.Addr {
	t.Helper()
	h, err := m.Netlink()
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	eth0, err := h.LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	list, err := h.AddrList(eth0, netlink.FAMILY_V6)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range list {
		if own, ok := netip.AddrFromSlice(a.IP); ok && own.IsLinkLocalUnicast() {
			return own
		}
	}
	t.Fatalf("%s has no link-local address", m.Name())
	return netip.Addr{}
}
