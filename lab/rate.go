package lab

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// rateQueue is for how long packets wait at a wire with a rate before the next ones are
// dropped, and rateBurst how many bytes may pass at once.
const (
	rateQueue = 25 // ms
	rateBurst = 32 << 10
)

// SetRate bounds what reaches the machine from one of its segments, in bits a second,
// as a slower interface would; 0 takes the bound away. What the machine sends is not
// bounded. It may be called again with another rate.
func (m *Machine) SetRate(segment string, bits uint64) error {
	own := slices.IndexFunc(m.state.Wires, func(w WireState) bool { return w.Segment == segment })
	if own < 0 {
		return fmt.Errorf("set the rate of machine %s: %w segment %q: it is not on that one", m.state.Name, ErrInvalid, segment)
	}
	err := m.wires(func(h *netlink.Handle, port netlink.Link, wire int) error {
		if wire != own {
			return nil
		}
		q := &netlink.Tbf{
			QdiscAttrs: netlink.QdiscAttrs{LinkIndex: port.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
			Rate:       bits / 8, Buffer: buffer(bits), Limit: uint32(bits/8*rateQueue/1000) + rateBurst,
		}
		if bits == 0 {
			if err := h.QdiscDel(q); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINVAL) {
				return err
			}
			return nil
		}
		return h.QdiscReplace(q)
	})
	if err != nil {
		return fmt.Errorf("set the rate of machine %s: %w", m.state.Name, err)
	}
	return nil
}

// buffer is the burst as the kernel wants it: the time that it takes, in ticks.
func buffer(bits uint64) uint32 {
	if bits == 0 {
		return 0
	}
	return netlink.Xmittime(bits/8, rateBurst)
}
