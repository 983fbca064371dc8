package xdp

import (
	"context"
	"encoding/binary"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"fairlead.dev/internal/model"
)

// A prober finds out whether answers of other machines arrive whose source is a VIP: clouds
// and careful routers drop packets from addresses that a host does not have. It sends an
// ICMP echo request to the VIP through the tunnel; the machine answers from the VIP, to this
// machine. A second one to the machine's own address tells a filter from a machine that is
// away: silence counts only where that one was answered.
type prober struct {
	log     *slog.Logger
	changed func()
	now     func() time.Time
	news    chan struct{}
	every   time.Duration // pause between probes of one way

	mu      sync.Mutex
	targets map[target]*probeResult
	shut    map[exit]int // targets that are closed
	numbers map[uint16]target
	next    uint16
	epoch   uint64 // raised with every result that changes
}

// target is a VIP as the source of what a machine sends.
type target struct {
	machine string
	vip     netip.Addr
	remote  netip.Addr // the machine's tunnel endpoint
	source  netip.Addr // ours
	back    netip.Addr // our address of the VIP's family
}

// exit is what a result is about.
type exit struct {
	machine string
	vip     netip.Addr
}

func (t target) exit() exit { return exit{t.machine, t.vip} }

// probeResult is what is known about a target.
type probeResult struct {
	number  uint16
	due     time.Time
	asked   bool // and not judged
	vip     bool // answers came
	control bool
	missed  int
	closed  bool
}

const (
	probeEvery  = 30 * time.Second
	probeWait   = time.Second
	probeMisses = 3
	probesAtOne = 32 // probes go out in bursts of so many, at most
	probePause  = 100 * time.Millisecond
)

func newProber(log *slog.Logger, changed func()) *prober {
	return &prober{
		log: log, changed: changed, now: time.Now, news: make(chan struct{}, 1),
		every: probeEvery, targets: map[target]*probeResult{}, shut: map[exit]int{}, numbers: map[uint16]target{}, next: uint16(rand.Uint32()),
	}
}

// targets are the ways back that frontends depend on.
func targets(b model.Balancing) []target {
	self := b.Nodes[b.Machine]
	if self == nil {
		return nil
	}
	s := environment{machine: b.Machine, nodes: b.Nodes}
	seen := map[target]bool{}
	for key, f := range b.Frontends {
		tunnels := f.Frontend.Mode == model.ModeAuto || f.Frontend.Mode == model.ModeDSRGeneve
		if !tunnels || !slices.Contains(f.Frontend.Machines, b.Machine) {
			continue
		}
		for _, x := range f.Backends {
			t := target{machine: x.Machine, vip: key.VIP, remote: s.tunnel(x.Machine), source: self.Tunnel4, back: self.Tunnel4}
			if x.Machine == b.Machine || !t.remote.IsValid() || !b.Nodes[x.Machine].Decaps {
				continue
			}
			if t.remote.Is6() {
				t.source = self.Tunnel6
			}
			if key.VIP.Is6() {
				t.back = self.Tunnel6
			}
			if t.back.IsValid() {
				seen[t] = true
			}
		}
	}
	list := make([]target, 0, len(seen))
	for t := range seen {
		list = append(list, t)
	}
	return list
}

// set replaces the targets. Of those that stay, verdicts stay.
func (p *prober) set(list []target) {
	p.mu.Lock()
	defer p.mu.Unlock()
	keep := make(map[target]bool, len(list))
	for _, t := range list {
		keep[t] = true
		if p.targets[t] != nil || len(p.numbers) == 1<<16 {
			continue
		}
		for _, used := p.numbers[p.next]; used; _, used = p.numbers[p.next] {
			p.next++
		}
		p.targets[t] = &probeResult{number: p.next}
		p.numbers[p.next] = t
	}
	for t, v := range p.targets {
		if !keep[t] {
			p.shutting(t, v, false)
			delete(p.targets, t)
			delete(p.numbers, v.number)
		}
	}
	poke(p.news)
}

// closed says whether answers of a machine from a VIP are known not to arrive.
func (p *prober) closed(machine string, vip netip.Addr) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.shut[exit{machine, vip}] > 0
}

// shutting notes whether a target is closed.
func (p *prober) shutting(t target, v *probeResult, closed bool) {
	switch e := t.exit(); {
	case closed == v.closed:
	case closed:
		p.shut[e]++
	default:
		if p.shut[e]--; p.shut[e] == 0 {
			delete(p.shut, e)
		}
	}
	v.closed = closed
}

func (p *prober) age() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.epoch
}

// answered notes an echo reply that came from an address.
func (p *prober) answered(number uint16, from netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t, known := p.numbers[number]
	if !known {
		return
	}
	v := p.targets[t]
	if from == t.vip {
		v.vip = true
	} else {
		v.control = true
	}
	if v.vip && v.closed {
		p.judge(t, v, false)
	}
}

