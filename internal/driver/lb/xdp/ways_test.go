package xdp

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.dev/internal/model"
	"fairlead.dev/lab"
)

// until asks a balancer until what it says is as wanted.
func (s *site) until(b *balancer, o order, what string, f func(report) bool) report {
	s.Helper()
	for ctx := deadline(s.T); ; {
		r := b.tell(o)
		if f(r) {
			return r
		}
		pause(ctx, s.T, "%s: %+v\n%s", what, r.Observed, b.log())
	}
}

func modes(r report) string {
	var list []string
	for _, o := range r.Observed {
		list = append(list, string(o.Mode))
	}
	return strings.Join(list, " ")
}

// dropFrom has a machine drop what it sends from an IPv4 address, as a cloud does with
// addresses that a machine does not have, until the link is closed.
func dropFrom(t *testing.T, m *lab.Machine, source netip.Addr) (filter link.Link) {
	t.Helper()
	four := source.As4()
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadAbs(14+12, asm.Word),
		asm.JEq.Imm32(asm.R0, int32(binary.BigEndian.Uint32(four[:])), "drop"),
		asm.Mov.Imm(asm.R0, -1), // whoever is next decides
		asm.Return(),
		asm.Mov.Imm(asm.R0, 2).WithSymbol("drop"), // TC_ACT_SHOT
		asm.Return(),
	}})
	must(t, err)
	defer func() { _ = program.Close() }()
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
			eth0, err := netlink.LinkByName("eth0")
			if err != nil {
				return err
			}
			filter, err = link.AttachTCX(link.TCXOptions{Program: program, Interface: eth0.Attrs().Index, Attach: ebpf.AttachTCXEgress, Anchor: link.Tail()})
			return err
		}()
	}()
	must(t, <-done)
	return filter
}

// Where answers from the VIP do not arrive, flows go by NAT, until they do.
func TestWayBackIsProbed(t *testing.T) {
	s := newSite(t)
	s.put(model.ModeAuto, 100, 100)
	s.settled()
	s.until(s.lbs[0], order{}, "tunnels", func(r report) bool { return modes(r) == "DSRGeneve DSRGeneve" })

	filter := dropFrom(t, s.bes[1].m, vip4)
	r := s.until(s.lbs[0], order{}, "one VIP by NAT", func(r report) bool { return modes(r) == "NAT DSRGeneve" })
	if m := r.Observed[0].Message; !strings.Contains(m, "answers of machine be2 from the VIP do not arrive") {
		t.Errorf("it says %q", m)
	}
	s.settled()
	must(t, filter.Close())
	s.until(s.lbs[0], order{}, "tunnels again", func(r report) bool { return modes(r) == "DSRGeneve DSRGeneve" })

	// A machine that is away says nothing about the way back.
	must(t, s.bes[1].m.SetBlackhole(true))
	for probes := 0; probes < 2*probeMisses; {
		before := strings.Count(s.lbs[0].log(), "probed")
		s.until(s.lbs[0], order{}, "probes", func(report) bool { return strings.Count(s.lbs[0].log(), "probed") > before })
		probes++
	}
	if got := modes(s.lbs[0].tell(order{})); got != "DSRGeneve DSRGeneve" {
		t.Errorf("a machine is away, and modes are %s", got)
	}
	must(t, s.bes[1].m.SetBlackhole(false))
}

// A proxy whose machine is gone gets no new flows, though nobody has said so.
func TestSilentProxyGetsNoNewFlows(t *testing.T) {
	s := newSite(t)
	for _, vip := range []netip.Addr{vip4, vip6} {
		f := &model.Frontend{FrontendKey: model.FrontendKey{VIP: vip, Transport: model.TCP, Port: 8080}, Machines: []string{"lb1", "lb2"}, Listener: "web", Drain: time.Minute}
		b := &model.Balanced{Frontend: f}
		for _, be := range s.bes {
			s.hold(be.m, vip)
			b.Backends = append(b.Backends, model.FrontendBackend{Address: netip.AddrPortFrom(vip, 8080), Machine: be.m.Name(), Weight: 100, HopWeight: 100})
		}
		s.frontends[f.String()] = b
	}
	for _, b := range append(append([]*balancer(nil), s.bes...), s.lbs...) {
		s.tell(b)
	}
	s.settled()
	missed := func(r report) bool {
		return !slices.ContainsFunc(r.Observed, func(o model.FrontendObserved) bool {
			return o.Available != 1 || !strings.Contains(o.Message, "machine be2 does not answer")
		})
	}
	for _, lb := range s.lbs {
		s.until(lb, order{}, "answers", func(report) bool {
			return strings.Count(lb.log(), "a machine answers through the tunnel") == len(s.bes)
		})
	}
	must(t, s.bes[1].m.SetBlackhole(true))
	for _, lb := range s.lbs {
		s.until(lb, order{}, "be2 to be missed", missed)
	}
	for range 20 {
		for _, vip := range []netip.Addr{vip4, vip6} {
			client := s.client.HTTPClient()
			name, _, err := s.get(client, vip, "/")
			client.CloseIdleConnections()
			if err != nil || name != "be1" {
				t.Fatalf("%s: %q answers: %v\n%s", vip, name, err, s.state())
			}
		}
	}
	must(t, s.bes[1].m.SetBlackhole(false))
	for _, lb := range s.lbs {
		s.until(lb, order{}, "be2 to be back", func(r report) bool {
			return !slices.ContainsFunc(r.Observed, func(o model.FrontendObserved) bool { return o.Available != 2 || o.Message != "" })
		})
	}
}

