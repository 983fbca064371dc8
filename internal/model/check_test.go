package model

import (
	"net/netip"
	"testing"
)

// TestGroupsAreCheckedAsTheyAreAsked holds that a check speaks with a backend as requests do.
func TestGroupsAreCheckedAsTheyAreAsked(t *testing.T) {
	check := &HealthCheck{Path: "/", Host: "h"}
	backend := netip.MustParseAddrPort("10.0.0.1:8080")
	for _, c := range []struct {
		name  string
		group BackendGroup
		want  HealthCheck
	}{
		{"plain", BackendGroup{HealthCheck: check}, HealthCheck{}},
		{"HTTP/2", BackendGroup{HealthCheck: check, Protocol: BackendHTTP2}, HealthCheck{Kind: CheckHTTP2}},
		{"TLS", BackendGroup{HealthCheck: check, TLS: &BackendTLS{ServerName: "n"}, Protocol: BackendAuto}, HealthCheck{Kind: CheckHTTPS, ServerName: "n"}},
		{"HTTP/2 over TLS", BackendGroup{HealthCheck: check, TLS: &BackendTLS{}, Protocol: BackendHTTP2}, HealthCheck{Kind: CheckHTTPS}},
		{"PROXY", BackendGroup{HealthCheck: check, SendProxyProtocol: true}, HealthCheck{SendProxyProtocol: true}},
		{"another kind", BackendGroup{HealthCheck: &HealthCheck{Kind: CheckTCP}, TLS: &BackendTLS{}}, HealthCheck{Kind: CheckTCP}},
	} {
		got, ok := c.group.Check(backend)
		if !ok || got.Kind != c.want.Kind || got.ServerName != c.want.ServerName || got.SendProxyProtocol != c.want.SendProxyProtocol || got.Target != backend {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
	if _, ok := new(BackendGroup).Check(backend); ok {
		t.Error("a group without a check is checked")
	}
	if c := NewCheck(backend, HealthCheck{Port: 9}); c.Target.Port() != 9 {
		t.Errorf("another port: %v", c.Target)
	}
}
