package bgp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"fairlead.dev/internal/model"
)

const (
	// A peer has its hold time to send OPEN, but within these bounds.
	minOpenWait = 10 * time.Second
	maxOpenWait = 4 * time.Minute // RFC 4271, 8.2.2
	// writeWait is how long a peer may not take what is sent.
	writeWait = 20 * time.Second
	// closeWait is how long a peer that was told goodbye has to read it.
	closeWait = time.Second
	// recheck is how often an established session looks at the machine's addresses, and at whether trouble is over.
	recheck = 5 * time.Second
	// refreshPause is the least time from sending all routes again to doing so once more.
	refreshPause = time.Second
)

// connection is one TCP connection to a peer.
type connection struct {
	p      *peer
	ctx    context.Context    // ends with the connection
	cancel context.CancelFunc // ends ctx, and leaves the socket alone
	conn   *net.TCPConn
	reader *bufio.Reader
	local  netip.Addr
	agreed agreed

	rib      *ribOut
	list     []netip.Prefix // what the peer holds, sorted; it was given away
	inbox    *inbox
	rest     []byte      // of a message that was written in part
	again    *time.Timer // runs since all was sent again
	resting  bool        // it does
	troubles []trouble
	since    time.Time
	bfdDowns uint32 // of the BFD session when this connection began
	in       chan incoming
}

// close ends the connection: as the farewell says if we want it to end, else as the failure says.
func (c *connection) close(f *failure) {
	notify := f.notify
	if c.p.ctx.Err() != nil {
		c.p.mu.Lock()
		end := c.p.end
		c.p.mu.Unlock()
		if end.leave {
			// First BFD, so that the peer does not take the silence for a failure (RFC 5882, 4.3).
			if !c.since.IsZero() {
				c.p.dropBFD()
			}
			return
		}
		notify = packet.NewBGPNotificationMessage(packet.BGP_ERROR_CEASE, end.subcode, nil)
	}
	if notify == nil {
		return
	}
	b, err := notify.Serialize()
	if err != nil {
		return
	}
	_ = c.conn.SetDeadline(time.Now().Add(closeWait))
	if _, err := c.conn.Write(slices.Concat(c.rest, b)); err != nil {
		return
	}
	// Closing with unread data resets the connection, and the peer may never read the NOTIFICATION.
	_ = c.conn.CloseWrite()
	_, _ = io.Copy(io.Discard, c.conn)
}

// greet exchanges OPENs. opened says that the peer has answered one of this process before.
func (c *connection) greet(conf model.Peer, opened bool) *failure {
	p := c.p
	message, err := open(conf, p.routerID, !opened)
	if err != nil {
		return fail(conf, model.SessionProtocolError, "cannot write an OPEN: %s", err)
	}
	if err := c.send(message); err != nil {
		return broken(conf, model.SessionOpenSent, err, 0)
	}
	p.update(func(s *model.Session) { s.State = model.SessionOpenSent })
	wait := min(max(conf.HoldTime, minOpenWait), maxOpenWait)
	answer, f := c.expect(conf, model.SessionOpenSent, wait, packet.BGP_MSG_OPEN)
	if f != nil {
		return f
	}
	c.agreed, f = agree(conf, p.routerID, answer.Body.(*theirOpen))
	return f
}

// confirm exchanges KEEPALIVEs, after which the session stands.
func (c *connection) confirm(conf model.Peer) *failure {
	if err := c.send(packet.NewBGPKeepAliveMessage()); err != nil {
		return broken(conf, model.SessionOpenConfirm, err, 0)
	}
	c.p.update(func(s *model.Session) {
		s.State, s.PeerID, s.HoldTime = model.SessionOpenConfirm, c.agreed.peerID, c.agreed.hold
	})
	wait := min(max(conf.HoldTime, minOpenWait), maxOpenWait)
	if c.agreed.hold > 0 {
		wait = max(c.agreed.hold, minOpenWait)
	}
	_, f := c.expect(conf, model.SessionOpenConfirm, wait, packet.BGP_MSG_KEEPALIVE)
	return f
}

