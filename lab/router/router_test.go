package router

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.dev/lab"
	"fairlead.dev/lab/backend"
)

func TestMain(m *testing.M) {
	lab.MaybeJanitor()
	os.Exit(m.Run())
}

var (
	vip4 = netip.MustParsePrefix("10.30.0.1/32")
	vip6 = netip.MustParsePrefix("fd30::1/128")
	vips = []netip.Prefix{vip4, vip6}
)

const routerASN, edgeASN = 65000, 65100

// everything has all that a configuration can have.
func everything() Config {
	bfd := &BFD{Interval: 100 * time.Millisecond, Multiplier: 5}
	both := []Family{IPv4, IPv6}
	return Config{
		ASN: routerASN, ID: netip.MustParseAddr("10.77.1.1"), MaxPaths: 8, Announce: vips,
		Neighbors: []Neighbor{
			{Address: netip.MustParseAddr("10.77.2.1"), Peering: Peering{ASN: edgeASN, Password: "secret", BFD: bfd, Passive: true, Helper: true, Families: both}},
			{Address: netip.MustParseAddr("fd77::2:1"), Peering: Peering{Multihop: 3, AddPath: true, Hold: 9 * time.Second, Keepalive: 2 * time.Second}},
			{Address: netip.MustParseAddr("10.77.3.1"), Peering: Peering{ASN: routerASN, AddPath: true, Families: both}},
			{Interface: "eth7", Peering: Peering{ASN: edgeASN, BFD: bfd, Families: both}},
		},
		Ranges: []Range{
			{Prefix: netip.MustParsePrefix("10.77.0.0/16"), Peering: Peering{ASN: routerASN, Client: true, Password: "secret"}},
			{Prefix: netip.MustParsePrefix("fd77::/64"), Peering: Peering{BFD: &BFD{}}},
		},
	}
}

func TestDaemonsAcceptTheirConfigurations(t *testing.T) {
	root(t)
	plain := Config{ASN: routerASN, ID: netip.MustParseAddr("10.77.1.1"), Ranges: []Range{{Prefix: netip.MustParsePrefix("10.77.0.0/16")}}}
	for _, k := range Kinds() {
		for name, c := range map[string]Config{"everything": everything(), "plain": plain} {
			t.Run(string(k)+"/"+name, func(t *testing.T) {
				s, err := c.complete("router")
				if err != nil {
					t.Fatal(err)
				}
				d, err := k.locate()
				if err != nil {
					t.Fatal(err)
				}
				r := &Router{kind: k, daemon: d, dir: t.TempDir()}
				for _, p := range d.processes(s) {
					if err := write(r.dir, p, s); err != nil {
						t.Fatal(err)
					}
					if err := own(r.dir, d.user()); err != nil {
						t.Fatal(err)
					}
					if err := r.check(t.Context(), p); err != nil {
						raw, _ := os.ReadFile(filepath.Join(r.dir, p.name+".conf"))
						t.Errorf("%s: %v\n%s", p.name, err, raw)
					}
					// And it would say if there were something wrong.
					if err := os.WriteFile(filepath.Join(r.dir, p.name+".conf"), []byte("nonsense\n"), 0o600); err != nil {
						t.Fatal(err)
					}
					if err := r.check(t.Context(), p); err == nil {
						t.Errorf("%s accepts nonsense", p.name)
					}
				}
			})
		}
	}
}

func TestConfigurationThatCannotWork(t *testing.T) {
	id := netip.MustParseAddr("1.1.1.1")
	with := func(p Peering) Config {
		return Config{ASN: 1, ID: id, Neighbors: []Neighbor{{Address: id, Peering: p}}}
	}
	for says, c := range map[string]Config{
		"AS 0":           {ID: id},
		"id invalid":     {ASN: 1},
		"no neighbours":  {ASN: 1, ID: id},
		"neighbour 1":    {ASN: 1, ID: id, Neighbors: []Neighbor{{}}},
		"interface":      {ASN: 1, ID: id, Neighbors: []Neighbor{{Address: id, Interface: "eth0"}}},
		"range 1":        {ASN: 1, ID: id, Ranges: []Range{{}}},
		"100 paths":      {ASN: 1, ID: id, MaxPaths: 100},
		"whole seconds":  with(Peering{Hold: 1500 * time.Millisecond}),
		"quote":          with(Peering{Password: `a"; import none`}),
		"BFD every 10ms": with(Peering{BFD: &BFD{Interval: 10 * time.Millisecond}}),
		"client of AS 2": with(Peering{ASN: 2, Client: true}),
		`family "ipx"`:   with(Peering{Families: []Family{"ipx"}}),
	} {
		if _, err := c.complete("x"); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("error is %v, want one that says %q", err, says)
		}
	}
}

