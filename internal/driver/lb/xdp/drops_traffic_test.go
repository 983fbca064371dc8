package xdp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"

	"fairlead.dev/internal/model"
	"fairlead.dev/lab"
)

// What is dropped is counted and shown as it was sent, with the right reason, in both modes of
// XDP: the kernel's form of a packet, which generic programs get, must lose nothing.
func TestDropsAreShownAsTheyCame(t *testing.T) {
	s := newSite(t)
	s.spread(s.lbs[0])
	s.guarded = map[netip.Addr][]model.FrontendKey{vip4: {}, vip6: {}}
	s.put(model.ModeDSRGeneve, 100, 100)
	s.settled()
	lb := s.lbs[0]
	// A capture ends when it is told to, and not with the next packet: another one may begin.
	lb.tell(order{Glimpse: true})
	lb.tell(order{Glimpse: true})
	s.add(model.Frontend{FrontendKey: model.FrontendKey{VIP: vip4, Transport: model.TCP, Port: 81}, Mode: model.ModeDSRIPIP}, 81)
	s.add(model.Frontend{
		FrontendKey: model.FrontendKey{VIP: vip4, Transport: model.TCP, Port: 82}, Mode: model.ModeDSRGeneve,
		Sources: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")},
	}, 8080, s.bes[0].m)
	send := sender(t, s.bes[1].m)
	t.Run("native", func(t *testing.T) {
		link := hardware(t, lb.m)
		s.showsDrops(t, send, "eth0", append(s.droppable(t, link), s.badTunnels(t, link)...))
	})
	t.Run("generic", func(t *testing.T) {
		lb.p.Kill9()
		lb.uplinks = " over0" // macvlan has no XDP of its own
		link := over(t, lb.m, lb.uplinks[1:])
		lb.start()
		s.tell(lb)
		if o := lb.tell(order{}).Observed; !slices.ContainsFunc(o, func(o model.FrontendObserved) bool { return strings.Contains(o.Message, "generic mode") }) {
			t.Fatalf("it is not generic: %+v", o)
		}
		s.showsDrops(t, send, "over0", s.droppable(t, link))
	})
}

// over makes a macvlan over a machine's first interface, and returns its link address.
func over(t *testing.T, m *lab.Machine, name string) net.HardwareAddr {
	t.Helper()
	h, err := m.Netlink()
	must(t, err)
	defer h.Close()
	eth0, err := h.LinkByName("eth0")
	must(t, err)
	link := &netlink.Macvlan{LinkAttrs: netlink.LinkAttrs{Name: name, ParentIndex: eth0.Attrs().Index}, Mode: netlink.MACVLAN_MODE_BRIDGE}
	must(t, h.LinkAdd(link))
	must(t, h.LinkSetUp(link))
	made, err := h.LinkByName(name)
	must(t, err)
	return made.Attrs().HardwareAddr
}

// edited is a frame with a change, and with the right checksum of its IPv4 header.
func edited(frame []byte, change func(p []byte)) []byte {
	frame = bytes.Clone(frame)
	change(frame)
	if frame[14]>>4 == 4 {
		copy(frame[14:], hoppedBack(frame[14:]))
	}
	return frame
}

// dropped is a frame, and why it is dropped.
type dropped struct {
	reason bpfReason
	frame  []byte
}

// showsDrops sends frames to an interface of the first load balancer, all of which are to be
// dropped.
func (s *site) showsDrops(t *testing.T, send func([]byte), device string, frames []dropped) {
	t.Helper()
	lb := s.lbs[0]
	for i, c := range frames {
		t.Run(reasons[c.reason], func(t *testing.T) {
			before := lb.tell(order{}).Drops[reasons[c.reason]]
			done := make(chan report, 1)
			capture := func() {
				r, _ := lb.try(order{Capture: reasons[c.reason]})
				done <- r
			}
			go capture()
			var r report
			for ctx := deadline(t); ; {
				send(c.frame) // again and again: it takes a moment until something is shown
				select {
				case r = <-done:
				default:
					pause(ctx, t, "nothing is shown")
					continue
				}
				if !late(r.Captured.Data, frames[:i]) {
					break
				}
				go capture()
			}
			got := r.Captured
			if want := c.frame[:min(len(c.frame), 192)]; r.Error != "" || !bytes.Equal(got.Data, want) {
				t.Errorf("%s: shown is\n%x of\n%x", r.Error, got.Data, want)
			}
			if got.Reason != reasons[c.reason] || got.Interface != device || got.Length != len(c.frame) {
				t.Errorf("%s, %d bytes from %s; want %s, %d from %s", got.Reason, got.Length, got.Interface, reasons[c.reason], len(c.frame), device)
			}
			if r.Drops[reasons[c.reason]] <= before {
				t.Errorf("counted %v, before %d", r.Drops, before)
			}
		})
	}
}

