package bgp

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/muffle"
)

const (
	// firstDelay is the pause after the first failure; it doubles with each one after it.
	firstDelay = 250 * time.Millisecond
	// defaultConnectRetry is for peers without a ConnectRetry.
	defaultConnectRetry = 10 * time.Second
	// A session that was lost flapLosses times within flapWindow flaps. The pause after each loss then doubles from
	// flapDelay to maxFlapDelay, until a session has lasted for flapWindow.
	flapLosses   = 3
	flapWindow   = 2 * time.Minute
	flapDelay    = 2 * time.Second
	maxFlapDelay = time.Minute
	// limitPause is the pause after the peer sent more prefixes than it may.
	limitPause = 30 * time.Second
)

// farewell is how a session ends because we want it to.
type farewell struct {
	leave   bool
	subcode uint8 // of Cease
}

func cease(subcode uint8) farewell { return farewell{subcode: subcode} }

// peer is one session through all its connections.
type peer struct {
	s        *Speaker
	log      *slog.Logger
	often    *muffle.Log // of what the peer can make happen at will
	name     string
	routerID netip.Addr
	wake     chan struct{}
	cancel   context.CancelFunc
	ctx      context.Context
	done     chan struct{}
	accepted chan *net.TCPConn // that the peer opened; at most one waits
	before   *peer             // whose session this one replaces; nil is nobody

	mu       sync.Mutex
	conf     model.Peer
	prefixes []Advertisement
	version  uint64 // of prefixes
	sent     uint64 // version that the established session has sent
	status   model.Session
	end      farewell
	stands   *failure // why there is no session, as of the last attempt
	panics   int      // since a session that lasted
	panicsAt map[string]bool
	finding  trouble // with finding it on its interface

	// Only the peer's goroutine uses what follows.
	opened    bool // an OPEN was answered before: the machine's start is over
	failures  int  // since the last established session
	losses    []time.Time
	lastLoss  string // its message
	lossDelay time.Duration
	bfd       *bfdSession
}

func newPeer(s *Speaker, id netip.Addr, c model.Peer) *peer {
	p := &peer{
		s: s, name: c.Name, routerID: id,
		log:      s.log.With("peer", c.Name, "address", location(c)),
		wake:     make(chan struct{}, 1),
		done:     make(chan struct{}),
		accepted: make(chan *net.TCPConn, 1),
		conf:     c, panicsAt: map[string]bool{},
		status: model.Session{
			Peer: c.Name, Address: c.Address, Interface: c.Interface, State: model.SessionIdle, Reason: model.SessionStarting,
			Message: "the first attempt is under way", Since: s.now(),
			LocalASN: c.LocalASN, PeerASN: c.PeerASN, RouterID: id,
		},
	}
	p.often = muffle.New(p.log, s.now)
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

func (p *peer) start() { go p.run() }

// stop makes the peer end its session; done is closed when it has.
func (p *peer) stop(how farewell) {
	p.mu.Lock()
	p.end = how
	p.mu.Unlock()
	p.cancel()
}

// keeps reports whether the session can stay as it is under the configuration c.
func (p *peer) keeps(c model.Peer) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return reflect.DeepEqual(fixed(p.conf), fixed(c))
}

// fixed leaves of a configuration what takes a new connection to change.
func fixed(c model.Peer) model.Peer {
	c.ConnectRetry, c.Keepalive, c.BFD = 0, 0, nil
	c.MaxPrefixes, c.EndAboveMax = 0, false
	c.NextHop4, c.NextHop6, c.Path = netip.Prefix{}, netip.Prefix{}, model.PathOptions{}
	return c
}

// want sets what the peer should be like and what it should be told.
func (p *peer) want(c model.Peer, prefixes []Advertisement) {
	p.mu.Lock()
	same := reflect.DeepEqual(p.conf, c) && reflect.DeepEqual(p.prefixes, prefixes) && p.version > 0
	if !same {
		p.conf, p.prefixes = c, prefixes
		p.version++
	}
	p.mu.Unlock()
	if !same {
		p.poke()
	}
}

// poke has the peer look at what is wanted, and at what the machine is like.
func (p *peer) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// wanted returns what want was given last.
func (p *peer) wanted() (model.Peer, []Advertisement, uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.conf, p.prefixes, p.version
}

// silent reports whether the peer has been told of no prefix, or of none any more, and will not be.
func (p *peer) silent() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.prefixes) == 0 && (p.status.State != model.SessionEstablished || p.sent == p.version)
}

func (p *peer) session() model.Session {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.status
	out.Advertised = slices.Clone(out.Advertised)
	return out
}

// update changes the session's status and says so if it differs.
func (p *peer) update(change func(*model.Session)) {
	changed := func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		before := p.status
		change(&p.status)
		if p.status.State != before.State {
			p.status.Since = p.s.now()
		}
		return !reflect.DeepEqual(before, p.status)
	}()
	if changed {
		p.s.announce()
	}
}

