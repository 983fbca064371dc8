package xdp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"fairlead.dev/internal/driver/bpf"
	"fairlead.dev/internal/model"
)

// fuzzRig is frontends of every mode, and what a packet may become.
type fuzzRig struct {
	*lbRig
	served map[model.FrontendKey]*lbFrontend
	vips   map[netip.Addr][]*lbFrontend
	seeds  [][]byte
	drops  uint64
}

func newFuzz(t testing.TB) *fuzzRig {
	t.Helper()
	z := &fuzzRig{lbRig: newLB(t), served: map[model.FrontendKey]*lbFrontend{}, vips: map[netip.Addr][]*lbFrontend{}}
	put(z.programRig, z.Settings, uint32(0), bpfSettings{
		Tunnel4: wireAddress(netip.MustParseAddr("10.0.0.1")), Tunnel6: wireAddress(netip.MustParseAddr("2001:db8:a::1")),
	})
	add := func(name string, mode bpfMode, flags bpfFrontendFlag, remotes ...string) *lbFrontend {
		f := z.serve(name, mode, remotes...)
		f.value.Flags |= uint16(flags)
		f.value.Quic, f.value.Affinity, f.value.Limit = 1<<4|2, 100, 1<<30
		z.putFrontend(f)
		z.served[f.key] = f
		z.vips[f.key.VIP] = append(z.vips[f.key.VIP], f)
		return f
	}
	add(tcp4, bpfModeMODE_IPIP, 0, "10.0.1.1", "10.0.1.2")
	add(tcp6, bpfModeMODE_GENEVE, 0, "10.0.1.3", "10.0.1.4", "10.0.1.5")
	add(udp4, bpfModeMODE_GENEVE, bpfFrontendFlagFRONTEND_SETTLING, "2001:db8:b::1", "10.0.1.7")
	add(udp6, bpfModeMODE_IPIP, bpfFrontendFlagFRONTEND_AFFINITY, "2001:db8:b::2")
	add("tcp://192.0.2.1:81", bpfModeMODE_L2, 0, "10.0.1.8")
	add("tcp://192.0.2.1:82", bpfModeMODE_LOCAL, 0, "192.0.2.1")
	quic := add("udp://192.0.2.1:443", bpfModeMODE_IPIP, bpfFrontendFlagFRONTEND_QUIC|bpfFrontendFlagFRONTEND_LIMITED, "10.0.1.10", "10.0.1.11")
	put(z.programRig, z.QuicServers, bpfQuicServerKey{Frontend: quic.value.Index, Id: [8]uint8{0xab, 0xcd}}, quic.servers[1].slot)
	// One of the VIPs is guarded, and something else serves a port of it.
	put(z.programRig, z.Vips, wireAddress(netip.MustParseAddr("192.0.2.1")), uint32(vipGuarded|1))
	put(z.programRig, z.Others, wireKey(fuzzOther), uint32(1))
	put(z.programRig, z.Links, uint32(0), bpfLinks{At: bpf.WireLinks([]uint64{bpf.WireLink(hopLink), bpf.WireLink(outLink), bpf.WireLink(machineLink)})})
	here := add("tcp://192.0.2.2:80", bpfModeMODE_GENEVE, 0, "10.0.0.1", "10.0.1.12")
	here.servers[0].value.Flags |= uint8(bpfBackendFlagBACKEND_HERE)
	z.putServer(here.servers[0])
	z.seeds = z.plant()
	z.drops = z.dropTotal()
	return z
}

