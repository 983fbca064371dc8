package bgp

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.dev/internal/model"
	"fairlead.dev/lab"
	"fairlead.dev/lab/uml"
)

// vrfModules of user-mode Linux: what a lab is made of, VRFs, and what a netlink handle of all families asks for.
var vrfModules = []string{"ipv6", "veth", "bridge", "vrf", "xfrm_user", "nfnetlink"}

var vrfCases = []struct {
	name string
	run  func(*site)
}{
	{"unnumbered", vrfUnnumbered},
	{"link-local", vrfLinkLocal},
	{"address", vrfAddress},
}

// TestVRFs holds the speaker against a real router on a link that is in a VRF of the machine. It runs here if this kernel
// has VRFs, else in user-mode Linux.
func TestVRFs(t *testing.T) {
	if err := lab.Supported(); err != nil {
		t.Skip("needs root: ", err)
	}
	if exec.Command("unshare", "--net", "ip", "link", "add", "probe", "type", "vrf", "table", "10").Run() == nil {
		vrfs(t)
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), 9*time.Minute)
	defer cancel()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	status, err := uml.Run(ctx, uml.Options{
		Binary: binary, Args: []string{"-test.v", "-test.run=^TestVRFs$", "-test.timeout=8m"}, Modules: vrfModules, Dir: t.TempDir(),
		Line: func(line string) { t.Log(line); lines = append(lines, line) },
	})
	if errors.Is(err, uml.ErrMissing) {
		t.Skip(err)
	}
	if err != nil || status != 0 {
		t.Fatalf("in user-mode Linux the test ended with %d: %v", status, err)
	}
	for _, c := range vrfCases {
		passed := "--- PASS: TestVRFs/bird/" + c.name + " "
		if !slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, passed) }) {
			t.Errorf("in user-mode Linux %s did not run", c.name)
		}
	}
}

func vrfs(t *testing.T) {
	beside(t, map[string]router{"bird": &bird{}}, func(t *testing.T, _ string, s site) {
		s.T = t
		for _, name := range []string{"red", "blue"} {
			s.ip(s.edge, "ip", "link", "add", name, "type", "vrf", "table", map[string]string{"red": "10", "blue": "11"}[name])
			s.ip(s.edge, "ip", "link", "set", name, "up")
		}
		s.ip(s.edge, "ip", "link", "set", "eth0", "master", "red")
		for _, c := range vrfCases {
			t.Run(c.name, func(t *testing.T) {
				forget(t, s.box)
				s := s
				s.T = t
				c.run(&s)
			})
		}
	})
}

// inVRF are both ends of a session that is watched and bound to the VRF of the link.
func (s *site) inVRF() (neighbour, model.Peer) {
	n, p := s.neighbour(), s.peer()
	n.bfd, p.BFD = true, &model.BFD{Interval: 300 * time.Millisecond, Multiplier: 3}
	p.Device = "red"
	return n, p
}

func vrfUnnumbered(s *site) {
	n, p := s.inVRF()
	n.unnumbered, n.link, n.nextHop6, n.address, n.local = true, "eth0", true, "eth0", ""
	p.Address, p.Interface = netip.Addr{}, "eth0"
	s.start(s.T, s.box, n)
	w := speaking(p, route4, route6)
	w.RouterID = s.edge.Addr4()
	c := startChild(s.T, s.edge, w)
	c.watched()
	for _, route := range []string{route4, route6} {
		s.viaLink(route, s.linkLocalOf(s.edge))
	}
	// The link is in another VRF than is said.
	w.Peers[0].Device = "blue"
	c.set(w)
	x := c.until("told that the link is not in the VRF", func(x model.Session) bool {
		return x.State != model.SessionEstablished && x.Reason == model.SessionNoLocalAddress
	})
	if !strings.Contains(x.Message, "the interface eth0 is not in the VRF blue: add it to the VRF, or correct the peer's vrf") {
		s.Errorf("the message is %q", x.Message)
	}
	w.Peers[0].Device = "" // the link decides
	c.set(w)
	c.watched()
	s.viaLink(route4, s.linkLocalOf(s.edge))
}

func vrfLinkLocal(s *site) {
	n, p := s.inVRF()
	n.address, n.local = s.linkLocalOf(s.edge), s.linkLocalOf(s.box)
	n.link, p.Address = "eth0", netip.MustParseAddr(n.local).WithZone("eth0")
	n.connects, p.Connection = true, model.ConnectionPassive
	s.start(s.T, s.box, n)
	startChild(s.T, s.edge, speaking(p, route4)).watched()
	s.has(route4, s.edge.Addr4().String())
}

// BFD goes on over a restart in a VRF, too.
func vrfAddress(s *site) {
	n, p := s.inVRF()
	n.connects, p.Connection = true, model.ConnectionBoth
	n.restart, p.RestartTime = true, 2*time.Minute
	n.packets, p.BFD.Multiplier = steadyPackets, steadyPackets
	s.start(s.T, s.box, n)
	dir := s.TempDir()
	c := startChildIn(s.T, s.edge, speaking(p, route4), dir)
	c.watched()
	s.has(route4, s.edge.Addr4().String())
	before, events := s.bfd(s.T), s.monitor()
	c.stop("leave")
	startChildIn(s.T, s.edge, speaking(p, route4), dir).watched()
	s.has(route4, s.edge.Addr4().String())
	s.unmoved(events)
	if after := s.bfd(s.T); bfdChanged(before, after) {
		s.Errorf("the router's BFD session was %q and is %q: it noticed", before, after)
	}
}
