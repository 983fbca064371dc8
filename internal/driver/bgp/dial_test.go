package bgp

import (
	"errors"
	"net"
	"net/netip"
	"strconv"
	"testing"

	"fairlead.dev/internal/driver/bgp/discovery"
)

// A link-local address names its interface, or the number of it.
func TestNumbered(t *testing.T) {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	number := strconv.Itoa(lo.Index)
	for in, want := range map[string]string{
		"192.0.2.1":         "192.0.2.1",
		"fe80::1":           "fe80::1",
		"fe80::1%lo":        "fe80::1%" + number,
		"fe80::1%" + number: "fe80::1%" + number,
	} {
		if got, err := numbered(netip.MustParseAddr(in)); err != nil || got.String() != want {
			t.Errorf("%s: %s (%v), want %s", in, got, err, want)
		}
	}
	for _, in := range []string{"fe80::1%gone", "fe80::1%-1", "fe80::1%0"} {
		if _, err := numbered(netip.MustParseAddr(in)); !errors.Is(err, discovery.ErrNoInterface) {
			t.Errorf("%s: %v, want %v", in, err, discovery.ErrNoInterface)
		}
	}
}