// IP in IP reaches the backend with the client's packet as it was.
func TestIPInIPArrives(t *testing.T) {
	s := newSite(t)
	for _, c := range []struct {
		network string
		vip     netip.Addr
	}{{"ip4:4", vip4}, {"ip6:41", vip6}} {
		tap, err := s.bes[0].m.ListenPacket(t.Context(), c.network, addressOf(s.bes[0].m, c.vip).String())
		must(t, err)
		defer func() { _ = tap.Close() }()
		s.put(model.ModeDSRIPIP, 100)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { // nobody undoes the tunnel: it is never answered
			for ctx.Err() == nil {
				once, stop := context.WithTimeout(ctx, time.Second)
				if conn, err := s.client.Dial(once, "tcp", netip.AddrPortFrom(c.vip, 8080).String()); err == nil {
					_ = conn.Close()
				}
				stop()
			}
		}()
		must(t, tap.SetReadDeadline(time.Now().Add(time.Minute)))
		b := make([]byte, 2000)
		n, from, err := tap.ReadFrom(b)
		cancel()
		if err != nil {
			t.Fatalf("%s: %v\n%s", c.vip, err, s.state())
		}
		source, destination, ports := b[12:16], b[16:20], b[20:24]
		if c.vip.Is6() {
			source, destination, ports = b[8:24], b[24:40], b[40:44]
		}
		client, _ := netip.AddrFromSlice(source)
		vip, _ := netip.AddrFromSlice(destination)
		outer, _ := netip.ParseAddr(from.(*net.IPAddr).IP.String())
		lbs := []netip.Addr{addressOf(s.lbs[0].m, c.vip), addressOf(s.lbs[1].m, c.vip)}
		if n < 44 || client != addressOf(s.client, c.vip) || vip != c.vip || binary.BigEndian.Uint16(ports[2:]) != 8080 || outer.Unmap() != lbs[0] && outer.Unmap() != lbs[1] {
			t.Errorf("%d bytes of %s: inside %s to %s", n, outer, client, vip)
		}
	}
}