// expect reads the one message that may come in a state.
func (c *connection) expect(conf model.Peer, state model.SessionState, wait time.Duration, kind uint8) (*packet.BGPMessage, *failure) {
	// A hold time of minutes is no reason to keep quiet for as long.
	hint := time.AfterFunc(minOpenWait, func() {
		c.p.update(func(s *model.Session) {
			if f := broken(conf, state, os.ErrDeadlineExceeded, minOpenWait); s.State == state {
				s.Reason, s.Message = account(c.p.stands, f, conf)
			}
		})
	})
	defer hint.Stop()
	m, err := c.read(wait)
	if err != nil {
		return nil, broken(conf, state, err, wait)
	}
	switch m.Header.Type {
	case kind:
		return m, nil
	case packet.BGP_MSG_NOTIFICATION:
		return nil, notified(conf, c.p.routerID, state, m.Body.(*packet.BGPNotification))
	}
	subcode := uint8(1) // RFC 6608: unexpected in OpenSent; 2 is OpenConfirm
	if state == model.SessionOpenConfirm {
		subcode = 2
	}
	return nil, refuse(conf, model.SessionProtocolError, packet.BGP_ERROR_FSM_ERROR, subcode, nil,
		"in state %s it sent a message of type %d instead of %d: check its BGP process", state, m.Header.Type, kind)
}

func (c *connection) send(m *packet.BGPMessage) error {
	b, err := encode(m, c.agreed)
	if err != nil {
		return err
	}
	wait := writeWait
	if c.p.ctx.Err() != nil {
		wait = closeWait
	}
	_ = c.conn.SetWriteDeadline(time.Now().Add(wait))
	n, err := c.conn.Write(b)
	if err != nil && n > 0 {
		c.rest = b[n:] // a NOTIFICATION comes after the end of a message
	}
	return err
}

// incoming is a message or the end of them: an error, or a failure of ours.
type incoming struct {
	message *packet.BGPMessage
	err     error
	failed  *failure
}

// established keeps the session until it ends.
func (c *connection) established(conf model.Peer) *failure {
	p := c.p
	c.since = p.s.now()
	p.failures = 0
	p.ensureBFD(conf, c.local)
	c.bfdDowns = p.bfd.downs()
	c.in = make(chan incoming)
	over := make(chan struct{})
	defer close(over)
	go func() {
		give := func(i incoming) (more bool) {
			select {
			case c.in <- i:
				return i.err == nil && i.failed == nil
			case <-over:
				return false
			}
		}
		failed := p.guard(func() *failure {
			for {
				m, err := c.read(c.agreed.hold)
				if err == nil {
					conf, _, _ := p.wanted()
					taken, err := c.inbox.take(m, conf, c.agreed)
					if err != nil {
						p.often.Warn("uncounted", "cannot count the prefixes of an UPDATE", "error", err)
					}
					if taken {
						continue
					}
				}
				if !give(incoming{message: m, err: err}) {
					return nil
				}
			}
		})
		if failed != nil {
			give(incoming{failed: failed})
		}
	}()
	// Before anything is sent: Withdraw waits for sessions in this state.
	c.report(conf)
	if f := c.sync(true); f != nil {
		return f
	}
	p.log.Info("the BGP session is established", "router_id", p.routerID, "hold_time", c.agreed.hold)

	keepalive := time.NewTicker(c.keepalive(conf))
	defer keepalive.Stop()
	look := time.NewTicker(recheck)
	defer look.Stop()
	c.again = time.NewTimer(refreshPause)
	c.again.Stop()
	defer c.again.Stop()
	for {
		var f *failure
		select {
		case <-p.ctx.Done():
			return fail(conf, model.SessionStarting, "ended by this machine")
		case i := <-c.in:
			f = c.handle(conf, i)
		case <-c.inbox.news:
			f = c.notice(conf)
		case <-c.again.C:
			c.resting = false
			f = c.sync(false)
		case <-keepalive.C:
			if c.agreed.hold == 0 {
				continue
			}
			if err := c.send(packet.NewBGPKeepAliveMessage()); err != nil {
				f = c.stuck(conf, err)
			}
		case <-p.wake:
			conf, _, _ = p.wanted()
			keepalive.Reset(c.keepalive(conf))
			f = c.look(conf)
		case conn := <-p.accepted:
			f = c.cameAgain(conf, conn)
		case <-p.bfd.changed():
			f = c.watchBFD(conf)
		case <-look.C:
			p.often.Flush()
			f = c.look(conf)
		}
		if f != nil {
			return f
		}
	}
}

