package lab

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Frame is an Ethernet frame that a machine has sent.
type Frame struct {
	At   time.Time // when it left the machine, by the kernel
	Data []byte    // its beginning; valid until the function that is given it returns
}

// tapped is how much of a frame is seen.
const tapped = 256

// Tap gives f every frame that the machine sends, whatever sends it and whether it arrives,
// one at a time, until stop is called: that returns when f is called no more.
func (m *Machine) Tap(f func(Frame)) (stop func(), err error) {
	var sockets []int
	quit := func() {
		for _, fd := range sockets {
			_ = unix.Close(fd)
		}
	}
	err = m.wires(func(h *netlink.Handle, port netlink.Link, _ int) error {
		fabric, err := openNamespace(m.lab.State().Fabric)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fabric) }()
		return inNamespace(fabric, func() error {
			fd, err := tap(port.Attrs().Index)
			if err == nil {
				sockets = append(sockets, fd)
			}
			return err
		})
	})
	if err != nil {
		quit()
		return nil, fmt.Errorf("tap the wires of machine %s: %w", m.state.Name, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var reading sync.WaitGroup
	var one sync.Mutex
	for _, fd := range sockets {
		reading.Go(func() {
			read(ctx, fd, func(x Frame) {
				one.Lock()
				defer one.Unlock()
				f(x)
			})
		})
	}
	return func() {
		cancel()
		reading.Wait()
		quit()
	}, nil
}

// tap opens a socket for what comes in at an interface of this namespace.
func tap(index int) (int, error) {
	all := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open a packet socket: %w", err)
	}
	wait := unix.NsecToTimeval(int64(100 * time.Millisecond))
	for _, set := range []func() error{
		func() error { return unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1) },
		func() error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1) },
		func() error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 4<<20) },
		func() error { return unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait) },
		func() error { return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: index}) },
	} {
		if err := set(); err != nil {
			_ = unix.Close(fd)
			return -1, fmt.Errorf("listen to an interface: %w", err)
		}
	}
	return fd, nil
}

// read gives f the frames of a socket until ctx is done.
func read(ctx context.Context, fd int, f func(Frame)) {
	data, control := make([]byte, tapped), make([]byte, 128)
	for ctx.Err() == nil {
		n, c, _, _, err := unix.Recvmsg(fd, data, control, 0)
		if err != nil {
			continue // nothing came for a while, or the interface has gone
		}
		x := Frame{At: time.Now(), Data: data[:n]}
		messages, err := unix.ParseSocketControlMessage(control[:c])
		for _, m := range messages {
			if err == nil && m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SO_TIMESTAMPNS && len(m.Data) >= 16 {
				x.At = time.Unix(int64(binary.NativeEndian.Uint64(m.Data)), int64(binary.NativeEndian.Uint64(m.Data[8:])))
			}
		}
		f(x)
	}
}
