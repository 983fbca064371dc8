package bgp

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/osrg/gobgp/v4/pkg/packet/bfd"
	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"fairlead.dev/internal/model"
)

// trap is a log that panics over a message about the peer "bad": a bug in whatever wrote it. It keeps what it is told
// of panics.
type trap struct {
	slog.Handler
	bad      bool
	over     string
	stumbled *stumbles
}

type stumbles struct {
	mu     sync.Mutex
	left   int // panics to come
	stacks []string
}

func (h trap) WithAttrs(list []slog.Attr) slog.Handler {
	for _, a := range list {
		h.bad = h.bad || a.Key == "peer" && a.Value.String() == "bad"
	}
	h.Handler = h.Handler.WithAttrs(list)
	return h
}

func (h trap) Handle(ctx context.Context, r slog.Record) error {
	h.stumbled.mu.Lock()
	defer h.stumbled.mu.Unlock()
	if h.bad && strings.Contains(r.Message, h.over) && h.stumbled.left > 0 {
		h.stumbled.left--
		panic("a bug, for a test")
	}
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "stack" {
			h.stumbled.stacks = append(h.stumbled.stacks, a.Value.String())
		}
		return true
	})
	return h.Handler.Handle(ctx, r)
}

// malformedUpdate is one that is passed over with a warning (RFC 7606): its communities have three bytes.
func malformedUpdate() []byte {
	attributes := []byte{0xc0, byte(packet.BGP_ATTR_TYPE_COMMUNITIES), 3, 1, 2, 3}
	body := append([]byte{0, 0, 0, byte(len(attributes))}, attributes...)
	raw := append([]byte(strings.Repeat("\xff", 16)), 0, byte(packet.BGP_HEADER_LENGTH+len(body)), packet.BGP_MSG_UPDATE)
	return append(raw, body...)
}

// A bug that a peer finds costs the session of that peer, in whichever of its goroutines it is. It is counted, logged
// once with its stack, and the session is tried again.
func TestPanicEndsOneSession(t *testing.T) {
	t.Parallel()
	for name, over := range map[string]string{
		"the peer":       "the BGP session is established",
		"its reader":     "ignored a malformed UPDATE",
		"its bad ending": "the BGP session is down",
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			panics := uint32(2)
			if over == "ignored a malformed UPDATE" {
				panics = 1 // there is one such line a minute
			}
			seen := &stumbles{left: int(panics)}
			bad := newFake(t, func(l *line) {
				l.shake()
				_, _ = l.conn.Write(malformedUpdate())
				if over == "the BGP session is down" && l.n <= int(panics) {
					return
				}
				l.keep()
			})
			good := newFake(t, func(l *line) { l.shake(); l.keep() })
			s := &watched{t: t, poke: make(chan struct{}, 1)}
			s.Speaker = New(Config{Log: slog.New(trap{Handler: testLog(t).Handler(), over: over, stumbled: seen})})
			s.Set(only(bad.peer("bad"), good.peer("good")))
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { defer close(done); _ = s.Run(ctx) }()
			t.Cleanup(func() { cancel(); <-done })
			s.established("good")
			x := s.until("bad", "up again after panics", func(x model.Session) bool {
				return x.Panics == panics && x.State == model.SessionEstablished
			})
			if over != "the BGP session is down" && x.Flaps == 0 {
				t.Errorf("no session was lost: %+v", x)
			}
			if x := s.established("good"); x.Flaps != 0 || x.Panics != 0 || good.connections() != 1 {
				t.Errorf("the good peer was disturbed: %+v, %d connections", x, good.connections())
			}
			seen.mu.Lock()
			defer seen.mu.Unlock()
			if len(seen.stacks) != 1 || !strings.Contains(seen.stacks[0], "trap.Handle") {
				t.Errorf("logged with a stack %d times, want once: %s", len(seen.stacks), seen.stacks)
			}
		})
	}
}

// The reason of a session that a bug ended says so.
func TestPanicIsTheReason(t *testing.T) {
	t.Parallel()
	p := newPeer(New(Config{Log: testLog(t)}), netip.MustParseAddr("192.0.2.99"), model.Peer{Name: "bad", Address: netip.MustParseAddr("192.0.2.1")})
	f := p.guard(func() *failure {
		var empty []byte
		_ = empty[len(p.name)]
		return nil
	})
	if f == nil || f.reason != model.SessionFault || !strings.Contains(f.message, "TestPanicIsTheReason") || !strings.Contains(f.message, "index out of range") {
		t.Errorf("the failure is %+v", f)
	}
	var pauses []time.Duration
	for range 8 {
		pauses = append(pauses, p.guard(func() *failure { panic("again") }).pause)
	}
	if pauses[0] <= f.pause || pauses[7] != maxFlapDelay {
		t.Errorf("the pauses do not grow to %s: %s, %s", maxFlapDelay, f.pause, pauses)
	}
	p.forgive()
	if again := p.guard(func() *failure { panic("again") }).pause; again != f.pause {
		t.Errorf("after a session that lasted the pause is %s, want %s", again, f.pause)
	}
}

