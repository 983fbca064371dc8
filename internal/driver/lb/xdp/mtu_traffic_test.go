package xdp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.dev/internal/model"
	"fairlead.dev/lab"
)

// upload sends 1 MiB over a new connection, which has to arrive, and returns what the client
// knows of the way in the end.
func (s *site) upload(vip netip.Addr) *unix.TCPInfo {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
	defer cancel()
	c, err := s.client.Dial(ctx, "tcp", netip.AddrPortFrom(vip, 8080).String())
	if err != nil {
		s.Fatalf("%s: %v\n%s", vip, err, s.state())
	}
	client := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return c, nil }}}
	defer client.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+netip.AddrPortFrom(vip, 8080).String()+"/count", bytes.NewReader(make([]byte, 1<<20)))
	must(s.T, err)
	answer, err := client.Do(r)
	if err != nil {
		s.Fatalf("%s: %v\n%s", vip, err, s.state())
	}
	defer func() { _ = answer.Body.Close() }()
	if body, err := io.ReadAll(answer.Body); err != nil || string(body) != "1048576" {
		s.Fatalf("%s: of 1 MiB arrived %q: %v\n%s", vip, body, err, s.state())
	}
	raw, err := c.(*net.TCPConn).SyscallConn()
	must(s.T, err)
	var info *unix.TCPInfo
	var asked error
	must(s.T, raw.Control(func(fd uintptr) { info, asked = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) }))
	must(s.T, asked)
	return info
}

func (s *site) tooBig() uint64 {
	s.Helper()
	return s.lbs[0].tell(order{}).Drops["packet-too-big"]
}

// A client whose packets do not fit, because nobody told it a smaller segment size, learns
// what fits from the load balancer, and all that it sends arrives.
func TestPacketsTooBigAreAnswered(t *testing.T) {
	s := newSite(t)
	s.spread(s.lbs[0])
	s.put(model.ModeDSRGeneve, 100)
	s.settled()
	both := []netip.Addr{vip4, vip6}
	for _, vip := range both {
		s.upload(vip)
	}
	if n := s.tooBig(); n != 0 {
		t.Errorf("%d packets were too big though segments are made to fit", n)
	}
	// Once clients know of a way, they keep to it: each case has to leave less than the one before.
	for _, vip := range both {
		s.add(model.Frontend{FrontendKey: model.FrontendKey{VIP: vip, Transport: model.UDP, Port: 9}, Mode: model.ModeDSRIPIP}, 9, s.bes[0].m)
		s.answersDatagram(vip, map[bool]int{true: 1500 - 20, false: 1500 - 40}[vip.Is4()])
	}
	jumbo(t, s.bes[0].m) // so it lets clients send as much as fits where they are
	for _, over6 := range []bool{false, true} {
		s.over6 = over6
		s.put(model.ModeDSRGeneve, 100)
		for _, vip := range both {
			s.learns(vip, map[bool]uint32{false: 1500 - 68, true: 1500 - 88}[over6])
		}
	}
	s.over6 = false
	narrow(t, s.lbs[0].m, 1400, s.bes[0].m)
	s.put(model.ModeNAT, 100)
	for _, vip := range both {
		s.learns(vip, 1400)
	}
}

// learns uploads until the client was told what fits: machines look at their ways when
// these change, and not at once.
func (s *site) learns(vip netip.Addr, fits uint32) {
	s.Helper()
	before := s.tooBig()
	for ctx := deadline(s.T); ; {
		info := s.upload(vip)
		if info.Pmtu == fits {
			break
		}
		pause(ctx, s.T, "%s is known for %d bytes, want %d\n%s", vip, info.Pmtu, fits, s.state())
	}
	if n := s.tooBig(); n <= before {
		s.Errorf("%s: %d packets counted as too big", vip, n)
	}
}

