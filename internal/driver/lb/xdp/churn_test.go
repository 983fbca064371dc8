package xdp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"fairlead.dev/internal/driver/bpf"
)

// alongside runs f on another thread in the network namespace of this one.
func alongside(t *testing.T, f func() error) <-chan error {
	t.Helper()
	here, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	must(t, err)
	ended := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := unix.Setns(here, unix.CLONE_NEWNET)
		_ = unix.Close(here)
		if err == nil {
			err = f()
		}
		ended <- err
	}()
	return ended
}

// TestListsThatFail: where programs belong cannot be known for a while, and nothing that is
// attached goes for that; it is looked at again without anything new to be heard of.
func TestListsThatFail(t *testing.T) {
	inMachine(t)
	dir := pinsIn(t)
	d := newPlane(t, dir)
	must(t, d.Set(one(t, nil)))
	const want = "egress@eth0 ingress@eth0 xdp@eth0"
	fails := fmt.Errorf("list interfaces: %w", netlink.ErrDumpInterrupted)
	d.list = func() ([]bpf.Port, error) { return nil, fails }
	first := d.attached.At(bpf.XDP)[index(t, "eth0")].Link
	stays := func(when string) {
		t.Helper()
		if got := hooks(d); got != want || xdpAt(t, "eth0") != nl.XDP_ATTACHED_DRV || d.attached.At(bpf.XDP)[index(t, "eth0")].Link != first {
			t.Errorf("%s, attached are %s", when, got)
		}
	}
	if d.look(true) {
		t.Error("a look that could not list interfaces says that all was done")
	}
	stays("after a look")
	if err := d.Set(one(t, nil)); !errors.Is(err, netlink.ErrDumpInterrupted) {
		t.Errorf("Set says %v", err)
	}
	stays("after Set")
	if o := d.Observed()[0]; o.State != "" && o.Message != "" {
		t.Errorf("observed: %+v", o)
	}
	// Addresses of the machine that cannot be listed.
	d.list = bpf.Ports
	d.c.Interfaces = nil
	for _, had := range [][]netip.Addr{nil, {netip.MustParseAddr("192.0.2.1")}} {
		d.c.Addresses = func() ([]netip.Addr, error) { return had, errors.New("too many open files") }
		if d.look(true) {
			t.Error("a look that could not list addresses says that all was done")
		}
		stays("without addresses")
	}
	// An agent that comes anew adopts them in the same state.
	must(t, d.Close(true))
	d = newPlane(t, dir)
	first = d.attached.At(bpf.XDP)[index(t, "eth0")].Link
	tries := make(chan struct{}, 64)
	d.list = func() ([]bpf.Port, error) {
		select {
		case tries <- struct{}{}:
		default:
		}
		return nil, fails
	}
	if err := d.Set(one(t, nil)); !errors.Is(err, netlink.ErrDumpInterrupted) {
		t.Errorf("Set of the next says %v", err)
	}
	stays("with the next agent")
	ctx, cancel := context.WithCancel(t.Context())
	ended := alongside(t, func() error { return d.Run(ctx) })
	for range 4 { // long before the next regular look
		select {
		case <-tries:
		case <-time.After(resync):
			t.Fatal("interfaces that could not be listed are not looked at again")
		}
	}
	cancel()
	must(t, <-ended)
	stays("while it looks again")
	d.list = bpf.Ports
	must(t, d.Close(false))
}

// TestContainersComeAndGo: a machine with so many interfaces that the kernel lists them in parts,
// where one comes or goes all the time.
func TestContainersComeAndGo(t *testing.T) {
	inMachine(t)
	d := newPlane(t, pinsIn(t))
	add := func(name string) {
		must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name + "-in"}))
	}
	for i := range 30 {
		add(fmt.Sprintf("pod%d", i))
	}
	must(t, d.Set(one(t, nil)))
	first := d.attached.At(bpf.XDP)[index(t, "eth0")].Link
	ctx, cancel := context.WithCancel(t.Context())
	ended := alongside(t, func() error {
		for ctx.Err() == nil {
			brief := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "brief"}, PeerName: "brief-in"}
			if err := netlink.LinkAdd(brief); err != nil {
				return err
			}
			if err := netlink.LinkDel(brief); err != nil {
				return err
			}
		}
		return nil
	})
	for range 200 {
		d.look(false)
		if at := d.attached.At(bpf.XDP)[index(t, "eth0")]; at == nil || at.Link != first {
			t.Error("the program was detached while other interfaces came and went")
			break
		}
	}
	cancel()
	must(t, <-ended)
	must(t, d.Close(false))
}
