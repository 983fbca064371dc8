package nft

import (
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.dev/internal/driver/lb/lbtest"
)

// TestFlowsEndLater: what could not be taken out of conntrack when a backend went is taken
// out the next time, but not that of a backend that is back.
func TestFlowsEndLater(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: a network namespace")
	}
	lbtest.InNamespace(t, func() error {
		p, err := New(Config{})
		if err == nil {
			err = os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0)
		}
		if err != nil {
			return err
		}
		b := many(1)
		if err := p.Set(b); err != nil {
			return err
		}
		gone := netip.MustParseAddrPort("10.0.0.2:80")
		for key, f := range b.Frontends {
			for i, backend := range []netip.AddrPort{f.Backends[0].Address, gone} {
				p.cuts[cutting{key, backend}] = true // as if that had failed
				client, port := net.IPv4(198, 51, 100, 1), uint16(40000+i)
				err := netlink.ConntrackCreate(netlink.ConntrackTable, unix.AF_INET, &netlink.ConntrackFlow{
					FamilyType: unix.AF_INET, TimeOut: 600,
					Forward:   netlink.IPTuple{Protocol: 6, SrcIP: client, SrcPort: port, DstIP: key.VIP.AsSlice(), DstPort: key.Port},
					Reverse:   netlink.IPTuple{Protocol: 6, SrcIP: backend.Addr().AsSlice(), SrcPort: backend.Port(), DstIP: client, DstPort: port},
					ProtoInfo: &netlink.ProtoInfoTCP{State: 3}, // established
				})
				if err != nil {
					return err
				}
			}
		}
		if err := p.Repair(); err != nil {
			return err
		}
		entries, err := netlink.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
		if err != nil {
			return err
		}
		var left []netip.AddrPort
		for _, e := range entries {
			if _, _, backend, ok := ends(e); ok {
				left = append(left, backend)
			}
		}
		if len(left) != 1 || left[0] == gone || len(p.cuts) > 0 {
			t.Errorf("conntrack has flows of %v, want that of the backend that is there; %d are still to be cut", left, len(p.cuts))
		}
		return p.Close(false)
	})
}
