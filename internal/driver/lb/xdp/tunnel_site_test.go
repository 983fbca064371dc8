package xdp

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.dev/internal/driver/bpf"
	"fairlead.dev/lab"
)

// wireVIP are the VIPs of the tests with real packets.
var wireVIPs = []netip.Addr{ip("203.0.113.1"), ip("2001:db8:1::1")}

// wired is a machine of a lab with programs of its own, whose maps the test writes.
type wired struct {
	*programRig
	m     *lab.Machine
	name  string
	index uint32 // of its next hop at every machine
	mac   net.HardwareAddr
	dev   int
}

// wires is a client behind a router, two load balancers and two machines with servers.
type wires struct {
	*testing.T
	client *lab.Machine
	router *lab.Machine
	nodes  map[string]*wired
}

// inNetns runs f on a thread in a machine.
func inNetns(m *lab.Machine, f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends here
		fd, err := unix.Open(m.Namespace(), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			defer func() { _ = unix.Close(fd) }()
			err = unix.Setns(fd, unix.CLONE_NEWNET)
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

func newWires(t *testing.T) *wires {
	t.Helper()
	needsRoot(t)
	names := []string{"lb1", "lb2", "be1", "be2"}
	topology := lab.Topology{
		Name:     "tunnel-" + strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(strings.TrimPrefix(t.Name(), "Test"))),
		Segments: []lab.Segment{{Name: "servers"}, {Name: "clients"}},
		Machines: []lab.MachineSpec{
			{Name: "client", Segments: []string{"clients"}},
			{Name: "router", Role: lab.RoleRouter, Segments: []string{"servers", "clients"}},
		},
	}
	for _, name := range names {
		topology.Machines = append(topology.Machines, lab.MachineSpec{Name: name})
	}
	l, err := lab.Up(t.Context(), topology, lab.Options{Dir: filepath.Join(t.TempDir(), "labs"), Log: slog.New(slog.DiscardHandler)})
	must(t, err)
	t.Cleanup(func() { must(t, l.Down(context.Background())) })
	w := &wires{T: t, client: l.Machine("client"), router: l.Machine("router"), nodes: map[string]*wired{}}
	for i, name := range names {
		n := &wired{m: l.Machine(name), name: name, index: uint32(i + 1)}
		must(t, inNetns(n.m, func() error {
			eth0, err := netlink.LinkByName("eth0")
			if err != nil {
				return err
			}
			n.dev, n.mac = eth0.Attrs().Index, eth0.Attrs().HardwareAddr
			n.programRig = loadSmall(t)
			n.attach(name)
			return nil
		}))
		w.nodes[name] = n
	}
	for _, n := range w.nodes {
		n.meet(w)
	}
	return w
}

// attach is called in the machine.
func (n *wired) attach(name string) {
	n.t.Helper()
	keep := func(l link.Link, err error) {
		must(n.t, err)
		n.t.Cleanup(func() { _ = l.Close() })
	}
	keep(link.AttachTCX(link.TCXOptions{Interface: n.dev, Program: n.TunnelIn, Attach: ebpf.AttachTCXIngress}))
	keep(link.AttachTCX(link.TCXOptions{Interface: n.dev, Program: n.TunnelOut, Attach: ebpf.AttachTCXEgress}))
	if strings.HasPrefix(name, "lb") {
		keep(link.AttachXDP(link.XDPOptions{Program: n.Balance, Interface: n.dev}))
		lo, err := netlink.LinkByName("lo")
		must(n.t, err)
		for _, vip := range wireVIPs {
			must(n.t, netlink.AddrAdd(lo, &netlink.Addr{IPNet: single(vip), Flags: unix.IFA_F_NODAD}))
		}
	}
}

func single(a netip.Addr) *net.IPNet {
	return &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
}

// at is a machine's address of the family of another.
func (n *wired) at(like netip.Addr) netip.Addr {
	if like.Is6() {
		return n.m.Addr6()
	}
	return n.m.Addr4()
}

// meet tells a machine of the others.
func (n *wired) meet(w *wires) {
	put(n.programRig, n.Settings, uint32(0), bpfSettings{
		Tunnel4: wireAddress(n.m.Addr4()), Tunnel6: wireAddress(n.m.Addr6()), NatPorts: [2][2]uint16{{20000, 29999}},
	})
	for _, o := range w.nodes {
		nh := bpfNextHop{Device: uint32(n.dev), Mtu: 1500, Flags: uint8(bpfNextHopFlagNEXT_HOP_REDIRECT)}
		copy(nh.To[:], o.mac)
		copy(nh.From[:], n.mac)
		put(n.programRig, n.NextHops, o.index, nh)
		put(n.programRig, n.Machines, wireAddress(o.m.Addr4()), o.index)
		put(n.programRig, n.Machines, wireAddress(o.m.Addr6()), o.index)
	}
}

// id of a server of a machine.
func (n *wired) id() uint64 { return uint64(n.index) << 32 }

// serve has load balancer and machines know a frontend for TCP and UDP at port 80 of the
// VIPs, whose only row has these servers. Tunnels go over the family of outer.
func (w *wires) serve(lb string, mode bpfMode, outer netip.Addr, owners ...string) {
	w.Helper()
	usual := uint8(bpfBackendFlagBACKEND_READY | bpfBackendFlagBACKEND_NEW)
	for i, vip := range wireVIPs {
		for j, protocol := range []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
			index := uint32(1 + 2*i + j)
			key := bpfFrontendKey{Vip: wireAddress(vip), Port: bpf.NetworkPort(80), Protocol: protocol}
			n := w.nodes[lb]
			var row uint64
			for k, owner := range owners {
				o := w.nodes[owner]
				slot := index*10 + o.index
				put(n.programRig, n.Backends, slot, bpfBackend{
					Id: o.id(), Address: wireAddress(o.at(vip)), Remote: wireAddress(o.at(outer)), NextHop: o.index, Port: bpf.NetworkPort(8080),
					Mode: uint8(mode), Generation: 1, Flags: usual,
				})
				row |= uint64(slot) << (rowBits * k)
			}
			put(n.programRig, n.Rows, index, row)
			put(n.programRig, n.Vips, wireAddress(vip), uint32(2))
			put(n.programRig, n.Frontends, key, bpfFrontend{Index: index, Rows: index, Flags: uint16(bpfFrontendFlagFRONTEND_BALANCED)})
			for _, name := range []string{"be1", "be2"} {
				o := w.nodes[name]
				put(o.programRig, o.Frontends, key, bpfFrontend{Index: index})
				put(o.programRig, o.Locals, bpfLocalKey{Id: o.id(), Frontend: index}, bpfLocal{Address: wireAddress(o.at(vip)), Port: bpf.NetworkPort(8080), Flags: usual})
				for _, other := range []string{"be1", "be2"} {
					x := w.nodes[other]
					put(o.programRig, o.Hops, x.id(), bpfHop{Remote: wireAddress(x.at(outer)), NextHop: x.index})
				}
			}
		}
	}
}

