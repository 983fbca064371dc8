package lbtest

import (
	"fmt"
	"testing"

	"github.com/vishvananda/netlink"
)

// bridge makes a segment in a namespace.
func bridge(t *testing.T, s *space, name string) {
	t.Helper()
	must(t, s.in(func() error {
		b := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}
		if err := netlink.LinkAdd(b); err != nil {
			return fmt.Errorf("make a bridge: %w", err)
		}
		return netlink.LinkSetUp(b)
	}))
}

// plug gives a namespace an interface in the segment.
func plug(t *testing.T, segment *space, bridge string, s *space, dev string) {
	t.Helper()
	port := s.name + "-" + dev
	wire(t, s, dev, segment, port)
	must(t, segment.in(func() error {
		b, err := netlink.LinkByName(bridge)
		if err != nil {
			return err
		}
		p, err := netlink.LinkByName(port)
		if err != nil {
			return err
		}
		return netlink.LinkSetMaster(p, b)
	}))
}