// answersDatagram has the client send datagrams of its own MTU until it knows better.
func (s *site) answersDatagram(vip netip.Addr, fits int) {
	s.Helper()
	before := s.tooBig()
	c, err := s.client.Dial(s.Context(), "udp", netip.AddrPortFrom(vip, 9).String())
	must(s.T, err)
	defer func() { _ = c.Close() }()
	level, discover, mtu, headers := unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_MTU, 28
	if vip.Is6() {
		level, discover, mtu, headers = unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_MTU, 48
	}
	raw, err := c.(*net.UDPConn).SyscallConn()
	must(s.T, err)
	var asked error
	must(s.T, raw.Control(func(fd uintptr) { asked = unix.SetsockoptInt(int(fd), level, discover, unix.IP_PMTUDISC_DO) }))
	must(s.T, asked)
	for ctx := deadline(s.T); ; {
		_, err := c.Write(make([]byte, 1500-headers))
		if err != nil && !errors.Is(err, unix.EMSGSIZE) {
			s.Fatal(err)
		}
		var known int
		must(s.T, raw.Control(func(fd uintptr) { known, asked = unix.GetsockoptInt(int(fd), level, mtu) }))
		must(s.T, asked)
		if known == fits {
			break
		}
		if known != 1500 {
			s.Fatalf("%s is known for %d bytes, want %d", vip, known, fits)
		}
		pause(ctx, s.T, "%s is known for %d bytes, want %d\n%s", vip, known, fits, s.state())
	}
	if n := s.tooBig(); n <= before {
		s.Errorf("%s: %d packets counted as too big", vip, n)
	}
}

// jumbo has a machine's interface take more than its segment carries.
func jumbo(t *testing.T, m *lab.Machine) {
	t.Helper()
	h, err := m.Netlink()
	must(t, err)
	defer h.Close()
	eth0, err := h.LinkByName("eth0")
	must(t, err)
	must(t, h.LinkSetMTU(eth0, 1700))
}

// narrow sets what the ways from a machine to others carry.
func narrow(t *testing.T, m *lab.Machine, mtu int, to ...*lab.Machine) {
	t.Helper()
	h, err := m.Netlink()
	must(t, err)
	defer h.Close()
	for _, x := range to {
		for _, a := range []netip.Addr{x.Addr4(), x.Addr6()} {
			way, err := h.RouteGet(a.AsSlice())
			must(t, err)
			must(t, h.RouteReplace(&netlink.Route{LinkIndex: way[0].LinkIndex, Dst: host(a), MTU: mtu}))
		}
	}
}

// A way to the client that gets narrower behind the load balancer: what its router says to
// the VIP gets to the machine that has the flow, whichever load balancer is asked.
func TestRoutersReachFlowsBackends(t *testing.T) {
	s := newSite(t)
	s.spread(s.lbs[0])
	s.put(model.ModeDSRGeneve, 100, 100)
	s.settled()
	router := s.lab.Machine("router")
	mtu := 1500
	for _, mode := range []model.ForwardMode{model.ModeDSRGeneve, model.ModeNAT} {
		s.put(mode, 100, 100)
		for _, spread := range [][]*balancer{s.lbs[:1], s.lbs} {
			if mode == model.ModeNAT && len(spread) > 1 {
				continue // knows its flows at one load balancer only
			}
			s.spread(spread...)
			mtu -= 50
			narrow(t, router, mtu, s.client)
			for _, vip := range []netip.Addr{vip4, vip6} {
				learned := map[string]bool{}
				for ctx := deadline(t); len(learned) < len(s.bes); {
					client := s.client.HTTPClient()
					name, _, err := s.get(client, vip, "/")
					if err == nil {
						var large string
						large, _, err = s.get(client, vip, "/large") // over the same connection
						if err == nil && len(large) != 1<<20 {
							t.Fatalf("%s, MTU %d: of 1 MiB came %d bytes", mode, mtu, len(large))
						}
					}
					client.CloseIdleConnections()
					if err != nil {
						t.Fatalf("%s, MTU %d: %v\n%s", mode, mtu, err, s.state())
					}
					m := s.lab.Machine(name)
					to := addressOf(s.client, vip)
					if mode == model.ModeNAT {
						to = addressOf(s.lbs[0].m, vip)
					}
					if got := mtuOf(t, m, to); got != mtu {
						t.Fatalf("%s: %s knows of %d bytes to %s, want %d\n%s", mode, name, got, to, mtu, s.state())
					}
					learned[name] = true
					pause(ctx, t, "%s: only %v answer", mode, learned)
				}
			}
		}
	}
}

// mtuOf is what a machine knows of the way to an address.
func mtuOf(t *testing.T, m *lab.Machine, to netip.Addr) int {
	t.Helper()
	h, err := m.Netlink()
	must(t, err)
	defer h.Close()
	ways, err := h.RouteGet(to.AsSlice())
	must(t, err)
	return ways[0].MTU
}
