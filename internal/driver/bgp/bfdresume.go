package bgp

import (
	"sync"
	"time"

	"github.com/osrg/gobgp/v4/pkg/packet/bfd"

	"fairlead.dev/internal/model"
)

// orphanTime is how long a session that is gone on with waits for a BGP session that has it watched.
const orphanTime = 20 * time.Second

// Resume continues the BFD sessions of the previous process, so that a peer does not treat a restart as a failure.
// It does so at once: an unwarned peer waits only for a few packets. Call it before Run, as soon as the process has
// started.
func (s *Speaker) Resume() {
	s.resumed = time.Now()
	s.bfd.resume()
}

func (r *receivers) resume() {
	for _, m := range r.memory.load() {
		key := bfdKey{local: m.Local, remote: m.Remote, device: m.Device, multihop: m.Multihop, hold: m.Hold, conf: model.BFD{Interval: m.Interval, Multiplier: m.Multiplier}}
		key.index = key.boundTo()
		b := newBFD(key, r, r.log.With("address", m.Remote))
		b.mine, b.yours, b.port = m.Mine, m.Yours, m.Port
		b.state, b.remote, b.unconfirmed = bfd.StateUp, bfd.StateUp, true
		b.desiredTx, b.polling = m.Interval, true // the one before may have asked for a longer one
		b.remoteMinRx, b.detected = m.RemoteMinRx, m.Detect
		if err := r.open(b); err != nil {
			b.log.Warn("BFD starts anew", "error", err)
			continue
		}
		b.remember()
		r.mu.Lock()
		r.orphans[b] = struct{}{}
		r.mu.Unlock()
		b.log.Info("BFD resumes the sessions of the previous process")
		go b.run()
	}
}

// adopt returns the session that was resumed for a peer, if it is as the peer should be watched. Another one with
// the peer ends; one that another VRF has at this address does not.
func (r *receivers) adopt(key bfdKey) *bfdSession {
	var found *bfdSession
	r.endOrphans(false, func(b *bfdSession) bool {
		if b.key == key {
			found = b
			delete(r.orphans, b)
		}
		return b.key != key && b.key.remote == key.remote && b.key.bound() == key.bound()
	})
	return found
}

// endOrphans ends those that match of the sessions that were resumed and that nobody wanted so far.
func (r *receivers) endOrphans(quietly bool, match func(*bfdSession) bool) {
	var ending sync.WaitGroup
	defer ending.Wait() // without the lock: sessions that end take it
	r.mu.Lock()
	defer r.mu.Unlock()
	for b := range r.orphans {
		if match(b) {
			delete(r.orphans, b)
			ending.Go(func() { b.end(quietly) })
		}
	}
}

// dropOrphans ends resumed sessions with peers that nobody wants to have watched any more.
func (s *Speaker) dropOrphans() {
	if s.resumed.IsZero() || time.Since(s.resumed) < orphanTime {
		return
	}
	s.mu.Lock()
	peers := s.wanted.Peers
	s.mu.Unlock()
	s.bfd.endOrphans(false, func(b *bfdSession) bool {
		for _, p := range peers {
			if p.Address == b.key.remote && p.Device == b.key.device && p.BFD != nil {
				return false
			}
		}
		return true
	})
}

// record is the session as the next process needs it.
func (b *bfdSession) record() bfdRecord {
	return bfdRecord{
		Local: b.key.local, Remote: b.key.remote, Device: b.key.device, Multihop: b.key.multihop, Port: b.port, Mine: b.mine, Yours: b.yours,
		Interval: b.key.conf.Interval, Multiplier: max(b.key.conf.Multiplier, 1), Hold: b.key.hold,
		RemoteMinRx: b.remoteMinRx, Detect: b.detected,
	}
}

// remember keeps the session for the next process while it is up, and not otherwise. A peer that does not wait for
// the machine has nothing to gain from a session that does.
func (b *bfdSession) remember() {
	if b.current() != bfd.StateUp || b.key.hold <= 0 {
		if b.remembered != (bfdRecord{}) {
			b.from.memory.drop(b.remembered.ends())
			b.remembered = bfdRecord{}
		}
		return
	}
	if r := b.record(); r != b.remembered {
		b.remembered = r
		b.from.memory.put(r)
	}
}

// linger leaves the session up at the peer for as long as the peer waits for the machine: it asks for an interval of
// transmission that long (RFC 5880, 6.8.3), and says nothing more. It reports whether it could.
func (b *bfdSession) linger() bool {
	if b.current() != bfd.StateUp || b.key.hold <= 0 || b.yours == 0 {
		return false
	}
	multiplier := time.Duration(max(b.key.conf.Multiplier, 1))
	// A second more, since the connection, whose end starts the peer's own clock, ends after this.
	b.desiredTx = min(b.key.hold+time.Second, bfdMost)/multiplier + time.Microsecond
	finals := 1
	if b.polling {
		finals = 2 // one may be the answer to the poll that is under way
	}
	every := max(b.key.conf.Interval, b.remoteMinRx) * 3 / 4
	again := time.NewTicker(every)
	defer again.Stop()
	enough := time.NewTimer(min(max(4*every, time.Second), 2*time.Second))
	defer enough.Stop()
	b.send(true, false)
	for finals > 0 {
		select {
		case h := <-b.in:
			switch {
			case h.YourDiscriminator != b.mine:
			case h.State != bfd.StateUp:
				return false
			case h.Poll:
				b.send(false, true)
			case h.Final:
				if finals--; finals > 0 {
					b.send(true, false)
				}
			}
		case <-again.C:
			b.send(true, false)
		case <-enough.C:
			// The peer may have heard one of them all the same.
			b.log.Warn("the peer did not confirm that BFD pauses: it may treat the restart as a failure")
			finals = 0
		}
	}
	b.from.memory.put(b.record())
	return true
}
