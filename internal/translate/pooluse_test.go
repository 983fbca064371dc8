package translate

import (
	"math"
	"slices"
	"testing"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/input"
)

// TestPoolUse: a pool's addresses are counted by family, so that one with few IPv4 addresses is not hidden by IPv6.
func TestPoolUse(t *testing.T) {
	s := snapshot.New()
	readYAML(t, s, []byte(`
apiVersion: fairlead.dev/v1alpha1
kind: AddressPool
metadata: {name: edge}
spec: {addresses: [192.0.2.0/29, "2001:db8::/48"]}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: team}
spec: {type: LoadBalancer, loadBalancerClass: fairlead.dev/l4, ports: [{port: 80}]}
`))
	tr := full(input.Config{}, s)
	recordAll(t, tr, s)
	got := tr.statusOf(model.Object{Kind: string(snapshot.KindAddressPool), Name: "edge"}).Pool
	want := []PoolUse{{Family: "IPv4", Used: 1, Free: 7}, {Family: "IPv6", Used: 0, Free: math.MaxUint64}}
	if !slices.Equal(got, want) {
		t.Errorf("the pool has %v, want %v", got, want)
	}
}