// plant makes packets that are in order, of every kind.
func (z *fuzzRig) plant() (seeds [][]byte) {
	for k := range z.served {
		client := cli4
		if k.VIP.Is6() {
			client = cli6
		}
		for _, flags := range []string{"S", "A", "FA", "R"} {
			p := from(client, k.String(), flags)
			p.payload = append([]byte{0x40, 9, 0xab, 0xcd}, make([]byte, 40)...)
			seeds = append(seeds, p.bytes())
		}
		p := from(client, k.String(), "A")
		p.tags = []uint16{5}
		seeds = append(seeds, p.bytes(), fill(p, 1400).bytes(), fill(p, 1490).bytes(), fill(p, 2500).bytes())
		p.tags = []uint16{5, 6}
		p.options = []layers.IPv4Option{{OptionType: 1}, {OptionType: 1}, {OptionType: 1}, {OptionType: 0}}
		p.payload = append([]byte{0xe0, 0, 0, 0, 1, 8, 9, 0xab, 0xcd}, make([]byte, 40)...)
		seeds = append(seeds, p.bytes())
		p.tags = nil
		seeds = append(seeds, pieces(fill(p, 300).bytes(), 120)...)
		answer := from(netip.AddrPortFrom(k.VIP, k.Port).String(), model.FrontendKey{VIP: netip.MustParseAddrPort(client).Addr(), Transport: k.Transport, Port: 40000}.String(), "A").bytes()
		if k.VIP.Is4() {
			ip, _ := p.network(layers.IPProtocolICMPv4)
			seeds = append(seeds, frame(append(p.link(), ip, &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(3, 4)}, gopacket.Payload(inner(answer)))...))
			continue
		}
		ip, over := p.network(layers.IPProtocolICMPv6)
		icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(2, 0)}
		must(z.t, icmp.SetNetworkLayerForChecksum(over))
		seeds = append(seeds, frame(append(p.link(), ip, icmp, gopacket.Payload(append([]byte{0, 0, 5, 0}, inner(answer)...)))...))
		syn := from(client, k.String(), "S").bytes()
		extended := slices.Concat(syn[:54], []byte{60, 0, 1, 4, 0, 0, 0, 0, syn[20], 0, 1, 4, 0, 0, 0, 0}, syn[54:])
		extended[20] = 0
		binary.BigEndian.PutUint16(extended[18:], uint16(len(extended)-54))
		seeds = append(seeds, extended)
	}
	for _, to := range []string{"tcp://192.0.2.1:22", "udp://192.0.2.1:22", fuzzOther.String(), "tcp://192.0.2.2:22"} {
		for _, flags := range []string{"S", "A"} {
			seeds = append(seeds, from(cli4, to, flags).bytes())
		}
	}
	astray, late := from(cli4, tcp4, "S"), from(cli6, tcp6, "A")
	astray.dst, late.ttl = net.HardwareAddr{2, 0, 0, 0, 0, 9}, 1
	seeds = append(seeds, astray.bytes(), late.bytes())
	seeds = append(seeds, from(cli4, "tcp://192.0.2.9:80", "S").bytes(), from(cli6, "udp://[2001:db8::9]:53", "").bytes())
	// Tunnels that are not ours: what is inside has ports, and they do not.
	for _, to := range []string{"tcp://192.0.2.1:22", tcp4} {
		p := from(cli4, to, "A")
		ip, _ := p.network(layers.IPProtocolIPv4)
		seeds = append(seeds, frame(append(p.link(), ip, gopacket.Payload(inner(p.bytes())))...))
	}
	p := from(cli6, tcp6, "A")
	ip, _ := p.network(layers.IPProtocolIPv6)
	seeds = append(seeds, frame(append(p.link(), ip, gopacket.Payload(inner(p.bytes())))...))
	slices.SortFunc(seeds, bytes.Compare) // the order of a map is none
	return seeds
}

