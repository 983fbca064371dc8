package southbound

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"
)

// line are shakes with a clock of the test, and what a test asks of them.
type line struct {
	*shakes
	t *testing.T
	n time.Duration // since the beginning
}

func newLine(t *testing.T) *line {
	l := &line{shakes: newShakes(), t: t}
	began := time.Now()
	l.now = func() time.Time { return began.Add(l.n) }
	return l
}

// come has a client stand in line, and says which it is.
func (l *line) come(network string, known bool) *shake {
	here, there := net.Pipe()
	l.t.Cleanup(func() { _ = there.Close() })
	it := &shake{greeting: &greeting{conn: here, network: netip.MustParsePrefix(network), known: known, gone: make(chan struct{})}, turn: make(chan struct{}), out: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stand(it)
	l.ticking = true // time passes when the test says so
	l.advance()
	return it
}

// pass lets time pass.
func (l *line) pass(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n += d
	l.advance()
}

func (l *line) runs(it *shake) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return it.at != nil
}

func (l *line) leave(list ...*shake) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, it := range list {
		l.end(it)
	}
	if l.running.Len() != 0 || len(l.one) != 0 || l.strange != 0 || len(l.waiting) != 0 {
		l.t.Errorf("left: %d handshakes, of %d networks, %d of strangers, %d wait", l.running.Len(), len(l.one), l.strange, len(l.waiting))
	}
}

// TestOneNetworkHasFewHandshakes holds that the slow handshakes of one network leave room for those of others, and for
// its own once they have had their time.
func TestOneNetworkHasFewHandshakes(t *testing.T) {
	l := newLine(t)
	var all []*shake
	for range maxHandshakesOfOne {
		all = append(all, l.come("2001:db8::/64", false))
	}
	more := l.come("2001:db8::/64", false)
	for _, network := range []string{"2001:db8:0:1::/64", "192.0.2.1/32"} {
		other := l.come(network, false)
		if all = append(all, other); !l.runs(other) {
			t.Errorf("%s waits", network)
		}
	}
	if l.pass(shakeGrace - 1); l.runs(more) || !l.runs(all[0]) {
		t.Error("one network has more than its part")
	}
	if l.pass(1); !l.runs(more) || l.runs(all[0]) || !l.runs(all[1]) {
		t.Error("the oldest did not make room")
	}
	if _, err := all[0].conn.Write([]byte{1}); err == nil {
		t.Error("its connection is open")
	}
	l.leave(append(all, more)...)
}

// TestStalledHandshakesMakeRoom holds that strangers who begin handshakes and do not go on keep no machine out, also of
// a plane that does not know yet from where its machines call.
func TestStalledHandshakesMakeRoom(t *testing.T) {
	l := newLine(t)
	var all []*shake
	const networks = 96
	for i := range networks * maxHandshakesOfOne {
		all = append(all, l.come(fmt.Sprintf("198.51.100.%d/32", i%networks), false))
	}
	known := l.come("192.0.2.1/32", true)
	if !l.runs(known) {
		t.Error("a machine waits for strangers")
	}
	machine := l.come("192.0.2.2/32", false)
	for range networks { // and as many go on to come
		all = append(all, l.come("198.51.100.1/32", false))
	}
	if l.runs(machine) {
		t.Error("there is room already")
	}
	if l.pass(shakeGrace); !l.runs(machine) {
		t.Error("a machine waits behind who came before it")
	}
	if l.strange != maxStrangeHandshakes || l.running.Len() != maxStrangeHandshakes+1 {
		t.Errorf("%d handshakes, %d of strangers", l.running.Len(), l.strange)
	}
	l.leave(append(all, known, machine)...)
}

// TestFewWait holds that so many wait, whose line is looked through at each turn: the oldest stranger goes for one more.
func TestFewWait(t *testing.T) {
	l := newLine(t)
	var all []*shake
	for i := range maxHandshakes {
		all = append(all, l.come(fmt.Sprintf("10.0.0.%d/32", i%256), true))
	}
	machine := l.come("192.0.2.1/32", true)
	for i := range maxInLine {
		all = append(all, l.come(fmt.Sprintf("198.51.%d.%d/32", i/256, i%256), false))
	}
	out := func(it *shake) bool {
		select {
		case <-it.out:
			return true
		default:
			return false
		}
	}
	if first := all[maxHandshakes]; len(l.waiting) != maxInLine || !out(first) || out(machine) || out(all[len(all)-1]) {
		t.Errorf("%d wait; the first stranger is out: %t, the machine: %t", len(l.waiting), out(first), out(machine))
	}
	for range maxInLine {
		all = append(all, l.come("192.0.2.1/32", true))
	}
	if len(l.waiting) != maxInLine || !out(machine) {
		t.Errorf("%d wait; the first machine is out: %t", len(l.waiting), out(machine))
	}
	l.leave(append(all, machine)...)
}

// TestHandshakesInLine holds that who waits begins when another ends, and gives up after a while.
func TestHandshakesInLine(t *testing.T) {
	s := newShakes()
	s.now = func() time.Time { return time.Time{} } // nobody has had its time
	from := func(i int) *greeting {
		return &greeting{network: netip.MustParsePrefix(fmt.Sprintf("10.0.%d.%d/32", i/256, i%256)), gone: make(chan struct{})}
	}
	var leave []func()
	for i := range maxStrangeHandshakes {
		l, err := s.enter(from(i))
		if err != nil {
			t.Fatal(err)
		}
		leave = append(leave, l)
	}
	done := make(chan error)
	enter := func(it *greeting) {
		l, err := s.enter(it)
		if err == nil {
			l()
		}
		done <- err
	}
	it := from(1000)
	go enter(it)
	for s.inLine() == 0 {
		time.Sleep(time.Millisecond)
	}
	leave[0]()
	if err := <-done; err != nil {
		t.Errorf("one has left: %v", err)
	}
	again, err := s.enter(from(0))
	if err != nil {
		t.Fatal(err)
	}
	leave[0] = again
	gone := from(1001)
	close(gone.gone)
	if _, err := s.enter(gone); !errors.Is(err, errManyGreetings) {
		t.Errorf("one that made room for others: %v", err)
	}
	if _, err := s.enter(from(1002)); !errors.Is(err, errManyHandshakes) {
		t.Errorf("for ever: %v", err)
	}
	for _, l := range leave {
		l()
		l() // which does nothing
	}
	if s.running.Len() != 0 || len(s.one) != 0 || s.inLine() != 0 {
		t.Errorf("left: %d handshakes, %d networks, %d in line", s.running.Len(), len(s.one), s.inLine())
	}
}

func (s *shakes) inLine() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting)
}
