package xdp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"fairlead.dev/internal/driver/bpf"
	"fairlead.dev/internal/model"
)

// pinning yields what became of the pins in a directory since the call before, in the order of
// time: "+" and the name of one that was made, "-" and that of one that went.
func pinning(t *testing.T, dir string) func() []string {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	must(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	_, err = unix.InotifyAddWatch(fd, dir, unix.IN_CREATE|unix.IN_DELETE)
	must(t, err)
	return func() (list []string) {
		t.Helper()
		buf := make([]byte, 1<<16)
		n, err := unix.Read(fd, buf)
		if err == unix.EAGAIN {
			return nil
		}
		must(t, err)
		for buf = buf[:n]; len(buf) > 0; {
			mask, size := binary.NativeEndian.Uint32(buf[4:]), binary.NativeEndian.Uint32(buf[12:])
			name := string(bytes.TrimRight(buf[unix.SizeofInotifyEvent:unix.SizeofInotifyEvent+size], "\x00"))
			sign := "+"
			if mask&unix.IN_DELETE != 0 {
				sign = "-"
			}
			list = append(list, sign+name)
			buf = buf[unix.SizeofInotifyEvent+size:]
		}
		return list
	}
}

// links leaves of what became of pins that of links: the hooks, without interfaces.
func links(list []string) string {
	var of []string
	for _, s := range list {
		if sign, rest := s[:1], s[1:]; strings.HasPrefix(rest, bpf.LinkPrefix) {
			h, _, _ := strings.Cut(strings.TrimPrefix(rest, bpf.LinkPrefix), "_")
			of = append(of, sign+h)
		}
	}
	return strings.Join(of, " ")
}

// An end that was itself ended (SIGKILL while it removed pins) leaves programs, and with them
// every map. The next agent, which balances nothing, takes them away.
func TestPinsOfAnEndThatWasCutOffGo(t *testing.T) {
	inMachine(t)
	dir := pinsIn(t)
	d := newPlane(t, dir)
	must(t, d.Set(one(t, nil)))
	must(t, d.Close(true))
	entries, err := os.ReadDir(bpf.LayoutDir(dir))
	must(t, err)
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), bpf.ProgramPrefix) && !strings.HasPrefix(e.Name(), bpf.ArrayPrefix) {
			must(t, os.Remove(filepath.Join(bpf.LayoutDir(dir), e.Name())))
		}
	}
	nothingStays(t, dir)

	// The same of an end of ours, after the first map.
	d = newPlane(t, dir)
	must(t, d.Set(one(t, nil)))
	must(t, d.k.object.DropPrograms(false))
	must(t, d.k.maps.Frontends.Unpin())
	must(t, d.Close(true))
	nothingStays(t, dir)
}

// nothingStays has an agent come that balances nothing.
func nothingStays(t *testing.T, dir string) {
	t.Helper()
	d := newPlane(t, dir)
	must(t, d.Set(model.Balancing{}))
	must(t, d.Close(true))
	gone(t, bpf.LayoutDir(dir))
	if d.k != nil {
		t.Error("programs are loaded for nothing")
	}
}