// mutate makes something else of a packet.
func (z *fuzzRig) mutate(r *rand.Rand) []byte {
	p := bytes.Clone(z.seeds[r.IntN(len(z.seeds))])
	for range r.IntN(4) {
		at := r.IntN(len(p))
		if r.IntN(2) == 0 {
			at = r.IntN(min(len(p), 90)) // headers
		}
		switch r.IntN(9) {
		case 0:
			p[at] ^= 1 << r.IntN(8)
		case 1:
			p[at] = byte(r.Uint32())
		case 2:
			p[at] = []byte{0, 1, 4, 5, 6, 17, 43, 44, 58, 60, 0x45, 0x46, 0x60, 0x7f, 0x80, 0xff}[r.IntN(16)]
		case 3:
			if at+2 <= len(p) {
				binary.BigEndian.PutUint16(p[at:], []uint16{0, 1, 20, 40, 0x0800, 0x86dd, 0x8100, 0x88a8, 0x2000, 0x3fff, 0xffff, uint16(len(p) - at)}[r.IntN(12)])
			}
		case 4:
			p = p[:max(14, at)]
		case 5:
			p = append(p, make([]byte, r.IntN(64))...)
		case 6:
			p = slices.Insert(p, at, p[at:min(len(p), at+r.IntN(40))]...)
		case 7:
			if end := min(len(p), at+r.IntN(40)); len(p)-(end-at) >= 14 {
				p = slices.Delete(p, at, end)
			}
		case 8:
			other := z.seeds[r.IntN(len(z.seeds))]
			copy(p[at:], other[min(at, len(other)):])
		}
	}
	if r.IntN(4) > 0 {
		mend(p)
	}
	return p[:min(len(p), 3000)]
}

// mend makes lengths and the checksum of IP right, so that more than these are tried.
func mend(p []byte) {
	at := 12
	for at+6 < len(p) && (binary.BigEndian.Uint16(p[at:]) == 0x8100 || binary.BigEndian.Uint16(p[at:]) == 0x88a8) && at < 20 {
		at += 4
	}
	ip := p[at+2:]
	if len(ip) < 40 {
		return
	}
	switch binary.BigEndian.Uint16(p[at:]) {
	case 0x0800:
		if n := int(ip[0]&15) * 4; n >= 20 && n <= len(ip) {
			binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
			copy(ip, hoppedBack(ip[:n]))
		}
	case 0x86dd:
		binary.BigEndian.PutUint16(ip[4:], uint16(len(ip)-40))
	}
}

// fuzzOther is served by something else at a VIP that is guarded.
var fuzzOther = model.FrontendKey{VIP: netip.MustParseAddr("192.0.2.1"), Transport: model.TCP, Port: 8443}

// judged is what an independent decoder says about a packet.
type judged struct {
	astray      bool // the frame is for another machine, or for a group
	shut        bool // to a VIP that is guarded, in order, and for nobody there
	open        bool // the same for fuzzOther
	last        bool // its time is over
	destination netip.Addr
	ours        bool        // to a VIP
	frontend    *lbFrontend // of a whole packet that is in order, with ports
	fragment    bool
	icmp        bool
	inOrder     bool // nothing wrong with it from end to end
	puzzled     bool // the decoder gave up before it saw ports
	unsuitable  bool // wrong enough that it must not be sent
}

