package xdp

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"fairlead.dev/internal/model"
	"fairlead.dev/lab"
)

// inside runs f on a thread in a machine's network namespace.
func inside(m *lab.Machine, f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		done <- func() error {
			fd, err := unix.Open(m.Namespace(), unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer func() { _ = unix.Close(fd) }()
			if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
				return err
			}
			return f()
		}()
	}()
	return <-done
}

// hardware is the link address of a machine's first interface.
func hardware(t *testing.T, m *lab.Machine) (a net.HardwareAddr) {
	t.Helper()
	must(t, inside(m, func() error {
		l, err := netlink.LinkByName("eth0")
		if err == nil {
			a = l.Attrs().HardwareAddr
		}
		return err
	}))
	return a
}

// sender sends frames from a machine's first interface, with its link address as source: the
// segment learns where addresses are.
func sender(t *testing.T, m *lab.Machine) func(frame []byte) {
	t.Helper()
	var fd int
	var to unix.SockaddrLinklayer
	own := hardware(t, m)
	must(t, inside(m, func() (err error) {
		l, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		to.Ifindex = l.Attrs().Index
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		return err
	}))
	t.Cleanup(func() { _ = unix.Close(fd) })
	return func(frame []byte) {
		t.Helper()
		copy(frame[6:], own)
		must(t, unix.Sendto(fd, frame, 0, &to))
	}
}

// add sets another frontend, with the machines given as backends.
func (s *site) add(f model.Frontend, port uint16, on ...*lab.Machine) {
	f.Machines, f.Drain = []string{"lb1", "lb2"}, time.Minute
	b := &model.Balanced{Frontend: &f}
	for _, m := range on {
		b.Backends = append(b.Backends, model.FrontendBackend{Address: netip.AddrPortFrom(addressOf(m, f.VIP), port), Machine: m.Name(), Weight: 100, HopWeight: 100})
	}
	s.frontends[f.String()] = b
	for _, x := range append(slices.Clone(s.bes), s.lbs...) {
		s.tell(x)
	}
}

// What a machine serves at all its addresses is not there at a VIP that is guarded, and is at
// its own.
func TestGuardKeepsOthersServersAway(t *testing.T) {
	s := newSite(t)
	s.spread(s.lbs[0])
	for _, port := range []string{"2222", "2223"} { // that of an operator, and that of a proxy
		l, err := s.lbs[0].m.Listen(t.Context(), "tcp", ":"+port)
		must(t, err)
		defer func() { _ = l.Close() }()
	}
	connects := func(a netip.Addr, port uint16) error {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		c, err := s.client.Dial(ctx, "tcp", netip.AddrPortFrom(a, port).String())
		if err == nil {
			_ = c.Close()
		}
		return err
	}
	s.put(model.ModeDSRGeneve, 100, 100)
	s.settled()
	for _, vip := range []netip.Addr{vip4, vip6} {
		must(t, connects(vip, 2222))
	}
	s.guarded = map[netip.Addr][]model.FrontendKey{}
	for _, vip := range []netip.Addr{vip4, vip6} {
		s.guarded[vip] = []model.FrontendKey{{VIP: vip, Transport: model.TCP, Port: 2223}}
	}
	s.put(model.ModeDSRGeneve, 100, 100)
	for _, vip := range []netip.Addr{vip4, vip6} {
		before := s.lbs[0].tell(order{}).Drops["no-frontend"]
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			c, err := s.client.Dial(ctx, "tcp", netip.AddrPortFrom(vip, 2222).String())
			if err == nil {
				_ = c.Close()
			}
			ended <- err
		}()
		s.until(s.lbs[0], order{}, "a packet is kept out", func(r report) bool { return r.Drops["no-frontend"] > before })
		cancel()
		if err := <-ended; err == nil {
			t.Errorf("a server at all addresses of the machine is reached at %s", vip)
		}
		must(t, connects(vip, 2223))
		must(t, connects(addressOf(s.lbs[0].m, vip), 2222))
		if _, _, err := s.get(s.client.HTTPClient(), vip, "/"); err != nil {
			t.Errorf("the frontend at %s: %v\n%s", vip, err, s.state())
		}
		// What the machine begins itself from the VIP has its answers: by the load balancer that
		// has the address, over the same interface.
		c := &http.Client{Transport: &http.Transport{DialContext: func(_ context.Context, network, address string) (c net.Conn, err error) {
			err = inside(s.lbs[0].m, func() error {
				d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(vip, 0)), Timeout: 20 * time.Second}
				c, err = d.Dial(network, address)
				return err
			})
			return c, err
		}}}
		s.routeBack(vip)
		answer, err := c.Post("http://"+netip.AddrPortFrom(addressOf(s.bes[0].m, vip), 8080).String()+"/", "text/plain", strings.NewReader("who"))
		must(t, err)
		body, err := io.ReadAll(answer.Body)
		must(t, err)
		_ = answer.Body.Close()
		if !strings.HasPrefix(string(body), "be1 ") || !strings.Contains(string(body), vip.String()) {
			t.Errorf("from %s: be1 answers %q", vip, body)
		}
		c.CloseIdleConnections()
	}
}