// late says that a packet is one that was sent before, and arrives on a busy machine when others are
// looked for.
func late(packet []byte, before []dropped) bool {
	return slices.ContainsFunc(before, func(d dropped) bool { return bytes.Equal(packet, d.frame[:min(len(d.frame), 192)]) })
}

// droppable are frames to a link address.
func (s *site) droppable(t *testing.T, link net.HardwareAddr) []dropped {
	t.Helper()
	const client, client6 = "198.51.100.7:40000", "[2001:db8:c::7]:40000"
	shaped := func(client, to, flags string, change func(*shape)) []byte {
		p := from(client, to, flags)
		p.dst = link
		if change != nil {
			change(&p)
		}
		return p.bytes()
	}
	name := func(vip netip.Addr, port uint16) string {
		return fmt.Sprintf("tcp://%s", netip.AddrPortFrom(vip, port))
	}
	syn, syn6 := shaped(client, name(vip4, 8080), "S", nil), shaped(client6, name(vip6, 8080), "S", nil)
	return []dropped{
		{bpfReasonREASON_TRUNCATED, syn[:60]},
		{bpfReasonREASON_TRUNCATED, syn6[:80]},
		{bpfReasonREASON_BAD_HEADER, edited(syn, func(p []byte) { p[46] = 0x40 })},
		{bpfReasonREASON_BAD_CHECKSUM, func() []byte { p := bytes.Clone(syn); p[24]++; return p }()},
		{bpfReasonREASON_BAD_EXTENSION, func() []byte {
			p := slices.Concat(syn6[:54], []byte{6, 0, 0, 1, 0, 0, 0, 0}, syn6[54:])
			binary.BigEndian.PutUint16(p[18:], uint16(len(p)-54))
			p[20] = 43
			return p
		}()},
		{bpfReasonREASON_MARTIAN, shaped("127.0.0.1:40000", name(vip4, 8080), "S", nil)},
		{bpfReasonREASON_LOOP, shaped(client, name(vip4, 8080), "S", func(p *shape) { p.ttl = 1 })},
		{bpfReasonREASON_SOURCE_DENIED, shaped(client, name(vip4, 82), "S", nil)},
		{bpfReasonREASON_NO_BACKEND, shaped(client, name(vip4, 81), "S", nil)},
		{bpfReasonREASON_NO_FRONTEND, shaped(client, name(vip4, 22), "S", nil)},
		{bpfReasonREASON_NO_FRONTEND, shaped(client6, name(vip6, 22), "S", nil)},
		{bpfReasonREASON_FRAGMENT, pieces(shaped(client, name(vip4, 8080), "S", func(p *shape) { *p = fill(*p, 3000) }), 1000)[1]},
		{bpfReasonREASON_ICMP_UNKNOWN, func() []byte {
			p := from(client, name(vip4, 8080), "")
			p.dst = link
			ip, _ := p.network(layers.IPProtocolICMPv4)
			quoted := tcpPacket(t, netip.MustParseAddrPort("192.0.2.99:80"), netip.MustParseAddrPort(client), "A", nil, "")
			return frame(append(p.link(), ip, &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(3, 4)}, gopacket.Payload(quoted))...)
		}()},
		{bpfReasonREASON_TOO_BIG, shaped(client, name(vip4, 8080), "A", func(p *shape) { *p = fill(*p, 1500) })},
	}
}

// badTunnels are frames to a link address that tunnel_in is to drop.
func (s *site) badTunnels(t *testing.T, link net.HardwareAddr) []dropped {
	t.Helper()
	lb := s.lbs[0]
	inner := tcpPacket(t, netip.MustParseAddrPort("198.51.100.7:40000"), netip.AddrPortFrom(vip4, 8080), "S", nil, "")
	tunnel := func(source netip.Addr, change func([]byte)) []byte {
		frame := tunnelled(t, source, lb.m.Addr4(), asked(1), inner)
		copy(frame, link)
		if change != nil {
			change(frame)
		}
		return frame
	}
	return []dropped{
		{bpfReasonREASON_NOT_A_TUNNEL, tunnel(netip.MustParseAddr("198.51.100.9"), nil)},
		{bpfReasonREASON_OWN_TUNNEL, tunnel(lb.m.Addr4(), nil)},
		{bpfReasonREASON_BAD_TUNNEL, tunnel(s.bes[1].m.Addr4(), func(p []byte) { p[43] = 0 })}, // no critical option
	}
}