func (z *fuzzRig) judge(packet []byte) (j judged) {
	p := gopacket.NewPacket(packet, layers.LayerTypeEthernet, gopacket.DecodeStreamsAsDatagrams)
	var tags int
	known := []layers.EthernetType{layers.EthernetTypeIPv4, layers.EthernetTypeIPv6, layers.EthernetTypeDot1Q, layers.EthernetTypeQinQ}
	for _, l := range p.Layers() {
		switch l := l.(type) {
		case *layers.Dot1Q:
			tags++
			j.unsuitable = j.unsuitable || !slices.Contains(known, l.Type)
		case *layers.Ethernet: // the decoder guesses at types that it does not know
			j.unsuitable = l.Length != 0 || !slices.Contains(known, l.EthernetType)
		}
	}
	guessed := j.unsuitable
	var ttl uint8
	var source netip.Addr
	var protocol layers.IPProtocol
	switch ip := p.NetworkLayer().(type) {
	case *layers.IPv4:
		source, _ = netip.AddrFromSlice(ip.SrcIP)
		j.destination, _ = netip.AddrFromSlice(ip.DstIP)
		ttl, protocol = ip.TTL, ip.Protocol
		if bad, result := ip.VerifyChecksum(); bad != nil || !result.Valid || ip.Version != 4 {
			j.unsuitable = true
		}
		j.fragment = ip.FragOffset != 0 || ip.Flags&layers.IPv4MoreFragments != 0
		j.unsuitable = j.unsuitable || ip.Flags&layers.IPv4EvilBit != 0
	case *layers.IPv6:
		source, _ = netip.AddrFromSlice(ip.SrcIP)
		j.destination, _ = netip.AddrFromSlice(ip.DstIP)
		ttl, protocol = ip.HopLimit, ip.NextHeader
		before := layers.LayerTypeIPv6
		for _, l := range p.Layers() {
			if l, is := l.(gopacket.NetworkLayer); is && l != p.NetworkLayer() {
				break // what is in a tunnel is not ours to read
			}
			switch h := l.(type) {
			case *layers.IPv6HopByHop:
				j.unsuitable = j.unsuitable || before != layers.LayerTypeIPv6 // RFC 8200, 4.1
				protocol = h.NextHeader
			case *layers.IPv6Destination:
				protocol = h.NextHeader
			case *layers.IPv6Routing:
				protocol = h.NextHeader
				j.unsuitable = j.unsuitable || h.SegmentsLeft != 0
			case *layers.IPv6Fragment:
				protocol = h.NextHeader
				j.fragment = true // also one that is whole (RFC 6946), into which the decoder does not look
			}
			before = l.LayerType()
		}
		j.unsuitable = j.unsuitable || ip.Version != 6
	}
	if !j.destination.IsValid() { // the decoder gave up on the IP header, of which this much is sure
		j.puzzled = true
		at := 12
		for at+6 <= len(packet) && (binary.BigEndian.Uint16(packet[at:]) == 0x8100 || binary.BigEndian.Uint16(packet[at:]) == 0x88a8) && at < 20 {
			at += 4
		}
		switch ip := packet[at+2:]; {
		case binary.BigEndian.Uint16(packet[at:]) == 0x0800 && len(ip) >= 20:
			j.destination, _ = netip.AddrFromSlice(ip[16:20])
		case binary.BigEndian.Uint16(packet[at:]) == 0x86dd && len(ip) >= 40:
			j.destination, _ = netip.AddrFromSlice(ip[24:40])
		}
		j.ours = len(z.vips[j.destination]) > 0
		return j
	}
	j.ours = len(z.vips[j.destination]) > 0 && tags <= 2
	j.last = ttl <= 1
	_, fromVIP := z.vips[source]
	if ttl <= 1 || fromVIP || source.IsLoopback() || source.IsMulticast() || source.IsUnspecified() || source.Is4In6() ||
		source.Is4() && (source.As4()[0] == 0 || source.As4()[0] >= 224) {
		j.unsuitable = true
	}
	j.icmp = protocol == layers.IPProtocolICMPv4 || protocol == layers.IPProtocolICMPv6
	k := model.FrontendKey{VIP: j.destination}
	transport := p.TransportLayer()
	if protocol != layers.IPProtocolTCP && protocol != layers.IPProtocolUDP {
		transport = nil // that of a packet in a tunnel
	}
	switch l := transport.(type) {
	case *layers.TCP:
		k.Transport, k.Port = model.TCP, uint16(l.DstPort)
	case *layers.UDP:
		k.Transport, k.Port = model.UDP, uint16(l.DstPort)
		if l.Length == 0 {
			j.unsuitable = true // a jumbogram (RFC 2675) to the decoder
		}
	}
	if !j.fragment {
		j.frontend = z.served[k]
	}
	j.puzzled = transport == nil && p.ErrorLayer() != nil
	wrong := p.ErrorLayer() != nil || p.Metadata().Truncated
	j.inOrder = j.frontend != nil && !wrong && !j.unsuitable && tags <= 2
	if ports := k.Transport != "" && !j.fragment && !wrong && !guessed && tags <= 2; ports && k.VIP == fuzzOther.VIP && z.served[k] == nil {
		j.open = k == fuzzOther
		j.shut = !j.open
	}
	return j
}

