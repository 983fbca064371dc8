package l2

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// port is one interface with its sockets and its election. The announcer's lock
// guards it.
type port struct {
	name     string
	index    int
	election *election
	beatAt   time.Time // when the next heartbeat is due
	alive    time.Time // when the last one went out

	out     *os.File // frames that we send
	arp     *os.File // ARP that arrives
	beats   *os.File // heartbeats that arrive
	icmp    *os.File // neighbour discovery that arrives; nil without IPv6
	members []*membership
	groups  map[netip.Addr]*membership
	broken  error // why nothing can be received any more
}

// membership is a socket that holds memberships of multicast groups. One has room for
// a limited number (net.core.optmem_max).
type membership struct {
	fd    int
	count int
}

const groupsPerSocket = 64

// openPort makes the sockets. Nothing is read before start.
func openPort(l link, machine string, now time.Time) (p *port, err error) {
	p = &port{
		name: l.name, index: l.index, groups: map[netip.Addr]*membership{}, beatAt: now, alive: now,
		election: newElection(station{machine: machine, mac: l.mac}),
	}
	defer func() {
		if err != nil {
			p.close()
			p, err = nil, fmt.Errorf("open %s: %w", l.name, err)
		}
	}()
	if p.out, err = packetSocket(l.index, 0); err != nil {
		return p, err
	}
	if p.arp, err = packetSocket(l.index, typeARP); err != nil {
		return p, err
	}
	if p.beats, err = packetSocket(l.index, typeBeat); err != nil {
		return p, err
	}
	if l.noIPv6 == nil {
		if p.icmp, err = icmpSocket(l.name); err != nil {
			return p, err
		}
	}
	return p, nil
}

// packetSocket returns a socket for whole frames of one EtherType; 0 is for sending.
func packetSocket(index int, kind uint16) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open packet socket (needs CAP_NET_RAW): %w", err)
	}
	// Room for what very many VIPs cause at once. What there is without it does, too:
	// everything that is sent is sent again.
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 1<<20)
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 4<<20)
	network := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, kind))
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: network, Ifindex: index}); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("bind packet socket: %w", err)
	}
	if kind == typeBeat {
		to := beatGroup()
		mreq := unix.PacketMreq{Ifindex: int32(index), Type: unix.PACKET_MR_MULTICAST, Alen: uint16(len(to))}
		copy(mreq.Address[:], to[:])
		if err := unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &mreq); err != nil {
			_ = unix.Close(fd)
			return nil, fmt.Errorf("join the group of heartbeats: %w", err)
		}
	}
	return pollable(fd)
}

// icmpSocket returns a socket that gets neighbour solicitations and advertisements.
// Sending goes through the packet socket: the kernel would look for the neighbour's
// hardware address first, which the solicitation has told us.
func icmpSocket(dev string) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMPV6)
	if err != nil {
		return nil, fmt.Errorf("open icmpv6 socket (needs CAP_NET_RAW): %w", err)
	}
	var filter unix.ICMPv6Filter // a bit that is set blocks
	for i := range filter.Data {
		filter.Data[i] = 1<<32 - 1
	}
	for _, kind := range []int{solicitation, advertisement} {
		filter.Data[kind/32] &^= 1 << (kind % 32)
	}
	err = errors.Join(
		unix.SetsockoptString(fd, unix.SOL_SOCKET, unix.SO_BINDTODEVICE, dev),
		unix.SetsockoptICMPv6Filter(fd, unix.IPPROTO_ICMPV6, unix.ICMPV6_FILTER, &filter),
		unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVHOPLIMIT, 1),
		unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1))
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("set up icmpv6 socket: %w", err)
	}
	return pollable(fd)
}

func pollable(fd int) (*os.File, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("set socket non-blocking: %w", err)
	}
	return os.NewFile(uintptr(fd), "socket"), nil
}

// join makes the interface a member of exactly the solicited-node groups of the IPv6
// VIPs among candidacies, also in the eyes of switches that listen to MLD.
func (p *port) join(candidacies []Candidacy) error {
	if p.icmp == nil {
		return nil
	}
	want := map[netip.Addr]bool{}
	for _, c := range candidacies {
		if c.VIP.Is6() {
			want[solicited(c.VIP)] = true
		}
	}
	for g, m := range p.groups {
		if !want[g] {
			_ = unix.SetsockoptIPv6Mreq(m.fd, unix.IPPROTO_IPV6, unix.IPV6_LEAVE_GROUP, p.mreq(g))
			m.count--
			delete(p.groups, g)
		}
	}
	for g := range want {
		if p.groups[g] != nil {
			continue
		}
		m, err := p.room()
		if err == nil {
			err = unix.SetsockoptIPv6Mreq(m.fd, unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP, p.mreq(g))
		}
		if err != nil {
			return fmt.Errorf("join multicast group %s on %s: %w", g, p.name, err)
		}
		m.count++
		p.groups[g] = m
	}
	return nil
}

func (p *port) mreq(g netip.Addr) *unix.IPv6Mreq {
	return &unix.IPv6Mreq{Multiaddr: g.As16(), Interface: uint32(p.index)}
}

// room returns a membership socket with room for one more.
func (p *port) room() (*membership, error) {
	for _, m := range p.members {
		if m.count < groupsPerSocket {
			return m, nil
		}
	}
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	m := &membership{fd: fd}
	p.members = append(p.members, m)
	return m, nil
}

// close ends the readers, too.
func (p *port) close() {
	for _, f := range []*os.File{p.out, p.arp, p.beats, p.icmp} {
		if f != nil {
			_ = f.Close()
		}
	}
	for _, m := range p.members {
		_ = unix.Close(m.fd)
	}
	p.members, p.groups = nil, map[netip.Addr]*membership{}
}

