package xdp

import (
	"net/netip"
	"testing"

	"fairlead.dev/internal/model"
)

// TestSourcesThatDoNotFit: whom a frontend lets in is never more than it says, its backends
// are those of now all the same, and another list takes the place of one that fills the map.
func TestSourcesThatDoNotFit(t *testing.T) {
	inMachine(t)
	d := newPlane(t, pinsIn(t))
	d.sizes.Sources = 2
	key := frontendKey(t, "tcp://203.0.113.1:80")
	set := func(backends int, sources ...string) (state model.FrontendState, in []string) {
		t.Helper()
		b := served(key, backends)
		for _, p := range sources {
			b.Frontend.Sources = append(b.Frontend.Sources, netip.MustParsePrefix(p))
		}
		must(t, d.Set(model.Balancing{Machine: "m1", Nodes: nodes("m1"), Frontends: map[model.FrontendKey]*model.Balanced{key: b}}))
		var v bpfFrontend
		must(t, d.k.maps.Frontends.Lookup(d.state.frontends[key].wireKey(), &v))
		if guarded := bpfFrontendFlag(v.Flags)&bpfFrontendFlagFRONTEND_SOURCES != 0; guarded != (len(sources) > 0) {
			t.Errorf("with sources %v the frontend has flags %#x", sources, v.Flags)
		}
		if n := len(d.state.frontends[key].table.slots); n != backends {
			t.Errorf("it has %d backends, want %d", n, backends)
		}
		pairs(d.k.maps.Sources, func(k bpfSourceKey, _ uint32) { in = append(in, k.Client.address().String()) })
		return d.Observed()[0].State, in
	}
	if state, _ := set(3); state != model.FrontendBalanced {
		t.Errorf("without sources it is %s", state)
	}
	if state, in := set(2, "10.0.0.0/24", "10.0.1.0/24", "10.0.2.0/24"); state != model.FrontendRefused || len(in) != 2 {
		t.Errorf("with too many sources it is %s and has %v", state, in)
	}
	if state, in := set(9, "10.0.0.0/24", "10.0.1.0/24"); state != model.FrontendBalanced || len(in) != 2 {
		t.Errorf("with as many as fit it is %s and has %v", state, in)
	}
	set(9, "10.1.0.0/24", "10.1.1.0/24")
	if state, in := set(9, "10.1.0.0/24", "10.1.1.0/24"); state != model.FrontendBalanced || len(in) != 2 {
		t.Errorf("with other sources it is %s and has %v", state, in)
	}
	if free := d.state.rows.free; len(free) != 1 || free[0].size != d.k.rowCount-d.state.frontends[key].table.size {
		t.Errorf("free are rows %v of %d", free, d.k.rowCount)
	}
	must(t, d.Close(false))
}