// dropTotal is how many packets were dropped, or not written down.
func (z *fuzzRig) dropTotal() (sum uint64) {
	n := int(z.Drops.MaxEntries())
	keys, values := make([]uint32, n), make([]uint64, n*ebpf.MustPossibleCPU())
	var cursor ebpf.MapBatchCursor
	if _, err := z.Drops.BatchLookup(&cursor, keys, values, nil); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		z.t.Fatal(err)
	}
	for _, v := range values {
		sum += v
	}
	return sum
}

// try gives a packet to the program and says what is wrong with what it did.
func (z *fuzzRig) try(packet []byte) error {
	verdict, out := z.run(z.Balance, packet)
	drops := z.dropTotal()
	counted := drops - z.drops
	z.drops = drops
	j := z.judge(packet)
	j.astray = packet[0]&1 != 0 || len(packet) >= 6 && !slices.ContainsFunc([]net.HardwareAddr{machineLink, hopLink, outLink}, func(a net.HardwareAddr) bool { return bytes.Equal(a, packet[:6]) })
	if j.astray && (verdict != xdpPass || !bytes.Equal(packet, out)) {
		return errors.New("touched a frame that is for others")
	}
	if j.shut && !j.astray && verdict != xdpDrop {
		return fmt.Errorf("verdict %d of what is for no frontend of a VIP that is guarded", verdict)
	}
	switch verdict {
	case xdpDrop:
		if counted != 1 {
			return fmt.Errorf("dropped, and %d counted", counted)
		}
		if !j.ours {
			return errors.New("dropped what is for nobody here")
		}
		if j.open && !j.unsuitable && len(trim(inner(packet))) < 1400 {
			return errors.New("dropped what something else serves")
		}
		if j.inOrder && len(trim(inner(packet))) < 1400 {
			return fmt.Errorf("dropped what is in order: %v", z.reasons())
		}
	case xdpPass:
		if counted != 0 {
			return errors.New("left to the kernel, and counted as dropped")
		}
		if bytes.Equal(packet, out) {
			if j.inOrder && !j.astray && j.frontend.servers[0].value.Mode != uint8(bpfModeMODE_LOCAL) {
				return errors.New("left what is for a frontend")
			}
			return nil
		}
		out, noted := noted(out)
		if !noted {
			return errors.New("left to the kernel in a tunnel, without the note where it is from")
		}
		return z.encapsulated(packet, out, j, true)
	case xdpTX, xdpRedirect:
		return z.encapsulated(packet, out, j, false)
	default:
		return fmt.Errorf("verdict %d", verdict)
	}
	return nil
}

// encapsulated says what is wrong with a packet that was sent, or left to the kernel in a tunnel.
func (z *fuzzRig) encapsulated(packet, out []byte, j judged, here bool) error {
	if !j.ours || j.unsuitable {
		answer := gopacket.NewPacket(out, layers.LayerTypeEthernet, gopacket.Default)
		if !j.ours || answer.Layer(layers.LayerTypeICMPv4) == nil && answer.Layer(layers.LayerTypeICMPv6) == nil {
			return fmt.Errorf("sent what is not to be sent: %+v", j)
		}
	}
	want := hopped(inner(packet))
	// Over the segment nothing is around it.
	if len(out) >= 14 && bytes.Equal(out[:6], hopLink) && len(out) >= 14+len(want) && bytes.Equal(out[14:14+len(want)], want) {
		if j.frontend != nil && j.frontend.servers[0].value.Mode != uint8(bpfModeMODE_L2) {
			return errors.New("sent as it is, and the mode is another")
		}
		return nil
	}
	e, err := unwrap(out)
	if err != nil {
		return z.answered(packet, out, j, err)
	}
	if !bytes.Equal(e.inside, want) {
		return fmt.Errorf("inside is\n%x, want\n%x", e.inside, want)
	}
	if here != (e.to == z.tunnel()) {
		return fmt.Errorf("here is %v, and it is for %v", here, e.to)
	}
	legitimate := z.vips[j.destination]
	switch {
	case j.frontend != nil:
		legitimate = []*lbFrontend{j.frontend}
	case !j.fragment && !j.icmp && !j.puzzled:
		return errors.New("sent, and the decoder sees no frontend")
	}
	for _, f := range legitimate {
		for _, s := range f.servers {
			if s.remote == e.to && e.geneve == (s.value.Mode == uint8(bpfModeMODE_GENEVE)) {
				return nil
			}
		}
	}
	return fmt.Errorf("sent to %v, which is no backend of it", e.to)
}