// The map of frontends says to which frontends the entries of the other maps belong. An agent that
// finds the other maps without it uses none of them: its first frontend gets the number of an
// earlier one, but neither that one's ranges of clients nor the backends of that one's clients.
func TestMapsWithoutThatOfFrontendsAreNotUsed(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, d *DataPlane){
		"an end that was cut off": func(t *testing.T, d *DataPlane) {
			must(t, d.attached.Close(false))
			must(t, d.k.object.DropPrograms(false))
			must(t, d.k.maps.Frontends.Unpin())
		},
		"somebody removed its pin": func(t *testing.T, d *DataPlane) { must(t, d.k.maps.Frontends.Unpin()) },
	} {
		t.Run(name, func(t *testing.T) {
			inMachine(t)
			dir := pinsIn(t)
			before, after := frontendKey(t, "tcp://203.0.113.1:80"), frontendKey(t, "tcp://203.0.113.77:80")
			balancing := func(key model.FrontendKey, from string) model.Balancing {
				return one(t, func(f *model.Frontend) {
					f.FrontendKey, f.Sources, f.Affinity = key, []netip.Prefix{netip.MustParsePrefix(from)}, time.Hour
				})
			}
			d := newPlane(t, dir)
			must(t, d.Set(balancing(before, "198.51.100.0/24")))
			number, client := d.state.frontends[before].value.Index, wireAddress(netip.MustParseAddr("198.51.100.7"))
			var slot bpfBackend
			must(t, d.k.maps.Backends.Lookup(uint32(1), &slot))
			must(t, d.k.maps.Affinities.Put(bpfAffinityKey{Client: client, Frontend: number}, bpfAffinity{Backend: 1, Generation: slot.Generation}))
			end(t, d)
			at := linksOf(t, d)
			must(t, d.Close(true))

			d = newPlane(t, dir)
			must(t, d.Set(balancing(after, "10.0.0.0/8")))
			if is := d.state.frontends[after].value.Index; is != number {
				t.Fatalf("the number is %d, and was %d: this tries nothing", is, number)
			}
			var n uint32
			if err := d.k.maps.Sources.Lookup(sourceKey(number, netip.MustParsePrefix("198.51.100.7/32")), &n); !errors.Is(err, ebpf.ErrKeyNotExist) {
				t.Errorf("the frontend for 10.0.0.0/8 admits 198.51.100.7: %v", err)
			}
			if err := d.k.maps.Vips.Lookup(wireAddress(before.VIP), &n); !errors.Is(err, ebpf.ErrKeyNotExist) {
				t.Errorf("%s is a VIP still: %v", before.VIP, err)
			}
			var backend bpfAffinity
			if err := d.k.maps.Affinities.Lookup(bpfAffinityKey{Client: client, Frontend: number}, &backend); !errors.Is(err, ebpf.ErrKeyNotExist) {
				t.Errorf("a client of the earlier frontend keeps its backend: %+v, %v", backend, err)
			}
			if len(at) > 0 {
				same(t, "the next agent", at, linksOf(t, d))
			}
			if o := d.Observed()[0]; o.State != model.FrontendBalanced || o.Message != "" {
				t.Errorf("observed %+v", o)
			}
			if left, err := bpf.OtherLayouts(dir); err != nil || len(left) > 0 {
				t.Errorf("left are %v, %v", left, err)
			}
			must(t, d.Close(false))
		})
	}
}

// At the end programs go before maps, and the map of frontends before the others, since the next
// agent goes by it.
func TestPinsGoInOrder(t *testing.T) {
	inMachine(t)
	dir := pinsIn(t)
	d := newPlane(t, dir)
	must(t, d.Set(one(t, nil)))
	became := pinning(t, bpf.LayoutDir(dir))
	must(t, d.Close(false))
	list := became()
	t.Log(list)
	if is := links(list); !strings.HasPrefix(is, "-xdp ") {
		t.Errorf("links go in the order %s", is)
	}
	maps := slices.Index(list, "-"+bpfMapFrontends)
	for i, name := range list {
		program := strings.HasPrefix(name, "-"+bpf.ProgramPrefix) || strings.HasPrefix(name, "-"+bpf.ArrayPrefix)
		if maps < 0 || program && i > maps {
			t.Errorf("pins go in the order %v", list)
		}
	}
}

// XDP puts packets for this machine into tunnels, too: its program comes when those that take
// them out are there, and goes before them.
func TestXDPComesLastAndGoesFirst(t *testing.T) {
	inMachine(t)
	dir := pinsIn(t)
	d := newPlane(t, dir)
	must(t, d.ensure())
	became := pinning(t, bpf.LayoutDir(dir))
	must(t, d.Set(one(t, nil)))
	if is := links(became()); is != "+ingress +egress +xdp" {
		t.Errorf("programs come in the order %s", is)
	}
	must(t, d.Set(model.Balancing{Machine: "m1"}))
	if is := links(became()); is != "-xdp -egress -ingress" {
		t.Errorf("programs go in the order %s", is)
	}
	must(t, d.Close(false))
}
