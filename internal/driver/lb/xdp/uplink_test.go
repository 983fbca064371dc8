package xdp

import (
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"

	"fairlead.dev/internal/model"
)

// TestTunnelsOverAnotherUplink has machines reach each other by an interface whose address
// they do not report: what is in tunnels comes from the one that they do report, or nobody
// would take it out.
func TestTunnelsOverAnotherUplink(t *testing.T) {
	s := newSiteOn(t, "servers", "back")
	all := append(append([]*balancer(nil), s.lbs...), s.bes...)
	for _, b := range all {
		h, err := b.m.Netlink()
		must(t, err)
		defer h.Close()
		for _, other := range all {
			if other == b {
				continue
			}
			v4, v6, _ := other.m.On("back")
			for to, by := range map[netip.Addr]netip.Addr{other.m.Addr4(): v4, other.m.Addr6(): v6} {
				must(t, h.RouteReplace(&netlink.Route{Dst: host(to), Gw: by.AsSlice()}))
			}
		}
	}
	for _, over6 := range []bool{false, true} {
		s.over6 = over6
		s.put(model.ModeDSRGeneve, 100, 100)
		s.settled()
		l := s.load(4)
		l.more(t, 100)
		s.spread(s.lbs[0])
		l.more(t, 50)
		s.put(model.ModeDSRGeneve, 100, 0)
		l.more(t, 50)
		s.spread(s.lbs...)
		l.more(t, 50)
		l.end(s)
		for _, b := range all {
			if n := s.tell(b).Drops["tunnel-from-stranger"]; n > 0 {
				t.Errorf("%s: %d packets came from an address that no machine reports", b.m.Name(), n)
			}
		}
	}
	for _, b := range s.lbs {
		if r := s.tell(b); r.Observed[0].Message != "" {
			t.Errorf("%s says %q", b.m.Name(), r.Observed[0].Message)
		}
	}
}
