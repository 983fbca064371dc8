package main

import (
	"net/netip"
	"slices"
	"testing"
)

func TestReservedPorts(t *testing.T) {
	for _, c := range []struct {
		name  string
		flags planeFlags
		want  []uint16
	}{
		{
			"defaults",
			planeFlags{agentPort: defaultAgentPort, apiPort: defaultAPIPort, consoleAddress: defaultPlaneConsole},
			[]uint16{7443, 6443, 7080, 7081},
		},
		{
			"an API elsewhere, a free port for agents",
			planeFlags{kubeconfig: "config", apiPort: 6443, consoleAddress: "[::1]:9000"},
			[]uint16{9000, 7081},
		},
	} {
		if got := c.flags.reservedPorts(); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// The flag may be given often, and each time with several networks.
func TestMachineAddresses(t *testing.T) {
	var flags planeFlags
	c := newRoot()
	flags.add(c)
	if err := c.ParseFlags([]string{"--machine-addresses", "Edge=10.0.0.0/24, backend=10.1.0.0/16", "--machine-addresses=Edge=2001:db8::/32"}); err != nil {
		t.Fatal(err)
	}
	if got, want := flags.machineAddresses.String(), "Edge=10.0.0.0/24,Backend=10.1.0.0/16,Edge=2001:db8::/32"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// The flag may be given often, and each time with several CIDRs.
func TestRefuseEndpoints(t *testing.T) {
	var flags planeFlags
	c := newRoot()
	flags.add(c)
	if err := c.ParseFlags([]string{"--refuse-endpoints", "10.0.0.0/8, 192.0.2.1", "--refuse-endpoints=2001:db8::/32"}); err != nil {
		t.Fatal(err)
	}
	want := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("2001:db8::/32")}
	if !slices.Equal([]netip.Prefix(flags.refusedEndpoints), want) {
		t.Errorf("%v, want %v", flags.refusedEndpoints, want)
	}
}
