package bgp

import (
	"bufio"
	"context"
	"net"
	"net/netip"
	"time"

	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"fairlead.dev/internal/model"
)

// contest is an attempt to establish a session, in which both ends may open a connection at the same time. One stays
// (RFC 4271, 6.8).
type contest struct {
	p      *peer
	conf   model.Peer
	opened bool // an OPEN was answered in an earlier one
	stages chan stage
	over   chan struct{} // nobody listens to stages any more
	in     []*contender  // that are under way
}

// contender is a connection on its way to a session.
type contender struct {
	theirs bool // the peer opened it
	ctx    context.Context
	cancel context.CancelFunc
	heard  bool      // the peer's OPEN came
	goOn   chan bool // whether to go on after that
}

// stage is how far a contender is: it has the peer's OPEN, or, with an end, it has failed or is all that it takes.
type stage struct {
	of  *contender
	c   *connection
	f   *failure
	end bool
}

// attempt makes a connection, or waits for the peer's, keeps it until it ends, and returns why it did.
func (p *peer) attempt() *failure {
	conf, _, _ := p.wanted()
	s := &contest{p: p, conf: conf, opened: p.opened, stages: make(chan stage), over: make(chan struct{})}
	c, f := s.run()
	close(s.over)
	for _, t := range s.in {
		t.cancel()
	}
	if f != nil {
		return f
	}
	defer c.cancel()
	defer func() { _ = c.conn.Close() }() // also after a panic: the peer keeps the routes then, if it knows graceful restart
	f = c.established(conf)
	f.lost, f.lasted = true, p.s.now().Sub(c.since)
	c.close(f)
	return f
}

// run returns the connection that stays, or why there is none.
func (s *contest) run() (*connection, *failure) {
	p := s.p
	if s.conf.Connection == model.ConnectionPassive {
		p.update(func(x *model.Session) {
			x.State = model.SessionActive
			if x.Reason == model.SessionStarting {
				x.Reason, x.Message = model.SessionAwaited, where(s.conf)+"it has not connected to this machine: let the router connect, or have this machine do so (connection: Both)"
			}
			if why := p.s.listeners.trouble(s.conf); why != "" {
				x.Reason, x.Message = model.SessionCannotListen, where(s.conf)+why
			}
		})
	} else {
		s.enter(false, s.dial)
	}
	ended := p.ctx.Done()
	for {
		select {
		case <-ended:
			if len(s.in) == 0 {
				return nil, fail(s.conf, model.SessionStarting, "ended by this machine")
			}
			ended = nil // they say goodbye
		case conn := <-p.accepted:
			if s.find(func(t *contender) bool { return t.theirs }) != nil {
				reset(conn) // one at a time
				continue
			}
			s.enter(true, func(context.Context) (*net.TCPConn, *failure) { return conn, nil })
		case now := <-s.stages:
			switch {
			case !now.end:
				s.heard(now)
			case now.f == nil:
				s.leave(now.of)
				return now.c, nil
			default:
				s.leave(now.of)
				if len(s.in) == 0 {
					return nil, now.f
				}
			}
		}
	}
}

func (s *contest) find(match func(*contender) bool) *contender {
	for _, t := range s.in {
		if match(t) {
			return t
		}
	}
	return nil
}

func (s *contest) leave(t *contender) {
	for i, other := range s.in {
		if other == t {
			s.in = append(s.in[:i:i], s.in[i+1:]...)
			return
		}
	}
}

// heard decides whether a connection on which the peer's OPEN came may go on.
func (s *contest) heard(now stage) {
	t := now.of
	s.p.opened, t.heard = true, true
	rival := s.find(func(other *contender) bool { return other != t && other.heard })
	switch {
	case rival == nil:
		t.goOn <- true
	case t.theirs != oursStays(s.conf, s.p.routerID, now.c.agreed.peerID):
		s.p.often.Info("collision", "two connections to the peer: this machine keeps the newer one", "router_opened_it", t.theirs)
		rival.cancel()
		t.goOn <- true
	default:
		s.p.often.Info("collision", "two connections to the peer: this machine keeps the older one", "router_opened_it", rival.theirs)
		t.goOn <- false
	}
}

// oursStays reports which of two connections stays: that which the speaker with the larger router id opened (RFC 4271,
// 6.8), or with the larger AS number, if they have the same (RFC 6286, 2.3).
func oursStays(c model.Peer, ours, theirs netip.Addr) bool {
	if ours == theirs {
		return c.LocalASN > c.PeerASN
	}
	return theirs.Less(ours)
}

