package address

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// inMachine gives the test a network namespace with lo up and an eth0 that has
// 192.0.2.9 and 2001:db8::9. It ends with the test's thread.
func inMachine(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes network namespaces")
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	must(t, unix.Unshare(unix.CLONE_NEWNET))
	for _, s := range []string{"all", "default"} {
		must(t, os.WriteFile("/proc/sys/net/ipv6/conf/"+s+"/disable_ipv6", []byte("0"), 0))
	}
	lo, err := netlink.LinkByName("lo")
	must(t, err)
	must(t, netlink.LinkSetUp(lo))
	eth0 := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "far"}
	must(t, netlink.LinkAdd(eth0))
	must(t, netlink.LinkSetUp(eth0))
	for _, s := range []string{"192.0.2.9/24", "2001:db8::9/64"} {
		a, err := netlink.ParseAddr(s)
		must(t, err)
		a.Flags = unix.IFA_F_NODAD
		must(t, netlink.AddrAdd(eth0, a))
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func holder(t *testing.T) *Holder {
	t.Helper()
	h, err := New(slog.New(slog.DiscardHandler))
	must(t, err)
	return h
}

// onLo lists the addresses that the kernel has on lo, sorted, without 127.0.0.1 and ::1.
func onLo(t *testing.T) string {
	t.Helper()
	lo, err := netlink.LinkByName("lo")
	must(t, err)
	addrs, err := netlink.AddrList(lo, netlink.FAMILY_ALL)
	must(t, err)
	var s []string
	for _, a := range addrs {
		if !a.IP.IsLoopback() {
			s = append(s, a.IPNet.String())
		}
	}
	slices.Sort(s)
	return strings.Join(s, " ")
}

func addrs(s ...string) []netip.Addr {
	var as []netip.Addr
	for _, a := range s {
		as = append(as, netip.MustParseAddr(a))
	}
	return as
}

func expect(t *testing.T, want string) {
	t.Helper()
	if got := onLo(t); got != want {
		t.Fatalf("lo has %q, want %q", got, want)
	}
}

func TestSetAddsAndRemovesItsOwn(t *testing.T) {
	inMachine(t)
	lo, err := netlink.LinkByName("lo")
	must(t, err)
	theirs, err := netlink.ParseAddr("198.51.100.1/32")
	must(t, err)
	must(t, netlink.AddrAdd(lo, theirs))

	h := holder(t)
	for range 2 {
		must(t, h.Set(addrs("192.0.2.50", "2001:db8::50", "192.0.2.51")))
		expect(t, "192.0.2.50/32 192.0.2.51/32 198.51.100.1/32 2001:db8::50/128")
	}
	must(t, h.Set(addrs("2001:db8::50", "2001:db8::51")))
	expect(t, "198.51.100.1/32 2001:db8::50/128 2001:db8::51/128")

	must(t, netlink.AddrDel(lo, &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP("2001:db8::50"), Mask: net.CIDRMask(128, 128)}}))
	must(t, h.Set(addrs("2001:db8::50")))
	expect(t, "198.51.100.1/32 2001:db8::50/128")
	must(t, h.Close(false))
	expect(t, "198.51.100.1/32")
}

func TestSocketsTakeHeldAddresses(t *testing.T) {
	inMachine(t)
	h := holder(t)
	must(t, h.Set(addrs("192.0.2.50", "2001:db8::50")))
	l, err := net.Listen("tcp", "[::]:0")
	must(t, err)
	defer func() { _ = l.Close() }()
	_, port, err := net.SplitHostPort(l.Addr().String())
	must(t, err)
	for _, a := range []string{"192.0.2.50", "2001:db8::50"} {
		// An address that has just come may take the kernel a moment.
		var c net.Conn
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			if c, err = net.Dial("tcp", net.JoinHostPort(a, port)); err == nil || time.Now().After(deadline) {
				break
			}
		}
		must(t, err)
		_ = c.Close()
	}
	// A connection to elsewhere does not come from a VIP.
	for to, from := range map[string]string{"192.0.2.77": "192.0.2.9", "2001:db8::77": "2001:db8::9"} {
		c, err := net.Dial("udp", net.JoinHostPort(to, "9"))
		must(t, err)
		if got, _, _ := net.SplitHostPort(c.LocalAddr().String()); got != from {
			t.Errorf("a connection to %s comes from %s, want %s", to, got, from)
		}
		_ = c.Close()
	}
}

