package xdp

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.dev/internal/model"
	"fairlead.dev/lab"
)

var (
	vip4 = netip.MustParseAddr("203.0.113.1")
	vip6 = netip.MustParseAddr("2001:db8:1::1")
)

// site is a client behind a router, which spreads over two load balancers, and two machines
// with servers. All of them but client and router have a child.
type site struct {
	*testing.T
	lab       *lab.Lab
	client    *lab.Machine
	lbs, bes  []*balancer
	frontends map[string]*model.Balanced
	over6     bool // tunnels go over IPv6
	guarded   map[netip.Addr][]model.FrontendKey
}

func newSite(t *testing.T) *site {
	t.Helper()
	return newSiteOn(t, "servers")
}

// newSiteOn is newSite where machines are on these segments; the first leads to the router.
func newSiteOn(t *testing.T, segments ...string) *site {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes network namespaces and loads programs")
	}
	var wires []lab.Segment
	for _, name := range append(slices.Clone(segments), "clients") {
		wires = append(wires, lab.Segment{Name: name})
	}
	l, err := lab.Up(t.Context(), lab.Topology{
		Name:     "xdp-" + strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(strings.TrimPrefix(t.Name(), "Test"))),
		Segments: wires,
		Machines: []lab.MachineSpec{
			{Name: "client", Segments: []string{"clients"}},
			{Name: "router", Role: lab.RoleRouter, Segments: []string{"servers", "clients"}},
			{Name: "lb1", Segments: segments},
			{Name: "lb2", Segments: segments},
			{Name: "be1", Segments: segments},
			{Name: "be2", Segments: segments},
		},
	}, lab.Options{Dir: filepath.Join(t.TempDir(), "labs"), Log: slog.New(slog.DiscardHandler)})
	must(t, err)
	t.Cleanup(func() { must(t, l.Down(context.Background())) })
	s := &site{T: t, lab: l, client: l.Machine("client"), frontends: map[string]*model.Balanced{}}
	for _, name := range []string{"lb1", "lb2", "be1", "be2"} {
		b := startBalancer(t, l.Machine(name), len(segments))
		if strings.HasPrefix(name, "lb") {
			s.lbs = append(s.lbs, b)
			s.hold(b.m, vip4, vip6)
		} else {
			s.bes = append(s.bes, b)
			s.serve(b.m)
		}
	}
	s.spread(s.lbs...)
	return s
}

// hold gives a machine VIPs.
func (s *site) hold(m *lab.Machine, vips ...netip.Addr) {
	s.Helper()
	h, err := m.Netlink()
	must(s.T, err)
	defer h.Close()
	lo, err := h.LinkByName("lo")
	must(s.T, err)
	for _, vip := range vips {
		must(s.T, h.AddrAdd(lo, &netlink.Addr{IPNet: host(vip), Flags: unix.IFA_F_NODAD}))
	}
}

func host(a netip.Addr) *net.IPNet {
	return &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
}

// spread has the router send to these load balancers.
func (s *site) spread(lbs ...*balancer) {
	s.Helper()
	h, err := s.lab.Machine("router").Netlink()
	must(s.T, err)
	defer h.Close()
	for _, vip := range []netip.Addr{vip4, vip6} {
		route := &netlink.Route{Dst: host(vip)}
		for _, b := range lbs {
			route.MultiPath = append(route.MultiPath, &netlink.NexthopInfo{Gw: addressOf(b.m, vip).AsSlice()})
		}
		must(s.T, h.RouteReplace(route))
	}
}

// serve has a machine answer HTTP at port 8080 with its name, at all its addresses.
func (s *site) serve(m *lab.Machine) {
	s.Helper()
	l, err := m.Listen(s.Context(), "tcp", ":8080")
	must(s.T, err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/large" {
			_, _ = w.Write(make([]byte, 1<<20))
			return
		}
		n, _ := io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/count" {
			_, _ = fmt.Fprint(w, n)
			return
		}
		_, _ = io.WriteString(w, m.Name()+" "+r.RemoteAddr)
	})}
	go func() { _ = server.Serve(l) }()
	s.Cleanup(func() { _ = server.Close() })
}

