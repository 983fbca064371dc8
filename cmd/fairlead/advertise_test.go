package main

import (
	"log/slog"
	"os"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A machine holds VIPs on lo, which comes first of its interfaces. A plane that starts
// there is reached at an address of the machine.
func TestAdvertisedIsNoVIP(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes network namespaces")
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(unix.Unshare(unix.CLONE_NEWNET))
	set := func(link netlink.Link, text string, scope int) {
		t.Helper()
		a, err := netlink.ParseAddr(text)
		must(err)
		a.Scope = scope
		must(netlink.AddrAdd(link, a))
	}
	is := func(want string) {
		t.Helper()
		if got, err := (&planeFlags{}).advertised(slog.New(slog.DiscardHandler)); err != nil || got.String() != want {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	}
	lo, err := netlink.LinkByName("lo")
	must(err)
	must(netlink.LinkSetUp(lo))
	set(lo, "192.0.2.80/32", unix.RT_SCOPE_HOST) // as the driver of addresses does
	is("127.0.0.1")

	link := func(name string) netlink.Link {
		t.Helper()
		must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name + "far"}))
		l, err := netlink.LinkByName(name)
		must(err)
		far, err := netlink.LinkByName(name + "far")
		must(err)
		must(netlink.LinkSetUp(l))
		must(netlink.LinkSetUp(far))
		return l
	}
	set(link("bridge0"), "10.1.0.1/24", unix.RT_SCOPE_UNIVERSE)
	is("10.1.0.1")
	out := link("out0")
	set(out, "10.2.0.1/24", unix.RT_SCOPE_UNIVERSE)
	is("10.1.0.1") // nothing says more of one than of the other
	must(netlink.RouteAdd(&netlink.Route{LinkIndex: out.Attrs().Index, Gw: []byte{10, 2, 0, 254}}))
	is("10.2.0.1")
}
