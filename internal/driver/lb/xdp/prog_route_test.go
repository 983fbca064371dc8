package xdp

import (
	"bytes"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Next hops that the agent has not resolved: the kernel's routes are asked, and where a
// neighbour is not known the kernel gets the packet to send.
func TestProgAsksTheKernel(t *testing.T) {
	needsRoot(t)
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	must(t, unix.Unshare(unix.CLONE_NEWNET))
	for path, value := range map[string]string{
		"ipv6/conf/default/disable_ipv6": "0", "ipv6/conf/all/disable_ipv6": "0", "ipv4/conf/lo/forwarding": "1", "ipv6/conf/lo/forwarding": "1",
	} {
		must(t, os.WriteFile("/proc/sys/net/"+path, []byte(value), 0))
	}
	must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "out", HardwareAddr: outLink, MTU: 1400}, PeerName: "far"}))
	var out netlink.Link
	for _, name := range []string{"lo", "far", "out"} {
		link, err := netlink.LinkByName(name)
		must(t, err)
		must(t, netlink.LinkSetUp(link))
		out = link
	}
	for address, neighbour := range map[string]string{"10.0.1.100/24": "10.0.1.1", "2001:db8:b::100/64": "2001:db8:b::1"} {
		ip, network, err := net.ParseCIDR(address)
		must(t, err)
		must(t, netlink.AddrAdd(out, &netlink.Addr{IPNet: &net.IPNet{IP: ip, Mask: network.Mask}, Flags: unix.IFA_F_NODAD}))
		must(t, netlink.NeighAdd(&netlink.Neigh{LinkIndex: out.Attrs().Index, IP: net.ParseIP(neighbour), State: unix.NUD_PERMANENT, HardwareAddr: hopLink}))
	}
	w := newLB(t)
	w.hop = bpfNextHop{}
	w.setHop()
	for _, c := range []struct {
		to     string
		mode   bpfMode
		remote string
		source string
	}{
		{"tcp://192.0.2.1:80", bpfModeMODE_IPIP, "10.0.1.1", "10.0.0.1"},
		{"tcp://192.0.2.1:81", bpfModeMODE_GENEVE, "2001:db8:b::1", "2001:db8:a::1"},
	} {
		f := w.serve(c.to, c.mode, c.remote)
		if e := w.goes(from(cli4, c.to, "S").bytes(), f.servers[0]); e.source.String() != c.source {
			t.Errorf("from %v, want %s", e.source, c.source)
		}
		verdict, _ := w.run(w.Balance, fill(from(cli4, c.to, "S"), 1400).bytes())
		if verdict != xdpRedirect || w.dropped(bpfReasonREASON_TOO_BIG) == 0 {
			t.Errorf("verdict %d of what is larger than the route's MTU; dropped: %v", verdict, w.reasons())
		}
	}
	unknown := w.serve("tcp://192.0.2.1:82", bpfModeMODE_IPIP, "10.0.1.2")
	packet := from(cli4, "tcp://192.0.2.1:82", "S").bytes()
	verdict, sent := w.run(w.Balance, packet)
	e, err := unwrap(sent[8:]) // behind what tells tunnel_in the device
	if verdict != xdpPass || err != nil || e.to != netip.MustParseAddr("10.0.1.2") || !bytes.Equal(e.inside, hopped(inner(packet))) {
		t.Errorf("without a neighbour: verdict %d, %v, %+v", verdict, err, e)
	}
	if n := w.sent(unknown.servers[0]).Packets; n != 1 {
		t.Errorf("%d packets counted", n)
	}
	w.serve("tcp://192.0.2.1:83", bpfModeMODE_IPIP, "172.16.0.1")
	w.dropsAs(from(cli4, "tcp://192.0.2.1:83", "S").bytes(), bpfReasonREASON_NO_ROUTE)
}