func (z *fuzzRig) tunnel() netip.Addr { return netip.MustParseAddr("10.0.0.1") }

// answered says what is wrong with an answer to a packet that was too large, or had come too
// far.
func (z *fuzzRig) answered(packet, out []byte, j judged, notWrapped error) error {
	p := gopacket.NewPacket(out, layers.LayerTypeEthernet, gopacket.Default)
	four, _ := p.Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4)
	six, _ := p.Layer(layers.LayerTypeICMPv6).(*layers.ICMPv6)
	if four == nil && six == nil || len(inner(packet)) < 1400 && !j.last {
		return notWrapped
	}
	if six != nil {
		if err := six.SetNetworkLayerForChecksum(p.NetworkLayer()); err != nil {
			return err
		}
	}
	if err, wrong := p.VerifyChecksums(); err != nil || len(wrong) > 0 {
		return fmt.Errorf("answer with wrong checksums: %w %+v", err, wrong)
	}
	return nil
}

// show is a packet as people and gopacket see it.
func show(packet []byte) string {
	return fmt.Sprintf("%x\n%v", packet, gopacket.NewPacket(packet, layers.LayerTypeEthernet, gopacket.Default))
}

// TestProgFuzz tries packets for FAIRLEAD_FUZZ_TIME, else a minute, in short runs seconds.
// FAIRLEAD_FUZZ_SEED repeats a run.
func TestProgFuzz(t *testing.T) {
	z := newFuzz(t)
	for i, p := range z.seeds {
		if err := z.try(p); err != nil {
			t.Errorf("seed %d: %v\n%s", i, err, show(p))
		}
	}
	patience := time.Minute
	if testing.Short() {
		patience = 2 * time.Second
	}
	if s := os.Getenv("FAIRLEAD_FUZZ_TIME"); s != "" {
		var err error
		patience, err = time.ParseDuration(s)
		must(t, err)
	}
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("FAIRLEAD_FUZZ_SEED"); s != "" {
		_, err := fmt.Sscan(s, &seed)
		must(t, err)
	}
	t.Logf("FAIRLEAD_FUZZ_SEED=%d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	n := 0
	for end := time.Now().Add(patience); time.Now().Before(end); n++ {
		p := z.mutate(r)
		if err := z.try(p); err != nil {
			t.Fatalf("packet %d of seed %d: %v\n%s", n, seed, err, show(p))
		}
	}
	t.Logf("%d packets; dropped: %v", n, z.reasons())
}

// FuzzPackets is for go test -fuzz, which looks for packets that make gopacket take new paths.
func FuzzPackets(f *testing.F) {
	z := newFuzz(f) // for all inputs: what it keeps of one is a part of the next one's world
	if os.Geteuid() == 0 {
		f.Add(from(cli4, tcp4, "S").bytes())
		f.Add(from(cli6, tcp6, "S").bytes())
		f.Add(from(cli4, udp4, "").bytes())
		f.Add(from(cli6, udp6, "").bytes())
	}
	f.Fuzz(func(t *testing.T, packet []byte) {
		if len(packet) < 14 || len(packet) > 3000 {
			return // the kernel does not take it
		}
		z.t = t
		if err := z.try(packet); err != nil {
			t.Fatalf("%v\n%s", err, show(packet))
		}
	})
}
