package xdp

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"fairlead.dev/internal/lookup"
	"fairlead.dev/internal/model"
)

// served is a frontend of m1 with n backends elsewhere.
func served(key model.FrontendKey, n int) *model.Balanced {
	b := &model.Balanced{Frontend: &model.Frontend{FrontendKey: key, Machines: []string{"m1"}, Mode: model.ModeDSRIPIP}}
	for i := range n {
		b.Backends = append(b.Backends, model.FrontendBackend{
			Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(10 + i)}), key.Port), Weight: 100, HopWeight: 100,
		})
	}
	return b
}

// TestRowsFollowTheBackends: whatever was before, a table is the one that a load balancer
// makes that has just started.
func TestRowsFollowTheBackends(t *testing.T) {
	inMachine(t)
	dir := filepath.Join(t.TempDir(), "pins")
	t.Cleanup(func() { must(t, unix.Unmount(dir, 0)) })
	d := newPlane(t, dir)
	d.sizes.Rows = 1 << 18
	key := frontendKey(t, "tcp://203.0.113.1:80")
	for _, n := range []int{8, 9, 8, 1, 0, 20, 8} {
		b := served(key, n)
		if n == 20 { // those to which nothing is sent do not count
			for i := range 15 {
				b.Backends[i].State = model.BackendUnready
			}
		}
		must(t, d.Set(model.Balancing{Machine: "m1", Nodes: nodes("m1"), Frontends: map[model.FrontendKey]*model.Balanced{key: b}}))
		members, _ := lookup.Members(key, b.Backends)
		fresh := lookup.New(lookup.Rows(len(members)), members)
		table := d.state.frontends[key].table
		if int(table.size) != fresh.Len() {
			t.Fatalf("with %d backends the table has %d rows, a new one has %d", n, table.size, fresh.Len())
		}
		for i := range fresh.Len() {
			for k, at := range d.k.row(table.base + uint32(i)) {
				want := uint64(0)
				if p := fresh.Row(i)[k]; p != lookup.None {
					want = fresh.Members()[p].ID
				}
				var v bpfBackend
				must(t, d.k.maps.Backends.Lookup(at, &v))
				if v.Id != want {
					t.Fatalf("with %d backends, row %d has backend %x as its %d., want %x", n, i, v.Id, k, want)
				}
			}
		}
		if free := d.state.rows.free; len(free) > 2 || int(free[0].size) > int(d.k.rowCount) {
			t.Errorf("free are %v", free)
		}
	}
	must(t, d.Close(false))
}

// TestFewRows: where there is no room for a large table a small one does, and it is said; a
// backend that goes leaves it, too.
func TestFewRows(t *testing.T) {
	inMachine(t)
	dir := filepath.Join(t.TempDir(), "pins")
	t.Cleanup(func() { must(t, unix.Unmount(dir, 0)) })
	d := newPlane(t, dir)
	d.sizes.Rows = 3 << 16
	want := model.Balancing{Machine: "m1", Nodes: nodes("m1"), Frontends: map[model.FrontendKey]*model.Balanced{}}
	set := func(port uint16, n int) model.FrontendKey {
		t.Helper()
		key := frontendKey(t, fmt.Sprintf("tcp://203.0.113.1:%d", port))
		if want.Frontends[key] = served(key, n); n == 0 {
			delete(want.Frontends, key)
		}
		must(t, d.Set(want))
		return key
	}
	rows := func(key model.FrontendKey, want uint32, says string) {
		t.Helper()
		for _, o := range d.Observed() {
			if o.FrontendKey != key {
				continue
			}
			if o.State != model.FrontendBalanced || strings.Contains(o.Message, "rows") != (says != "") || !strings.Contains(o.Message, says) {
				t.Errorf("%s is %s: %q, want it balanced and saying %q", key, o.State, o.Message, says)
			}
		}
		if got := d.state.frontends[key].table.size; got != want {
			t.Errorf("%s has %d rows, want %d", key, got, want)
		}
	}
	first, second, third := set(1, 10), set(2, 10), set(3, 10)
	rows(first, 1<<16, "")
	rows(second, 1<<16, "")
	rows(third, 1<<12, "has 4096 rows, not 65536")
	set(3, 9)
	rows(third, 1<<12, "has 4096 rows, not 65536")
	if n := len(d.state.frontends[third].table.slots); n != 9 {
		t.Errorf("after one of ten backends went, %d have a place", n)
	}
	set(1, 0)
	set(3, 10)
	rows(third, 1<<16, "")
	must(t, d.Close(false))
}
