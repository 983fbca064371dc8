package xdp

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"fairlead.dev/internal/driver/bpf"
	"fairlead.dev/internal/model"
)

// linksOf are the numbers of a data plane's links, which stay theirs while they are attached.
func linksOf(t *testing.T, d *DataPlane) map[bpf.Hook]link.ID {
	t.Helper()
	ids := map[bpf.Hook]link.ID{}
	for h := range hooked {
		at := d.attached.At(h)
		for _, a := range at {
			info, err := a.Link.Info()
			must(t, err)
			ids[h] = info.ID
		}
	}
	return ids
}

func same(t *testing.T, what string, before, after map[bpf.Hook]link.ID) {
	t.Helper()
	for h, id := range before {
		if after[h] != id {
			t.Errorf("%s: the link of %s is another one: packets passed by meanwhile", what, h)
		}
	}
	if len(before) != 3 || len(after) != 3 {
		t.Errorf("%s: links %v, before %v", what, after, before)
	}
}

func TestPinsOfAnotherAgent(t *testing.T) {
	inMachine(t)
	dir := pinsIn(t)
	d := newPlane(t, dir)
	must(t, d.Set(one(t, nil)))
	before := linksOf(t, d)
	_, err := New(d.c)
	if !errors.Is(err, bpf.ErrPinsInUse) || !strings.Contains(err.Error(), dir+": stop that agent, or choose another directory with --bpf-dir") {
		t.Errorf("another agent: %v", err)
	}
	same(t, "the first one", before, linksOf(t, d))
	must(t, d.Close(true))
	d = newPlane(t, dir) // it ended
	same(t, "the next one", before, linksOf(t, d))
	must(t, d.Set(one(t, nil)))
	must(t, d.Close(false))
}

// older has an agent with another layout leave what it balances, and returns its links.
func older(t *testing.T, dir string) map[bpf.Hook]link.ID {
	t.Helper()
	d := newPlane(t, dir)
	must(t, d.Set(one(t, nil)))
	ids := linksOf(t, d)
	must(t, d.Close(true))
	must(t, os.Rename(bpf.LayoutDir(dir), filepath.Join(dir, "v0")))
	return ids
}

func gone(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left: %v", path, err)
	}
}

func TestOtherLayoutIsTakenOver(t *testing.T) {
	inMachine(t)
	dir := pinsIn(t)
	before := older(t, dir)
	d := newPlane(t, dir)
	if xdpAt(t, "eth0") != nl.XDP_ATTACHED_DRV {
		t.Error("the older one does not balance until this one does")
	}
	must(t, d.Set(one(t, nil)))
	same(t, "taken over", before, linksOf(t, d))
	gone(t, filepath.Join(dir, "v0"))
	if o := d.Observed()[0]; o.State != model.FrontendBalanced || o.Message != "" {
		t.Errorf("observed %+v", o)
	}
	must(t, d.Close(true))
	d = newPlane(t, dir)
	same(t, "and adopted by the next one", before, linksOf(t, d))
	must(t, d.Set(model.Balancing{Machine: "m1"}))
	must(t, d.Close(false))
	gone(t, filepath.Join(bpf.LayoutDir(dir), "frontends"))

	// Where nothing is to be balanced any more it goes.
	must(t, os.Remove(bpf.LayoutDir(dir)))
	older(t, dir)
	d = newPlane(t, dir)
	must(t, d.Set(model.Balancing{Machine: "m1"}))
	gone(t, filepath.Join(dir, "v0"))
	if d.k != nil {
		t.Error("programs are loaded for nothing")
	}
	for ctx := deadline(t); xdpAt(t, "eth0") != nl.XDP_ATTACHED_NONE; { // the kernel lets go of links a moment later
		pause(ctx, t, "its programs are still attached")
	}
	must(t, d.Close(false))
}

