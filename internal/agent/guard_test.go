package agent

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/wire"
)

// guards is what a data plane is told to guard, a line each.
func guards(p *fakePlane) string {
	var lines []string
	for vip, others := range p.has().Guarded {
		lines = append(lines, fmt.Sprintf("%v%v", vip, others))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// Nothing but frontends is reached at VIPs, and what a data plane does not carry out itself
// is told to it.
func TestVIPsAreGuarded(t *testing.T) {
	t.Parallel()
	xdp := &fakePlane{kind: model.DataPlaneXDP, cannot: map[model.FrontendKey]string{}, refuses: map[model.FrontendKey]string{}}
	nft := &fakePlane{kind: model.DataPlaneNFTables, refuses: map[model.FrontendKey]string{}}
	a := newBalancing(t, xdp, nft)
	tell := func(change []delta.Change) {
		a.gives(change...)
		a.balancer.apply()
	}
	check := func(what string, inXDP, inNFT string) {
		t.Helper()
		if got := guards(xdp); got != inXDP {
			t.Errorf("%s: XDP is told\n%s\nwant\n%s", what, got, inXDP)
		}
		if got := guards(nft); got != inNFT {
			t.Errorf("%s: nftables is told\n%s\nwant\n%s", what, got, inNFT)
		}
	}
	https := model.FrontendKey{VIP: one, Transport: model.TCP, Port: 443}
	h3 := model.FrontendKey{VIP: one, Transport: model.UDP, Port: 443}
	vip := bgpVIP(one)
	vip.Frontends = []model.FrontendKey{mail, web}
	a.gives(frontendChanges(t, frontendOn(web, "edge-1"), ready(pod, "", 100))...)
	a.whole()
	a.balancer.apply()
	check("of an address that is not known as a VIP", "", "")

	tell([]delta.Change{vipChange(t, vip)})
	// It is not known yet whose mail is: a proxy may serve it.
	check("one frontend is known", "192.0.2.1[tcp://192.0.2.1:25]", "192.0.2.1[tcp://192.0.2.1:25 tcp://192.0.2.1:80]")

	tell(frontendChanges(t, frontendOn(mail, "edge-1"), ready(pod, "", 100)))
	check("both are known", "192.0.2.1[]", "192.0.2.1[tcp://192.0.2.1:25 tcp://192.0.2.1:80]")

	xdp.cannot[mail] = "no"
	f := frontendOn(mail, "edge-1")
	f.Drain++
	tell(frontendChanges(t, f, ready(pod, "", 100)))
	check("another data plane has one", "192.0.2.1[tcp://192.0.2.1:25]", "192.0.2.1[tcp://192.0.2.1:80]")

	f.DataPlane = model.DataPlaneIPVS
	tell(frontendChanges(t, f, ready(pod, "", 100)))
	check("nobody has one", "192.0.2.1[]", "192.0.2.1[tcp://192.0.2.1:80]")

	// Listeners of the proxy stay, balanced or not, and whether the frontends are known or not.
	vip.Listeners = []model.ListenerID{"https-443"}
	vip.Frontends = []model.FrontendKey{mail, https, web}
	l := frontendOn(https, "edge-1")
	l.Listener = "https-443"
	tell(append(frontendChanges(t, l, proxies(https, "edge-1")...), vipChange(t, vip)))
	check("a listener of this machine alone", fmt.Sprintf("%v%v", one, []model.FrontendKey{https, h3}), fmt.Sprintf("%v%v", one, []model.FrontendKey{web, https, h3}))

	tell(frontendChanges(t, l, proxies(https, "edge-1", "edge-2")...))
	check("a listener of two machines", fmt.Sprintf("%v%v", one, []model.FrontendKey{h3}), fmt.Sprintf("%v%v", one, []model.FrontendKey{web, https, h3}))

	before := xdp.times()
	a.balancer.apply()
	if xdp.times() != before {
		t.Error("a data plane is told what it knows")
	}
	tell([]delta.Change{{Type: typeVIP, Name: wire.VIPName(one)}})
	check("the VIP has gone", "", "")
}
