package e2e

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "fairlead.dev/internal/console/v1"
)

// TestHandingOverBreaksNothing has the only machine that announces the VIPs hand them over to one
// that does not announce them yet: the pool moves from one to the other, and the one machine of a
// pool with maxMachines 1 is drained. The router always has a way.
func TestHandingOverBreaksNothing(t *testing.T) {
	s := routed(t)
	s.membership(t)
	pool := func(spec string) {
		t.Helper()
		s.kubectl(t, "patch", "addresspool", "public", "--type=merge", "-p", `{"spec":`+spec+`}`)
	}
	cordon := func(edge, on string) {
		t.Helper()
		s.kubectl(t, "patch", "machine", edge, "--type=merge", "-p", `{"spec":{"cordoned":`+on+`}}`)
	}
	edges := s.edges()
	restore := func() {
		pool(`{"machines":null,"maxMachines":null}`)
		for _, edge := range edges {
			cordon(edge, "false")
			s.kubectl(t, "label", "machine", edge, "site-")
		}
	}
	t.Cleanup(restore)
	other := map[string]string{edges[0]: edges[1], edges[1]: edges[0]}
	for _, edge := range edges {
		s.kubectl(t, "label", "machine", edge, "site="+edge)
	}
	log := s.watchRoutes(t)
	// over does something that makes the VIPs go from one edge to the other.
	over := func(from string, do func()) {
		t.Helper()
		s.awaitNextHops(t, upstream, vip4, from)
		s.awaitNextHops(t, upstream, vip6, from)
		kept, fresh := s.startVIPLoad(t, vip4, true), s.startVIPLoad(t, vip4, false)
		kept6, fresh6 := s.startVIPLoad(t, vip6, true), s.startVIPLoad(t, vip6, false)
		began := s.Now()
		do()
		for _, vip := range []netip.Addr{vip4, vip6} {
			over := log.awaitWay(t, vip, began, other[from])
			t.Logf("%s is announced by %s alone after %s", vip, other[from], over.Sub(began).Round(time.Millisecond))
			for _, e := range log.of(vip) {
				if !e.When.Before(began) && len(e.NextHops) == 0 {
					t.Errorf("the router had no way to %s at %s", vip, e.When.Format("05.000"))
				}
			}
		}
		kept.more(t, 50)
		kept6.more(t, 50)
		for _, l := range []*vipLoad{kept, fresh, kept6, fresh6} {
			l.none(t)
		}
	}
	selects := func(edge string) string {
		return `{"machines":{"matchExpressions":null,"matchLabels":{"site":"` + edge + `"}}}`
	}
	pool(selects(edges[0]))
	over(edges[0], func() { pool(selects(edges[1])) })
	over(edges[1], func() { pool(selects(edges[0])) })

	pool(`{"machines":null}`)
	s.awaitNextHops(t, upstream, vip4, edges...)
	pool(`{"maxMachines":1}`)
	var one string
	s.await(t, "the pool to have one machine", func(ctx context.Context) error {
		status, err := s.plane.Status(ctx)
		if err != nil {
			return err
		}
		for _, v := range status.VIPs {
			if v.Address == vip4 && len(v.Machines) == 1 {
				one = v.Machines[0]
				return nil
			}
		}
		return errors.New("it has others")
	})
	over(one, func() {
		code, out, errs := s.run(t, s.plane.Machine, "drain", one, "--timeout", "1m", "--kubeconfig", s.plane.Kubeconfig())
		t.Logf("fairlead drain %s -> %d\n%s%s", one, code, out, errs)
		if !strings.HasSuffix(out, "machine "+one+" is drained\n") {
			t.Errorf("fairlead drain %s ends with %d:\n%s%s", one, code, out, errs)
			for _, asked := range [][]string{{"backends", "-o", "wide"}, {"flows"}} {
				_, out, errs := s.run(t, s.plane.Machine, asked...)
				t.Logf("fairlead %s\n%s%s", strings.Join(asked, " "), out, errs)
			}
		}
		status, err := s.plane.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range status.VIPs {
			if slices.ContainsFunc(v.At, func(at v1.VIPAt) bool { return at.Machine == one && at.State == v1.VIPAnnounced }) {
				t.Errorf("%s is drained and announces %s", one, v.Address)
			}
		}
	})
	restore()
	s.awaitOrder(t)
}