// Whatever is in the directory, the agent begins, and what was balanced is until it has.
func TestPinsThatCannotBeUsed(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, d *DataPlane, pins string){
		"a map of another form": func(t *testing.T, _ *DataPlane, pins string) {
			must(t, os.Remove(filepath.Join(pins, "frontends")))
			pinMap(t, filepath.Join(pins, "frontends"), 4)
		},
		"a directory": func(t *testing.T, _ *DataPlane, pins string) {
			must(t, os.Remove(filepath.Join(pins, "flows")))
			must(t, os.Mkdir(filepath.Join(pins, "flows"), 0o700))
		},
		"a program for a map": func(t *testing.T, d *DataPlane, pins string) {
			must(t, os.Remove(filepath.Join(pins, "backends")))
			must(t, d.k.object.Program(bpfProgBalance).Pin(filepath.Join(pins, "backends")))
		},
		"a map for a link": func(t *testing.T, _ *DataPlane, pins string) {
			pinMap(t, filepath.Join(pins, "link_xdp_99"), 4)
		},
		"entries that contradict each other": func(t *testing.T, d *DataPlane, _ string) {
			must(t, d.k.maps.Frontends.Put(bpfFrontendKey{Port: 1, Protocol: 6}, bpfFrontend{Index: d.state.frontends[frontendKey(t, "tcp://203.0.113.1:80")].value.Index}))
		},
		"maps that are missing": func(t *testing.T, _ *DataPlane, pins string) {
			must(t, os.Remove(filepath.Join(pins, "backends")))
			must(t, os.Remove(filepath.Join(pins, "rows")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			inMachine(t)
			dir := pinsIn(t)
			d := newPlane(t, dir)
			must(t, d.Set(one(t, nil)))
			before := linksOf(t, d)
			spoil(t, d, bpf.LayoutDir(dir))
			must(t, d.Close(true))
			d = newPlane(t, dir)
			if xdpAt(t, "eth0") != nl.XDP_ATTACHED_DRV {
				t.Error("nothing balances until this one does")
			}
			must(t, d.Set(one(t, nil)))
			same(t, "with those pins", before, linksOf(t, d))
			if o := d.Observed()[0]; o.State != model.FrontendBalanced || o.Message != "" {
				t.Errorf("observed %+v", o)
			}
			if left, err := bpf.OtherLayouts(dir); err != nil || len(left) > 0 {
				t.Errorf("left are %v, %v", left, err)
			}
			must(t, d.Set(model.Balancing{Machine: "m1"}))
			must(t, d.Close(false))
		})
	}
}

func pinMap(t *testing.T, path string, size uint32) {
	t.Helper()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: size, ValueSize: size, MaxEntries: 1})
	must(t, err)
	defer m.Close()
	must(t, m.Pin(path))
}

// Where nothing can be pinned the data plane says so, in words and as what is not supported.
func TestDirectoryWhereNothingCanBePinned(t *testing.T) {
	inMachine(t)
	readOnly := t.TempDir()
	must(t, unix.Mount("none", readOnly, "tmpfs", unix.MS_RDONLY, ""))
	t.Cleanup(func() { must(t, unix.Unmount(readOnly, 0)) })
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	for _, c := range []struct{ dir, says string }{
		{filepath.Join(readOnly, "pins"), "read-only file system"},
		{filepath.Join(file, "pins"), "not a directory"},
		{file, "not a directory"},
	} {
		d, err := New(Config{Dir: c.dir, Interfaces: []string{"eth0"}, Sizes: smallSizes, Log: slog.New(slog.DiscardHandler)})
		must(t, err)
		must(t, d.Set(model.Balancing{Machine: "m1"}))
		err = d.Set(one(t, nil))
		if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), c.dir) || !strings.Contains(err.Error(), "--bpf-dir") {
			t.Errorf("%s: %v", c.dir, err)
		}
		must(t, d.Close(false))
	}
}

// No request fails while each machine gets an agent with another layout, whose tables begin
// empty.
func TestFlowsSurviveAnotherLayout(t *testing.T) {
	s := newSite(t)
	s.put(model.ModeDSRGeneve, 100, 100)
	s.settled()
	l := s.load(8)
	l.more(t, 100)
	for _, b := range append(append([]*balancer(nil), s.bes...), s.lbs...) {
		b.p.Kill9()
		l.more(t, 50)
		must(t, os.Rename(bpf.LayoutDir(filepath.Join(b.dir, "bpf")), filepath.Join(b.dir, "bpf", "v0")))
		b.start()
		s.tell(b)
		gone(t, filepath.Join(b.dir, "bpf", "v0"))
		l.more(t, 100)
	}
	l.end(s)
}
