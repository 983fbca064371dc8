package xdp

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.dev/internal/balance"
	"fairlead.dev/internal/explain"
	"fairlead.dev/internal/lookup"
	"fairlead.dev/internal/model"
)

// explained is a machine whose data plane balances frontends of every kind, so that what
// explain says of a flow can be compared with what the program does.
type explained struct {
	*testing.T
	random    *rand.Rand
	d         *DataPlane
	frontends []*explainedFrontend
	byKey     map[model.FrontendKey]*model.Balanced
	vips      map[netip.Addr]bool
	links     map[string]netip.Addr // of backends, by link address
	drops     map[string]uint64
	seen      map[string]int
}

// explainedFrontend is a frontend before the plane has made backends of it.
type explainedFrontend struct {
	model.Frontend
	set     model.BackendSet
	proxies []balance.Proxy
	health  map[netip.AddrPort]model.Health
	past    balance.History
	share   int // of the flows
}

const explainedSet = model.SetID("Service/team/app/80")

func newExplained(t *testing.T) *explained {
	inMachine(t)
	w := &explained{
		T: t, random: rand.New(rand.NewPCG(5, 10_000)), links: map[string]netip.Addr{}, vips: map[netip.Addr]bool{}, drops: map[string]uint64{}, seen: map[string]int{},
	}
	eth0, err := netlink.LinkByName("eth0")
	must(t, err)
	for _, base := range []string{"192.0.2.0", "2001:db8::"} {
		for i := range 60 {
			a := nth(netip.MustParseAddr(base), i+2)
			link := net.HardwareAddr{2, 0, 1, 0, byte(a.BitLen()), byte(i + 2)}
			w.links[link.String()] = a
			must(t, netlink.NeighSet(&netlink.Neigh{LinkIndex: eth0.Attrs().Index, IP: a.AsSlice(), State: unix.NUD_PERMANENT, HardwareAddr: link}))
		}
	}
	w.d, err = New(Config{Dir: pinsIn(t), Interfaces: []string{"eth0"}, Log: slog.New(slog.DiscardHandler), Sizes: Sizes{
		Frontends: 64, Backends: 512, Rows: 1 << 20, NextHops: 128, Sources: 64, Flows: 1 << 15, Fresh: 1 << 15, NAT: 1 << 14, Owned: 1024, Fragments: 64, Affinity: 4096,
	}})
	must(t, err)
	t.Cleanup(func() { must(t, w.d.Close(false)) })
	return w
}

// nth is an address so far behind another of its network.
func nth(a netip.Addr, n int) netip.Addr {
	if a.Is4() {
		b := a.As4()
		binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+uint32(n))
		return netip.AddrFrom4(b)
	}
	b := a.As16()
	binary.BigEndian.PutUint64(b[8:], binary.BigEndian.Uint64(b[8:])+uint64(n))
	return netip.AddrFrom16(b)
}

// add adds a frontend with backends at 192.0.2.10 and so on, or 2001:db8::a, at the
// frontend's port or, where the mode can change it, another.
func (w *explained) add(name string, mode model.ForwardMode, backends int, change func(*explainedFrontend)) {
	w.Helper()
	f := &explainedFrontend{health: map[netip.AddrPort]model.Health{}, share: 10}
	f.Frontend = model.Frontend{
		FrontendKey: frontendKey(w.T, name), Mode: mode, Machines: []string{"m1", "m2"}, Targets: []model.Target{{Set: explainedSet, Weight: 1}},
		Owner: model.Object{Kind: "Service", Namespace: "team", Name: "app"}, Weights: map[netip.Addr]uint32{},
	}
	port, base := f.Port, netip.MustParseAddr("192.0.2.0")
	if mode == model.ModeNAT || mode == model.ModeDSRGeneve {
		port = 8080
	}
	if f.VIP.Is6() {
		base = netip.MustParseAddr("2001:db8::")
	}
	f.set.ID = explainedSet
	for i := range backends {
		b := model.Backend{Address: netip.AddrPortFrom(nth(base, 10+i), port)}
		if mode == model.ModeDSRGeneve {
			b.Machine = fmt.Sprintf("m%d", i%4+1)
		}
		f.set.Backends = append(f.set.Backends, b)
	}
	if change != nil {
		change(f)
	}
	w.frontends = append(w.frontends, f)
	w.vips[f.VIP] = true
}