// send sends a frame without waiting.
func (p *port) send(frame []byte) error {
	raw, err := p.out.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	if err := raw.Control(func(fd uintptr) { _, sent = unix.Write(int(fd), frame) }); err != nil {
		return err
	}
	return sent
}

// beat sends a heartbeat and sets when the next is due.
func (p *port) beat(now time.Time, entries []entry) error {
	p.beatAt = now.Add(round)
	for _, frame := range marshalBeat(p.election.self, entries) {
		if err := p.send(frame); err != nil {
			return fmt.Errorf("send heartbeat on %s: %w", p.name, err)
		}
	}
	p.alive = now
	return nil
}

// probe asks the segment who has the VIP, in a way that leaves no trace in its caches.
func (p *port) probe(vip netip.Addr) error {
	self := p.election.self.mac
	if vip.Is4() {
		return p.send(arp{
			op: arpRequest, senderMAC: self, sender: netip.IPv4Unspecified(), target: vip,
			frameTo: broadcast(), frameFrom: self,
		}.marshal())
	}
	to := solicited(vip)
	return p.send(neighbour{kind: solicitation, from: netip.IPv6Unspecified(), to: to, target: vip}.marshal(group(to), self))
}

// announce tells the segment where the VIP is. For IPv4 both forms are in use among
// those who listen: the request of RFC 5227, 3, and the reply.
func (p *port) announce(vip netip.Addr) error {
	self := p.election.self.mac
	if vip.Is4() {
		a := arp{op: arpRequest, senderMAC: self, sender: vip, target: vip, frameTo: broadcast(), frameFrom: self}
		if err := p.send(a.marshal()); err != nil {
			return err
		}
		a.op, a.targetMAC = arpReply, broadcast()
		return p.send(a.marshal())
	}
	return p.send(neighbour{
		kind: advertisement, flags: flagOverride, from: vip, to: allNodes(), target: vip, mac: self, hasMAC: true,
	}.marshal(group(allNodes()), self))
}

// answerARP tells the sender of a request that mac has the address it asks for.
func (p *port) answerARP(q arp, mac hardware) error {
	return p.send(arp{
		op: arpReply, senderMAC: mac, sender: q.target, targetMAC: q.senderMAC, target: q.sender,
		frameTo: q.senderMAC, frameFrom: p.election.self.mac,
	}.marshal())
}

// answerNeighbour is its like for a solicitation. One without a source probes for a
// duplicate (RFC 4862, 5.4) and is answered to all.
func (p *port) answerNeighbour(q neighbour, mac hardware) error {
	a := neighbour{
		kind: advertisement, flags: flagOverride, from: q.target, to: allNodes(), target: q.target, mac: mac, hasMAC: true,
	}
	to := group(allNodes())
	if !q.from.IsUnspecified() && q.hasMAC {
		a.flags, a.to, to = flagOverride|flagSolicited, q.from, q.mac
	}
	return p.send(a.marshal(to, p.election.self.mac))
}

// readPackets hands every frame that is for this machine to f until the socket is
// closed, then returns nil. The frame is f's until it returns.
func readPackets(file *os.File, f func([]byte)) error {
	return read(file, func(fd int, b []byte) (func(), error) {
		n, from, err := unix.Recvfrom(fd, b, 0)
		// Frames of other VLANs, or for others while something sniffs, come as "other host".
		if l, ok := from.(*unix.SockaddrLinklayer); err != nil || !ok || l.Pkttype > unix.PACKET_MULTICAST {
			return nil, err
		}
		return func() { f(b[:n]) }, nil
	})
}

// readNeighbours hands every valid solicitation and advertisement to f until the
// socket is closed, then returns nil.
func readNeighbours(file *os.File, f func(neighbour)) error {
	control := make([]byte, 256)
	return read(file, func(fd int, b []byte) (func(), error) {
		n, controls, _, from, err := unix.Recvmsg(fd, b, control, 0)
		source, ok := from.(*unix.SockaddrInet6)
		if err != nil || !ok {
			return nil, err
		}
		messages, err := unix.ParseSocketControlMessage(control[:controls])
		if err != nil {
			return nil, fmt.Errorf("parse control message: %w", err)
		}
		hops, to := 0, netip.Addr{}
		for _, m := range messages {
			switch {
			case m.Header.Level != unix.IPPROTO_IPV6:
			case m.Header.Type == unix.IPV6_HOPLIMIT && len(m.Data) >= 4:
				hops = int(binary.NativeEndian.Uint32(m.Data))
			case m.Header.Type == unix.IPV6_PKTINFO && len(m.Data) >= 16:
				to = netip.AddrFrom16([16]byte(m.Data[:16]))
			}
		}
		q, err := parseNeighbour(b[:n], netip.AddrFrom16(source.Addr), to)
		if err != nil || hops != 255 {
			return nil, nil // not for us to judge why somebody sends such things
		}
		return func() { f(q) }, nil
	})
}

// read calls receive whenever the socket has something, and then what that returns.
// Errors come one at a time (an interface goes down); a socket that has nothing else
// is given up.
func read(file *os.File, receive func(fd int, b []byte) (func(), error)) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return nil // closed before it began
	}
	b := make([]byte, 9216)
	for failures := 0; failures < 16; failures++ {
		var got func()
		var failed error
		if err := raw.Read(func(fd uintptr) bool {
			got, failed = receive(int(fd), b)
			return !errors.Is(failed, unix.EAGAIN)
		}); err != nil {
			return nil
		}
		if failed != nil {
			err = failed
			continue
		}
		failures = -1
		// Not inside raw.Read: closing the file waits for that, and may hold a lock that
		// this waits for.
		if got != nil {
			got()
		}
	}
	return err
}