// put sets a frontend at port 80 of both VIPs.
func (s *site) put(mode model.ForwardMode, weights ...uint32) {
	for _, vip := range []netip.Addr{vip4, vip6} {
		f := &model.Frontend{
			FrontendKey: model.FrontendKey{VIP: vip, Transport: model.TCP, Port: 8080}, Machines: []string{"lb1", "lb2"}, Mode: mode, Drain: time.Minute,
		}
		b := &model.Balanced{Frontend: f}
		for i, w := range weights {
			m := s.bes[i].m
			x := model.FrontendBackend{Address: netip.AddrPortFrom(addressOf(m, vip), 8080), Weight: w, HopWeight: 100}
			if w == 0 {
				x.State = model.BackendDraining
			}
			if mode == model.ModeAuto || mode == model.ModeDSRGeneve {
				x.Machine = m.Name()
			}
			b.Backends = append(b.Backends, x)
		}
		s.frontends[f.String()] = b
	}
	for _, b := range append(append([]*balancer(nil), s.bes...), s.lbs...) {
		if b.p.Running() {
			s.tell(b)
		}
	}
}

func (s *site) tell(b *balancer) report {
	s.Helper()
	o := order{Machine: b.m.Name(), Nodes: map[string]*model.Node{}, Guarded: s.guarded}
	for _, x := range append(append([]*balancer(nil), s.lbs...), s.bes...) {
		n := nodeOf(x.m)
		if s.over6 {
			n.Tunnel4 = netip.Addr{}
		}
		o.Nodes[x.m.Name()] = n
	}
	for _, f := range s.frontends {
		o.Frontends = append(o.Frontends, f)
	}
	return b.tell(o)
}

// get asks a VIP over a new connection, and returns the name of who answered and as whom it
// sees the client.
func (s *site) get(client *http.Client, vip netip.Addr, path string) (name, seen string, err error) {
	ctx, cancel := context.WithTimeout(s.Context(), 20*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+netip.AddrPortFrom(vip, 8080).String()+path, strings.NewReader(strings.Repeat("x", 20000)))
	if err != nil {
		return "", "", err
	}
	answer, err := client.Do(r)
	if err != nil {
		return "", "", err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return "", "", err
	}
	name, seen, _ = strings.Cut(string(body), " ")
	return name, seen, nil
}

// settled waits until every load balancer has the ways to the servers.
func (s *site) settled() {
	s.Helper()
	ctx := deadline(s.T)
	for _, vip := range []netip.Addr{vip4, vip6} {
		for {
			client := s.client.HTTPClient()
			_, _, err := s.get(client, vip, "/")
			client.CloseIdleConnections()
			if err == nil {
				break
			}
			pause(ctx, s.T, "%v", err)
		}
	}
}

func TestTrafficByMode(t *testing.T) {
	s := newSite(t)
	for i, mode := range []model.ForwardMode{model.ModeDSRGeneve, model.ModeDSRGeneve, model.ModeNAT, model.ModeDSRL2} {
		s.over6 = i == 1
		if mode == model.ModeDSRL2 {
			for _, b := range s.bes {
				s.hold(b.m, vip4, vip6)
			}
		}
		s.put(mode, 100, 100)
		s.settled()
		for _, vip := range []netip.Addr{vip4, vip6} {
			names, seen := map[string]int{}, map[string]int{}
			for range 40 {
				client := s.client.HTTPClient()
				name, from, err := s.get(client, vip, "/")
				client.CloseIdleConnections()
				if err != nil {
					t.Fatalf("%s at %s: %v\n%s", mode, vip, err, s.state())
				}
				names[name]++
				if ap, err := netip.ParseAddrPort(from); err == nil {
					seen[ap.Addr().String()]++
				}
			}
			if names["be1"] == 0 || names["be2"] == 0 || len(names) != 2 {
				t.Errorf("%s at %s: answers come from %v", mode, vip, names)
			}
			if direct := seen[addressOf(s.client, vip).String()]; (mode != model.ModeNAT) != (direct == 40) {
				t.Errorf("%s at %s: clients are seen as %v", mode, vip, seen)
			}
			if name, _, err := s.get(s.client.HTTPClient(), vip, "/large"); err != nil || len(name) != 1<<20 {
				t.Errorf("%s at %s: of 1 MiB came %d bytes: %v\n%s", mode, vip, len(name), err, s.state())
			}
		}
		for _, b := range s.lbs {
			r := s.tell(b)
			var packets uint64
			for _, f := range r.Figures {
				packets += f.Packets
			}
			for _, o := range r.Observed {
				if o.State != model.FrontendBalanced || o.Mode != mode || o.Available != 2 || o.Message != "" {
					t.Errorf("%s observes %+v, want mode %s", b.m.Name(), o, mode)
				}
			}
			if packets == 0 {
				t.Errorf("%s: %s has balanced nothing", mode, b.m.Name())
			}
		}
	}
	t.Logf("maps of %d bytes", s.lbs[0].tell(order{}).MapBytes)
}