func (f *explainedFrontend) address(i int) netip.Addr { return f.set.Backends[i].Address.Addr() }

func (f *explainedFrontend) ill(list ...int) {
	clear(f.health)
	for _, i := range list {
		f.health[f.set.Backends[i].Address] = model.Unhealthy
	}
}

// set has the data plane balance the frontends as they are now.
func (w *explained) set(now time.Time) {
	w.Helper()
	n := nodes("m1", "m2", "m3", "m4")
	n["m1"].Tunnel6 = netip.MustParseAddr("2001:db8::1")
	n["m4"].Tunnel4, n["m4"].Tunnel6 = netip.Addr{}, netip.MustParseAddr("2001:db8::4")
	b := model.Balancing{Machine: "m1", Nodes: n, Frontends: map[model.FrontendKey]*model.Balanced{}}
	for _, f := range w.frontends {
		given := f.Frontend
		in := balance.Input{
			Frontend: &given, Sets: map[model.SetID]*model.BackendSet{explainedSet: &f.set}, Proxies: f.proxies, Before: f.past, Now: now,
			Health: func(a netip.AddrPort) model.Health { return f.health[a] },
		}
		at := &model.Balanced{Frontend: &given}
		at.Backends, f.past, _ = balance.Backends(in)
		b.Frontends[f.FrontendKey] = at
	}
	must(w.T, w.d.Set(b))
	w.byKey = b.Frontends
	for _, o := range w.d.Observed() {
		if o.State != model.FrontendBalanced || o.DataPlane != model.DataPlaneXDP || o.Message != "" {
			w.Fatalf("%s is %s by %s: %s", o.FrontendKey, o.State, o.DataPlane, o.Message)
		}
	}
}

// client is somebody who may send to a frontend, or may not.
func (w *explained) client(f *explainedFrontend) netip.AddrPort {
	any4 := func(text string) netip.Addr {
		p := netip.MustParsePrefix(text)
		b := p.Addr().As4()
		v := binary.BigEndian.Uint32(b[:]) | w.random.Uint32()>>p.Bits()
		binary.BigEndian.PutUint32(b[:], v)
		return netip.AddrFrom4(b)
	}
	a := any4("0.0.0.0/0")
	switch n := w.random.IntN(40); {
	case n == 0:
		a = any4([]string{"127.0.0.0/8", "0.0.0.0/8", "224.0.0.0/3"}[w.random.IntN(3)])
	case n == 1:
		a = netip.MustParseAddr("203.0.113.2")
	case len(f.Sources) > 0 && n < 20:
		a = any4(f.Sources[w.random.IntN(len(f.Sources))].String())
	}
	if f.VIP.Is6() {
		four := a.As4()
		b := netip.MustParseAddr("2001:db8:c::").As16()
		binary.BigEndian.PutUint64(b[8:], w.random.Uint64())
		switch {
		case four[0] == 0:
			b = netip.IPv6Loopback().As16()
		case four[0] >= 224:
			b[0] = 0xff
		}
		a = netip.AddrFrom16(b)
	}
	return netip.AddrPortFrom(a, uint16(1+w.random.IntN(65535)))
}

// fate is what becomes of a packet: who is asked for it, in order, or why it is dropped.
type fate struct {
	left   bool // to the kernel
	reason string
	asked  []string
}

func (f fate) String() string {
	switch {
	case f.left:
		return "left"
	case f.reason != "":
		return "dropped: " + f.reason
	}
	return fmt.Sprint(f.asked)
}

func named(b model.FrontendBackend) string { return b.Address.String() + "@" + b.Machine }

