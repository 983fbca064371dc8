package lookup

import (
	"encoding/binary"
	"net/netip"
	"reflect"
	"testing"

	"fairlead.dev/internal/model"
)

func key(text string) model.FrontendKey {
	k, err := model.ParseFrontend(text)
	if err != nil {
		panic(err)
	}
	return k
}

func TestMembers(t *testing.T) {
	k := key("tcp://192.0.2.1:80")
	at := netip.MustParseAddrPort
	backends := []model.FrontendBackend{
		{Address: at("10.0.0.1:80"), Weight: 40, HopWeight: 100},
		{Address: at("10.0.0.2:80"), HopWeight: 100, State: model.BackendDraining},
		{Address: at("10.0.0.5:80"), Weight: 40, HopWeight: 100, State: model.BackendDraining},
		{Address: at("10.0.0.3:80"), Weight: 100, HopWeight: 100, State: model.BackendUnready},
		{Address: at("10.0.0.4:80"), Weight: 7},
		{Address: at("10.0.0.1:80"), Weight: 9, Machine: "twin"}, // of two that are alike the first stands
	}
	got, which := Members(k, backends)
	want := []Member{
		{ID(k, backends[0]), 40, 100},
		{ID(k, backends[1]), 0, 100},
		{ID(k, backends[2]), 40, 100},
		{ID(k, backends[4]), 7, 7},
	}
	if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(which, []int{0, 1, 2, 4}) {
		t.Errorf("got %v of %v, want %v", got, which, want)
	}
}

// TestMembersAreOnce holds that the first of the backends with one ID stands for all, also where nothing may be sent to it.
func TestMembersAreOnce(t *testing.T) {
	k := key("tcp://192.0.2.1:80")
	at := netip.MustParseAddrPort
	backends := []model.FrontendBackend{
		{Address: at("10.0.0.1:80"), Machine: "m", Weight: 40},
		{Address: at("10.0.0.1:80"), Machine: "n", Weight: 7},
		{Address: at("10.0.0.2:80"), State: model.BackendUnready},
		{Address: at("10.0.0.2:80"), Weight: 7},
		{Address: at("10.0.0.3:80"), Weight: 5},
	}
	got, which := Members(k, backends)
	want := []Member{{ID(k, backends[0]), 40, 40}, {ID(k, backends[4]), 5, 5}}
	if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(which, []int{0, 4}) {
		t.Errorf("got %v of %v, want %v", got, which, want)
	}
}

// TestAddressesWithOneID holds that a table can be made of backends whose addresses somebody chose to have one ID.
func TestAddressesWithOneID(t *testing.T) {
	k := key("tcp://[2001:db8::1]:80")
	first := netip.MustParseAddrPort("[2001:db8:1::1]:80")
	hi, lo := halves(first.Addr())
	// What the port is mixed into last differs by as much as the ports do.
	prefix := mix(0x13198a2e03707344 ^ hi)
	crafted := unmix(mix(prefix^lo)^80^81) ^ prefix
	a := first.Addr().As16()
	binary.BigEndian.PutUint64(a[8:], crafted)
	second := netip.AddrPortFrom(netip.AddrFrom16(a), 81)
	backends := []model.FrontendBackend{{Address: first, Weight: 1}, {Address: second, Weight: 1}}
	if ID(k, backends[0]) != ID(k, backends[1]) || first.Addr() == second.Addr() {
		t.Fatalf("%s and %s have two IDs", first, second)
	}
	members, which := Members(k, backends)
	if table := New(smallRows, members); table.Row(0)[0] != 0 || !reflect.DeepEqual(which, []int{0}) {
		t.Errorf("members %v of %v, first row %v", members, which, table.Row(0))
	}
}

// unmix is the inverse of mix: shifts by more than half of the bits are their own, and odd factors have inverses.
func unmix(x uint64) uint64 {
	inverse := func(a uint64) uint64 {
		b := a // right in three bits; each step doubles them (Newton)
		for range 5 {
			b *= 2 - a*b
		}
		return b
	}
	x ^= x >> 33
	x *= inverse(0xc4ceb9fe1a85ec53)
	x ^= x >> 33
	x *= inverse(0xff51afd7ed558ccd)
	return x ^ x>>33
}

// TestIDs: a backend is the same whichever frontend asks, a proxy is its machine.
func TestIDs(t *testing.T) {
	a, b := key("tcp://192.0.2.1:80"), key("udp://192.0.2.2:53")
	server := model.FrontendBackend{Address: netip.MustParseAddrPort("10.0.0.1:80"), Machine: "m"}
	elsewhere := server
	elsewhere.Machine = "n"
	if ID(a, server) != ID(b, server) || ID(a, server) != ID(a, elsewhere) {
		t.Error("a backend has two IDs")
	}
	proxy := func(machine string) uint64 {
		return ID(a, model.FrontendBackend{Address: netip.AddrPortFrom(a.VIP, a.Port), Machine: machine})
	}
	if proxy("edge-1") == proxy("edge-2") || proxy("edge-1") == ID(a, server) || proxy("edge-10") == proxy("edge-1") {
		t.Error("two backends have one ID")
	}
}

// TestHash holds what data planes in C must give, too.
func TestHash(t *testing.T) {
	client := netip.MustParseAddrPort("198.51.100.7:40000")
	k := key("tcp://192.0.2.1:80")
	five, three, source := Hash(model.HashFiveTuple, client, k), Hash(model.HashThreeTuple, client, k), Hash(model.HashSource, client, k)
	for name, c := range map[string]struct{ got, want uint64 }{
		"5-tuple": {five, 0x8e6275e5b0484f08}, "3-tuple": {three, 0x26cbe0aab67f7a2a}, "source": {source, 0xa1a7b41acb4b5b0f},
	} {
		if c.got != c.want {
			t.Errorf("%s: %#x, want %#x", name, c.got, c.want)
		}
	}
	other := netip.MustParseAddrPort("198.51.100.7:40001")
	if Hash(model.HashFiveTuple, other, k) == five || Hash(model.HashThreeTuple, other, k) != three || Hash(model.HashSource, other, key("udp://192.0.2.9:53")) != source {
		t.Error("a hash counts what it should not, or not what it should")
	}
}
