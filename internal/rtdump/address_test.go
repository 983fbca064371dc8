package rtdump

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

var errInterrupted = fmt.Errorf("list interfaces: %w", netlink.ErrDumpInterrupted)

// TestAddressesStayWhileTheyCannotBeRead, whatever part of a list came.
func TestAddressesStayWhileTheyCannotBeRead(t *testing.T) {
	uplink := Address{Addr: netip.MustParseAddr("192.0.2.1"), Interface: "eth0", Up: true}
	bridge := Address{Addr: netip.MustParseAddr("10.1.0.1"), Interface: "cni0", Up: true}
	var now []Address
	var fails error
	a := &Addresses{read: func() ([]Address, error) { return now, fails }}
	is := func(when string, want ...Address) {
		t.Helper()
		list, err := a.List()
		if !slices.Equal(list, want) || !errors.Is(err, fails) {
			t.Errorf("%s: %v, %v; want %v", when, list, err, want)
		}
		reachable, err := a.Reachable()
		if len(reachable) != len(want) || !errors.Is(err, fails) {
			t.Errorf("%s: reachable by %v, %v", when, reachable, err)
		}
	}
	now = []Address{uplink, bridge}
	is("at first", uplink, bridge)
	for _, fails = range []error{errInterrupted, unix.EMFILE} {
		now = []Address{bridge}
		is("a list without the uplink", uplink, bridge)
		now = nil
		is("no list", uplink, bridge)
	}
	now, fails = []Address{uplink}, nil
	is("when one has gone", uplink)
	now = nil
	is("when all have gone")
}

// TestAddressesBeginWithAList: there is always one to fall back on.
func TestAddressesBeginWithAList(t *testing.T) {
	own := []Address{{Addr: netip.MustParseAddr("192.0.2.1"), Interface: "eth0", Up: true}}
	calls := 0
	a := &Addresses{read: func() ([]Address, error) {
		if calls++; calls < 3 {
			return nil, errInterrupted
		}
		return own, nil
	}}
	if err := a.begin(time.Now().Add(time.Hour)); err != nil || calls != 3 {
		t.Errorf("%v after %d calls", err, calls)
	}
	for err, limit := range map[error]time.Time{unix.EPERM: time.Now().Add(time.Hour), errInterrupted: {}} {
		a = &Addresses{read: func() ([]Address, error) { return nil, err }}
		if got := a.begin(limit); !errors.Is(got, err) {
			t.Errorf("%v, want %v", got, err)
		}
	}
}

// TestAddressesAreRead from the kernel, by interface, with what tells them apart.
func TestAddressesAreRead(t *testing.T) {
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
	add := func(name, text string, scope, flags int) {
		t.Helper()
		link, err := netlink.LinkByName(name)
		must(err)
		a, err := netlink.ParseAddr(text)
		must(err)
		a.Scope, a.Flags = scope, flags|unix.IFA_F_NODAD
		must(netlink.AddrAdd(link, a))
	}
	must(netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "down0"}}))
	must(netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "eth0", Flags: net.FlagUp}}))
	lo, err := netlink.LinkByName("lo")
	must(err)
	must(netlink.LinkSetUp(lo))
	add("eth0", "192.0.2.1/24", unix.RT_SCOPE_UNIVERSE, 0)
	add("eth0", "192.0.2.2/24", unix.RT_SCOPE_UNIVERSE, 0) // a secondary one
	add("eth0", "2001:db8::1/64", unix.RT_SCOPE_UNIVERSE, 0)
	add("down0", "10.0.0.1/24", unix.RT_SCOPE_UNIVERSE, 0)
	add("lo", "198.51.100.1/32", unix.RT_SCOPE_HOST, 0)
	a, err := NewAddresses()
	must(err)
	list, err := a.List()
	must(err)
	list = slices.DeleteFunc(slices.Clone(list), func(a Address) bool { return a.Addr.IsLoopback() || a.Addr.IsLinkLocalUnicast() })
	want := []Address{
		{Addr: netip.MustParseAddr("198.51.100.1"), Interface: "lo", Up: true, Loopback: true, HostScope: true},
		{Addr: netip.MustParseAddr("10.0.0.1"), Interface: "down0"},
		{Addr: netip.MustParseAddr("192.0.2.1"), Interface: "eth0", Up: true},
		{Addr: netip.MustParseAddr("192.0.2.2"), Interface: "eth0", Up: true},
		{Addr: netip.MustParseAddr("2001:db8::1"), Interface: "eth0", Up: true},
	}
	if !slices.Equal(list, want) {
		t.Errorf("listed:\n%+v\nwant:\n%+v", list, want)
	}
	reachable, err := a.Reachable()
	must(err)
	if got := fmt.Sprint(reachable); got != "[192.0.2.1 192.0.2.2 2001:db8::1]" {
		t.Errorf("reachable by %s", got)
	}
}

// TestUnstableAddresses: only IPv6 has the flags of them.
func TestUnstableAddresses(t *testing.T) {
	eth0 := []netlink.Link{&netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: "eth0", Index: 2}}}
	held := func(text string, flags int) netlink.Addr {
		a, err := netlink.ParseAddr(text)
		if err != nil {
			t.Fatal(err)
		}
		a.LinkIndex, a.Flags = 2, flags
		return *a
	}
	gone := held("2001:db8::9/64", 0)
	gone.LinkIndex = 3
	list := joined([]netlink.Addr{
		held("2001:db8::1/64", 0), held("2001:db8::2/64", unix.IFA_F_TEMPORARY), held("2001:db8::3/64", unix.IFA_F_TENTATIVE),
		held("192.0.2.2/24", unix.IFA_F_SECONDARY), gone,
		{LinkIndex: 2},
	}, eth0)
	var got []string
	for _, a := range list {
		got = append(got, fmt.Sprint(a.Addr, " ", a.Unstable))
	}
	want := []string{"2001:db8::1 false", "2001:db8::2 true", "2001:db8::3 true", "192.0.2.2 false"}
	if !slices.Equal(got, want) {
		t.Errorf("unstable are %v, want %v", got, want)
	}
}