func TestNextAgentKnowsLeftovers(t *testing.T) {
	inMachine(t)
	first := holder(t)
	must(t, first.Set(addrs("192.0.2.50", "2001:db8::50")))
	must(t, first.Hold(netip.MustParseAddr("192.0.2.60")))
	must(t, first.Hold(netip.MustParseAddr("2001:db8::60")))
	must(t, first.Close(true))

	second := holder(t)
	expect(t, "192.0.2.50/32 192.0.2.60/32 2001:db8::50/128 2001:db8::60/128")
	must(t, second.Set(addrs("192.0.2.50"), addrs("192.0.2.60", "2001:db8::60")...))
	expect(t, "192.0.2.50/32 192.0.2.60/32 2001:db8::60/128")
	must(t, second.Hold(netip.MustParseAddr("192.0.2.60")))
	must(t, second.Release(netip.MustParseAddr("2001:db8::60")))
	must(t, second.Set(nil))
	expect(t, "192.0.2.60/32")
	must(t, second.Release(netip.MustParseAddr("192.0.2.60")))
	expect(t, "")
}

func TestHoldAndSetDoNotDisturbEachOther(t *testing.T) {
	inMachine(t)
	h := holder(t)
	a := netip.MustParseAddr("192.0.2.50")
	must(t, h.Set([]netip.Addr{a}))
	must(t, h.Hold(a))
	must(t, h.Release(a))
	expect(t, "192.0.2.50/32")
	must(t, h.Hold(a))
	must(t, h.Set(nil))
	expect(t, "192.0.2.50/32")
	must(t, h.Release(a))
	expect(t, "")
}

func TestTakenAddressNamesTheDevice(t *testing.T) {
	inMachine(t)
	h := holder(t)
	err := h.Set(addrs("192.0.2.9", "2001:db8::9", "192.0.2.50", "192.0.2.255"))
	if !errors.Is(err, ErrTaken) || strings.Count(err.Error(), "eth0 has it") != 2 || strings.Count(err.Error(), "broadcast") != 1 {
		t.Fatalf("got %v", err)
	}
	expect(t, "192.0.2.50/32")
	must(t, h.Set(nil))
	for _, bad := range addrs("0.0.0.0", "127.0.0.5", "::1", "224.0.0.1", "fe80::1", "::ffff:192.0.2.1") {
		if err := h.Hold(bad); err == nil {
			t.Errorf("%s was held", bad)
		}
	}
}

func TestIPv6OffLeavesIPv4(t *testing.T) {
	inMachine(t)
	must(t, os.WriteFile("/proc/sys/net/ipv6/conf/lo/disable_ipv6", []byte("1"), 0))
	h := holder(t)
	err := h.Set(addrs("2001:db8::50", "192.0.2.50"))
	if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "net.ipv6.conf.lo.disable_ipv6=0") {
		t.Fatalf("got %v", err)
	}
	expect(t, "192.0.2.50/32")
	if refused := h.Refused(); len(refused) != 1 || !errors.Is(refused[netip.MustParseAddr("2001:db8::50")], errors.ErrUnsupported) {
		t.Errorf("refused are %v", refused)
	}
	must(t, os.WriteFile("/proc/sys/net/ipv6/conf/lo/disable_ipv6", []byte("0"), 0))
	must(t, h.Set(addrs("2001:db8::50", "192.0.2.50")))
	expect(t, "192.0.2.50/32 2001:db8::50/128")
	if refused := h.Refused(); len(refused) > 0 {
		t.Errorf("refused are %v", refused)
	}
}