func (p *prober) judge(t target, v *probeResult, closed bool) {
	p.shutting(t, v, closed)
	p.epoch++
	if closed {
		p.log.Warn("answers of a machine from a VIP do not arrive here; this machine sends it no flows of that VIP through a tunnel", "machine", t.machine, "vip", t.vip)
	} else {
		p.log.Info("answers of a machine from a VIP arrive again", "machine", t.machine, "vip", t.vip)
	}
	p.changed()
}

// due returns what is to be asked now, and when to come again.
func (p *prober) due() (ask []inquiry, wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	wait = p.every
	for t, v := range p.targets {
		if left := v.due.Sub(now); left > 0 {
			wait = min(wait, left)
			continue
		}
		if len(ask) == probesAtOne {
			return ask, probePause
		}
		if v.asked {
			v.asked = false
			switch {
			case v.vip:
				v.missed = 0
			case v.control:
				if v.missed++; v.missed == probeMisses && !v.closed {
					p.judge(t, v, true)
				}
			}
			if v.vip || v.missed >= probeMisses || !v.control {
				v.due = now.Add(p.every - time.Duration(rand.Int64N(int64(p.every/10))))
				wait = min(wait, v.due.Sub(now))
				continue
			}
		}
		v.asked, v.vip, v.control, v.due = true, false, false, now.Add(probeWait)
		wait = min(wait, probeWait)
		ask = append(ask, inquiry{t, v.number})
	}
	return ask, wait
}

// inquiry is a probe to send.
type inquiry struct {
	target
	number uint16
}

// run probes until ctx is done.
func (p *prober) run(ctx context.Context) {
	unable := func(err error) {
		p.log.Warn("cannot check whether answers from VIPs arrive; assuming that they do", "error", err)
	}
	probing(ctx, unable, p.news, p.answered, func(send sendProbe) time.Duration {
		ask, wait := p.due()
		if len(ask) > 0 {
			p.log.Debug("probed return paths", "count", len(ask))
		}
		for _, q := range ask {
			for _, to := range []netip.Addr{q.vip, q.inner()} {
				if !to.IsValid() {
					continue
				}
				if err := send(q.source, q.remote, q.number, q.back, to); err != nil {
					p.log.Debug("cannot send a probe", "machine", q.machine, "error", err)
				}
			}
		}
		return wait
	})
}

// inner is the machine's own address of the VIP's family; of another family there is none
// that we know, and silence counts for nothing.
func (t target) inner() netip.Addr {
	if t.remote.Is4() == t.vip.Is4() {
		return t.remote
	}
	return netip.Addr{}
}

// probe is an echo request in Geneve with our option (bpf/lb/layout.h), flag HOP_ECHO and room
// for one hop.
func probe(identifier, number uint16, from, to netip.Addr) []byte {
	inner := echoRequest(identifier, number, from, to)
	kind := uint16(0x0800)
	if to.Is6() {
		kind = 0x86dd
	}
	b := []byte{4, 0x40} // four words of options, one of them critical
	b = binary.BigEndian.AppendUint16(b, kind)
	b = append(b, 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint16(b, hopClass)
	b = append(b, hopType, 3, 0, 0, byte(bpfHopFlagHOP_ECHO), 0)
	b = append(b, make([]byte, 8)...)
	return append(b, inner...)
}

// What bpf/lib/layout.h and bpf/lb/layout.h call GENEVE_PORT, HOP_CLASS and HOP_TYPE.
const (
	genevePort = 6081
	hopClass   = 0xff0f
	hopType    = 0x81
)

func echoRequest(identifier, number uint16, from, to netip.Addr) []byte {
	message := []byte{8, 0, 0, 0}
	if to.Is6() {
		message[0] = 128
	}
	message = binary.BigEndian.AppendUint16(message, identifier)
	message = binary.BigEndian.AppendUint16(message, number)
	message = append(message, "fairlead"...)
	if to.Is4() {
		binary.BigEndian.PutUint16(message[2:], checksum(message))
		b := []byte{0x45, 0}
		b = binary.BigEndian.AppendUint16(b, uint16(20+len(message)))
		b = append(b, 0, 0, 0x40, 0, 64, 1, 0, 0)
		b = append(append(b, from.AsSlice()...), to.AsSlice()...)
		binary.BigEndian.PutUint16(b[10:], checksum(b))
		return append(b, message...)
	}
	pseudo := append(append([]byte(nil), from.AsSlice()...), to.AsSlice()...)
	pseudo = binary.BigEndian.AppendUint32(pseudo, uint32(len(message)))
	pseudo = append(pseudo, 0, 0, 0, 58)
	binary.BigEndian.PutUint16(message[2:], checksum(append(pseudo, message...)))
	b := []byte{0x60, 0, 0, 0}
	b = binary.BigEndian.AppendUint16(b, uint16(len(message)))
	b = append(b, 58, 64)
	b = append(append(b, from.AsSlice()...), to.AsSlice()...)
	return append(b, message...)
}

// checksum is that of RFC 1071.
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	if len(b)%2 == 1 {
		sum += uint32(b[len(b)-1]) << 8
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
