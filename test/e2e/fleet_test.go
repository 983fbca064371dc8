package e2e

import (
	"context"
	"net"
	"net/netip"
	"testing"

	"fairlead.dev/internal/delta"
	"fairlead.dev/lab"
	"fairlead.dev/lab/fleet"
	"fairlead.dev/lab/rig"
)

// TestFleetFollowsAPlane holds the simulated machines of `bench scale` to what agents do: they join, get
// everything, claim it when they start again, and come back to a plane that was killed.
func TestFleetFollowsAPlane(t *testing.T) {
	const machines = 8
	host := lab.MachineSpec{Name: "fleet", Addresses: 4}
	s := newLab(t, "fleet", os1, host, plane)
	var err error
	if s.plane, err = s.StartPlane(t.Context(), s.Lab.Machine(plane.Name), rig.PlaneOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := s.connect(); err != nil {
		t.Fatal(err)
	}
	s.apply(t, exampleFiles(t)...)
	s.apply(t, namespace("fleet"), service("fleet", "a", s.backends["os1-a"]), httpRoute("fleet", "app", "fleet.example.com", to("a")))
	addresses := s.Lab.Machine(host.Name).Addrs4()
	f := fleet.New(fleet.Options{
		Machines: machines, Planes: []string{s.plane.Endpoint()}, Now: s.Now,
		Token: func(ctx context.Context, machine string) (string, error) { return s.plane.Token(ctx, machine) },
		Dial: func(ctx context.Context, machine int, address string) (net.Conn, error) {
			return s.Lab.Machine(host.Name).DialFrom(ctx, "tcp4", addresses[machine%len(addresses)], address, func(netip.AddrPort) {})
		},
	})
	ctx, cancel := context.WithTimeout(t.Context(), rig.Patience)
	defer cancel()
	if err := f.Join(ctx); err != nil {
		t.Fatal(err)
	}
	f.Start(ctx, false)
	if _, err := f.Await(ctx, machines, delta.Revision{Epoch: 1, Number: 1}); err != nil {
		t.Fatal(err)
	}
	s.awaitConditions(t, "HTTPRoute fleet/app", programmed)
	all := f.Received()
	f.Stop()
	began := s.Now()
	f.Start(ctx, true)
	defer f.Stop()
	if _, err := f.AwaitSince(ctx, machines, delta.Revision{Epoch: 1, Number: 1}, began); err != nil {
		t.Fatal(err)
	}
	if again := f.Received() - all; again > all/4 {
		t.Errorf("machines that remember were sent %d bytes, and %d when they knew nothing", again, all)
	}
	killed := s.Now()
	s.plane.Process.Kill9()
	if err := s.plane.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := f.AwaitSince(ctx, machines, delta.Revision{Epoch: 2}, killed); err != nil {
		t.Fatal(err)
	}
}