// told is the fate as explain tells it. opens says that the packet begins a flow.
func (w *explained) told(k model.FrontendKey, client netip.AddrPort, opens bool) fate {
	world := explain.FlowWorld{Balanced: w.byKey[k], FromVIP: w.vips[client.Addr()]}
	for _, o := range w.d.Observed() {
		if o.FrontendKey == k {
			world.At = append(world.At, explain.FrontendAt{Machine: "m1", FrontendObserved: o})
		}
	}
	e := explain.Flow(explain.FlowRequest{Frontend: k, Client: client, Machine: "m1"}, world)
	for _, note := range e.Notes {
		if note == "" || e.Frontend == nil {
			w.Fatalf("%s from %s: %+v", k, client, e)
		}
	}
	if e.Frontend == nil {
		return fate{left: true}
	}
	if e.Reason != "" && (opens || len(e.Asked) == 0) {
		return fate{reason: e.Reason}
	}
	var f fate
	for _, b := range e.Asked {
		f.asked = append(f.asked, named(b.FrontendBackend))
	}
	if opens && (e.Backend == nil || named(e.Backend.FrontendBackend) != f.asked[0]) {
		w.Fatalf("%s from %s: the backend is %+v, asked are %v", k, client, e.Backend, f.asked)
	}
	return f
}

// done is the fate as the program decides it.
func (w *explained) done(k model.FrontendKey, s shape) fate {
	packet := s.bytes()
	options := ebpf.RunOptions{Data: packet, DataOut: make([]byte, len(packet)+256)}
	verdict, err := w.d.k.object.Program(bpfProgBalance).Run(&options)
	must(w.T, err)
	out := options.DataOut
	b := w.byKey[k]
	switch {
	case verdict == xdpDrop:
		return fate{reason: w.dropped()}
	case verdict == xdpPass && slices.Equal(out, packet):
		if b != nil && len(b.Backends) > 0 && b.Backends[0].Proxy(k) {
			return fate{asked: []string{named(b.Backends[0])}} // its own proxy takes it
		}
		return fate{left: true}
	case b == nil:
		w.Fatalf("%s: verdict %d of what is nobody's", k, verdict)
	}
	find := func(is func(model.FrontendBackend) bool) string {
		i := slices.IndexFunc(b.Backends, is)
		if i < 0 {
			w.Fatalf("%s: it went to nobody of %+v\n%x", k, b.Backends, out)
		}
		return named(b.Backends[i])
	}
	mode := b.Frontend.Mode
	if b.Frontend.Listener != "" {
		mode = model.ModeDSRGeneve
	}
	switch mode {
	case model.ModeDSRL2:
		to := w.links[net.HardwareAddr(out[:6]).String()]
		return fate{asked: []string{find(func(x model.FrontendBackend) bool { return x.Address.Addr() == to })}}
	case model.ModeNAT:
		to := sentTo(inner(out))
		return fate{asked: []string{find(func(x model.FrontendBackend) bool { return x.Address == to })}}
	}
	out, _ = noted(out) // to a backend here
	e, err := unwrap(out)
	must(w.T, err)
	if !e.geneve {
		return fate{asked: []string{find(func(x model.FrontendBackend) bool { return x.Address.Addr() == e.to })}}
	}
	var f fate
	for _, id := range e.ids {
		f.asked = append(f.asked, find(func(x model.FrontendBackend) bool { return lookup.ID(k, x) == id }))
	}
	return f
}

// sentTo is where an IP packet without options goes to. A decoder would look behind the
// ports, which are any.
func sentTo(ip []byte) netip.AddrPort {
	at, length, ports := 16, 4, 20
	if ip[0]>>4 == 6 {
		at, length, ports = 24, 16, 40
	}
	return netip.AddrPortFrom(mustAddr(ip[at:at+length]), binary.BigEndian.Uint16(ip[ports+2:]))
}

// dropped is why a packet was dropped just now.
func (w *explained) dropped() (reason string) {
	_, drops, err := w.d.Figures()
	must(w.T, err)
	for name, n := range drops {
		if n > w.drops[name] {
			reason += name
		}
	}
	w.drops = drops
	return reason
}