func TestOpenWhereThereIsNone(t *testing.T) {
	l := up(t, 0)
	if r, err := Open(l.Machine("router")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("opened %v, %v, want ErrNotExist", r, err)
	}
}

// Edges speak with the router itself, over IPv4 and IPv6.
func TestEdgesAnnounceToTheRouter(t *testing.T) {
	for _, k := range Kinds() {
		t.Run(string(k), func(t *testing.T) {
			l := up(t, 3)
			m := l.Machine("router")
			w := watchAll(t, m)
			net4, net6, _ := m.Networks("edges")
			bfd := &BFD{}
			r := run(t, k, m, Config{ASN: routerASN, ID: m.Addr4(), Ranges: []Range{
				{Prefix: net4, Peering: Peering{ASN: edgeASN, Password: "secret", BFD: bfd}},
				{Prefix: net6, Peering: Peering{BFD: bfd}},
			}})
			speakers := map[string]*Router{}
			for _, e := range l.Machines(lab.RoleEdge) {
				speakers[e.Name()] = run(t, BIRD, e, Config{
					ASN: edgeASN, ID: e.Addr4(), Announce: vips, NoKernel: true, Neighbors: []Neighbor{
						{Address: m.Addr4(), Peering: Peering{ASN: routerASN, Password: "secret", BFD: bfd}},
						{Address: m.Addr6(), Peering: Peering{ASN: routerASN, BFD: bfd}},
					},
				})
			}
			awaitHops(t, r, "edge-1", "edge-2", "edge-3")
			w.await(t, 3)
			spread(t, l, "edge-1", "edge-2", "edge-3")
			await(t, "sessions with BFD", func() error {
				sessions, err := r.Sessions(t.Context())
				for _, s := range sessions {
					if !s.Up || s.ASN != edgeASN || s.Received != 1 || s.BFD != "up" {
						err = errors.Join(err, fmt.Errorf("session %+v", s))
					}
				}
				if len(sessions) != 6 {
					err = errors.Join(err, fmt.Errorf("%d sessions, want 6", len(sessions)))
				}
				return err
			})
			table, err := r.Table(t.Context())
			if err != nil || len(table) != 2 || table[0].Prefix != vip4 || table[1].Prefix != vip6 || len(table[0].NextHops) != 3 {
				t.Errorf("the table is %v (%v), want both VIPs", table, err)
			}
			opened, err := Open(m)
			if err != nil {
				t.Fatal(err)
			}
			if sessions, err := opened.Sessions(t.Context()); err != nil || len(sessions) != 6 {
				t.Errorf("the opened router has the sessions %v (%v)", sessions, err)
			}

			speakers["edge-3"].Kill()
			awaitHops(t, r, "edge-1", "edge-2")
			w.await(t, 2)
			spread(t, l, "edge-1", "edge-2")
			if err := speakers["edge-2"].Stop(t.Context()); err != nil {
				t.Error(err)
			}
			awaitHops(t, r, "edge-1")
			w.await(t, 1)
			spread(t, l, "edge-1")
			// A machine that vanishes is noticed by its silence.
			if err := l.Machine("edge-1").SetBlackhole(true); err != nil {
				t.Fatal(err)
			}
			awaitHops(t, r)
			w.await(t, 0)
			if err := l.Machine("edge-1").SetBlackhole(false); err != nil {
				t.Fatal(err)
			}
			awaitHops(t, r, "edge-1")
			w.await(t, 1)
			if err := r.Stop(t.Context()); err != nil {
				t.Error(err)
			}
			if table, err := r.Table(t.Context()); err != nil || len(table) != 0 {
				t.Errorf("after the router's end its table is %v (%v)", table, err)
			}
			run(t, k, m, Config{ASN: routerASN, ID: m.Addr4(), Ranges: []Range{{Prefix: net4, Peering: Peering{ASN: edgeASN, Password: "secret"}}}})
			awaitPrefix(t, r, vip4, "edge-1")
		})
	}
}

