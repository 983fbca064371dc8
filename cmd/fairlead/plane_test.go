package main

import (
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