// routeBack has be1 send to a VIP through the first load balancer.
func (s *site) routeBack(vip netip.Addr) {
	s.Helper()
	h, err := s.bes[0].m.Netlink()
	must(s.T, err)
	defer h.Close()
	must(s.T, h.RouteReplace(&netlink.Route{Dst: host(vip), Gw: addressOf(s.lbs[0].m, vip).AsSlice()}))
}

// Traceroute sees the load balancer on the way to a VIP.
func TestLoadBalancerIsAHop(t *testing.T) {
	s := newSite(t)
	s.spread(s.lbs[0])
	s.put(model.ModeDSRGeneve, 100)
	s.settled()
	for _, vip := range []netip.Addr{vip4, vip6} {
		s.add(model.Frontend{FrontendKey: model.FrontendKey{VIP: vip, Transport: model.UDP, Port: 53}, Mode: model.ModeDSRGeneve}, 53, s.bes[0].m)
		network := map[bool]string{true: "ip4:icmp", false: "ip6:ipv6-icmp"}[vip.Is4()]
		errors, err := s.client.ListenPacket(t.Context(), network, addressOf(s.client, vip).String())
		must(t, err)
		defer func() { _ = errors.Close() }()
		c, err := s.client.ListenPacket(t.Context(), "udp", netip.AddrPortFrom(addressOf(s.client, vip), 0).String())
		must(t, err)
		defer func() { _ = c.Close() }()
		if vip.Is4() { // the router is the first hop
			must(t, ipv4.NewPacketConn(c).SetTTL(2))
		} else {
			must(t, ipv6.NewPacketConn(c).SetHopLimit(2))
		}
		want := addressOf(s.lbs[0].m, vip)
		answer := make([]byte, 2000)
		for ctx := deadline(t); ; {
			_, err := c.WriteTo([]byte("a probe"), net.UDPAddrFromAddrPort(netip.AddrPortFrom(vip, 53)))
			must(t, err)
			must(t, errors.SetReadDeadline(time.Now().Add(time.Second)))
			n, from, err := errors.ReadFrom(answer)
			if err != nil || n == 0 {
				pause(ctx, t, "%s: nobody answers: %v\n%s", vip, err, s.state())
				continue
			}
			exceeded := map[bool]byte{true: 11, false: 3}[vip.Is4()]
			if a, _ := netip.ParseAddr(strings.TrimSuffix(from.String(), "%eth0")); answer[0] != exceeded || a != want {
				if answer[0] != exceeded {
					continue // neighbours of IPv6
				}
				t.Errorf("%s: ICMP %d of %s, want time exceeded of %s", vip, answer[0], from, want)
			}
			break
		}
		if n := s.lbs[0].tell(order{}).Drops["ttl-exceeded"]; n == 0 {
			t.Error("not counted")
		}
	}
}

