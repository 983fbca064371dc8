package plane

import (
	"net/netip"
	"strings"
	"testing"

	"fairlead.dev/internal/explain"
	"fairlead.dev/internal/model"
)

func TestFlowWorldIsWhatIsPublished(t *testing.T) {
	web := model.FrontendKey{VIP: netip.MustParseAddr("192.0.2.1"), Transport: model.TCP, Port: 80}
	dns := web
	dns.Transport, dns.Port = model.UDP, 53
	f := newFrontends()
	f.entries[web] = &frontendEntry{
		frontend: &model.Frontend{FrontendKey: web},
		backends: []model.FrontendBackend{{Address: netip.MustParseAddrPort("10.0.0.1:80"), Weight: 100, HopWeight: 100}},
	}
	f.entries[dns] = &frontendEntry{} // gone
	l := &loop{frontends: f, network: newNetwork()}
	request := explain.FlowRequest{Frontend: web, Client: netip.MustParseAddrPort("198.51.100.7:4000")}
	if got := explain.Flow(request, l.flowWorld(request)).Answer; got != "a new flow goes to 10.0.0.1:80" {
		t.Errorf("the answer is %q", got)
	}
	fromVIP := request
	fromVIP.Client = netip.AddrPortFrom(web.VIP, 4000)
	if got := explain.Flow(fromVIP, l.flowWorld(fromVIP)); got.Reason != "martian-source" {
		t.Errorf("from a VIP: %+v", got)
	}
	request.Frontend = dns
	if got := explain.Flow(request, l.flowWorld(request)).Answer; !strings.Contains(got, "this VIP has the frontends tcp://192.0.2.1:80") {
		t.Errorf("of a frontend that is gone: %q", got)
	}
}