// compare sends flows of random clients, and asks explain about each.
func (w *explained) compare(flows int) {
	w.Helper()
	var lots []*explainedFrontend
	for _, f := range w.frontends {
		for range f.share {
			lots = append(lots, f)
		}
	}
	wrong := 0
	for range flows {
		f := lots[w.random.IntN(len(lots))]
		k := f.FrontendKey
		if w.random.IntN(50) == 0 {
			k.Port++ // of nobody
		}
		s := shape{client: w.client(f), to: k, flags: "S", payload: []byte("hello"), ttl: 61, dst: net.HardwareAddr{2, 0, 0, 0, 0, 1}}
		opens := k.Transport == model.UDP || w.random.IntN(8) > 0
		if !opens {
			s.flags = "A" // of a flow that nobody here has heard of
		}
		want, got := w.told(k, s.client, opens), w.done(k, s)
		kind := "left"
		switch {
		case got.reason != "":
			kind = got.reason
		case len(got.asked) > 0:
			kind = fmt.Sprintf("%s%s, %d asked", k.Transport, f.Mode, len(got.asked))
		}
		w.seen[kind]++
		// Of UDP, others are asked only while rows have just changed.
		if k.Transport == model.UDP && len(got.asked) == 1 && len(want.asked) > 1 {
			want.asked = want.asked[:1]
		}
		if want.String() != got.String() {
			if wrong++; wrong <= 10 {
				w.Errorf("%s from %s, %q: explained as %s, the program did %s", k, s.client, s.flags, want, got)
			}
		}
	}
	if wrong > 0 {
		w.Errorf("%d of %d flows are explained wrongly", wrong, flows)
	}
}