func TestSilenceChangesOnlyWhatItMust(t *testing.T) {
	inMachine(t)
	put := func(dev, name, v string) {
		t.Helper()
		must(t, os.WriteFile(Sysctls+"/ipv4/conf/"+dev+"/"+name, []byte(v), 0))
	}
	get := func(dev, name string) int {
		t.Helper()
		v, err := setting(Sysctls+"/ipv4/conf", dev, name)
		must(t, err)
		return v
	}
	put("far", "arp_ignore", "1")
	h := holder(t)
	must(t, h.Set(addrs("2001:db8::50")))
	if v := get("eth0", "arp_ignore"); v != 0 {
		t.Fatalf("arp_ignore is %d though no IPv4 address is held", v)
	}
	must(t, h.Set(addrs("192.0.2.50")))
	for dev, want := range map[string]int{"all": 0, "default": 3, "eth0": 3, "far": 1} {
		if v := get(dev, "arp_ignore"); v != want {
			t.Errorf("%s: arp_ignore is %d, want %d", dev, v, want)
		}
	}
	put("eth0", "arp_announce", "0")
	must(t, h.Set(addrs("192.0.2.50")))
	for dev, want := range map[string]int{"all": 0, "default": 2, "eth0": 2} {
		if v := get(dev, "arp_announce"); v != want {
			t.Errorf("%s: arp_announce is %d, want %d", dev, v, want)
		}
	}
}

// TestCloseOfOneThatNeverBegan leaves what another agent of the machine holds.
func TestCloseOfOneThatNeverBegan(t *testing.T) {
	inMachine(t)
	running := holder(t)
	must(t, running.Set(addrs("203.0.113.1", "2001:db8:1::1")))
	must(t, holder(t).Close(false))
	if got, want := onLo(t), "2001:db8:1::1/128 203.0.113.1/32"; got != want {
		t.Errorf("lo has %q, want %q", got, want)
	}
	must(t, running.Close(false))
	if got := onLo(t); got != "" {
		t.Errorf("lo has %q, want nothing", got)
	}
}

// TestKubeProxyHasItToo holds VIPs that kube-proxy in IPVS mode has on its device, which was
// first, and leaves that device alone.
func TestKubeProxyHasItToo(t *testing.T) {
	inMachine(t)
	vips := addrs("203.0.113.1", "2001:db8:1::1")
	// Down, as kube-proxy leaves it. It makes a dummy, which not every kernel of tests has.
	dummy := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "kube-ipvs0"}, PeerName: "kube-peer"}
	must(t, netlink.LinkAdd(dummy))
	their := func(a netip.Addr) *netlink.Addr {
		return &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}}
	}
	onDummy := func() int {
		t.Helper()
		n := 0
		for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
			list, err := netlink.AddrList(dummy, family)
			must(t, err)
			n += len(list)
		}
		return n
	}
	for _, a := range vips {
		must(t, netlink.AddrAdd(dummy, their(a)))
	}
	h := holder(t)
	for range 2 {
		must(t, h.Set(vips))
		expect(t, "2001:db8:1::1/128 203.0.113.1/32")
	}
	if refused := h.Refused(); len(refused) > 0 {
		t.Errorf("refused are %v", refused)
	}
	must(t, h.Set(nil))
	expect(t, "")
	if n := onDummy(); n != 2 || !local(vips[0]) {
		t.Fatalf("kube-proxy's device has %d addresses, want 2; the kernel takes %s in: %v", n, vips[0], local(vips[0]))
	}
	for _, a := range vips {
		must(t, h.Hold(a))
	}
	expect(t, "2001:db8:1::1/128 203.0.113.1/32")
	for _, a := range vips {
		must(t, netlink.AddrDel(dummy, their(a)))
		// The route of an IPv6 address comes a moment after it.
		for deadline := time.Now().Add(30 * time.Second); !local(a); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s is not taken in any more", a)
			}
		}
	}
	must(t, h.Set(vips))
	expect(t, "2001:db8:1::1/128 203.0.113.1/32")
	for _, a := range vips { // kube-proxy comes second
		must(t, netlink.AddrAdd(dummy, their(a)))
		must(t, h.Release(a))
	}
	must(t, h.Set(vips))
	must(t, h.Set(nil))
	if n := onDummy(); n != 2 {
		t.Errorf("kube-proxy's device has %d addresses, want 2", n)
	}

	// An address that another device has, too, is taken all the same.
	eth0, err := netlink.LinkByName("eth0")
	must(t, err)
	must(t, netlink.AddrAdd(eth0, their(vips[0])))
	if err := h.Set(vips[:1]); !errors.Is(err, ErrTaken) || !strings.Contains(err.Error(), "eth0 has it") {
		t.Errorf("got %v", err)
	}
}
