// Package health holds what several machines that check backends come to together: the
// real prober at each machine, and the votes as a plane counts them. Backends are not there,
// and time is the test's.
package health

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	prober "fairlead.dev/internal/driver/health"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/verdict"
)

func serverAt(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 80)
}

// site is machines that check backends which are not there, and a plane that counts: what is
// between them takes no time. Time is the test's.
type site struct {
	mu      sync.Mutex
	dead    map[string]error
	away    map[string]bool // machines that reach nothing
	probers map[string]*prober.Prober
	probes  map[string]int
	changed map[string]time.Time // verdicts

	names    []string
	found    map[string][]model.CheckResult
	checks   map[string]model.Check
	checkers map[string][]string
	verdicts map[string]model.Health

	uncounted bool // votes are
}

var errHangs = errors.New("hangs")

func newSite(t *testing.T, machines int) *site {
	s := &site{
		found: map[string][]model.CheckResult{}, checks: map[string]model.Check{}, checkers: map[string][]string{}, verdicts: map[string]model.Health{},
		dead: map[string]error{}, away: map[string]bool{},
		probers: map[string]*prober.Prober{}, probes: map[string]int{}, changed: map[string]time.Time{},
	}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		all.Wait()
	})
	for i := range machines {
		name := fmt.Sprint("edge", i)
		s.names = append(s.names, name)
		p := prober.New(prober.Config{
			Random: rand.New(rand.NewPCG(uint64(i), 7)), Changed: func() { s.report(name) },
			Dial: func(ctx context.Context, _, address string) (net.Conn, error) {
				s.mu.Lock()
				s.probes[address]++
				err := s.dead[address]
				if s.away[name] {
					err = errors.New("no way")
				}
				s.mu.Unlock()
				if errors.Is(err, errHangs) {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				if err != nil {
					return nil, err
				}
				c, _ := net.Pipe()
				return c, nil
			},
		})
		s.probers[name] = p
		all.Go(func() {
			if err := p.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	return s
}

// report is what a machine sends at once when a health changes.
func (s *site) report(name string) {
	if s.uncounted {
		return
	}
	results := s.probers[name].Results()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.found[name] = results
	for id, c := range s.checks {
		votes := map[string]model.Health{}
		for _, m := range s.checkers[id] {
			for _, r := range s.found[m] {
				if r.ID == id {
					votes[m] = r.Health
				}
			}
		}
		if after := verdict.Of(votes, s.verdicts[id]); after != s.verdicts[id] {
			s.verdicts[id], s.changed[c.Target.String()] = after, time.Now()
		}
	}
}

// check has backends checked by those that are to.
func (s *site) check(how model.HealthCheck, backends ...netip.AddrPort) {
	how.Kind = model.CheckTCP
	held := map[string][]model.Check{}
	s.mu.Lock()
	for _, b := range backends {
		c := model.NewCheck(b, how)
		s.checks[c.ID], s.checkers[c.ID] = c, verdict.Checkers(c.ID, s.names, verdict.Count)
		for _, m := range s.checkers[c.ID] {
			held[m] = append(held[m], c)
		}
	}
	s.mu.Unlock()
	for name, p := range s.probers {
		p.Set(held[name])
	}
}

func (s *site) verdict(b netip.AddrPort) model.Health {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, c := range s.checks {
		if c.Target == b {
			return s.verdicts[id]
		}
	}
	return model.HealthUnchecked
}

// TestDeadBackendIsOutInTime holds what the figure says, but for what is between machines
// and plane: whenever and however a backend dies, it is out within fall intervals.
func TestDeadBackendIsOutInTime(t *testing.T) {
	for _, how := range []error{io.EOF, errHangs} {
		for round := range 20 {
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t, 5)
				const fall = 3
				check := model.HealthCheck{Interval: time.Second, Timeout: 400 * time.Millisecond, Unhealthy: fall, Healthy: 2}
				good, bad := serverAt(1), serverAt(2)
				s.check(check, good, bad)
				time.Sleep(5*time.Second + time.Duration(round)*73*time.Millisecond)
				if s.verdict(bad) != model.Healthy {
					t.Fatal("it is not healthy before")
				}
				died := time.Now()
				s.mu.Lock()
				s.dead[bad.String()] = how
				s.mu.Unlock()
				time.Sleep(fall*check.Interval + time.Millisecond)
				if s.verdict(bad) != model.Unhealthy || s.verdict(good) != model.Healthy {
					t.Errorf("%v, round %d: %s after fall x interval, and the other %s", how, round, s.verdict(bad), s.verdict(good))
				}
				if s.changed[bad.String()].Before(died.Add((fall - 1) * check.Interval / 2)) {
					t.Errorf("%v, round %d: out after %s already", how, round, s.changed[bad.String()].Sub(died))
				}
			})
		}
	}
}

// TestOneViewIsNotEnough holds that a machine that is cut off from the backends takes none
// of them out for the others.
func TestOneViewIsNotEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 5)
		var backends []netip.AddrPort
		for i := range 100 {
			backends = append(backends, serverAt(i))
		}
		s.check(model.HealthCheck{Interval: time.Second, Timeout: 400 * time.Millisecond}, backends...)
		time.Sleep(3 * time.Second)
		s.mu.Lock()
		s.away["edge2"] = true
		s.mu.Unlock()
		time.Sleep(20 * time.Second)
		for _, b := range backends {
			if s.verdict(b) != model.Healthy {
				t.Fatalf("%s is %s", b, s.verdict(b))
			}
		}
	})
}

// TestProbesAreFew counts what 1,000 endpoints are asked by five machines.
func TestProbesAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const endpoints, intervals = 1000, 10
		s := newSite(t, 5)
		s.uncounted = true
		how := model.HealthCheck{Interval: 5 * time.Second, Timeout: time.Second}
		var backends []netip.AddrPort
		for i := range endpoints {
			backends = append(backends, serverAt(i))
		}
		s.check(how, backends...)
		time.Sleep(how.Interval) // the first ones come at once
		s.mu.Lock()
		clear(s.probes)
		s.mu.Unlock()
		time.Sleep(intervals * how.Interval)
		s.mu.Lock()
		defer s.mu.Unlock()
		total := 0
		for _, n := range s.probes {
			total += n
		}
		// The jitter makes intervals a little shorter.
		if each := float64(total) / endpoints / intervals; each < 3 || each > 3.3 {
			t.Errorf("%.2f probes of an endpoint in an interval, want 3", each)
		} else {
			t.Logf("%.2f probes of an endpoint in an interval", each)
		}
	})
}