// TestExplainIsWhatTheKernelDoes asks what `fairlead explain tcp://VIP:PORT --from IP:PORT`
// asks, and the program, about 10,000 random flows: of every mode, hash, protocol and family,
// with weights, drains, bad health, source ranges and panic, before and after changes.
func TestExplainIsWhatTheKernelDoes(t *testing.T) {
	w := newExplained(t)
	geneve, ipip, nat, l2 := model.ModeDSRGeneve, model.ModeDSRIPIP, model.ModeNAT, model.ModeDSRL2
	hash := func(by model.FlowHash) func(*explainedFrontend) { return func(f *explainedFrontend) { f.Hash = by } }
	weights := func(list ...uint32) func(*explainedFrontend) {
		return func(f *explainedFrontend) {
			for i, v := range list {
				f.Weights[f.address(i)] = v
			}
		}
	}
	w.add("tcp://203.0.113.1:80", ipip, 5, nil)
	w.add("udp://203.0.113.1:53", ipip, 3, hash(model.HashThreeTuple))
	w.add("tcp://[2001:db8:f::1]:443", ipip, 8, hash(model.HashSource))
	w.add("tcp://203.0.113.2:80", geneve, 6, weights(100, 100, 1, 40, 250, 100))
	w.add("udp://203.0.113.2:80", geneve, 4, hash(model.HashThreeTuple))
	w.add("tcp://[2001:db8:f::2]:80", geneve, 7, hash(model.HashSource))
	w.add("udp://[2001:db8:f::2]:443", geneve, 2, nil)
	w.add("tcp://203.0.113.3:80", nat, 4, weights(3, 2, 1, 1))
	w.add("udp://[2001:db8:f::3]:53", nat, 3, hash(model.HashSource))
	w.add("tcp://203.0.113.4:80", l2, 3, func(f *explainedFrontend) {
		f.Sources = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("198.18.0.0/15")}
	})
	w.add("udp://203.0.113.4:81", l2, 3, func(f *explainedFrontend) { f.Affinity, f.Hash = time.Hour, model.HashThreeTuple })
	w.add("tcp://203.0.113.5:80", geneve, 4, func(f *explainedFrontend) { f.Panic = 50; f.ill(0, 1, 2, 3) })
	w.add("tcp://203.0.113.5:81", ipip, 4, func(f *explainedFrontend) { f.ill(0, 1, 2, 3) })
	w.add("tcp://203.0.113.5:82", geneve, 5, func(f *explainedFrontend) { f.ill(0, 1, 2, 3, 4) })
	w.add("tcp://203.0.113.6:80", ipip, 0, nil)
	w.add("tcp://203.0.113.7:80", geneve, 8, func(f *explainedFrontend) { f.LocalOnly, f.NewFlows = true, 1<<20 })
	w.add("tcp://203.0.113.7:81", geneve, 3, func(f *explainedFrontend) {
		f.LocalOnly, f.set.Backends = true, f.set.Backends[1:]
	})
	w.add("tcp://203.0.113.8:443", model.ModeAuto, 0, func(f *explainedFrontend) {
		f.Listener, f.Targets = "team/edge/https", nil
		f.proxies = []balance.Proxy{{Machine: "m1"}, {Machine: "m2"}, {Machine: "m3", State: model.BackendDraining}, {Machine: "m4"}}
	})
	w.add("tcp://203.0.113.9:443", model.ModeAuto, 0, func(f *explainedFrontend) {
		f.Listener, f.Targets, f.proxies = "team/edge/other", nil, []balance.Proxy{{Machine: "m1"}}
		f.Sources = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	})
	w.add("tcp://203.0.113.10:80", geneve, 40, func(f *explainedFrontend) { f.share = 2 })
	// Large tables take explain longest.
	seldom := func(f *explainedFrontend) { f.share = 4 }
	w.add("tcp://203.0.113.12:80", geneve, 9, seldom)
	w.add("tcp://203.0.113.13:80", ipip, 7, nil)
	w.add("tcp://203.0.113.11:80", geneve, 12, func(f *explainedFrontend) {
		seldom(f)
		weights(100, 99, 1, 7, 50, 50, 50, 50, 100, 100, 100, 100)(f)
	})

	now := time.Unix(1_000_000, 0)
	w.set(now)
	w.compare(4000)

	// Backends drain, die, come and change their weights.
	now = now.Add(time.Second)
	by := func(name string) *explainedFrontend {
		k := frontendKey(t, name)
		return w.frontends[slices.IndexFunc(w.frontends, func(f *explainedFrontend) bool { return f.FrontendKey == k })]
	}
	weights(100, 40, 1, 40, 250, 100)(by("tcp://203.0.113.2:80"))
	for _, name := range []string{"tcp://203.0.113.2:80", "udp://203.0.113.2:80", "tcp://203.0.113.1:80", "tcp://203.0.113.11:80"} {
		f := by(name)
		f.Drained = []netip.Addr{f.address(0), f.address(2)}
	}
	for _, name := range []string{"tcp://203.0.113.3:80", "tcp://[2001:db8:f::2]:80", "udp://[2001:db8:f::2]:443", "udp://203.0.113.4:81"} {
		by(name).ill(1)
	}
	by("tcp://203.0.113.5:80").ill(0, 1)       // half are well: no panic any more
	by("tcp://203.0.113.5:82").ill(0, 1, 2, 4) // one is well
	gone := by("tcp://203.0.113.7:80")
	gone.set.Backends = slices.Delete(slices.Clone(gone.set.Backends), 4, 5)
	by("tcp://203.0.113.8:443").proxies[3].State = model.BackendUnready
	// So many that their table has more rows, or fewer once those that drain have gone.
	fewer, more := by("tcp://203.0.113.12:80"), by("tcp://203.0.113.13:80")
	fewer.set.Backends = slices.Clone(fewer.set.Backends[:6])
	for i := range 3 {
		more.set.Backends = append(more.set.Backends, model.Backend{Address: netip.AddrPortFrom(nth(netip.MustParseAddr("192.0.2.40"), i), 80)})
	}
	w.set(now)
	w.compare(4000)

	// And again, once the first drains are over.
	now = now.Add(time.Minute)
	for _, f := range w.frontends {
		f.Drained = nil
		clear(f.health)
	}
	by("tcp://203.0.113.11:80").Drained = []netip.Addr{by("tcp://203.0.113.11:80").address(1)}
	w.set(now)
	w.compare(2000)

	for _, kind := range []string{
		"left", "martian-source", "source-denied", "no-backend", "TCPDSRIPIP, 1 asked", "UDPDSRIPIP, 1 asked", "TCPDSRGeneve, 3 asked",
		"UDPDSRGeneve, 1 asked", "UDPDSRGeneve, 3 asked", "UDPDSRGeneve, 2 asked", "TCPNAT, 1 asked", "UDPNAT, 1 asked", "TCPDSRL2, 1 asked", "UDPDSRL2, 1 asked", "TCP, 3 asked", "TCP, 1 asked",
	} {
		if w.seen[kind] == 0 {
			t.Errorf("there was no %s among %v", kind, w.seen)
		}
	}
	t.Logf("fates: %v", w.seen)
}
