package xdp

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.dev/internal/model"
)

// BenchmarkSet is what the agent pays: for all of very many frontends, for one that changes,
// and for taking over what an earlier agent left.
func BenchmarkSet(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("needs root: makes network namespaces and loads programs")
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the benchmark
	check := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	check(unix.Unshare(unix.CLONE_NEWNET))
	check(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "far"}))
	dir := filepath.Join(b.TempDir(), "pins")
	b.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.ENOENT) {
			b.Error(err)
		}
	})
	open := func() *DataPlane {
		d, err := New(Config{Dir: dir, Interfaces: []string{"eth0"}, Sizes: Sizes{Rows: 8 << 20, Backends: 1 << 18}, Log: slog.New(slog.DiscardHandler)})
		check(err)
		return d
	}
	const frontends, backends = 100, 100
	all := model.Balancing{Machine: "m1", Nodes: nodes("m1", "m2", "m3"), Frontends: map[model.FrontendKey]*model.Balanced{}}
	for i := range frontends {
		f := &model.Balanced{Frontend: &model.Frontend{
			FrontendKey: model.FrontendKey{VIP: netip.AddrFrom4([4]byte{203, 0, byte(i >> 8), byte(i)}), Transport: model.TCP, Port: 80}, Machines: []string{"m1"},
		}}
		for j := range backends {
			f.Backends = append(f.Backends, model.FrontendBackend{
				Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i), byte(j >> 8), byte(j)}), 80), Machine: fmt.Sprintf("m%d", j%3+1), Weight: 100, HopWeight: 100,
			})
		}
		all.Frontends[f.Frontend.FrontendKey] = f
	}
	b.Run("all", func(b *testing.B) {
		for range b.N {
			d := open()
			check(d.Set(all))
			b.ReportMetric(float64(d.MapBytes())/1e6, "MB")
			check(d.Close(false))
		}
	})
	d := open()
	check(d.Set(all))
	b.Run("same", func(b *testing.B) {
		for range b.N {
			check(d.Set(all))
		}
	})
	b.Run("one", func(b *testing.B) {
		key := model.FrontendKey{VIP: netip.AddrFrom4([4]byte{203, 0, 0, 7}), Transport: model.TCP, Port: 80}
		for i := range b.N {
			f := *all.Frontends[key]
			f.Backends = append([]model.FrontendBackend(nil), f.Backends...)
			f.Backends[3].Weight = uint32(40 + i%2*60)
			all.Frontends[key] = &f
			check(d.Set(all))
		}
	})
	b.Run("adopt", func(b *testing.B) {
		for range b.N {
			check(d.Close(true))
			d = open()
			check(d.Set(all))
		}
	})
	check(d.Close(false))
}

// TestMapMemory holds what a small machine pays, and a large one.
func TestMapMemory(t *testing.T) {
	for memory, most := range map[uint64]uint64{2 << 30: 75e6, 8 << 30: 340e6, 32 << 30: 500e6} {
		t.Run(fmt.Sprintf("%dGiB", memory>>30), func(t *testing.T) {
			inMachine(t)
			d := newPlane(t, pinsIn(t))
			d.sizes = DefaultSizes(memory)
			must(t, d.Set(one(t, nil)))
			bytes := d.MapBytes()
			t.Logf("%d bytes for %+v", bytes, d.sizes)
			if bytes > most {
				t.Errorf("maps have %d bytes, want at most %d", bytes, most)
			}
			must(t, d.Close(false))
		})
	}
}