func (s *contest) dial(ctx context.Context) (*net.TCPConn, *failure) {
	addrs, listErr := s.p.s.localAddrs()
	if listErr != nil {
		s.p.often.Warn("addresses", "cannot look at the machine's addresses", "error", listErr)
	}
	_, prefixes, _ := s.p.wanted()
	source, f := source(s.conf, addrs, prefixes)
	if f != nil {
		return nil, f
	}
	conn, err := dial(ctx, s.conf, source)
	if err != nil {
		return nil, unconnected(s.conf, err, listErr != nil || hasFamily(s.conf.Address, addrs))
	}
	return conn, nil
}

// enter has a connection take part.
func (s *contest) enter(theirs bool, get func(context.Context) (*net.TCPConn, *failure)) {
	t := &contender{theirs: theirs, goOn: make(chan bool, 1)}
	t.ctx, t.cancel = context.WithCancel(s.p.ctx)
	s.in = append(s.in, t)
	tell := func(now stage) (heard bool) {
		now.of = t
		select {
		case s.stages <- now:
			return true
		case <-s.over:
			return false
		}
	}
	go func() {
		var c *connection
		f := s.p.guard(func() (f *failure) {
			conn, f := get(t.ctx)
			if f != nil {
				return f
			}
			stays := false
			defer func() {
				if !stays {
					_ = conn.Close() // also after a panic
				}
			}()
			c = newConnection(s.p, t, conn)
			if f := c.greet(s.conf, s.opened); f != nil {
				return c.lose(f)
			}
			if !tell(stage{c: c}) || !<-t.goOn {
				return c.lose(collided(s.conf))
			}
			if f := c.confirm(s.conf); f != nil {
				return c.lose(f)
			}
			stays = true
			return nil
		})
		if !tell(stage{c: c, f: f, end: true}) && f == nil {
			c.lose(collided(s.conf))
			_ = c.conn.Close()
		}
	}()
}

// collided is the failure of a connection beside which another one stays.
func collided(c model.Peer) *failure {
	return refuse(c, model.SessionReset, packet.BGP_ERROR_CEASE, packet.BGP_ERROR_SUB_CONNECTION_COLLISION_RESOLUTION, nil,
		"both ends connected at the same time, and the other connection stays")
}

func newConnection(p *peer, t *contender, conn *net.TCPConn) *connection {
	c := &connection{
		p: p, ctx: t.ctx, conn: conn, reader: bufio.NewReader(conn), rib: newRibOut(), inbox: newInbox(),
		local: conn.LocalAddr().(*net.TCPAddr).AddrPort().Addr().Unmap(),
	}
	unwatch := context.AfterFunc(t.ctx, func() {
		_ = conn.SetReadDeadline(time.Now())
		_ = conn.SetWriteDeadline(time.Now().Add(closeWait))
	})
	c.cancel = func() {
		unwatch()
		t.cancel()
	}
	return c
}

// lose ends a connection that comes to no session, and returns why it does not.
func (c *connection) lose(f *failure) *failure {
	if c.ctx.Err() != nil && c.p.ctx.Err() == nil {
		conf, _, _ := c.p.wanted()
		f = collided(conf) // not the peer's end: another connection stays
	}
	c.cancel()
	c.close(f)
	return f
}

// offer hands a connection over that the peer opened.
func (p *peer) offer(conn *net.TCPConn) {
	select {
	case p.accepted <- conn:
	default:
		reset(conn) // one waits already
	}
}

// refuseAll ends connections that nobody will take over any more.
func (p *peer) refuseAll() {
	for {
		select {
		case conn := <-p.accepted:
			reset(conn)
		default:
			return
		}
	}
}

// reset closes a connection at once.
func reset(conn *net.TCPConn) {
	_ = conn.SetLinger(0)
	_ = conn.Close()
}

// cameAgain decides about a connection that the peer opened while the session stands. It is refused (RFC 4271, 6.8),
// unless the peer speaks graceful restart: then it has restarted, and not closed the old one (RFC 4724, 5).
func (c *connection) cameAgain(conf model.Peer, conn *net.TCPConn) *failure {
	if !c.agreed.restarts {
		b, err := collided(conf).notify.Serialize()
		if err == nil {
			_ = conn.SetWriteDeadline(time.Now().Add(closeWait))
			_, _ = conn.Write(b)
		}
		_ = conn.Close()
		return nil
	}
	c.p.offer(conn) // for the next attempt
	return fail(conf, model.SessionReset, "it connected again during the session: its BGP process restarted")
}
