package xdp

import (
	"errors"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"fairlead.dev/internal/driver/bpf"
	"fairlead.dev/internal/model"
)

// pinsIn is a directory of pins that goes with the test.
func pinsIn(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "pins")
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.ENOENT) {
			t.Error(err)
		}
	})
	return dir
}

// one is a frontend of m1 with one backend at 192.0.2.2.
func one(t testing.TB, change func(*model.Frontend)) model.Balancing {
	t.Helper()
	f := &model.Frontend{FrontendKey: frontendKey(t, "tcp://203.0.113.1:80"), Machines: []string{"m1"}, Mode: model.ModeNAT}
	if change != nil {
		change(f)
	}
	return model.Balancing{Machine: "m1", Nodes: nodes("m1", "m2"), Frontends: map[model.FrontendKey]*model.Balanced{
		f.FrontendKey: {Frontend: f, Backends: []model.FrontendBackend{{Address: netip.MustParseAddrPort("192.0.2.2:80"), Weight: 1, HopWeight: 1}}},
	}}
}

// xdpAt is how XDP is attached to an interface.
func xdpAt(t *testing.T, name string) uint32 {
	t.Helper()
	l, err := netlink.LinkByName(name)
	must(t, err)
	if x := l.Attrs().Xdp; x != nil && x.Attached {
		return x.AttachMode
	}
	return nl.XDP_ATTACHED_NONE
}

func hooks(d *DataPlane) string {
	var list []string
	for h := range hooked {
		at := d.attached.At(h)
		for _, a := range at {
			list = append(list, string(h)+"@"+a.Name)
		}
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

func TestAttachedWhileThereIsSomethingToBalance(t *testing.T) {
	inMachine(t)
	d := newPlane(t, pinsIn(t))
	must(t, d.Set(model.Balancing{Machine: "m1"}))
	if d.k != nil {
		t.Error("programs are loaded for nothing")
	}
	must(t, d.Set(one(t, nil)))
	if got := hooks(d); got != "egress@eth0 ingress@eth0 xdp@eth0" || xdpAt(t, "eth0") != nl.XDP_ATTACHED_DRV {
		t.Errorf("attached are %s", got)
	}
	// The VIP is elsewhere, and a backend is here.
	elsewhere := one(t, func(f *model.Frontend) { f.Machines = []string{"m2"} })
	for _, f := range elsewhere.Frontends {
		f.Backends[0].Machine = "m1"
	}
	must(t, d.Set(elsewhere))
	if got := hooks(d); got != "egress@eth0 ingress@eth0" || xdpAt(t, "eth0") != nl.XDP_ATTACHED_NONE {
		t.Errorf("attached are %s", got)
	}
	must(t, d.Set(model.Balancing{Machine: "m1"}))
	if got := hooks(d); got != "" {
		t.Errorf("attached are %s", got)
	}
	must(t, d.Close(false))
}

func TestInterfacesComeAndGo(t *testing.T) {
	inMachine(t)
	dir := pinsIn(t)
	d := newPlane(t, dir)
	must(t, d.Set(one(t, nil)))
	eth0, err := netlink.LinkByName("eth0")
	must(t, err)
	must(t, netlink.LinkDel(eth0))
	d.look(false)
	o := d.Observed()[0]
	if hooks(d) != "" || o.State != model.FrontendRefused || !strings.Contains(o.Message, "interface eth0 does not exist") {
		t.Errorf("without an interface: %s, %+v", hooks(d), o)
	}
	must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "far"}))
	d.look(false)
	if o := d.Observed()[0]; hooks(d) != "egress@eth0 ingress@eth0 xdp@eth0" || o.State != model.FrontendBalanced {
		t.Errorf("with a new one: %s, %+v", hooks(d), o)
	}
	// What somebody detaches is attached again.
	must(t, d.attached.At(bpf.XDP)[index(t, "eth0")].Link.Detach())
	if xdpAt(t, "eth0") != nl.XDP_ATTACHED_NONE {
		t.Fatal("it is still attached")
	}
	d.look(false)
	if xdpAt(t, "eth0") != nl.XDP_ATTACHED_DRV {
		t.Error("it is not attached again")
	}
	// An interface that goes while no agent runs.
	must(t, d.Close(true))
	eth0, err = netlink.LinkByName("eth0")
	must(t, err)
	must(t, netlink.LinkDel(eth0))
	must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "far"}))
	d = newPlane(t, dir)
	must(t, d.Set(one(t, nil)))
	if got := hooks(d); got != "egress@eth0 ingress@eth0 xdp@eth0" || xdpAt(t, "eth0") != nl.XDP_ATTACHED_DRV {
		t.Errorf("after a pause: %s", got)
	}
	must(t, d.Close(false))
}

func index(t *testing.T, name string) int {
	t.Helper()
	l, err := netlink.LinkByName(name)
	must(t, err)
	return l.Attrs().Index
}