func (p *peer) run() {
	defer close(p.done)
	defer p.refuseAll()
	if p.before != nil {
		await([]*peer{p.before})
		p.before = nil
	}
	for p.ctx.Err() == nil {
		f := p.guard(func() *failure {
			conf, _, _ := p.wanted()
			if f := p.unfound(conf); f != nil {
				return f
			}
			if f := check(conf); f != nil {
				return f
			}
			p.update(func(s *model.Session) { s.State = model.SessionConnect })
			return p.attempt()
		})
		if p.ctx.Err() != nil {
			break
		}
		var delay time.Duration
		if worse := p.guard(func() *failure { delay = p.fail(f); return nil }); worse != nil {
			f, delay = worse, worse.pause
		}
		p.pause(f, delay)
	}
	p.guard(func() *failure {
		p.often.Close()
		return nil
	})
	p.guard(func() *failure {
		p.dropBFD()
		p.update(func(s *model.Session) {
			s.State, s.Reason, s.Message, s.Advertised, s.Received, s.BFD = model.SessionIdle, model.SessionStarting, "the session was ended by this machine", nil, 0, ""
		})
		return nil
	})
}

// fail writes down why there is no session and returns how long to wait before the next attempt.
func (p *peer) fail(f *failure) time.Duration {
	conf, _, _ := p.wanted()
	retry := conf.ConnectRetry
	if retry <= 0 {
		retry = defaultConnectRetry
	}
	p.often.Flush()
	delay := min(retry, firstDelay<<min(p.failures, 10))
	p.failures++
	if f.lost {
		now := p.s.now()
		if f.lasted >= flapWindow {
			p.losses, p.lossDelay = nil, 0
			p.forgive()
		}
		p.losses, p.lastLoss = append(p.losses, now), f.message
		if p.flaps(now) {
			p.lossDelay = min(max(2*p.lossDelay, flapDelay), maxFlapDelay)
			delay = max(delay, p.lossDelay)
			again := *f
			if f.weight() == symptom {
				again.reason, again.message = model.SessionFlapping, flapMessage(conf, f.message)
			} else {
				again.message += "; the session was lost again and again"
			}
			f = &again
		}
	}
	delay = max(delay, f.pause)
	state := model.SessionIdle
	switch {
	case f.blocked:
		state = model.SessionBlocked
	case f.unconnected:
		state = model.SessionConnect
	}
	before := p.session()
	p.update(func(s *model.Session) {
		s.State = state
		if f.lost {
			p.stands = nil // there was a session since
		}
		s.Reason, s.Message = account(p.stands, f, conf)
		if p.stands.yields(f) {
			p.stands = f
		}
		s.Advertised, s.Received, s.PeerID, s.HoldTime = nil, 0, netip.Addr{}, 0
		if conf.BFD == nil {
			s.BFD = ""
		}
		if f.lost {
			s.Flaps++
		}
	})
	if now := p.session(); before.Reason != now.Reason || f.lost {
		p.log.Info("the BGP session is down", "reason", now.Reason, "message", now.Message, "next_try", delay)
	}
	return delay
}

// forgive has the pause after a panic begin at the least again.
func (p *peer) forgive() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.panics = 0
}

// flaps reports whether the session was lost too often of late.
func (p *peer) flaps(now time.Time) bool {
	p.losses = slices.DeleteFunc(p.losses, func(t time.Time) bool { return now.Sub(t) >= flapWindow })
	return len(p.losses) >= flapLosses
}

// flapMessage says that the session flaps, and why it was lost last.
func flapMessage(c model.Peer, last string) string {
	return where(c) + "the session was lost again and again within two minutes: check for a bad link, two machines with one address, or a router that restarts; last: " +
		strings.TrimPrefix(last, where(c))
}

// pause waits before the next attempt. A change of what is wanted ends the wait for a session that is blocked, and a
// peer that connects does so unless it has to wait for a reason of its own.
func (p *peer) pause(f *failure, delay time.Duration) {
	// The jitter of RFC 4271, section 10: 75 to 100 percent.
	t := time.NewTimer(delay*3/4 + rand.N(delay/4+1))
	defer t.Stop()
	accepted := p.accepted
	if conf, _, _ := p.wanted(); f.blocked || delay > max(conf.ConnectRetry, defaultConnectRetry) {
		accepted = nil
	}
	for {
		timer := t.C
		if f.blocked {
			timer = nil
		}
		select {
		case <-p.ctx.Done():
			return
		case <-timer:
			return
		case conn := <-accepted:
			p.offer(conn) // for the attempt
			return
		case <-p.wake:
			if f.blocked {
				return
			}
		}
	}
}
