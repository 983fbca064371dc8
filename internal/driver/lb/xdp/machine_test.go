package xdp

import (
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.dev/internal/model"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// inMachine gives the test a network namespace, whose eth0 has 192.0.2.1 and 2001:db8::1.
// It ends with the test's thread.
func inMachine(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes network namespaces and loads programs")
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	must(t, unix.Unshare(unix.CLONE_NEWNET))
	for _, s := range []string{"all", "default"} {
		must(t, os.WriteFile("/proc/sys/net/ipv6/conf/"+s+"/disable_ipv6", []byte("0"), 0))
	}
	lo, err := netlink.LinkByName("lo")
	must(t, err)
	must(t, netlink.LinkSetUp(lo))
	eth0 := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0", HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 1}}, PeerName: "far"}
	must(t, netlink.LinkAdd(eth0))
	far, err := netlink.LinkByName("far")
	must(t, err)
	must(t, netlink.LinkSetUp(far))
	must(t, netlink.LinkSetUp(eth0))
	for _, s := range []string{"192.0.2.1/24", "2001:db8::1/64"} {
		a, err := netlink.ParseAddr(s)
		must(t, err)
		a.Flags = unix.IFA_F_NODAD
		must(t, netlink.AddrAdd(eth0, a))
	}
	for i, s := range []string{"192.0.2.2", "192.0.2.3", "192.0.2.4", "2001:db8::2"} {
		must(t, netlink.NeighAdd(&netlink.Neigh{
			LinkIndex: eth0.Attrs().Index, IP: net.ParseIP(s), State: unix.NUD_PERMANENT, HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, byte(i + 2)},
		}))
	}
}

var smallSizes = Sizes{
	Frontends: 64, Backends: 256, Rows: 1 << 16, NextHops: 64, Sources: 64, Flows: 4096, Fresh: 1024, NAT: 1024, Owned: 1024, Fragments: 64, Affinity: 64,
}

func newPlane(t testing.TB, dir string) *DataPlane {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	if testing.Verbose() {
		log = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	d, err := New(Config{Dir: dir, Interfaces: []string{"eth0"}, Sizes: smallSizes, Log: log})
	must(t, err)
	return d
}

// nodes are m1, which is this machine, and others at 192.0.2.2 and so on.
func nodes(names ...string) map[string]*model.Node {
	all := map[string]*model.Node{}
	for i, name := range names {
		all[name] = &model.Node{Name: name, Tunnel4: netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)}), Decaps: true}
	}
	return all
}

func frontendKey(t testing.TB, text string) model.FrontendKey {
	t.Helper()
	k, err := model.ParseFrontend(text)
	must(t, err)
	return k
}