// What is asked about flows and drops is what is there.
func TestFlowsAndDropsAreShown(t *testing.T) {
	s := newSite(t)
	s.spread(s.lbs[0])
	s.put(model.ModeDSRGeneve, 100, 100)
	s.settled()
	var conns []net.Conn
	for range 20 {
		c, err := s.client.Dial(t.Context(), "tcp", netip.AddrPortFrom(vip4, 8080).String())
		must(t, err)
		_, err = c.Write([]byte("G")) // a second packet, so that it is no flood
		must(t, err)
		conns = append(conns, c)
	}
	defer func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}()
	web := frontendKey(t, "tcp://203.0.113.1:8080")
	open := map[netip.AddrPort]bool{}
	for _, c := range conns {
		open[c.LocalAddr().(*net.TCPAddr).AddrPort()] = true
	}
	count := func(r report, state string) (n int, machines map[string]int) {
		machines = map[string]int{}
		for _, f := range r.Flows {
			if open[f.Client] && f.State == state && f.Frontend == web {
				n++
				machines[f.Machine]++
			}
		}
		return n, machines
	}
	r := s.until(s.lbs[0], order{Query: &model.FlowQuery{Frontend: web}}, "flows", func(r report) bool {
		n, _ := count(r, "established")
		return n == len(conns)
	})
	_, balanced := count(r, "established")
	owned := 0
	for _, b := range s.bes {
		r := b.tell(order{Query: &model.FlowQuery{Client: netip.PrefixFrom(s.client.Addr4(), 32)}})
		n, machines := count(r, "owned")
		if machines[b.m.Name()] != n || n != balanced[b.m.Name()] {
			t.Errorf("%s owns %d flows of %v, and %v were sent there", b.m.Name(), n, machines, balanced)
		}
		owned += n
	}
	if owned != len(conns) {
		t.Errorf("%d of %d flows are owned", owned, len(conns))
	}
	if r := s.lbs[0].tell(order{Query: &model.FlowQuery{Frontend: web, Limit: 3}}); len(r.Flows) != 3 {
		t.Errorf("of at most 3 flows came %d", len(r.Flows))
	}
	if r := s.lbs[0].tell(order{Query: &model.FlowQuery{Backend: netip.MustParseAddr("192.0.2.99")}}); len(r.Flows) != 0 {
		t.Errorf("flows of nobody: %v", r.Flows)
	}
	// Counted at both ends, each flow can be told once.
	there := func(r report) (flows, tunnelled, owned uint64, owners int) {
		for _, f := range r.Figures {
			for _, b := range f.Backends {
				if f.FrontendKey == web {
					flows, tunnelled, owned = flows+b.Flows, tunnelled+b.Tunnelled, owned+b.Owned
				}
				if f.FrontendKey == web && b.Owns {
					owners++
				}
			}
		}
		return flows, tunnelled, owned, owners
	}
	s.until(s.lbs[0], order{}, "its flows go through tunnels", func(r report) bool {
		flows, tunnelled, owned, owners := there(r)
		return flows == uint64(len(conns)) && tunnelled == flows && owned == 0 && owners == 0
	})
	for _, b := range s.bes {
		s.until(b, order{}, "its own flows alone are its", func(r report) bool {
			flows, tunnelled, owned, owners := there(r)
			return flows == 0 && tunnelled == 0 && owned == uint64(balanced[b.m.Name()]) && owners == 1
		})
	}
	s.until(s.lbs[0], order{}, "flows by backend", func(r report) bool {
		var flows, rows uint64
		for _, f := range r.Figures {
			for _, b := range f.Backends {
				if f.FrontendKey == web {
					flows += b.Flows
					rows += uint64(b.Rows)
				}
			}
		}
		return flows >= 20 && rows == 4096
	})

	// A client that is not let in.
	for _, f := range s.frontends {
		g := *f.Frontend
		g.Sources = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}
		f.Frontend = &g
	}
	s.tell(s.lbs[0])
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for ctx.Err() == nil {
			once, stop := context.WithTimeout(ctx, 200*time.Millisecond)
			if c, err := s.client.Dial(once, "tcp", netip.AddrPortFrom(vip4, 8080).String()); err == nil {
				_ = c.Close()
				t.Error("a client got in")
			}
			stop()
		}
	}()
	r = s.lbs[0].tell(order{Capture: "source-denied"})
	if len(r.Captured.Data) < 54 || r.Drops["source-denied"] == 0 {
		t.Fatalf("captured %x, drops %v", r.Captured.Data, r.Drops)
	}
	from, _ := netip.AddrFromSlice(r.Captured.Data[26:30])
	to, _ := netip.AddrFromSlice(r.Captured.Data[30:34])
	if from != s.client.Addr4() || to != vip4 {
		t.Errorf("captured a packet of %s to %s", from, to)
	}
}

// The backends of a machine that is gone get no new flows, though nobody has said so, and flows
// to the others do not notice.
func TestSilentMachineGetsNoNewFlows(t *testing.T) {
	s := newSite(t)
	s.put(model.ModeAuto, 100, 100)
	s.settled()
	for _, lb := range s.lbs {
		s.until(lb, order{}, "answers", func(report) bool {
			return strings.Count(lb.log(), "a machine answers through the tunnel") == len(s.bes)
		})
	}
	must(t, s.bes[1].m.SetBlackhole(true))
	for _, lb := range s.lbs {
		s.until(lb, order{}, "be2 to be missed", func(r report) bool {
			return !slices.ContainsFunc(r.Observed, func(o model.FrontendObserved) bool {
				return o.Available != 1 || !strings.Contains(o.Message, "machine be2 does not answer: its backends get no new flows from here")
			})
		})
	}
	for range 20 {
		for _, vip := range []netip.Addr{vip4, vip6} {
			client := s.client.HTTPClient()
			name, _, err := s.get(client, vip, "/")
			client.CloseIdleConnections()
			if err != nil || name != "be1" {
				t.Fatalf("%s: %q answers: %v\n%s", vip, name, err, s.state())
			}
		}
	}
	must(t, s.bes[1].m.SetBlackhole(false))
	for _, lb := range s.lbs {
		s.until(lb, order{}, "be2 to be back", func(r report) bool {
			return !slices.ContainsFunc(r.Observed, func(o model.FrontendObserved) bool { return o.Available != 2 || o.Message != "" })
		})
	}
	s.settled()
}
