package l2

import (
	"context"
	"log/slog"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
)

// sync opens and closes ports for what the candidacies want and the machine has, and hands
// each its candidacies.
func (a *Announcer) sync(now time.Time) {
	a.dirty, a.synced = false, now
	found, err := look()
	if err != nil {
		a.c.Log.Warn("cannot see the machine's interfaces; keeping those that are in use", "error", err)
		a.synced = now.Add(time.Second - resync)
		return
	}
	clear(a.why)
	links := map[string]link{}
	candidacies := map[string][]Candidacy{}
	for _, c := range a.candidacies {
		usable, why := found.usableOn(c)
		a.why[c.VIP] = why
		for _, l := range usable {
			links[l.name] = l
			candidacies[l.name] = append(candidacies[l.name], c)
		}
	}
	for name, p := range a.ports {
		l, wanted := links[name]
		if wanted && l.index == p.index && l.mac == p.election.self.mac && p.broken == nil && (l.noIPv6 == nil) == (p.icmp != nil) {
			continue
		}
		p.election.set(now, nil) // what it owns is given up; on a link that is down nobody hears it
		a.apply(now, p)
		delete(a.ports, name)
		p.close()
	}
	for name, l := range links {
		p := a.ports[name]
		if p == nil {
			if p, err = openPort(l, a.c.Machine, now); err != nil {
				a.unusable(candidacies[name], err)
				continue
			}
			a.ports[name] = p
			a.start(p)
		}
		if err := p.join(candidacies[name]); err != nil {
			a.c.Log.Warn("neighbour solicitations may not arrive", "error", err)
		}
		p.election.set(now, candidacies[name])
		a.apply(now, p)
	}
}

// unusable says of candidacies why they cannot be announced, and has it tried again.
func (a *Announcer) unusable(candidacies []Candidacy, err error) {
	for _, c := range candidacies {
		a.why[c.VIP] = append(a.why[c.VIP], err)
	}
	a.c.Log.Warn("cannot use an interface", "error", err)
}

// start has what arrives at p handled.
func (a *Announcer) start(p *port) {
	a.reader(p, func() error {
		return readPackets(p.arp, func(b []byte) {
			if q, err := parseARP(b); err == nil {
				a.event(p, func(now time.Time) { a.onARP(now, p, q) })
			}
		})
	})
	told := ""
	a.reader(p, func() error {
		return readPackets(p.beats, func(b []byte) {
			from, entries, err := parseBeat(b)
			if err != nil {
				if err != errFrame && err.Error() != told { //nolint:errorlint // errFrame is never wrapped
					told = err.Error()
					a.c.Log.Warn("ignoring a heartbeat", "interface", p.name, "error", err)
				}
				return
			}
			a.event(p, func(now time.Time) { p.election.hear(now, from, entries) })
		})
	})
	if p.icmp != nil {
		a.reader(p, func() error {
			return readNeighbours(p.icmp, func(q neighbour) {
				a.event(p, func(now time.Time) { a.onNeighbour(now, p, q) })
			})
		})
	}
}

func (a *Announcer) reader(p *port, run func() error) {
	a.readers.Go(func() {
		if err := run(); err != nil {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.c.Log.Warn("cannot receive; reopening the interface", "interface", p.name, "error", err)
			p.broken, a.dirty = err, true
			a.poke()
		}
	})
}

// onARP answers requests for what this machine owns, and notes who else shows that it
// has a VIP.
func (a *Announcer) onARP(now time.Time, p *port, q arp) {
	if a.ours(q.senderMAC) {
		return
	}
	p.election.answered(now, q.sender, q.senderMAC)
	if q.op != arpRequest || q.sender == q.target {
		return
	}
	if mac, ok := p.election.deputy(now, q.target); ok {
		a.answered(p, q.target, p.answerARP(q, mac))
	}
}

// onNeighbour is its like for IPv6.
func (a *Announcer) onNeighbour(now time.Time, p *port, q neighbour) {
	if q.hasMAC && a.ours(q.mac) {
		return
	}
	if q.kind == advertisement {
		if q.hasMAC {
			p.election.answered(now, q.target, q.mac)
		}
		return
	}
	if mac, ok := p.election.deputy(now, q.target); ok {
		a.answered(p, q.target, p.answerNeighbour(q, mac))
	}
}

func (a *Announcer) answered(p *port, vip netip.Addr, err error) {
	if err != nil {
		a.c.Log.Warn("cannot answer a request for a VIP", "vip", vip, "interface", p.name, "error", err)
	}
}

// ours reports whether a hardware address is one of this machine's.
func (a *Announcer) ours(mac hardware) bool {
	for _, p := range a.ports {
		if p.election.self.mac == mac {
			return true
		}
	}
	return false
}

// watch calls changed when interfaces, addresses or routes may have changed, until
// the function that it returns is called. Where the kernel's reports end early, the
// regular look has to do.
func watch(ctx context.Context, log *slog.Logger, changed func()) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	failed := func(err error) {
		if ctx.Err() == nil {
			log.Warn("the kernel no longer reports changes of interfaces; checking every ten seconds", "error", err)
		}
	}
	links, addrs, routes := make(chan netlink.LinkUpdate), make(chan netlink.AddrUpdate), make(chan netlink.RouteUpdate)
	drain(links, changed, failed,
		netlink.LinkSubscribeWithOptions(links, ctx.Done(), netlink.LinkSubscribeOptions{ErrorCallback: failed}))
	drain(addrs, changed, failed,
		netlink.AddrSubscribeWithOptions(addrs, ctx.Done(), netlink.AddrSubscribeOptions{ErrorCallback: failed}))
	drain(routes, changed, failed,
		netlink.RouteSubscribeWithOptions(routes, ctx.Done(), netlink.RouteSubscribeOptions{ErrorCallback: failed}))
	return cancel
}

// drain calls changed for every update of a subscription until that ends.
func drain[T any](updates <-chan T, changed func(), failed func(error), err error) {
	if err != nil {
		failed(err)
		return
	}
	go func() {
		for range updates {
			changed()
		}
	}()
}
