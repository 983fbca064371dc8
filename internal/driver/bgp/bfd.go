package bgp

import (
	"cmp"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime/debug"
	"sync"
	"time"

	"github.com/osrg/gobgp/v4/pkg/packet/bfd"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/muffle"
)

const (
	// bfdSlow is the least interval of transmission of a session that is not up (RFC 5880, 6.8.3).
	bfdSlow = time.Second
	// bfdPatience is how long an established BGP session waits for BFD before that counts as trouble.
	bfdPatience = 10 * time.Second
)

// bfdKey is what makes a BFD session another one.
type bfdKey struct {
	local, remote netip.Addr
	device        string
	index         int // of the interface to which its sockets are bound; 0 is none
	multihop      bool
	hold          time.Duration // how long the peer waits for a machine that restarts
	conf          model.BFD
}

// bound names the interface to which the session's sockets are bound; "" is none.
func (k bfdKey) bound() string { return cmp.Or(k.local.Zone(), k.device) }

// boundTo is its number now.
func (k bfdKey) boundTo() int {
	if k.bound() == "" {
		return 0
	}
	index, _ := linkIndex(k.bound())
	return index
}

// bfdSession watches the path to a peer (RFC 5880, asynchronous mode; RFC 5881 on a link, RFC 5883 beyond). It
// outlives the BGP sessions with that peer: one that starts anew would make the peer end a BGP session that has just
// come up. It also outlives the process, if another one follows in time. A nil session is that of a peer without BFD.
type bfdSession struct {
	key     bfdKey
	log     *slog.Logger
	often   *muffle.Log // of what the peer can make happen at will
	from    *receivers
	conn    *net.UDPConn
	on      *receiver // guarded by receivers.mu
	in      chan bfd.BFDHeader
	change  chan struct{}
	stop    chan struct{}
	done    chan struct{}
	stopped sync.Once
	quietly bool // it ends so that the peer does not notice; set before stop is closed

	mu     sync.Mutex
	state  bfd.StateType
	remote bfd.StateType
	// unconfirmed is a session that was resumed while the peer has not said yet that it is up.
	unconfirmed bool
	lost        uint32        // times that it went from up to down, except when the peer shut it down
	why         string        // of the last loss
	openErr     error         // why it does not watch the peer
	caught      func(any)     // counts a panic for the peer that it is of; nil is nobody
	detected    time.Duration // the detection time of the last loss

	// Only the session's goroutine uses what follows.
	mine, yours      uint32 // discriminators
	desiredTx        time.Duration
	remoteMinRx      time.Duration
	diagnostic       bfd.DiagnosticType
	polling          bool
	transmit, detect *time.Timer
	port             uint16    // from which it sends
	remembered       bfdRecord // what the next process would find
}

// ensureBFD makes the peer's BFD session what the configuration says. It reports whether there is another one now.
func (p *peer) ensureBFD(conf model.Peer, local netip.Addr) bool {
	if conf.BFD == nil {
		had := p.bfd != nil
		p.dropBFD()
		return had
	}
	key := bfdKey{local: local, remote: conf.Address, device: conf.Device, multihop: multihop(conf), hold: conf.RestartTime, conf: *conf.BFD}
	key.conf.Mode = "" // multihop is what came of it
	key.index = key.boundTo()
	if p.bfd != nil && key.index == 0 { // the interface is away: until it is back, there is nothing better
		key.index = p.bfd.key.index
	}
	if p.bfd != nil && p.bfd.key == key && p.bfd.failed() == nil {
		return false
	}
	p.dropBFD()
	p.bfd = p.s.bfd.session(key, p.log)
	p.bfd.belongs(func(v any) { p.panicked(v) })
	return true
}

// dropBFD ends the peer's BFD session, telling the peer that this is on purpose; it leaves it up at the peer if we
// leave.
func (p *peer) dropBFD() {
	if p.bfd != nil {
		p.mu.Lock()
		leave := p.end.leave
		p.mu.Unlock()
		p.bfd.end(leave)
		p.bfd = nil
	}
}

func (b *bfdSession) failed() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.openErr
}

// belongs says who is told of a panic.
func (b *bfdSession) belongs(caught func(any)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.caught = caught
}

