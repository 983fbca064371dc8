package model

import (
	"net/netip"
	"testing"
)

// TestConnectionsAreCheckedByDefault holds that groups whose backends take connections have the
// check of a frontend of TCP, the same one, and that others have what they ask for.
func TestConnectionsAreCheckedByDefault(t *testing.T) {
	b := netip.MustParseAddrPort("10.0.0.1:5432")
	want := NewCheck(b, *PresumedCheck())
	for _, g := range []BackendGroup{{Protocol: BackendTCP}, {Protocol: BackendTCP, SendProxyProtocol: true}, {Protocol: BackendTCP, TLS: &BackendTLS{}}} {
		if c, has := g.Check(b); !has || c.ID != want.ID || !c.Presumed || !g.Presumed() {
			t.Errorf("%+v is checked by %+v, want %s", g, c, want.ID)
		}
	}
	for _, g := range []BackendGroup{{}, {Protocol: BackendHTTP2}} {
		if c, has := g.Check(b); has {
			t.Errorf("%+v is checked by %+v, and nobody asked", g, c)
		}
	}
	asked := BackendGroup{Protocol: BackendTCP, HealthCheck: &HealthCheck{Kind: CheckTCP}}
	if c, has := asked.Check(b); !has || c.Presumed || asked.Presumed() {
		t.Errorf("a check that was asked for is %+v", c)
	}
}