// FRR's routes name nexthop objects, which may change while the route does not.
func TestWatchFollowsNexthopObjects(t *testing.T) {
	l := up(t, 2)
	m := l.Machine("router")
	w := watchAll(t, m)
	ip := func(args ...string) {
		t.Helper()
		if out, err := m.Command(t.Context(), append([]string{"ip"}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %v: %v: %s", args, err, out)
		}
	}
	for i, e := range l.Machines(lab.RoleEdge) {
		ip("nexthop", "add", "id", fmt.Sprint(40+i), "via", e.Addr4().String(), "dev", "eth0")
		ip("nexthop", "add", "id", fmt.Sprint(60+i), "via", e.Addr6().String(), "dev", "eth0")
	}
	ip("nexthop", "add", "id", "4", "group", "40")
	ip("nexthop", "add", "id", "6", "group", "60")
	ip("route", "add", vip4.String(), "nhid", "4")
	ip("route", "add", vip6.String(), "nhid", "6")
	w.await(t, 1)
	ip("nexthop", "replace", "id", "4", "group", "40/41")
	ip("nexthop", "replace", "id", "6", "group", "60/61")
	w.await(t, 2)
	ip("nexthop", "del", "id", "4")
	ip("nexthop", "del", "id", "6")
	w.await(t, 0)
}

// Edges speak with a reflector; the router knows that one only and learns all next hops.
func TestReflector(t *testing.T) {
	for _, k := range Kinds() {
		for _, of := range Kinds() {
			t.Run(fmt.Sprintf("%s-behind-%s", k, of), func(t *testing.T) {
				l := up(t, 3)
				m, reflector := l.Machine("router"), l.Machine("reflector")
				both := []Family{IPv4, IPv6}
				net4, net6, _ := m.Networks("edges")
				r := run(t, k, m, Config{ASN: routerASN, ID: m.Addr4(), Neighbors: []Neighbor{
					{Address: reflector.Addr4(), Peering: Peering{ASN: routerASN, AddPath: true, Families: both}},
				}})
				run(t, of, reflector, Config{
					ASN: routerASN, ID: reflector.Addr4(), NoKernel: true,
					Neighbors: []Neighbor{{Address: m.Addr4(), Peering: Peering{ASN: routerASN, AddPath: true, Families: both}}},
					Ranges:    []Range{{Prefix: net4, Peering: Peering{ASN: routerASN, Client: true}}, {Prefix: net6, Peering: Peering{ASN: routerASN, Client: true}}},
				})
				speakers := map[string]*Router{}
				for _, e := range l.Machines(lab.RoleEdge) {
					speakers[e.Name()] = run(t, BIRD, e, Config{
						ASN: routerASN, ID: e.Addr4(), Announce: vips, NoKernel: true, Neighbors: []Neighbor{
							{Address: reflector.Addr4(), Peering: Peering{ASN: routerASN}},
							{Address: reflector.Addr6(), Peering: Peering{ASN: routerASN}},
						},
					})
				}
				awaitHops(t, r, "edge-1", "edge-2", "edge-3")
				spread(t, l, "edge-1", "edge-2", "edge-3")
				speakers["edge-1"].Kill()
				awaitHops(t, r, "edge-2", "edge-3")
				spread(t, l, "edge-2", "edge-3")
				if table, err := Table(t.Context(), reflector); err != nil || len(table) != 0 {
					t.Errorf("the reflector's kernel has the routes %v (%v)", table, err)
				}
			})
		}
	}
}

// The rest is what the tests above stand on.

func root(t *testing.T) {
	t.Helper()
	if err := lab.Supported(); err != nil {
		t.Skip(err)
	}
}

// up returns a lab with a client, a router, a reflector and edges that answer at the
// VIPs with their names.
func up(t *testing.T, edges int) *lab.Lab {
	t.Helper()
	root(t)
	topology := lab.Topology{
		Name:     "router",
		Segments: []lab.Segment{{Name: lab.SegmentEdges}, {Name: lab.SegmentClients}},
		Machines: []lab.MachineSpec{
			{Name: "client", Role: lab.RoleClient, Segments: []string{lab.SegmentClients}},
			{Name: "router", Role: lab.RoleRouter, Segments: []string{lab.SegmentEdges, lab.SegmentClients}},
			{Name: "reflector", Role: lab.RoleReflector},
		},
	}
	for i := range edges {
		topology.Machines = append(topology.Machines, lab.MachineSpec{Name: fmt.Sprintf("edge-%d", i+1), Role: lab.RoleEdge})
	}
	l, err := lab.Up(t.Context(), topology, lab.Options{Dir: filepath.Join(t.TempDir(), "labs"), Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			logs(t, l)
		}
		state := l.State()
		if err := l.Down(context.Background()); err != nil {
			t.Error(err)
		}
		left, err := lab.Leftovers(state)
		if err != nil || len(left) > 0 {
			t.Errorf("left over: %v (%v)", left, err)
		}
	})
	for _, e := range l.Machines(lab.RoleEdge) {
		answer(t, e)
	}
	return l
}