// state is what there is to see when something fails.
func (s *site) state() string {
	var b strings.Builder
	for _, x := range append(append([]*balancer(nil), s.lbs...), s.bes...) {
		r := s.tell(x)
		for reason, n := range r.Drops {
			if n > 0 {
				fmt.Fprintf(&b, "%s dropped %d: %s\n", x.m.Name(), n, reason)
			}
		}
		for _, o := range r.Observed {
			fmt.Fprintf(&b, "%s %+v\n", x.m.Name(), o)
		}
		for _, f := range r.Figures {
			fmt.Fprintf(&b, "%s %+v\n", x.m.Name(), f)
		}
		b.WriteString(x.log())
	}
	return b.String()
}

// load is requests that go on while things happen.
type load struct {
	done   atomic.Int64
	failed atomic.Int64
	mu     sync.Mutex
	errs   []string
	stop   context.CancelFunc
	all    sync.WaitGroup
}

// load starts workers for each VIP that ask over kept connections, and others over new ones.
func (s *site) load(workers int) *load {
	ctx, stop := context.WithCancel(s.Context())
	l := &load{stop: stop}
	for i := range workers {
		vip, fresh := vip4, i%4 >= 2
		if i%2 == 1 {
			vip = vip6
		}
		client := s.client.HTTPClient()
		l.all.Go(func() {
			for ctx.Err() == nil {
				if _, _, err := s.get(client, vip, "/"); err != nil {
					l.failed.Add(1)
					l.mu.Lock()
					l.errs = append(l.errs, fmt.Sprintf("new connections %t: %v", fresh, err))
					l.mu.Unlock()
				}
				l.done.Add(1)
				if fresh {
					client.CloseIdleConnections()
				}
			}
		})
	}
	return l
}

// more waits until so many more requests are done.
func (l *load) more(t *testing.T, n int64) {
	t.Helper()
	ctx := deadline(t)
	for until := l.done.Load() + n; l.done.Load() < until; {
		pause(ctx, t, "%d requests", n)
	}
}

func (l *load) end(s *site) {
	s.Helper()
	l.stop()
	l.all.Wait()
	if n := l.failed.Load(); n > 0 {
		s.Errorf("%d of %d requests failed: %v\n%s", n, l.done.Load(), l.errs[:min(5, len(l.errs))], s.state())
	}
	s.Logf("%d requests", l.done.Load())
}

// No request fails while agents are killed and come again, backends drain, come and get
// other weights, and a load balancer's flows move to the other.
func TestFlowsSurvive(t *testing.T) {
	for _, mode := range []model.ForwardMode{model.ModeDSRGeneve, model.ModeNAT} {
		t.Run(string(mode), func(t *testing.T) {
			s := newSite(t)
			s.put(mode, 100, 100)
			s.settled()
			l := s.load(8)
			l.more(t, 100)
			for _, b := range append(append([]*balancer(nil), s.lbs...), s.bes...) {
				b.p.Kill9()
				l.more(t, 50)
				b.start()
				s.tell(b)
				l.more(t, 50)
			}
			s.put(mode, 100, 40)
			l.more(t, 100)
			s.put(mode, 0, 100)
			l.more(t, 100)
			s.put(mode, 100, 100)
			l.more(t, 100)
			if mode == model.ModeDSRGeneve { // NAT knows its flows at one load balancer only
				s.spread(s.lbs[0])
				l.more(t, 100)
				s.spread(s.lbs...)
				l.more(t, 100)
			}
			l.end(s)
		})
	}
}
