package bgp

import (
	"os"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A machine holds VIPs on lo that it does not advertise now, as all others of the pool do: two machines that took one
// for their router id would look like one to a router.
func TestRouterIDIsNoVIP(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes network namespaces")
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	add := func(text string, scope int) {
		a, err := netlink.ParseAddr(text)
		if err != nil {
			t.Fatal(err)
		}
		a.Scope = scope
		if err := netlink.AddrAdd(lo, a); err != nil {
			t.Fatal(err)
		}
	}
	add("10.0.0.1/32", unix.RT_SCOPE_HOST) // as the driver of addresses does
	add("192.0.2.9/32", unix.RT_SCOPE_UNIVERSE)
	if got := New(Config{}).identify(Speaking{Machine: "edge-1"}); got.String() != "192.0.2.9" {
		t.Errorf("chose %s, want 192.0.2.9", got)
	}
}
