package xdp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	filter "golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"fairlead.dev/internal/driver/bpf"
)

// sendProbe sends a probe with a number from our tunnel endpoint to a machine's; from and to are
// the addresses inside.
type sendProbe func(source, remote netip.Addr, number uint16, from, to netip.Addr) error

// probing has probes sent when they are due or there are news, until ctx is done. due sends
// them and returns when to come again; 0: with the next news. Every answer is told to
// answered. Until the first probe there are no sockets; unable is told once when there can be
// none.
func probing(ctx context.Context, unable func(error), news <-chan struct{}, answered func(number uint16, from netip.Addr), due func(sendProbe) time.Duration) {
	var sockets *probeSockets
	defer func() { sockets.close() }()
	identifier := uint16(rand.Uint32())
	failing := false
	send := func(source, remote netip.Addr, number uint16, from, to netip.Addr) error {
		if sockets == nil {
			var err error
			if sockets, err = openProbe(identifier, answered); err != nil {
				if !failing {
					unable(err)
				}
				failing = true
				return err
			}
		}
		return sockets.send(source, remote, probe(identifier, number, from, to))
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-news:
		}
		if wait := due(send); wait > 0 {
			timer.Reset(wait)
		}
	}
}

// probeSockets send probes and see answers. Those are seen as they come from the wire: the
// kernel does not hand a packet to sockets of IP whose source is an address of this machine,
// as a VIP is.
type probeSockets struct {
	senders map[netip.Addr]*net.UDPConn
	taps    []*os.File
}

// openProbe has every echo reply with the identifier told to answered.
func openProbe(identifier uint16, answered func(number uint16, from netip.Addr)) (*probeSockets, error) {
	s := &probeSockets{senders: map[netip.Addr]*net.UDPConn{}}
	for _, family := range []int{unix.ETH_P_IP, unix.ETH_P_IPV6} {
		tap, err := openTap(uint16(family), identifier)
		if err != nil {
			s.close()
			return nil, err
		}
		s.taps = append(s.taps, tap)
		go listen(tap, family == unix.ETH_P_IP, answered)
	}
	return s, nil
}

// openTap is a packet socket that gets echo replies with the identifier.
func openTap(family, identifier uint16) (*os.File, error) {
	protocol, at, kind, header := uint32(9), uint32(1), uint32(0), uint32(20)
	if family == unix.ETH_P_IPV6 {
		protocol, at, kind, header = 6, 58, 129, 40
	}
	const no = 6 // instructions to the one that takes nothing
	program, err := filter.Assemble([]filter.Instruction{
		filter.LoadAbsolute{Off: protocol, Size: 1},
		filter.JumpIf{Cond: filter.JumpNotEqual, Val: at, SkipTrue: no - 1},
		filter.LoadAbsolute{Off: header, Size: 1},
		filter.JumpIf{Cond: filter.JumpNotEqual, Val: kind, SkipTrue: no - 3},
		filter.LoadAbsolute{Off: header + 4, Size: 2},
		filter.JumpIf{Cond: filter.JumpNotEqual, Val: uint32(identifier), SkipTrue: no - 5},
		filter.RetConstant{Val: 128},
		filter.RetConstant{Val: 0},
	})
	if err != nil {
		return nil, fmt.Errorf("assemble the filter of echo replies: %w", err)
	}
	filter := make([]unix.SockFilter, len(program))
	for i, r := range program {
		filter[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open a packet socket (needs CAP_NET_RAW): %w", err)
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 1<<20) // hundreds answer at once
	err = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
	if err == nil { // bound only now, so that nothing comes that is not filtered
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: bpf.NetworkPort(family)})
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("filter echo replies: %w", err)
	}
	return os.NewFile(uintptr(fd), "echo replies"), nil
}

// listen tells every reply that the tap gets, until it is closed.
func listen(tap *os.File, v4 bool, answered func(number uint16, from netip.Addr)) {
	b := make([]byte, 128)
	for failures := 0; failures < 16; failures++ {
		n, err := tap.Read(b)
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil {
			continue // an interface went down
		}
		failures = 0
		header, source := 40, 8
		size := 16
		if v4 {
			header, source, size = 20, 12, 4
		}
		if n < header+8 {
			continue
		}
		if from, ok := netip.AddrFromSlice(b[source : source+size]); ok {
			answered(binary.BigEndian.Uint16(b[header+6:]), from)
		}
	}
}

// send sends a probe from our tunnel endpoint to a machine's.
func (s *probeSockets) send(source, remote netip.Addr, packet []byte) error {
	c := s.senders[source]
	if c == nil {
		var err error
		if c, err = openSender(source); err != nil {
			return fmt.Errorf("open a socket at %s: %w", source, err)
		}
		s.senders[source] = c
	}
	if _, err := c.WriteToUDPAddrPort(packet, netip.AddrPortFrom(remote, genevePort)); err != nil {
		return fmt.Errorf("send to %s: %w", remote, err)
	}
	return nil
}

// openSender is a socket whose datagrams have no checksum, as those of tunnels have none.
func openSender(source netip.Addr) (*net.UDPConn, error) {
	c := net.ListenConfig{Control: func(network, _ string, raw syscall.RawConn) error {
		var failed error
		err := raw.Control(func(fd uintptr) {
			if network == "udp6" {
				failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_NO_CHECK6_TX, 1)
			} else {
				failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_NO_CHECK, 1)
			}
		})
		return errors.Join(err, failed)
	}}
	p, err := c.ListenPacket(context.Background(), "udp", netip.AddrPortFrom(source, 0).String())
	if err != nil {
		return nil, err
	}
	return p.(*net.UDPConn), nil
}

func (s *probeSockets) close() {
	if s == nil {
		return
	}
	for _, c := range s.senders {
		_ = c.Close()
	}
	for _, t := range s.taps {
		_ = t.Close()
	}
}
