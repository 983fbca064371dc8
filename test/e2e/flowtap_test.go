package e2e

import (
	"context"
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairlead.dev/lab/rig"
)

// TestFlowsAreTapped shows flows of a frontend to somebody who names its owner: begin and end, from the kernel of the edge
// to the command line. What a data plane does not tell is said.
func TestFlowsAreTapped(t *testing.T) {
	for kind, limits := range map[string]string{"xdp": "XDP: with direct server return", "nftables": "NFTables: the flow table is looked at once a second"} {
		t.Run(kind, func(t *testing.T) { flowsAreTapped(t, kind, limits) })
	}
}

func flowsAreTapped(t *testing.T, kind, limits string) {
	s := newLab(t, "flowtap-"+kind[:3], plane, edge1, os1, client)
	s.forward(t, s.Lab.Machine(edge1.Name))
	if err := s.start(t.Context(), rig.PlaneOptions{}, "--data-plane", kind); err != nil {
		t.Fatal(err)
	}
	edge := s.Lab.Machine(edge1.Name).Addr4().As4()
	edge[2], edge[3] = 200, 16
	vip := netip.AddrFrom4(edge)
	s.namespace(t, "team")
	s.apply(t, rig.PoolManifest("flat", []string{vip.String() + "/32"}, "announce: L2", "assign: OnRequest"),
		strings.Replace(service("team", "web", s.cluster(os1.Name)...), "  clusterIP: None\n", "  type: LoadBalancer\n  loadBalancerClass: fairlead.dev/l4\n  allocateLoadBalancerNodePorts: false\n", 1))
	s.kubectl(t, "annotate", "service", "-n", "team", "web", "fairlead.dev/address-pool=flat")
	web := request{at: vip, host: "web"}
	s.awaitAnswerOf(t, "the VIP", web, 200)
	for args, want := range map[string]string{"team/wbe": "did you mean team/web?", "tcp://" + vip.String() + ":81": "did you mean", "other/web": "none in this namespace"} {
		if code, out, errs := s.run(t, s.plane.Machine, "tap", "--flows", args); code != 1 || !strings.Contains(out+errs, want) {
			t.Errorf("tap --flows %s ends with %d: %s", args, code, out+errs)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var out, errs strings.Builder
	c := s.plane.Machine.Command(ctx, s.Binary, "tap", "--flows", "Service/team/web", "--limit", "8", "-o", "json")
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	for asking := true; asking; {
		s.awaitAnswerOf(t, "the VIP", web, 200)
		select {
		case err := <-ended:
			if err != nil {
				t.Fatalf("tap: %v\n%s%s", err, out.String(), errs.String())
			}
			asking = false
		default:
		}
	}
	t.Logf("%s%s", out.String(), errs.String())
	kinds := map[string]int{}
	for line := range strings.Lines(out.String()) {
		var e struct {
			Machine, Owner, Kind string
			Frontend             struct{ VIP netip.Addr }
			Client, Backend      netip.AddrPort
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		kinds[e.Kind]++
		if e.Machine != edge1.Name || e.Owner != "Service team/web" || e.Frontend.VIP != vip || !e.Client.IsValid() || !e.Backend.IsValid() {
			t.Errorf("told %s", line)
		}
	}
	if kinds["begin"] == 0 || kinds["end"] == 0 || !strings.Contains(errs.String(), "8 events shown") || !strings.Contains(errs.String(), limits) {
		t.Errorf("%v were told, and %s", kinds, errs.String())
	}
}