// A bug in a BFD session ends it, not the agent: the next look starts another one.
func TestPanicEndsBFD(t *testing.T) {
	t.Parallel()
	s := New(Config{Log: slog.New(trap{Handler: testLog(t).Handler(), over: "BFD state changed", stumbled: &stumbles{left: 1}})})
	conf := model.Peer{Name: "bad", Address: netip.MustParseAddr("127.0.0.77"), BFD: &model.BFD{Interval: 50 * time.Millisecond, Multiplier: 3}}
	p := newPeer(s, netip.MustParseAddr("192.0.2.99"), conf)
	local := netip.MustParseAddr("127.0.0.78")
	if !p.ensureBFD(conf, local) || p.bfd.failed() != nil {
		t.Fatalf("BFD does not start: %v", p.bfd.failed())
	}
	t.Cleanup(p.dropBFD)
	first := p.bfd
	first.in <- bfd.BFDHeader{Version: 1, State: bfd.StateDown, DetectTimeMultiplier: 3, MyDiscriminator: 7, DesiredMinTxInterval: 1e6}
	<-first.done
	if first.failed() == nil || p.session().Panics != 1 {
		t.Errorf("the session has %d panics and says %v", p.session().Panics, first.failed())
	}
	if !p.ensureBFD(conf, local) || p.bfd.failed() != nil || p.bfd == first {
		t.Errorf("BFD did not start again: %v", p.bfd.failed())
	}
}

// FuzzBFD holds what comes to the ports of BFD, whose bytes anybody on the link chooses.
func FuzzBFD(f *testing.F) {
	good := []byte{0x20, 0x40, 3, 24, 0, 0, 0, 1, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}
	f.Add(good)
	f.Add(good[:23])
	f.Add([]byte(nil))
	for i := range good {
		for _, v := range []byte{0, 0x7f, 0x80, 0xff} {
			other := append([]byte(nil), good...)
			other[i] = v
			f.Add(other)
		}
	}
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = conn.Close() })
	out, err := net.DialUDP("udp4", nil, conn.LocalAddr().(*net.UDPAddr))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = out.Close() })
	f.Fuzz(func(t *testing.T, raw []byte) {
		h, ok := decodeBFD(raw)
		if !ok {
			return
		}
		if len(raw) < 24 || binary.BigEndian.Uint32(raw[4:]) == 0 {
			t.Fatalf("%x was taken", raw)
		}
		b := newBFD(bfdKey{conf: model.BFD{Interval: 300 * time.Millisecond, Multiplier: 3}}, newReceivers("", slog.New(slog.DiscardHandler)), slog.New(slog.DiscardHandler))
		b.conn = out
		b.transmit, b.detect = time.NewTimer(time.Hour), time.NewTimer(time.Hour)
		defer b.transmit.Stop()
		defer b.detect.Stop()
		for range 3 {
			b.receive(h)
		}
		if b.detected < 0 || b.detected > 255*(1<<32)*time.Microsecond {
			t.Errorf("%x: the detection time is %s", raw, b.detected)
		}
	})
}

// A flood of malformed UPDATEs costs a line a minute, and the last line has how many there were.
func TestFloodOfMalformedUpdates(t *testing.T) {
	t.Parallel()
	const flood = 20000
	sent := make(chan struct{})
	bad := newFake(t, func(l *line) {
		l.shake()
		all := bytes.Repeat(malformedUpdate(), flood)
		_, _ = l.conn.Write(append(all, serialized(update("198.51.100.0/24"))...))
		close(sent)
		l.keep()
	})
	var log lockedBuffer
	s := New(Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
	s.Set(only(bad.peer("bad")))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Run(ctx) }()
	defer func() { cancel(); <-done }()
	<-sent
	eventually(t, "all of it is read", func() bool { x := s.Sessions(); return len(x) == 1 && x[0].Received == 1 })
	if n := strings.Count(log.String(), "malformed UPDATE"); n != 1 {
		t.Errorf("%d lines, want 1", n)
	}
	cancel()
	<-done
	if text := log.String(); strings.Count(text, "malformed UPDATE") != 2 || !strings.Contains(text, fmt.Sprintf("events=%d", flood-1)) {
		t.Errorf("the log does not say how many there were:\n%s", text[:min(len(text), 2000)])
	}
}

func serialized(m *packet.BGPMessage) []byte {
	raw, err := m.Serialize()
	if err != nil {
		panic(err)
	}
	return raw
}
