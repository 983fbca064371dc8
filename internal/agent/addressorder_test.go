package agent

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"testing"
)

// Tunnels end at the first: not at the bridge of a container network that sorts before it.
func TestAddressesThatTheMachineSendsFromAreFirst(t *testing.T) {
	t.Parallel()
	list := []string{"10.244.1.1", "10.77.2.1", "2001:db8::1"}
	for _, c := range []struct{ first, want []string }{
		{[]string{"10.77.2.1"}, []string{"10.77.2.1", "10.244.1.1", "2001:db8::1"}},
		{[]string{"10.77.2.1", "2001:db8::1"}, []string{"10.77.2.1", "2001:db8::1", "10.244.1.1"}},
		{[]string{"127.0.0.1"}, list},
		{nil, list},
	} {
		if got := preferred(slices.Clone(list), c.first); !slices.Equal(got, c.want) {
			t.Errorf("%v first: %v, want %v", c.first, got, c.want)
		}
	}
}

// TestAddressesThatAreNotKnownNow: what was reported last holds, its order with it, since the
// first of a family is where tunnels end.
func TestAddressesThatAreNotKnownNow(t *testing.T) {
	t.Parallel()
	p := newPlane(t, newAuthority(t))
	c := newMachine(t, "edge-1", p).config
	c.Log, c.Rand = slog.New(slog.DiscardHandler), rand.New(rand.NewPCG(1, 2))
	a, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	r := a.planeLink.report
	fails := errors.New("the list changed while it was read")
	for _, step := range []struct {
		when string
		list []string
		err  error
		want []string
	}{
		{"at first", []string{"10.77.2.1", "10.244.1.1"}, nil, []string{"10.77.2.1", "10.244.1.1"}},
		{"without the uplink", []string{"10.244.1.1"}, fails, []string{"10.77.2.1", "10.244.1.1"}},
		{"without any", nil, fails, []string{"10.77.2.1", "10.244.1.1"}},
		{"in another order", []string{"10.244.1.1", "10.77.2.1"}, fails, []string{"10.77.2.1", "10.244.1.1"}},
		{"when one has gone", []string{"10.77.2.1"}, nil, []string{"10.77.2.1"}},
		{"without any again", nil, fails, []string{"10.77.2.1"}},
		{"when none is left", nil, nil, nil},
	} {
		r.addresses = func() ([]string, error) { return step.list, step.err }
		if got := r.report().GetAddresses(); !slices.Equal(got, step.want) {
			t.Errorf("%s, it reports %v, want %v", step.when, got, step.want)
		}
	}
}

// TestMachineAddresses are the list that the agent is given, whole or not.
func TestMachineAddresses(t *testing.T) {
	t.Parallel()
	fails := errors.New("interrupted")
	for _, err := range []error{nil, fails} {
		got, is := machineAddresses(func() ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("2001:db8::9"), netip.MustParseAddr("192.0.2.9"), netip.MustParseAddr("192.0.2.10")}, err
		})
		if want := []string{"192.0.2.10", "192.0.2.9", "2001:db8::9"}; !slices.Equal(got, want) || !errors.Is(is, err) {
			t.Errorf("%v, %v; want %v, %v", got, is, want, err)
		}
	}
}

// Without a descriptor it is not known which address the machine sends from; without a route
// there is none.
func TestExhausted(t *testing.T) {
	t.Parallel()
	for errno, want := range map[syscall.Errno]bool{syscall.EMFILE: true, syscall.ENOBUFS: true, syscall.ENETUNREACH: false, syscall.EACCES: false} {
		if got := exhausted(&net.OpError{Op: "dial", Err: os.NewSyscallError("socket", errno)}); got != want {
			t.Errorf("%v: %v", errno, got)
		}
	}
}