// answer makes a machine have the VIPs and answer there.
func answer(t *testing.T, m *lab.Machine) {
	t.Helper()
	h, err := m.Netlink()
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	lo, err := h.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	for _, vip := range vips {
		ip := &net.IPNet{IP: vip.Addr().AsSlice(), Mask: net.CIDRMask(vip.Bits(), vip.Addr().BitLen())}
		if err := h.AddrAdd(lo, &netlink.Addr{IPNet: ip, Flags: unix.IFA_F_NODAD}); err != nil {
			t.Fatal(err)
		}
		listener, err := m.Listen(ctx, "tcp", netip.AddrPortFrom(vip.Addr(), 80).String())
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = backend.Serve(ctx, backend.New(m.Name()), 0, listener) }()
	}
}

func logs(t *testing.T, l *lab.Lab) {
	for _, p := range l.State().Processes {
		raw, err := os.ReadFile(p.Log)
		t.Logf("%s of %s (%v):\n%s", p.Name, p.Machine, err, raw[max(0, len(raw)-2000):])
	}
}

func run(t *testing.T, k Kind, m *lab.Machine, c Config) *Router {
	t.Helper()
	r, err := Start(t.Context(), k, m, c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func await(t *testing.T, what string, try func() error) {
	t.Helper()
	limit := time.Now().Add(time.Minute)
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("wait for %s: %v", what, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// awaitHops waits until the router's next hops of both VIPs are these edges.
func awaitHops(t *testing.T, r *Router, edges ...string) {
	t.Helper()
	for _, vip := range vips {
		awaitPrefix(t, r, vip, edges...)
	}
}

func awaitPrefix(t *testing.T, r *Router, vip netip.Prefix, edges ...string) {
	t.Helper()
	await(t, "next hops of "+vip.String(), func() error {
		hops, err := r.Routes(t.Context(), vip)
		if err != nil {
			return err
		}
		var names []string
		for _, h := range hops {
			names = append(names, edgeAt(h))
		}
		if fmt.Sprint(names) != fmt.Sprint(edges) {
			return fmt.Errorf("they are %v, want %v", names, edges)
		}
		return nil
	})
}

// edgeAt names the edge with an address: those of edge-1 are 10.77.4.1 and fd77::4:1.
func edgeAt(a netip.Addr) string {
	raw := a.AsSlice()
	return fmt.Sprintf("edge-%d", raw[len(raw)-2-(len(raw)-4)/12]-3)
}

// spread sends requests from ports of the client's choice and wants every one of the
// edges to answer some, and nobody else any.
func spread(t *testing.T, l *lab.Lab, edges ...string) {
	t.Helper()
	for _, vip := range vips {
		answers := map[string]int{}
		client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DialContext: l.Machine("client").Dial, DisableKeepAlives: true}}
		for range 30 * len(edges) {
			resp, err := client.Get("http://" + netip.AddrPortFrom(vip.Addr(), 80).String() + "/")
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if err != nil {
				t.Fatal(err)
			}
			answers[strings.TrimSpace(string(body))]++
		}
		// Of 30 n fair throws on n sides, one side stays empty less than once in 1e12 times.
		for _, e := range edges {
			if answers[e] == 0 {
				t.Errorf("%s: answers are %v, want some of %s", vip, answers, e)
			}
		}
		if len(answers) != len(edges) {
			t.Errorf("%s: answers are %v, want them of %v only", vip, answers, edges)
		}
	}
}

// watched is what a watch has said.
type watched struct {
	mu   sync.Mutex
	last map[netip.Prefix]RouteEvent
}

func watchAll(t *testing.T, m *lab.Machine) *watched {
	t.Helper()
	events, err := Watch(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	w := &watched{last: map[netip.Prefix]RouteEvent{}}
	go func() {
		for e := range events {
			w.mu.Lock()
			if before := w.last[e.Prefix]; before.When.After(e.When) || slices.Equal(before.NextHops, e.NextHops) {
				t.Errorf("event %v follows %v", e, before)
			}
			w.last[e.Prefix] = e
			w.mu.Unlock()
		}
	}()
	return w
}

// await waits until the watch has said that the next hops of both VIPs are so many.
func (w *watched) await(t *testing.T, hops int) {
	t.Helper()
	for _, vip := range vips {
		await(t, "the event", func() error {
			w.mu.Lock()
			defer w.mu.Unlock()
			if e, ok := w.last[vip]; !ok || len(e.NextHops) != hops {
				return fmt.Errorf("the last event of %s is %v, want %d next hops", vip, e, hops)
			}
			return nil
		})
	}
}
