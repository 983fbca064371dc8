package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"

	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/lab/rig"
)

// TestVanishedMachineTakesItsBackends has a machine with backends of a Service vanish of whose
// health nobody says anything. New connections are lost while that is found out, and none
// afterwards: with XDP the load balancers find it out through the tunnel, with nftables by the
// presumed check.
func TestVanishedMachineTakesItsBackends(t *testing.T) {
	t.Parallel()
	for name, plane := range map[string]string{"xdp": "xdp", "nft": "nftables"} {
		t.Run(plane, func(t *testing.T) {
			s := newL4(t, "l4-gone-"+name, "--data-plane", plane)
			os1s, host := s.cluster(os1.Name), s.Lab.Machine("edge-2")
			stay, err := s.StartBackends(t.Context(), host, host.Addrs4()[:1], os1s[0].Address.Port())
			if err != nil {
				t.Fatal(err)
			}
			all := append(slices.Clone(os1s), stay...)
			s.endpoints(t, all, s.cluster(k8s1.Name))
			s.answer(t, vip4, all)
			s.awaitHealth(t, "all are found well", v1.Healthy, all)
			fresh := s.startVIPLoad(t, vip4, false)
			fresh.more(t, 100)
			cut := s.Now()
			if err := s.Lab.Machine(os1.Name).SetBlackhole(true); err != nil {
				t.Fatal(err)
			}
			s.await(t, "its backends to be out", func(ctx context.Context) error {
				rows, err := s.backendsOf(ctx, s.web)
				if err != nil {
					return err
				}
				for _, r := range rows {
					gone := slices.ContainsFunc(os1s, func(b rig.Backend) bool { return b.Address == r.Address })
					if gone == (r.Weight > 0) {
						return fmt.Errorf("%s of %s has weight %d and is %s", r.Address, r.Machine, r.Weight, r.Health)
					}
				}
				return nil
			})
			out := s.Now()
			fresh.more(t, 300)
			if err := s.Lab.Machine(os1.Name).SetBlackhole(false); err != nil {
				t.Fatal(err)
			}
			s.answer(t, vip4, all)
			fresh.more(t, 100)
			fresh.none(t, span{cut, out.Add(settleTime)})
		})
	}
}

// backendsOf are the backends of a frontend as the plane shows them.
func (s *l4Site) backendsOf(ctx context.Context, key v1.FrontendKey) ([]v1.BackendStatus, error) {
	return s.plane.Backends(ctx, key.String())
}

// awaitHealth waits until that is known of each of the backends.
func (s *l4Site) awaitHealth(t *testing.T, what string, health v1.Health, of []rig.Backend) {
	t.Helper()
	s.await(t, what, func(ctx context.Context) error {
		rows, err := s.backendsOf(ctx, s.web)
		if err != nil {
			return err
		}
		for _, b := range of {
			i := slices.IndexFunc(rows, func(r v1.BackendStatus) bool { return r.Address == b.Address })
			if i < 0 || rows[i].Health != health {
				return fmt.Errorf("%s is not %s in %+v", b.Address, health, rows)
			}
		}
		return nil
	})
}
