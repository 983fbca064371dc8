package router

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.dev/lab"
)

// What the kernel says of a connection's path is where its packets go.
func TestPathsAreThoseOfPackets(t *testing.T) {
	root(t)
	topology := lab.RoutedTopology(fmt.Sprintf("paths-%d", os.Getpid()))
	l, err := lab.Up(t.Context(), topology, lab.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Down(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	edges := l.Machines(lab.RoleEdge)
	m := l.Machine("router")
	h, err := m.Netlink()
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	for _, vip := range vips {
		to := &net.IPNet{IP: vip.Addr().AsSlice(), Mask: net.CIDRMask(vip.Bits(), vip.Bits())}
		route := &netlink.Route{Dst: to}
		for _, e := range edges {
			gateway := e.Addr4()
			if vip.Addr().Is6() {
				gateway = e.Addr6()
			}
			route.MultiPath = append(route.MultiPath, &netlink.NexthopInfo{LinkIndex: linkOf(t, h, m.Addr4()), Gw: gateway.AsSlice()})
			eh, err := e.Netlink()
			if err != nil {
				t.Fatal(err)
			}
			lo, err := eh.LinkByName("lo")
			if err == nil {
				err = eh.AddrAdd(lo, &netlink.Addr{IPNet: to, Flags: unix.IFA_F_NODAD})
			}
			eh.Close()
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := h.RouteAdd(route); err != nil {
			t.Fatal(err)
		}
	}
	accepted := make(chan string, 1)
	for _, vip := range vips {
		for _, e := range edges {
			listener, err := e.Listen(t.Context(), "tcp", netip.AddrPortFrom(vip.Addr(), 80).String())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = listener.Close() }()
			go func() {
				for {
					c, err := listener.Accept()
					if err != nil {
						return
					}
					accepted <- e.Name()
					_ = c.Close()
				}
			}()
		}
	}
	p, err := (&Router{machine: m}).Paths(lab.SegmentClients)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for _, vip := range vips {
		to := netip.AddrPortFrom(vip.Addr(), 80)
		wrong, seen := 0, map[string]int{}
		for range 32 {
			c, err := l.Machine("client").Dial(t.Context(), "tcp", to.String())
			if err != nil {
				t.Fatal(err)
			}
			hop, err := p.Next(t.Context(), c.LocalAddr().(*net.TCPAddr).AddrPort(), to)
			if err != nil {
				t.Fatal(err)
			}
			select {
			case name := <-accepted:
				seen[name]++
				if e := l.Machine(name); hop != e.Addr4() && hop != e.Addr6() {
					wrong++
				}
			case <-time.After(30 * time.Second):
				t.Fatal("no edge accepted")
			}
			_ = c.Close()
		}
		if wrong > 0 || len(seen) != len(edges) {
			t.Errorf("%s: %d of 32 connections went elsewhere than the kernel says; edges accepted %v", to, wrong, seen)
		}
	}
}

func linkOf(t *testing.T, h *netlink.Handle, a netip.Addr) int {
	t.Helper()
	addrs, err := h.AddrList(nil, netlink.FAMILY_V4)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range addrs {
		if x.IP.Equal(a.AsSlice()) {
			return x.LinkIndex
		}
	}
	t.Fatalf("no link has %s", a)
	return 0
}