// lead has the router send to one load balancer.
func (w *wires) lead(lb string) {
	w.Helper()
	h, err := w.router.Netlink()
	must(w.T, err)
	defer h.Close()
	for _, vip := range wireVIPs {
		must(w.T, h.RouteReplace(&netlink.Route{Dst: single(vip), Gw: w.nodes[lb].at(vip).AsSlice()}))
	}
}

// listen has the machines with servers answer HTTP (their name, what was sent, a large
// body) and datagrams (an echo after their name) at port 8080.
func (w *wires) listen(names ...string) {
	w.Helper()
	if len(names) == 0 {
		names = []string{"be1", "be2"}
	}
	for _, name := range names {
		m := w.nodes[name].m
		l, err := m.Listen(w.Context(), "tcp", ":8080")
		must(w.T, err)
		server := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/large":
				_, _ = io.CopyN(rw, pattern{}, largeBody)
			default:
				sum := sha256.New()
				_, _ = io.Copy(sum, r.Body)
				_, _ = fmt.Fprintf(rw, "%s %s %x", m.Name(), r.RemoteAddr, sum.Sum(nil))
			}
		})}
		go func() { _ = server.Serve(l) }()
		w.Cleanup(func() { _ = server.Close() })
		for _, a := range []netip.Addr{m.Addr4(), m.Addr6()} {
			c, err := m.ListenPacket(w.Context(), "udp", netip.AddrPortFrom(a, 8080).String())
			must(w.T, err)
			w.Cleanup(func() { _ = c.Close() })
			go func() {
				b := make([]byte, 65536)
				for {
					n, from, err := c.ReadFrom(b)
					if err != nil {
						return
					}
					_, _ = c.WriteTo(append([]byte(m.Name()+" "), b[:n]...), from)
				}
			}()
		}
	}
}

// pattern is endless and not constant.
type pattern struct{}

const largeBody = 12 << 20

func (pattern) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte(i * 7)
	}
	return len(b), nil
}

// dial opens a connection from the client to a VIP.
func (w *wires) dial(vip netip.Addr) net.Conn {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), 30*time.Second)
	defer cancel()
	c, err := w.client.Dial(ctx, "tcp", netip.AddrPortFrom(vip, 80).String())
	if err != nil {
		w.Fatalf("%v; %s", err, w.state())
	}
	w.Cleanup(func() { _ = c.Close() })
	must(w.T, c.SetDeadline(time.Now().Add(60*time.Second)))
	return c
}

// state is why packets were dropped, by machine.
func (w *wires) state() string {
	var out []string
	for name, n := range w.nodes {
		out = append(out, fmt.Sprint(name, n.reasons()))
	}
	return strings.Join(out, " ")
}
