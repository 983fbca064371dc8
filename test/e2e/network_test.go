package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"fairlead.dev/internal/model"
	"fairlead.dev/lab"
	"fairlead.dev/lab/rig"
	"fairlead.dev/lab/router"
)

// edge3 makes three edges behind a router.
var edge3 = lab.MachineSpec{Name: "edge-3", Role: lab.RoleEdge}

// routedSite is a lab with a client behind a router, and edges before backends. The
// router speaks BGP.
func routedSite(t *testing.T, name string, kind router.Kind, options rig.RouterOptions, edges ...lab.MachineSpec) (*site, *router.Router) {
	t.Helper()
	if err := kind.Find(); err != nil {
		t.Skip(err)
	}
	outside, upstream := client, lab.MachineSpec{Name: "router", Role: lab.RoleRouter, Segments: []string{lab.SegmentEdges, lab.SegmentClients}}
	outside.Segments = []string{lab.SegmentClients}
	s := newLabOf(t, lab.Topology{
		Name: name, Segments: []lab.Segment{{Name: lab.SegmentEdges}, {Name: lab.SegmentClients}},
		Machines: append([]lab.MachineSpec{outside, upstream, k8s1, os1, plane}, edges...),
	})
	options.Kind = kind
	r, err := s.StartRouter(t.Context(), s.Lab.Machine("router"), options)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.start(t.Context(), rig.PlaneOptions{Args: []string{"--machine-ttl", "5s"}}, "--drain-time", "2s"); err != nil {
		t.Fatal(err)
	}
	return s, r
}

// The addresses of the pool of these tests, and the first of each family.
var (
	poolAddresses = []string{"203.0.113.16/29", "2001:db8:77::10/124"}
	vip4          = netip.MustParseAddr("203.0.113.16")
	vip6          = netip.MustParseAddr("2001:db8:77::10")
)

// awaitNextHops waits until the router's kernel sends a VIP's packets to exactly these
// machines.
func (s *site) awaitNextHops(t *testing.T, r *router.Router, vip netip.Addr, machines ...string) {
	t.Helper()
	want := s.hops(vip, machines...)
	s.await(t, fmt.Sprintf("the router to have %s over %v", vip, machines), func(ctx context.Context) error {
		got, err := r.Routes(ctx, netip.PrefixFrom(vip, vip.BitLen()))
		if err != nil {
			return err
		}
		slices.SortFunc(got, netip.Addr.Compare)
		if !slices.Equal(got, want) {
			return fmt.Errorf("it has it over %v, want %v", got, want)
		}
		return nil
	})
}

func TestClientReachesAVIPThroughTheRouter(t *testing.T) {
	for _, kind := range router.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			s, r := routedSite(t, "way-in-"+string(kind), kind, rig.RouterOptions{}, edge1, edge2)
			s.apply(t,
				rig.PoolManifest("public", poolAddresses), rig.PeerManifest("upstream", r.Machine()),
				gatewayClass,
				gateway("edge", 80), service("default", "app", s.cluster("os1")...), httpRoute("default", "app", "vip.example.com", to("app")),
			)
			for _, vip := range []netip.Addr{vip4, vip6} {
				s.awaitNextHops(t, r, vip, "edge-1", "edge-2")
				s.awaitAnswerOf(t, "the way to "+vip.String(), request{at: vip, host: "vip.example.com"}, 200, "os1-a", "os1-b")
			}
			s.await(t, "the plane to show both VIPs announced by both edges", func(ctx context.Context) error {
				status, err := s.plane.Status(ctx)
				if err != nil {
					return err
				}
				for _, v := range status.VIPs {
					if v.State != "announced" || v.Message != "" || len(v.At) != 2 {
						return fmt.Errorf("%+v", v)
					}
				}
				if len(status.VIPs) != 2 {
					return fmt.Errorf("%d VIPs", len(status.VIPs))
				}
				for _, x := range status.Sessions {
					if x.State != model.SessionEstablished {
						return fmt.Errorf("%+v", x)
					}
				}
				return nil
			})
			envoy, err := s.agents["edge-1"].Envoy()
			if err != nil {
				t.Fatal(err)
			}
			if err := envoy.Kill9(); err != nil {
				t.Fatal(err)
			}
			s.awaitNextHops(t, r, vip4, "edge-1", "edge-2") // back when the next Envoy serves
		})
	}
}