// panicked ends a session that a bug ended: the peer's next look at it starts another one.
func (b *bfdSession) panicked(v any) {
	b.mu.Lock()
	caught := b.caught
	b.openErr = fmt.Errorf("it failed: %v", v)
	b.mu.Unlock()
	if caught == nil {
		b.log.Error("a bug in Fairlead ended BFD with this peer: report this stack trace", "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
	} else {
		caught(v)
	}
	b.tell()
}

// changed yields when the session's state may have changed.
func (b *bfdSession) changed() <-chan struct{} {
	if b == nil {
		return nil
	}
	return b.change
}

// downs counts the losses of the peer.
func (b *bfdSession) downs() uint32 {
	if b == nil {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lost
}

// diagnosis says why the peer was lost last.
func (b *bfdSession) diagnosis() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.why
}

// report returns the state as the model names it, and the trouble with it after a BGP session has lasted for a time.
func (b *bfdSession) report(lasted time.Duration) (state, trouble string) {
	if b == nil {
		return "", ""
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.openErr != nil:
		return "down", fmt.Sprintf("BFD does not watch it: %s", b.openErr)
	case b.state == bfd.StateUp && !b.unconfirmed:
		return "up", ""
	case b.state == bfd.StateUp:
		return "init", "" // which it is for a moment
	case b.state == bfd.StateInit:
		state = "init"
	default:
		state = "down"
	}
	if lasted > bfdPatience && b.remote != bfd.StateAdminDown {
		trouble = fmt.Sprintf("BGP is established, but BFD does not come up (%s): enable it for this machine at the router, %s",
			state, map[bool]string{false: "single-hop", true: "multihop"}[b.key.multihop])
	}
	return state, trouble
}

// newBFD makes a session; run keeps it.
func newBFD(key bfdKey, from *receivers, log *slog.Logger) *bfdSession {
	return &bfdSession{
		key: key, log: log, from: from, often: muffle.New(log, time.Now),
		in:     make(chan bfd.BFDHeader, 16),
		change: make(chan struct{}, 1),
		stop:   make(chan struct{}),
		done:   make(chan struct{}),
		state:  bfd.StateDown, remote: bfd.StateDown,
		mine:      rand.Uint32N(1<<32-1) + 1,
		desiredTx: bfdSlow, remoteMinRx: time.Microsecond,
	}
}

// end ends the session and tells the peer that this is no failure. Quietly is so that the session stays up at the
// peer, for the next process, for as long as the peer waits for the machine.
func (b *bfdSession) end(quietly bool) {
	b.stopped.Do(func() {
		b.quietly = quietly
		close(b.stop)
	})
	<-b.done
}

func (b *bfdSession) run() {
	defer close(b.done)
	defer b.from.forget(b)
	defer func() {
		if v := recover(); v != nil {
			b.panicked(v)
		}
	}()
	defer b.often.Close()
	b.transmit = time.NewTimer(0)
	b.detect = time.NewTimer(max(b.detected, time.Microsecond))
	if b.current() != bfd.StateUp {
		b.detect.Stop()
	}
	defer b.transmit.Stop()
	defer b.detect.Stop()
	for {
		select {
		case <-b.stop:
			if !b.quietly || !b.linger() {
				b.leave()
			}
			return
		case <-b.transmit.C:
			b.send(b.polling, false)
			b.schedule()
			b.often.Flush()
		case <-b.detect.C:
			if b.current() == bfd.StateInit || b.current() == bfd.StateUp {
				b.diagnostic = bfd.DiagnosticControlDetectionTimeExpired
				b.to(bfd.StateDown, true, fmt.Sprintf("no packet for %s", b.detected))
			}
			b.yours, b.remoteMinRx = 0, time.Microsecond // RFC 5880, 6.8.1
		case h := <-b.in:
			b.receive(h)
		}
	}
}

// leave tells the peer that the session ends on purpose. Packets may be lost, so it says so more than once.
func (b *bfdSession) leave() {
	b.mu.Lock()
	b.state = bfd.StateAdminDown
	b.mu.Unlock()
	b.remember()
	b.diagnostic = bfd.DiagnosticAdministrativelyDown
	for range 3 {
		b.send(false, false)
	}
}

func (b *bfdSession) current() bfd.StateType {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state
}

// to changes the state; counts says that leaving up is a loss of the peer, for the reason why.
func (b *bfdSession) to(next bfd.StateType, counts bool, why string) {
	b.mu.Lock()
	before := b.state
	b.state = next
	// A session that was resumed in vain is no loss: the peer may have given it up long ago.
	if before == bfd.StateUp && next == bfd.StateDown && counts && !b.unconfirmed {
		b.lost++
		b.why = why
	}
	if before != next {
		b.unconfirmed = false
	}
	b.mu.Unlock()
	if before == next {
		return
	}
	b.remember()
	b.often.Info("state "+next.String(), "BFD state changed", "before", before.String(), "state", next.String(), "why", why)
	b.desiredTx = max(bfdSlow, b.key.conf.Interval)
	if next == bfd.StateUp {
		b.desiredTx, b.diagnostic = b.key.conf.Interval, bfd.DiagnosticNoDiagnostic
		b.polling = true // the interval changed (RFC 5880, 6.8.3)
	}
	b.tell()
	b.send(b.polling, false)
	b.schedule()
}

// tell says that the state may have changed.
func (b *bfdSession) tell() {
	select {
	case b.change <- struct{}{}:
	default:
	}
}

// receive takes a packet in (RFC 5880, 6.8.6). Its receiver has checked what does not depend on the session.
func (b *bfdSession) receive(h bfd.BFDHeader) {
	state := b.current()
	if h.YourDiscriminator != 0 && h.YourDiscriminator != b.mine {
		return
	}
	if h.YourDiscriminator == 0 && h.State != bfd.StateDown && h.State != bfd.StateAdminDown {
		return
	}
	if state == bfd.StateUp && b.key.multihop && h.YourDiscriminator == 0 {
		return // anybody can send it from afar (RFC 5883, 4); a peer that has restarted is missed in its time
	}
	b.yours = h.MyDiscriminator
	b.remoteMinRx = time.Duration(h.RequiredMinRxInterval) * time.Microsecond
	b.mu.Lock()
	b.remote = h.State
	confirmed := b.unconfirmed && h.YourDiscriminator == b.mine && h.State == bfd.StateUp
	b.unconfirmed = b.unconfirmed && !confirmed
	b.detected = time.Duration(h.DetectTimeMultiplier) * max(b.key.conf.Interval, time.Duration(h.DesiredMinTxInterval)*time.Microsecond)
	b.mu.Unlock()
	if h.Final {
		b.polling = false
	}
	b.detect.Reset(b.detected)
	if confirmed {
		b.log.Info("the peer did not notice that BFD was interrupted")
		b.tell()
	}
	if state == bfd.StateUp && h.State == bfd.StateUp {
		b.remember()
	}
	switch {
	case h.State == bfd.StateAdminDown:
		if state != bfd.StateDown {
			b.diagnostic = bfd.DiagnosticNeighborSignaledSessionDown
			b.to(bfd.StateDown, false, "the peer shut it down")
		}
	case state == bfd.StateDown && h.State == bfd.StateDown:
		b.to(bfd.StateInit, false, "")
	case state == bfd.StateDown && h.State == bfd.StateInit,
		state == bfd.StateInit && (h.State == bfd.StateInit || h.State == bfd.StateUp):
		b.to(bfd.StateUp, false, "")
	case state == bfd.StateUp && h.State == bfd.StateDown:
		b.diagnostic = bfd.DiagnosticNeighborSignaledSessionDown
		b.to(bfd.StateDown, true, "the peer does not receive our packets, or its BFD restarted")
	}
	if h.Poll {
		b.send(false, true)
	}
}

// schedule sets when to transmit next, with the jitter of RFC 5880, 6.8.7.
func (b *bfdSession) schedule() {
	if b.remoteMinRx == 0 {
		b.transmit.Stop() // the peer wants none, until it says otherwise
		return
	}
	every := max(b.desiredTx, b.remoteMinRx)
	b.transmit.Reset(every*3/4 + rand.N(every*15/100+1))
}

func (b *bfdSession) send(poll, final bool) {
	h := bfd.BFDHeader{
		Version:               1,
		Diagnostic:            b.diagnostic,
		State:                 b.current(),
		Poll:                  poll && !final,
		Final:                 final,
		DetectTimeMultiplier:  max(b.key.conf.Multiplier, 1),
		MyDiscriminator:       b.mine,
		YourDiscriminator:     b.yours,
		DesiredMinTxInterval:  uint32(b.desiredTx / time.Microsecond),
		RequiredMinRxInterval: uint32(b.key.conf.Interval / time.Microsecond),
	}
	raw, err := h.MarshalBinary()
	if err != nil {
		return
	}
	_, _ = b.conn.Write(raw) // a packet that cannot be sent is a lost packet: detecting that is BFD's purpose
}
