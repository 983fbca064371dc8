package bpf

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.dev/internal/model"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// driver is what any driver of kernel programs has: those of bpf/lib/test.c.
type driver struct {
	pins     *Pins
	object   *Object
	attached *Attacher
	maps     struct {
		Captures *ebpf.Map `ebpf:"captures"`
		Drops    *ebpf.Map `ebpf:"drops"`
		Entries  *ebpf.Map `ebpf:"entries"`
		Links    *ebpf.Map `ebpf:"links"`
		Machines *ebpf.Map `ebpf:"machines"`
		NextHops *ebpf.Map `ebpf:"next_hops"`
		Settings *ebpf.Map `ebpf:"settings"`
	}
}

func begin(t *testing.T, dir string) *driver {
	t.Helper()
	file, err := os.ReadFile("testdata/test_bpfel.o")
	must(t, err)
	d := &driver{}
	log := slog.New(slog.DiscardHandler)
	d.pins, err = OpenPins(dir, log)
	must(t, err)
	d.object, err = Load(d.pins, Spec{File: file, Programs: []string{"first", "last", "in", "out"}, Entries: func(string) uint32 { return 0 }, Key: "entries"}, log)
	must(t, err)
	d.object.Assign(&d.maps)
	d.attached, err = NewAttacher(d.object, map[Hook]string{XDP: "first", Ingress: "in", Egress: "out"}, log)
	must(t, err)
	return d
}

func (d *driver) end(t *testing.T, leave bool) {
	t.Helper()
	err := d.attached.Close(leave)
	if !leave {
		err = errors.Join(err, d.object.Remove())
	}
	d.object.Close()
	must(t, errors.Join(err, d.pins.Close()))
}

// A driver that knows no frontends and no backends has all of this package: maps and programs that
// outlive it, programs at interfaces, next hops, drops and captures.
func TestAnyDriver(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes a network namespace and loads programs")
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	must(t, unix.Unshare(unix.CLONE_NEWNET))
	us, them := net.HardwareAddr{2, 0, 0, 0, 0, 1}, net.HardwareAddr{2, 0, 0, 0, 0, 2}
	eth0 := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0", HardwareAddr: us}, PeerName: "far"}
	must(t, netlink.LinkAdd(eth0))
	must(t, netlink.LinkSetUp(eth0))
	a, err := netlink.ParseAddr("192.0.2.1/24")
	must(t, err)
	must(t, netlink.AddrAdd(eth0, a))
	index := eth0.Attrs().Index
	must(t, netlink.NeighAdd(&netlink.Neigh{LinkIndex: index, IP: net.ParseIP("192.0.2.2"), State: unix.NUD_PERMANENT, HardwareAddr: them}))
	dir := t.TempDir()
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	if left, err := Left(dir, "entries"); err != nil || left {
		t.Fatalf("something is left before anything began: %v", err)
	}

	d := begin(t, dir)
	all, err := Ports()
	must(t, err)
	found, missing, errs := ByName(all, []string{"eth0", "eth9"})
	if len(found) != 1 || len(errs) > 0 || strings.Join(missing, " ") != "eth9" {
		t.Fatalf("found %v, missing %v, %v", found, missing, errs)
	}
	must(t, errors.Join(d.attached.Set(map[Hook][]Device{XDP: found, Ingress: found, Egress: found})...))
	must(t, WriteLinks(d.maps.Links, found))
	hops := NewNextHops(d.maps.NextHops, slog.New(slog.DiscardHandler))
	must(t, hops.SetEndpoints(&model.Node{Tunnel4: netip.MustParseAddr("192.0.2.1")}, nil))
	hop, err := hops.Hold(netip.MustParseAddr("192.0.2.2"))
	must(t, err)
	var value libNextHop
	must(t, d.maps.NextHops.Lookup(hop, &value))
	if value.Device != uint32(index) || value.To != [6]byte(them) || value.From != [6]byte(us) {
		t.Errorf("the next hop is %+v", value)
	}
	must(t, d.maps.Entries.Put(uint32(1), uint32(1)))
	program := func(name string) ebpf.ProgramID {
		info, err := d.object.Program(name).Info()
		must(t, err)
		id, _ := info.ID()
		return id
	}
	before := program("first")
	d.end(t, true)
	if left, err := Left(dir, "entries"); err != nil || !left {
		t.Errorf("nothing is left for the next one: %v", err)
	}

	d = begin(t, dir)
	if !d.object.Adopted() || program("first") != before {
		t.Error("maps were made anew, or programs verified again")
	}
	for _, h := range []Hook{XDP, Ingress, Egress} {
		if at := d.attached.At(h)[index]; at == nil || at.Name != "eth0" {
			t.Errorf("%s is at %v", h, d.attached.At(h))
		}
	}
	must(t, d.maps.Settings.Put(uint32(0), libSettings{Capture: 1}))
	reader, err := ringbuf.NewReader(d.maps.Captures)
	must(t, err)
	frame := append(append(append([]byte(nil), us...), them...), make([]byte, 50)...)
	verdict, _, err := d.object.Program("first").Test(frame)
	must(t, err)
	if verdict != 1 { // XDP_DROP: by a tail call through an array that only its pin keeps
		t.Errorf("the packet's end is %d", verdict)
	}
	cpus, err := ebpf.PossibleCPU()
	must(t, err)
	if n, err := Drops(d.maps.Drops, cpus); err != nil || n["no-route"] != 1 || len(n) != len(Reasons()) {
		t.Errorf("dropped %v, %v", n, err)
	}
	must(t, CheckReasons([]string{"no-route"}))
	if err := CheckReasons([]string{"none"}); err == nil {
		t.Error("none is a reason")
	}
	ctx, cancel := context.WithCancel(t.Context())
	var captured []Captured
	must(t, Captures(ctx, reader, []string{"no-route"}, func(c Captured) {
		captured = append(captured, c)
		cancel()
	}))
	if len(captured) != 1 || captured[0].Length != len(frame) || captured[0].Reason != "no-route" {
		t.Errorf("captured %+v", captured)
	}
	d.end(t, false)
	entries, err := os.ReadDir(LayoutDir(dir))
	must(t, err)
	if len(entries) > 0 {
		t.Errorf("left are %v", entries)
	}

	// What an agent with another layout left goes where nothing is to be loaded.
	d = begin(t, dir)
	d.end(t, true)
	must(t, os.Rename(LayoutDir(dir), filepath.Join(dir, "v1")))
	must(t, Forsake(dir, "entries", slog.New(slog.DiscardHandler)))
	if others, err := OtherLayouts(dir); err != nil || len(others) > 0 {
		t.Errorf("left are %v, %v", others, err)
	}
}
