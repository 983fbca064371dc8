package xdp

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"fairlead.dev/internal/model"
)

// TestInterfacesAreShown, with what is done at each, and follow the machine.
func TestInterfacesAreShown(t *testing.T) {
	inMachine(t)
	d := newPlane(t, pinsIn(t))
	d.c.Interfaces = nil
	d.c.Addresses = func() ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("10.0.0.1")}, nil
	}
	shows := func(want string) {
		t.Helper()
		d.look(true)
		var lines []string
		for _, o := range d.Interfaces() {
			lines = append(lines, strings.TrimSpace(o.Name+" "+string(o.Use)+" "+o.Message))
		}
		if got := strings.Join(lines, ", "); got != want {
			t.Errorf("interfaces: %s\nwant: %s", got, want)
		}
	}
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}
	must(t, netlink.LinkAdd(bridge))
	a, err := netlink.ParseAddr("10.0.0.1/24")
	must(t, err)
	must(t, netlink.AddrAdd(bridge, a))
	must(t, d.Set(one(t, nil)))
	shows("br0 unused no port of the bridge leads out of the machine, eth0 native")
	if o := d.Observed()[0]; o.Message != "" {
		t.Errorf("the frontend says %q", o.Message)
	}
	elsewhere := one(t, func(f *model.Frontend) { f.Machines = []string{"m2"} })
	for _, f := range elsewhere.Frontends {
		f.Backends[0].Machine = "m1"
	}
	must(t, d.Set(elsewhere))
	shows("br0 unused no port of the bridge leads out of the machine, eth0 tunnels")
	must(t, d.Set(one(t, nil)))

	// A tunnel endpoint makes it one of those that lead out.
	b := one(t, nil)
	b.Nodes["m1"].Tunnel4 = netip.MustParseAddr("10.0.0.1")
	must(t, netlink.LinkSetUp(bridge))
	must(t, d.Set(b))
	shows("br0 generic, eth0 native")
	must(t, d.Close(false))
}
