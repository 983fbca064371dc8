package xdp

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"fairlead.dev/internal/model"
)

// liveness finds out which machines with backends answer through the tunnel. The plane misses
// a vanished machine only after --machine-ttl; until then it would get new connections. So load
// balancers ask its kernel: programs answer echo requests in the tunnel without the agent.
//
// A machine counts as silent only after it had answered: where nothing comes through from
// the start, as with a firewall on the way, nothing is known. And when more than half of the
// machines are silent, this one included as one that is not, it is the way to them that is
// taken to be broken, as the plane takes it.
type liveness struct {
	log     *slog.Logger
	changed func()
	now     func() time.Time
	news    chan struct{}

	mu    sync.Mutex
	peers map[peer]*pulse
	at    []*pulse       // by number
	mute  map[string]int // peers of a machine that are silent: it may have changed its endpoint
	last  time.Time      // when peers were asked
	epoch uint64         // raised with every result that changes
}

// peer is a machine that is asked.
type peer struct {
	machine        string
	source, remote netip.Addr // tunnel endpoints, ours and its
}

// pulse is what is known about a peer.
type pulse struct {
	peer
	number        uint16
	asked, heard  bool // in this round
	known, silent bool // it answered once; it does no more
	missed        int
}

const (
	// askEvery and askMisses: a machine that vanished is silent after 1.5 to 2 seconds.
	askEvery  = 500 * time.Millisecond
	askMisses = 3
)

func newLiveness(log *slog.Logger, changed func()) *liveness {
	return &liveness{log: log, changed: changed, now: time.Now, news: make(chan struct{}, 1), peers: map[peer]*pulse{}, mute: map[string]int{}}
}

// peersOf are the other machines that have backends of this one's frontends, and which take
// packets out of tunnels.
func peersOf(b model.Balancing, decaps func(*model.Node) bool) []peer {
	self := b.Nodes[b.Machine]
	if self == nil {
		return nil
	}
	s := environment{machine: b.Machine, nodes: b.Nodes}
	seen := map[string]bool{b.Machine: true}
	var list []peer
	for _, f := range b.Frontends {
		if !slices.Contains(f.Frontend.Machines, b.Machine) {
			continue
		}
		for _, x := range f.Backends {
			if x.Machine == "" || seen[x.Machine] {
				continue
			}
			seen[x.Machine] = true
			p := peer{machine: x.Machine, source: self.Tunnel4, remote: s.tunnel(x.Machine)}
			if !p.remote.IsValid() || !decaps(b.Nodes[x.Machine]) {
				continue
			}
			if p.remote.Is6() {
				p.source = self.Tunnel6
			}
			list = append(list, p)
		}
	}
	return list
}

// set replaces the peers. Of those that stay, verdicts stay.
func (l *liveness) set(list []peer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p, v := range l.peers {
		if !slices.Contains(list, p) {
			l.judge(v, false)
			delete(l.peers, p)
			l.at[v.number] = nil
		}
	}
	for _, p := range list {
		if l.peers[p] != nil {
			continue
		}
		free := slices.Index(l.at, nil)
		if free < 0 {
			free = len(l.at)
			l.at = append(l.at, nil)
		}
		v := &pulse{peer: p, number: uint16(free)}
		l.peers[p], l.at[free] = v, v
	}
	poke(l.news)
}

// silent are the machines that have ceased to answer.
func (l *liveness) silent() map[string]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if 2*len(l.mute) > len(l.peers)+1 {
		return nil
	}
	gone := make(map[string]bool, len(l.mute))
	for machine := range l.mute {
		gone[machine] = true
	}
	return gone
}

func (l *liveness) age() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.epoch
}

// judge notes whether a peer is silent, and says whether that is news.
func (l *liveness) judge(v *pulse, silent bool) bool {
	if v.silent == silent {
		return false
	}
	v.silent = silent
	if silent {
		l.mute[v.machine]++
	} else if l.mute[v.machine]--; l.mute[v.machine] == 0 {
		delete(l.mute, v.machine)
	}
	l.epoch++
	return true
}

// answered notes an echo reply that came from an address.
func (l *liveness) answered(number uint16, from netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if int(number) >= len(l.at) || l.at[number] == nil || l.at[number].remote != from {
		return
	}
	v := l.at[number]
	if !v.known {
		l.log.Debug("a machine answers through the tunnel", "machine", v.machine)
	}
	v.heard, v.known, v.missed = true, true, 0
	if l.judge(v, false) {
		l.log.Info("a machine answers through the tunnel again; its backends get new flows", "machine", v.machine)
		l.changed()
	}
}

// round judges what was asked last and returns whom to ask now, and when to come again; 0
// when there is nobody to ask.
func (l *liveness) round() (ask []*pulse, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.peers) == 0 {
		return nil, 0
	}
	now := l.now()
	since := now.Sub(l.last)
	if since < askEvery {
		return nil, askEvery - since
	}
	// A process that did not run for a while has not listened either.
	late := since > askEvery+askEvery/2
	l.last = now
	for _, v := range l.peers {
		if v.asked && !v.heard && v.known && !late {
			if v.missed++; v.missed == askMisses && l.judge(v, true) {
				l.log.Warn("a machine does not answer through the tunnel; this machine sends its backends no new flows", "machine", v.machine)
				l.changed()
			}
		}
		v.asked, v.heard = false, false
		ask = append(ask, v)
	}
	return ask, askEvery
}

// sent notes that a machine was asked; what could not be sent needs no answer.
func (l *liveness) sent(v *pulse) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v.asked = true
}

// run asks until ctx is done.
func (l *liveness) run(ctx context.Context) {
	unable := func(err error) {
		l.log.Warn("cannot probe machines with backends; only the plane tells when one is lost", "error", err)
	}
	probing(ctx, unable, l.news, l.answered, func(send sendProbe) time.Duration {
		ask, wait := l.round()
		for _, v := range ask {
			if err := send(v.source, v.remote, v.number, v.source, v.remote); err != nil {
				l.log.Debug("cannot probe a machine", "machine", v.machine, "error", err)
				continue
			}
			l.sent(v)
		}
		return wait
	})
}
