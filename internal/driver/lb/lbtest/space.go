package lbtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// space is a namespace for the network, and one for mounts, without names: they go with the
// last descriptor, whatever ends this process.
type space struct {
	name   string
	file   *os.File // of the network
	mounts *os.File
}

func newSpace(t *testing.T, name string) *space {
	t.Helper()
	s := &space{name: name}
	must(t, onThread(func() (err error) {
		if err := unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("make namespaces: %w", err)
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return fmt.Errorf("keep mounts to a namespace: %w", err)
		}
		if s.file, err = os.Open("/proc/thread-self/ns/net"); err != nil {
			return err
		}
		s.mounts, err = os.Open("/proc/thread-self/ns/mnt")
		return err
	}))
	t.Cleanup(func() { _, _ = s.file.Close(), s.mounts.Close() })
	must(t, s.in(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(lo)
	}))
	return s
}

// onThread runs f on a thread that ends with it.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go own(func() { done <- f() })
	return <-done
}

// own runs f on a thread that ends with it. That is never the first one, which would stay as
// f left it, and as which the process looks in /proc/self.
func own(f func()) {
	runtime.LockOSThread() // and never unlock: the thread is not as others are
	if unix.Gettid() != unix.Getpid() {
		f()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		own(f)
	}()
	<-done
	runtime.UnlockOSThread()
}

// in runs f in the namespace.
func (s *space) in(f func() error) error {
	return onThread(func() error {
		if err := unix.Setns(int(s.file.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter namespace %s: %w", s.name, err)
		}
		return f()
	})
}

// exec starts the command in the namespaces. Its thread lives until done: the kernel ends a
// child when the thread that made it ends.
func (s *space) exec(cmd *exec.Cmd, done <-chan struct{}) error {
	started := make(chan error, 1)
	go own(func() {
		err := errors.Join(unix.Setns(int(s.file.Fd()), unix.CLONE_NEWNET), unix.Unshare(unix.CLONE_FS))
		if err == nil {
			err = unix.Setns(int(s.mounts.Fd()), unix.CLONE_NEWNS)
		}
		if err != nil {
			started <- fmt.Errorf("enter namespace %s: %w", s.name, err)
			return
		}
		err = cmd.Start()
		started <- err
		if err == nil {
			<-done
		}
	})
	return <-started
}

func (s *space) dial(ctx context.Context, from netip.Addr, network, to string) (c net.Conn, err error) {
	d := net.Dialer{}
	if from.IsValid() {
		if network == "udp" {
			d.LocalAddr = net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
		} else {
			d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
		}
	}
	err = s.in(func() (err error) {
		c, err = d.DialContext(ctx, network, to)
		return err
	})
	return c, err
}

// sysctl writes settings of the namespace; those that the kernel lacks are left out.
func (s *space) sysctl(t *testing.T, value string, names ...string) {
	t.Helper()
	must(t, s.in(func() error {
		for _, name := range names {
			if err := os.WriteFile("/proc/sys/"+name, []byte(value), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
		return nil
	}))
}

// wire joins two namespaces by a pair of interfaces.
func wire(t *testing.T, a *space, nameA string, b *space, nameB string) {
	t.Helper()
	must(t, a.in(func() error {
		pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: nameA}, PeerName: nameB, PeerNamespace: netlink.NsFd(int(b.file.Fd()))}
		if err := netlink.LinkAdd(pair); err != nil {
			return fmt.Errorf("join %s and %s: %w", a.name, b.name, err)
		}
		return plain(nameA)
	}))
	must(t, b.in(func() error { return plain(nameB) }))
	// Whether a program may redirect frames into an end is settled when that comes up, by
	// what the other is then.
	for _, end := range []struct {
		at   *space
		name string
	}{{a, nameA}, {b, nameB}} {
		must(t, end.at.in(func() error {
			link, err := netlink.LinkByName(end.name)
			if err != nil {
				return err
			}
			return netlink.LinkSetUp(link)
		}))
	}
}

// address gives an interface addresses.
func (s *space) address(t *testing.T, dev string, prefixes ...string) {
	t.Helper()
	must(t, s.in(func() error {
		link, err := netlink.LinkByName(dev)
		if err != nil {
			return err
		}
		for _, p := range prefixes {
			a, err := netlink.ParseAddr(p)
			if err != nil {
				return err
			}
			a.Flags = unix.IFA_F_NODAD
			if err := netlink.AddrAdd(link, a); err != nil && !errors.Is(err, unix.EEXIST) {
				return fmt.Errorf("give %s the address %s: %w", dev, p, err)
			}
		}
		return nil
	}))
}

// route sends packets to a prefix through a gateway.
func (s *space) route(t *testing.T, to, via string) {
	t.Helper()
	must(t, s.in(func() error {
		_, dst, err := net.ParseCIDR(to)
		if err != nil {
			return err
		}
		if err := netlink.RouteReplace(&netlink.Route{Dst: dst, Gw: net.ParseIP(via)}); err != nil {
			return fmt.Errorf("route %s via %s: %w", to, via, err)
		}
		return nil
	}))
}

// InNamespace runs f on a thread in a network namespace of its own. f must return, not call
// t.FailNow.
func InNamespace(t *testing.T, f func() error) {
	t.Helper()
	must(t, newSpace(t, "test").in(f))
}