// look brings everything about the session up to date with what is wanted and what the machine is like.
func (c *connection) look(conf model.Peer) *failure {
	if c.p.ensureBFD(conf, c.local) {
		c.bfdDowns = c.p.bfd.downs()
	}
	return c.sync(false)
}

// keepalive is the time between two KEEPALIVEs: what is configured, but at most a third of the hold time.
func (c *connection) keepalive(conf model.Peer) time.Duration {
	every := c.agreed.hold / 3
	if conf.Keepalive > 0 {
		every = min(every, conf.Keepalive)
	}
	return max(every, time.Second)
}

// stuck is the failure of a write in an established session.
func (c *connection) stuck(conf model.Peer, err error) *failure {
	f := broken(conf, model.SessionEstablished, err, writeWait)
	if f.reason == model.SessionHoldExpired {
		f.message, f.notify = where(conf)+fmt.Sprintf("it acknowledged no data of this machine for %s: check whether its BGP process hangs", writeWait), nil
		return f
	}
	if said := c.lastMessage(conf); said != nil {
		return said
	}
	return f
}

// lastMessage is what the peer said before it closed a connection that cannot be written
// to any more: what we sent meanwhile came too late.
func (c *connection) lastMessage(conf model.Peer) *failure {
	limit := time.NewTimer(closeWait)
	defer limit.Stop()
	for {
		select {
		case i := <-c.in:
			if i.err != nil || i.failed != nil {
				return nil
			}
			if n, is := i.message.Body.(*packet.BGPNotification); is {
				return notified(conf, c.p.routerID, model.SessionEstablished, n)
			}
		case <-c.p.ctx.Done():
			return nil
		case <-limit.C:
			return nil
		}
	}
}

// handle takes in what the peer sent.
func (c *connection) handle(conf model.Peer, i incoming) *failure {
	if i.failed != nil {
		return i.failed
	}
	if i.err != nil {
		return broken(conf, model.SessionEstablished, i.err, c.agreed.hold)
	}
	switch body := i.message.Body.(type) {
	case *packet.BGPNotification:
		return notified(conf, c.p.routerID, model.SessionEstablished, body)
	default:
		return refuse(conf, model.SessionProtocolError, packet.BGP_ERROR_FSM_ERROR, 3, nil,
			"it sent a message of type %d within the session: check its BGP process", i.message.Header.Type)
	}
}

// notice looks at what came into the inbox.
func (c *connection) notice(conf model.Peer) *failure {
	for _, f := range c.inbox.refreshes() {
		c.rib.ask(f)
	}
	if f := c.tooMany(conf); f != nil {
		return f
	}
	if len(c.rib.asked) > 0 && !c.resting {
		return c.sync(false)
	}
	c.report(conf)
	return nil
}

