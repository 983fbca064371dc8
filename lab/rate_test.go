package lab

import (
	"errors"
	"fmt"
	"testing"

	"github.com/vishvananda/netlink"
)

// rates are those of the machine's wires as the fabric has them, in bits a second.
func rates(t *testing.T, m *Machine) (of []uint64) {
	t.Helper()
	if err := m.wires(func(h *netlink.Handle, port netlink.Link, _ int) error {
		list, err := h.QdiscList(port)
		if err != nil {
			return err
		}
		bits := uint64(0)
		for _, q := range list {
			if tbf, ok := q.(*netlink.Tbf); ok {
				bits = tbf.Rate * 8
			}
		}
		of = append(of, bits)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return of
}

func TestRateBoundsOneWire(t *testing.T) {
	l := up(t, Topology{Name: "rate", Segments: []Segment{{Name: "one"}, {Name: "two"}}, Machines: []MachineSpec{
		{Name: "m", Segments: []string{"one", "two"}}, {Name: "other", Segments: []string{"one"}},
	}})
	m := l.Machine("m")
	for _, bits := range []uint64{10_000_000, 20_000_000, 0, 0} {
		if err := m.SetRate("two", bits); err != nil {
			t.Fatal(err)
		}
		if got, want := rates(t, m), []uint64{0, bits}; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("rates are %v, want %v", got, want)
		}
	}
	if err := l.Machine("other").SetRate("two", 1); !errors.Is(err, ErrInvalid) {
		t.Errorf("the rate of a segment that the machine is not on: %v", err)
	}
}