// A backend at the load balancer itself is reached through a tunnel that no wire sees; one
// that comes over a wire and pretends to be that is dropped.
func TestTunnelOfTheMachineItself(t *testing.T) {
	s := newSite(t)
	s.spread(s.lbs[0])
	s.serve(s.lbs[0].m)
	for _, over6 := range []bool{false, true} {
		s.over6 = over6
		for _, vip := range []netip.Addr{vip4, vip6} {
			s.add(model.Frontend{FrontendKey: model.FrontendKey{VIP: vip, Transport: model.TCP, Port: 8080}, Mode: model.ModeDSRGeneve}, 8080, s.lbs[0].m)
		}
		s.settled()
		for _, vip := range []netip.Addr{vip4, vip6} {
			if name, _, err := s.get(s.client.HTTPClient(), vip, "/"); err != nil || name != "lb1" {
				t.Errorf("tunnels over IPv6 %t: %s is answered by %q: %v\n%s", over6, vip, name, err, s.state())
			}
		}
		us := addressOf(s.lbs[0].m, map[bool]netip.Addr{false: vip4, true: vip6}[over6])
		packet := tcpPacket(t, netip.AddrPortFrom(s.client.Addr4(), 4711), netip.AddrPortFrom(vip4, 8080), "S", nil, "")
		frame := tunnelled(t, us, us, asked(1), packet)
		copy(frame, hardware(t, s.lbs[0].m))
		send := sender(t, s.bes[1].m)
		before := s.lbs[0].tell(order{}).Drops["tunnel-from-own-address"]
		s.until(s.lbs[0], order{}, "a tunnel that pretends is dropped", func(r report) bool {
			send(frame)
			return r.Drops["tunnel-from-own-address"] > before
		})
	}
}

// A QUIC connection stays at its backend when the client gets other addresses and ports.
func TestQUICConnectionMigrates(t *testing.T) {
	s := newSite(t)
	second := netip.Addr{}
	h, err := s.client.Netlink()
	must(t, err)
	defer h.Close()
	eth0, err := h.LinkByName("eth0")
	must(t, err)
	network, _, _ := s.client.Networks("clients")
	second = s.client.Addr4()
	for range 100 {
		second = second.Next()
	}
	must(t, h.AddrAdd(eth0, &netlink.Addr{IPNet: &net.IPNet{IP: second.AsSlice(), Mask: net.CIDRMask(network.Bits(), 32)}}))
	for _, b := range s.bes {
		c, err := b.m.ListenPacket(t.Context(), "udp", netip.AddrPortFrom(b.m.Addr4(), 8443).String())
		must(t, err)
		t.Cleanup(func() { _ = c.Close() })
		go func() {
			buffer := make([]byte, 2000)
			for {
				_, from, err := c.ReadFrom(buffer)
				if err != nil {
					return
				}
				_, _ = c.WriteTo([]byte(b.m.Name()), from)
			}
		}()
	}
	quic := model.FrontendKey{VIP: vip4, Transport: model.UDP, Port: 443}
	for _, mode := range []model.ForwardMode{model.ModeDSRGeneve, model.ModeNAT} {
		s.add(model.Frontend{FrontendKey: quic, Mode: mode, QUIC: &model.QUICServer{Offset: 1, Length: 6}}, 8443, s.bes[0].m, s.bes[1].m)
		// ask sends a packet with a short header (RFC 9000, 17.3) and returns who answers.
		ask := func(c net.PacketConn, id [8]byte) string {
			t.Helper()
			packet := append(append([]byte{0x40, 9}, id[:6]...), "and the rest of a packet"...)
			answer := make([]byte, 100)
			for ctx := deadline(t); ; {
				_, err := c.WriteTo(packet, net.UDPAddrFromAddrPort(netip.AddrPortFrom(vip4, 443)))
				must(t, err)
				must(t, c.SetReadDeadline(time.Now().Add(time.Second)))
				if n, _, err := c.ReadFrom(answer); err == nil {
					return string(answer[:n])
				}
				pause(ctx, t, "%s: no answer\n%s", mode, s.state())
			}
		}
		open := func(a netip.Addr) net.PacketConn {
			c, err := s.client.ListenPacket(t.Context(), "udp", netip.AddrPortFrom(a, 0).String())
			must(t, err)
			t.Cleanup(func() { _ = c.Close() })
			return c
		}
		unknown := map[string]int{}
		for range 40 {
			c := open(s.client.Addr4())
			was := ask(c, [8]byte{1, 2, 3, 4, 5, 6}) // nobody's: the addresses decide
			unknown[was]++
			for i, b := range []*balancer{s.bes[0], s.bes[1]} {
				id := serverID(model.FrontendBackend{Address: netip.AddrPortFrom(b.m.Addr4(), 8443)}, 6)
				for _, from := range []net.PacketConn{c, open(s.client.Addr4()), open(second)} {
					if got := ask(from, id); got != s.bes[i].m.Name() {
						t.Fatalf("%s: a connection of %s is answered by %s from %s", mode, b.m.Name(), got, from.LocalAddr())
					}
				}
			}
		}
		if len(unknown) != 2 {
			t.Errorf("%s: without an ID packets of 40 clients go to %v", mode, unknown)
		}
	}
}
