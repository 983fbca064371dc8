package xdp

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"fairlead.dev/internal/driver/bpf"
	"fairlead.dev/internal/model"
)

// programsOf are the numbers of a data plane's programs: those of programs that were verified
// again are others.
func programsOf(t *testing.T, d *DataPlane) (ids [3]ebpf.ProgramID) {
	t.Helper()
	for i, name := range []string{bpfProgBalance, bpfProgTunnelIn, bpfProgTunnelOut} {
		info, err := d.k.object.Program(name).Info()
		must(t, err)
		ids[i], _ = info.ID()
	}
	return ids
}

// programPin is where a program is pinned.
func programPin(t testing.TB, pins, name string) string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(pins, bpf.ProgramPrefix+"*_"+name))
	must(t, err)
	if len(list) != 1 {
		t.Fatalf("%s is pinned %d times", name, len(list))
	}
	return list[0]
}

// The programs of an agent of the same build are taken as they are, so that the next one need
// not wait until the kernel has verified them. Where they are not, or not whole, or are of other
// maps, they are loaded anew, and the next agent takes these.
func TestProgramsAreTakenAsTheyAre(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(t *testing.T, pins string)
		anew  bool
	}{
		"as they were left": {func(*testing.T, string) {}, false},
		"of another build": {func(t *testing.T, pins string) {
			for _, name := range programNames {
				must(t, os.Rename(programPin(t, pins, name), filepath.Join(pins, bpf.ProgramPrefix+"0123_"+name)))
			}
		}, true},
		"one is missing":   {func(t *testing.T, pins string) { must(t, os.Remove(programPin(t, pins, bpfProgTunnelIn))) }, true},
		"a map is missing": {func(t *testing.T, pins string) { must(t, os.Remove(filepath.Join(pins, bpfMapFresh))) }, true},
		"a map is another one": {func(t *testing.T, pins string) {
			path := filepath.Join(pins, bpfMapFresh)
			m, err := ebpf.LoadPinnedMap(path, nil)
			must(t, err)
			defer func() { _ = m.Close() }()
			must(t, os.Remove(path))
			n, err := ebpf.NewMap(&ebpf.MapSpec{Type: m.Type(), KeySize: m.KeySize(), ValueSize: m.ValueSize(), MaxEntries: m.MaxEntries(), Flags: m.Flags()})
			must(t, err)
			defer func() { _ = n.Close() }()
			must(t, n.Pin(path))
		}, true},
		"their array is missing": {func(t *testing.T, pins string) {
			arrays, err := filepath.Glob(filepath.Join(pins, bpf.ArrayPrefix+"*"))
			must(t, err)
			for _, path := range arrays {
				must(t, os.Remove(path))
			}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			inMachine(t)
			dir := pinsIn(t)
			d := newPlane(t, dir)
			must(t, d.Set(one(t, nil)))
			before, links := programsOf(t, d), linksOf(t, d)
			must(t, d.Close(true))
			c.spoil(t, bpf.LayoutDir(dir))
			d = newPlane(t, dir)
			is := programsOf(t, d)
			if (is != before) != c.anew {
				t.Errorf("the programs are %v, and were %v", is, before)
			}
			must(t, d.Set(one(t, nil)))
			same(t, "the next agent", links, linksOf(t, d))
			if o := d.Observed()[0]; o.State != model.FrontendBalanced || o.Message != "" {
				t.Errorf("the frontend is %s: %s", o.State, o.Message)
			}
			must(t, d.Close(true))
			entries, err := os.ReadDir(bpf.LayoutDir(dir))
			must(t, err)
			var left int
			for _, e := range entries {
				if strings.HasPrefix(e.Name(), bpf.ProgramPrefix) {
					left++
				}
			}
			if left != len(programNames) {
				t.Errorf("%d programs are pinned, of %d", left, len(programNames))
			}
			d = newPlane(t, dir)
			if next := programsOf(t, d); next != is {
				t.Errorf("the agent after that has the programs %v, and not %v", next, is)
			}
			must(t, d.Set(one(t, nil)))
			must(t, d.Close(false))
			for _, e := range entries {
				if strings.HasPrefix(e.Name(), bpf.ProgramPrefix) {
					gone(t, filepath.Join(bpf.LayoutDir(dir), e.Name()))
				}
			}
		})
	}
}

// BenchmarkNextAgent is how long an agent takes until it has what an earlier one left.
func BenchmarkNextAgent(b *testing.B) {
	for _, build := range []string{"same", "another"} {
		b.Run(build, func(b *testing.B) {
			inMachine(b)
			dir := pinsIn(b)
			d := newPlane(b, dir)
			must(b, d.Set(one(b, nil)))
			for b.Loop() {
				must(b, d.Close(true))
				if build == "another" {
					must(b, os.Remove(programPin(b, bpf.LayoutDir(dir), bpfProgBalance)))
				}
				d = newPlane(b, dir)
			}
			must(b, d.Set(one(b, nil)))
			must(b, d.Close(false))
		})
	}
}