// A bridge runs no XDP program of its own.
func TestGenericWhereTheDriverCannot(t *testing.T) {
	inMachine(t)
	must(t, netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br.0"}}))
	dir := pinsIn(t)
	config := func() *DataPlane {
		d := newPlane(t, dir)
		d.c.Interfaces = []string{"br.0"}
		return d
	}
	d := config()
	must(t, d.Set(one(t, nil)))
	gro := func() bool {
		on, err := bpf.SetGRO("br.0", false)
		must(t, err)
		return on
	}
	if o := d.Observed()[0]; xdpAt(t, "br.0") != nl.XDP_ATTACHED_SKB || o.State != model.FrontendBalanced || !strings.Contains(o.Message, "the driver of br.0 does not support XDP") {
		t.Errorf("attached by %d, %+v", xdpAt(t, "br.0"), o)
	}
	if gro() {
		t.Error("segments are merged before the program sees them")
	}
	must(t, d.Close(true))
	d = config()
	must(t, d.Set(one(t, nil)))
	if xdpAt(t, "br.0") != nl.XDP_ATTACHED_SKB || len(d.attached.Generic()) != 1 {
		t.Error("the next agent does not know that it is generic")
	}
	must(t, d.Close(false))
	if xdpAt(t, "br.0") != nl.XDP_ATTACHED_NONE || !gro() {
		t.Error("the interface is not as before")
	}
}

func TestAnotherProgramIsLeftAlone(t *testing.T) {
	inMachine(t)
	theirs := newPlane(t, pinsIn(t))
	must(t, theirs.Set(one(t, nil)))
	d := newPlane(t, pinsIn(t))
	must(t, d.Set(one(t, nil)))
	if o := d.Observed()[0]; o.State != model.FrontendRefused || !strings.Contains(o.Message, "another program is attached there") {
		t.Errorf("observed %+v", o)
	}
	must(t, d.Close(false))
	if hooks(theirs) != "egress@eth0 ingress@eth0 xdp@eth0" || xdpAt(t, "eth0") != nl.XDP_ATTACHED_DRV {
		t.Error("the other's program has gone")
	}
	must(t, theirs.Close(false))
}

// A map that is full refuses one frontend, with the reason, and no other.
func TestFullMaps(t *testing.T) {
	for name, c := range map[string]struct {
		sizes Sizes
		says  string
	}{
		"rows":      {Sizes{Rows: 8192}, "8192"},
		"backends":  {Sizes{Backends: 4}, "for another backend"},
		"frontends": {Sizes{Frontends: 3}, "for another frontend"},
		"sources":   {Sizes{Sources: 2}, "no room"},
	} {
		t.Run(name, func(t *testing.T) {
			inMachine(t)
			d := newPlane(t, pinsIn(t))
			d.sizes = c.sizes.or(smallSizes)
			b := one(t, nil)
			for _, port := range []uint16{1, 2, 3, 4} {
				x := *b.Frontends[frontendKey(t, "tcp://203.0.113.1:80")]
				f := *x.Frontend
				f.Port, f.Sources = port, []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(port)}), 32)}
				x.Frontend = &f
				b.Frontends[f.FrontendKey] = &x
			}
			delete(b.Frontends, frontendKey(t, "tcp://203.0.113.1:80"))
			must(t, d.Set(b))
			refused := map[model.FrontendState][]uint16{}
			for _, o := range d.Observed() {
				refused[o.State] = append(refused[o.State], o.Port)
				if o.State == model.FrontendRefused && !strings.Contains(o.Message, c.says) {
					t.Errorf("%d is refused: %q", o.Port, o.Message)
				}
			}
			if len(refused[model.FrontendBalanced]) < 1 || len(refused[model.FrontendRefused]) < 1 {
				t.Fatalf("got %v", refused)
			}
			before := dump(d)
			must(t, d.Set(b))
			if after := dump(d); after != before {
				t.Errorf("again is\n%s\nwas\n%s", after, before)
			}
			// One goes, and another gets its room.
			gone := b.Frontends
			b.Frontends = map[model.FrontendKey]*model.Balanced{}
			for k, f := range gone {
				if !slices.Contains(refused[model.FrontendBalanced], k.Port) {
					b.Frontends[k] = f
				}
			}
			must(t, d.Set(b))
			must(t, d.Set(b))
			if o := d.Observed()[0]; o.State != model.FrontendBalanced {
				t.Errorf("there is room now, and it is %+v", o)
			}
			must(t, d.Close(false))
		})
	}
}

// A machine whose agent starts anew keeps its flows for a while.
func TestMachineThatCeasesToTakePacketsOut(t *testing.T) {
	d := &DataPlane{want: model.Balancing{Nodes: nodes("m1", "m2")}}
	now := time.Now()
	away := nodes("m1", "m2")
	away["m2"].Decaps = false
	d.miss(away, now)
	d.want.Nodes = away
	if !d.decaps(now)(away["m2"]) || !d.decaps(now.Add(grace/2))(away["m2"]) || d.decaps(now.Add(grace))(away["m2"]) {
		t.Error("it counts for another time than the time of grace")
	}
	d.miss(nodes("m1", "m2"), now)
	if len(d.lost) > 0 {
		t.Error("it is back, and still missed")
	}
}