// sync sends the peer what it lacks and takes back what it should not have. The first time it ends with End-of-RIB:
// a peer that kept routes over a restart drops those that are not among them.
func (c *connection) sync(first bool) *failure {
	conf, prefixes, version := c.p.wanted()
	addrs, err := c.p.s.localAddrs()
	if err != nil {
		c.p.often.Warn("addresses", "cannot look at the machine's addresses", "error", err)
	}
	if f := c.tooMany(conf); f != nil {
		return f
	}
	wanted, troubles := routes(conf, c.agreed, c.local, addrs, prefixes)
	again := !c.resting && len(c.rib.asked) > 0
	steps, err := c.rib.steps(wanted, again, c.agreed.enhancedRefresh)
	if err != nil {
		return refuse(conf, model.SessionProtocolError, packet.BGP_ERROR_CEASE, subcodeConfigChange, nil, "cannot write an UPDATE: %s", err)
	}
	if first {
		for _, f := range families(conf) {
			if c.agreed.families[f] {
				steps = append(steps, step{message: packet.NewEndOfRib(f)})
			}
		}
	}
	for _, s := range steps {
		if err := c.send(s.message); err != nil {
			var unwritable *packet.MessageError
			if errors.As(err, &unwritable) {
				return refuse(conf, model.SessionProtocolError, packet.BGP_ERROR_CEASE, subcodeConfigChange, nil, "cannot write an UPDATE (%s): give it fewer communities", err)
			}
			return c.stuck(conf, err)
		}
		c.rib.wrote(s)
	}
	if again {
		c.rib.answered()
		c.resting = true
		c.again.Reset(refreshPause)
	}
	c.troubles, c.list = troubles, c.rib.list()
	c.p.mu.Lock()
	progress := c.p.sent != version
	c.p.sent = version
	c.p.mu.Unlock()
	c.report(conf)
	if progress {
		c.p.s.announce()
	}
	return nil
}

// report writes down how the established session is.
func (c *connection) report(conf model.Peer) {
	bfdState, bfdTrouble := c.p.bfd.report(c.p.s.now().Sub(c.since))
	t := c.worst(conf, bfdTrouble)
	c.p.update(func(s *model.Session) {
		s.State, s.Reason, s.Message = model.SessionEstablished, t.reason, t.message
		s.Advertised = c.list
		s.Received, _ = c.inbox.count()
		s.PeerID, s.HoldTime, s.BFD = c.agreed.peerID, c.agreed.hold, bfdState
	})
}

// worst is the trouble of an established session that its owner should know first.
func (c *connection) worst(conf model.Peer, bfdTrouble string) trouble {
	var lacking []string
	for _, f := range families(conf) {
		if !c.agreed.families[f] {
			lacking = append(lacking, map[packet.Family]string{packet.RF_IPv4_UC: "IPv4", packet.RF_IPv6_UC: "IPv6"}[f])
		}
	}
	switch {
	case len(lacking) > 0:
		return trouble{model.SessionNoFamily, where(conf) + fmt.Sprintf("the session does not carry %s, because the router did not offer it: activate it for this machine at the router", few(lacking))}
	case len(c.troubles) > 0:
		return c.troubles[0]
	case bfdTrouble != "":
		return trouble{model.SessionBFDDown, where(conf) + bfdTrouble}
	case c.p.toFind().reason != model.SessionOK:
		return c.p.toFind()
	case c.p.flaps(c.p.s.now()):
		return trouble{model.SessionFlapping, flapMessage(conf, c.p.lastLoss)}
	}
	if t := c.unwanted(conf); t.reason != model.SessionOK {
		return t
	}
	if why := c.p.s.listeners.trouble(conf); why != "" {
		return trouble{model.SessionCannotListen, where(conf) + why}
	}
	return trouble{}
}

// watchBFD ends the session if BFD lost the peer since it began.
func (c *connection) watchBFD(conf model.Peer) *failure {
	if c.p.bfd.downs() == c.bfdDowns {
		c.report(conf)
		return nil
	}
	c.p.update(func(s *model.Session) { s.BFD = "down" })
	return refuse(conf, model.SessionBFDDown, packet.BGP_ERROR_CEASE, subcodeBFDDown, nil,
		"BFD lost it (%s): check the link, and whether the machine or the router is loaded beyond the BFD interval", c.p.bfd.diagnosis())
}
