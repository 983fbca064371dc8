package e2e

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"fairlead.dev/lab"
)

// TestLeavingAPoolBreaksNothing takes an edge out of the pool and back in. What it has
// under way goes on over the other edge, which passes it on, and ends gently within the
// drain time; also when its agent is killed meanwhile.
func TestLeavingAPoolBreaksNothing(t *testing.T) {
	s := routed(t)
	member := s.membership(t)
	edge := s.agents["edge-1"]
	for _, killed := range []bool{false, true} {
		s.awaitOrder(t)
		s.awaitPassing(t)
		kept, fresh := s.startVIPLoad(t, vip4, true), s.startVIPLoad(t, vip4, false)
		kept6, fresh6 := s.startVIPLoad(t, vip6, true), s.startVIPLoad(t, vip6, false)
		member(false)
		s.awaitNextHops(t, upstream, vip4, "edge-2")
		s.awaitNextHops(t, upstream, vip6, "edge-2")
		if !s.holds(t, edge.Machine) {
			t.Error("a VIP was let go of under what is under way")
		}
		if killed {
			edge.Process.Kill9()
			kept.more(t, 20)
			if err := edge.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := edge.AwaitReady(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		s.await(t, "the edge to let go of the VIPs", func(context.Context) error {
			if s.holds(t, edge.Machine) {
				return errors.New("it holds one")
			}
			return nil
		})
		kept.more(t, 50)
		kept6.more(t, 50)
		for _, l := range []*vipLoad{kept, fresh, kept6, fresh6} {
			l.none(t)
		}
		member(true)
	}
	s.awaitOrder(t)
}

// membership gives the Gateway a short drain time, and returns what takes edge-1 out of the
// pool and puts it back.
func (s *site) membership(t *testing.T) (member func(on bool)) {
	t.Helper()
	member = func(on bool) {
		t.Helper()
		out := `"true"`
		if on {
			out = "null"
		}
		s.kubectl(t, "patch", "machine", "edge-1", "--type=merge", "-p", `{"metadata":{"labels":{"out":`+out+`}}}`)
	}
	t.Cleanup(func() {
		member(true)
		s.kubectl(t, "patch", "addresspool", "public", "--type=merge", "-p", `{"spec":{"machines":null}}`)
		s.kubectl(t, "delete", "loadbalancerpolicy", "slow", "--ignore-not-found")
	})
	s.apply(t, `apiVersion: fairlead.dev/v1alpha1
kind: LoadBalancerPolicy
metadata: {name: slow, namespace: default}
spec: {targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: edge}], drainTime: 6s}
`)
	s.kubectl(t, "patch", "addresspool", "public", "--type=merge", "-p", `{"spec":{"machines":{"matchExpressions":[{"key":"out","operator":"DoesNotExist"}]}}}`)
	return member
}

// holds says whether a machine's loopback has one of the VIPs.
func (s *site) holds(t *testing.T, m *lab.Machine) bool {
	t.Helper()
	h, err := m.Netlink()
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	lo, err := h.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	list, err := h.AddrList(lo, netlink.FAMILY_ALL)
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(list, func(a netlink.Addr) bool { return a.IP.Equal(vip4.AsSlice()) || a.IP.Equal(vip6.AsSlice()) })
}
