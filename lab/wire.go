package lab

import (
	"context"
	"fmt"

	"github.com/vishvananda/netlink"
)

// SetLink cuts the machine's wires, or mends them, as one pulls a cable: the
// machine sees its interfaces lose their carrier and keeps addresses and routes.
// The segment does not see anything but silence. It may be called again with the same.
// Mending returns once packets pass again.
func (m *Machine) SetLink(ctx context.Context, up bool) error {
	err := m.wires(func(h *netlink.Handle, port netlink.Link, _ int) error {
		if up {
			return h.LinkSetUp(port)
		}
		return h.LinkSetDown(port)
	})
	if err == nil && up {
		err = m.awaitLinks(ctx)
	}
	if err != nil {
		return fmt.Errorf("set the link of machine %s: %w", m.state.Name, err)
	}
	return nil
}

// SetBlackhole makes all packets from and to the machine vanish, or lets them pass
// again. Neither the machine nor anybody else can see it at an interface: all links
// stay up. It may be called again with the same.
func (m *Machine) SetBlackhole(on bool) error {
	state := m.lab.State()
	err := m.wires(func(h *netlink.Handle, port netlink.Link, wire int) error {
		if on {
			// A port of no bridge, in a namespace without addresses, takes every
			// packet and does nothing with it.
			return h.LinkSetNoMaster(port)
		}
		return join(h, state, m.state, wire)
	})
	if err != nil {
		return fmt.Errorf("set the blackhole of machine %s: %w", m.state.Name, err)
	}
	return nil
}

// wires calls f for the fabric's end of each of the machine's wires.
func (m *Machine) wires(f func(h *netlink.Handle, port netlink.Link, wire int) error) error {
	return inFabric(m.lab.State(), func(h *netlink.Handle) error {
		for wire := range m.state.Wires {
			port, err := h.LinkByName(m.state.port(wire))
			if err != nil {
				return fmt.Errorf("find the wire %s: %w", m.state.port(wire), err)
			}
			if err := f(h, port, wire); err != nil {
				return err
			}
		}
		return nil
	})
}
