package health

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.dev/internal/model"
)

// bench is backends that are not there: dialling asks a function. Time is the test's.
type bench struct {
	*Prober
	mu      sync.Mutex
	answer  func(target string) error // nil takes the connection
	dials   map[string][]time.Time
	open    atomic.Int64
	most    int64
	changes atomic.Int64
}

var errHangs = errors.New("hangs")

func newBench(t *testing.T, c Config) *bench {
	b := &bench{dials: map[string][]time.Time{}, answer: func(string) error { return nil }}
	c.Dial = func(ctx context.Context, _, address string) (net.Conn, error) {
		open := b.open.Add(1)
		defer b.open.Add(-1)
		b.mu.Lock()
		b.dials[address] = append(b.dials[address], time.Now())
		b.most = max(b.most, open)
		err := b.answer(address)
		b.mu.Unlock()
		if errors.Is(err, errHangs) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		here, _ := net.Pipe()
		return here, nil
	}
	c.Random = rand.New(rand.NewPCG(1, 2))
	c.Changed = func() { b.changes.Add(1) }
	b.Prober = New(c)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := b.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return b
}

func (b *bench) become(f func(string) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answer = f
}

func target(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 80)
}

func tcp(i int, h model.HealthCheck) model.Check {
	h.Kind = model.CheckTCP
	return model.NewCheck(target(i), h)
}

func TestRiseAndFall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{})
		c := tcp(1, model.HealthCheck{Interval: time.Second, Timeout: 300 * time.Millisecond, Unhealthy: 3, Healthy: 2})
		b.Set([]model.Check{c})
		if got := b.Result(c.ID).Health; got != model.HealthUnknown {
			t.Errorf("before the first answer: %s", got)
		}
		synctest.Wait()
		if got := b.Result(c.ID).Health; got != model.Healthy {
			t.Fatalf("the first answer decides at once, got %s", got)
		}
		if b.Result("other").Health != model.HealthUnchecked {
			t.Error("what is not checked has a result")
		}
		fails := atomic.Int64{}
		b.become(func(string) error { fails.Add(1); return errors.New("it is down") })
		for b.Result(c.ID).Health == model.Healthy {
			time.Sleep(10 * time.Millisecond)
		}
		if fails.Load() != 3 {
			t.Errorf("out after %d failures, want 3", fails.Load())
		}
		r := b.Results()[0]
		if r.ID != c.ID || r.Message != "it is down" || r.Health != model.Unhealthy || r.Since.IsZero() {
			t.Errorf("result is %+v", r)
		}
		goods := atomic.Int64{}
		b.become(func(string) error { goods.Add(1); return nil })
		for b.Result(c.ID).Health == model.Unhealthy {
			time.Sleep(10 * time.Millisecond)
		}
		if goods.Load() != 2 || b.changes.Load() != 3 {
			t.Errorf("back after %d successes, want 2; %d changes were told, want 3", goods.Load(), b.changes.Load())
		}
		b.Set(nil)
		if b.Result(c.ID).Health != model.HealthUnchecked || len(b.Results()) != 0 {
			t.Error("a check that went has a result")
		}
	})
}

// TestFirstFailuresAreTold: a backend that fails from the first probe is out at once, and it is
// told as soon as it has failed as often as takes out one that works.
func TestFirstFailuresAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{})
		fails := atomic.Int64{}
		b.become(func(string) error { fails.Add(1); return errors.New("it is down") })
		c := tcp(1, model.HealthCheck{Interval: time.Second, Timeout: 300 * time.Millisecond, Unhealthy: 3, Healthy: 2})
		b.Set([]model.Check{c})
		synctest.Wait()
		if r := b.Result(c.ID); r.Health != model.Unhealthy || !r.First {
			t.Fatalf("after the first failure: %+v", r)
		}
		for b.Result(c.ID).First {
			time.Sleep(10 * time.Millisecond)
		}
		synctest.Wait()
		if r := b.Result(c.ID); r.Health != model.Unhealthy || fails.Load() != 3 || b.changes.Load() != 2 {
			t.Errorf("after %d failures and %d changes: %+v", fails.Load(), b.changes.Load(), r)
		}
		slow := tcp(2, model.HealthCheck{Interval: time.Hour, Timeout: 2 * time.Second, Unhealthy: 3, Healthy: 2})
		b.Set([]model.Check{c, slow})
		time.Sleep(time.Millisecond)
		for began := time.Now(); b.Result(slow.ID).First; time.Sleep(10 * time.Millisecond) {
			if time.Since(began) > 5*time.Second {
				t.Fatal("a check with a long interval is not sure soon")
			}
		}
		b.become(func(string) error { return nil })
		for b.Result(c.ID).Health == model.Unhealthy {
			time.Sleep(10 * time.Millisecond)
		}
		b.become(func(string) error { return errors.New("it is down") })
		for b.Result(c.ID).Health == model.Healthy {
			time.Sleep(10 * time.Millisecond)
		}
		if b.Result(c.ID).First {
			t.Error("it worked before")
		}
	})
}

// TestFallIsBounded holds that a backend is out when as many intervals are over as it may
// fail times, whenever it dies and however: at most half an interval goes into answers.
func TestFallIsBounded(t *testing.T) {
	for _, how := range []error{errors.New("refused"), errHangs} {
		for _, fall := range []uint32{1, 2, 3, 5} {
			for dies := range 20 {
				synctest.Test(t, func(t *testing.T) {
					b := newBench(t, Config{})
					h := model.HealthCheck{Interval: time.Second, Timeout: 500 * time.Millisecond, Unhealthy: fall, Jitter: 20}
					c := tcp(1, h)
					b.Set([]model.Check{c})
					time.Sleep(3*time.Second + time.Duration(dies)*50*time.Millisecond + time.Millisecond)
					died := time.Now()
					b.become(func(string) error { return how })
					for b.Result(c.ID).Health == model.Healthy {
						time.Sleep(time.Millisecond)
					}
					most := time.Duration(fall) * h.Interval
					if fall == 1 && errors.Is(how, errHangs) {
						most += h.Timeout // there is no second probe to be early with
					}
					if took := time.Since(died); took > most+time.Millisecond {
						t.Errorf("%v, fall %d: out after %s, want at most %s", how, fall, took, most)
					}
				})
			}
		}
	}
}

// TestNeverRushes holds that failures are counted over time: a backend that restarts is not
// out after a moment's refusals, not even with a timeout longer than the interval.
func TestNeverRushes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{})
		c := tcp(1, model.HealthCheck{Interval: time.Second, Timeout: 10 * time.Second, Unhealthy: 3})
		b.Set([]model.Check{c})
		synctest.Wait()
		b.become(func(string) error { return errors.New("refused") })
		time.Sleep(2400 * time.Millisecond)
		if b.Result(c.ID).Health != model.Healthy {
			t.Error("three failures within 2.4 intervals")
		}
	})
}

// TestManyChecksSpread holds that thousands of checks begin without a burst, that each is
// asked once an interval, and that probes under way are bounded when backends hang.
func TestManyChecksSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, limit = 4000, 64
		b := newBench(t, Config{Limit: limit})
		var checks []model.Check
		for i := range n {
			checks = append(checks, tcp(i, model.HealthCheck{Interval: 10 * time.Second, Timeout: time.Second}))
		}
		begin := time.Now()
		b.Set(checks)
		time.Sleep(62 * time.Second)
		b.Set(nil)
		perWindow := map[int64]int{}
		total := 0
		for _, times := range b.dials {
			for i, at := range times {
				total++
				perWindow[at.Sub(begin).Milliseconds()/10]++
				if i > 0 && (at.Sub(times[i-1]) > 10*time.Second || at.Sub(times[i-1]) < 9*time.Second) {
					t.Fatalf("asked again after %s", at.Sub(times[i-1]))
				}
			}
		}
		for w, k := range perWindow {
			if k > 40 {
				t.Errorf("%d probes began within the 10 ms at %d ms", k, w*10)
			}
		}
		if total < n*6 || total > n*7 {
			t.Errorf("%d probes of %d checks in 6.2 intervals", total, n)
		}
		b.become(func(string) error { return errHangs })
		b.Set(checks)
		time.Sleep(30 * time.Second)
		if b.most > limit {
			t.Errorf("%d probes were under way, want at most %d", b.most, limit)
		}
	})
}

func TestPromptAsksAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{})
		c := tcp(1, model.HealthCheck{Interval: time.Hour, Timeout: time.Minute})
		b.Set([]model.Check{c})
		synctest.Wait()
		asked := func() int {
			b.mu.Lock()
			defer b.mu.Unlock()
			return len(b.dials[c.Target.String()])
		}
		for i := range 3 {
			if asked() != i+1 {
				t.Fatalf("asked %d times, want %d", asked(), i+1)
			}
			c.Prompt++
			b.Set([]model.Check{c})
			b.Set([]model.Check{c}) // the same again asks nothing
			synctest.Wait()
		}
		// While a probe is under way, another one follows it.
		b.become(func(string) error { return errHangs })
		c.Prompt++
		b.Set([]model.Check{c})
		synctest.Wait()
		c.Prompt++
		b.Set([]model.Check{c})
		before := asked()
		time.Sleep(c.Timeout + time.Second)
		if asked() != before+1 {
			t.Errorf("asked %d times more, want once", asked()-before)
		}
	})
}

// TestRemovalEndsProbes holds that a probe of a check that went is ended, and that its
// outcome is nobody's.
func TestRemovalEndsProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{})
		b.become(func(string) error { return errHangs })
		c := tcp(1, model.HealthCheck{Interval: time.Second, Timeout: time.Hour})
		b.Set([]model.Check{c})
		synctest.Wait()
		b.Set(nil)
		synctest.Wait()
		if b.open.Load() != 0 {
			t.Error("the probe goes on")
		}
		b.become(func(string) error { return nil })
		b.Set([]model.Check{c})
		time.Sleep(startSpacing)
		synctest.Wait()
		if got := b.Result(c.ID).Health; got != model.Healthy {
			t.Errorf("the check that came again is %s", got)
		}
	})
}

func TestChecksHaveIDsOfWhatTheyAsk(t *testing.T) {
	a := netip.MustParseAddrPort("10.0.0.1:80")
	base := model.NewCheck(a, model.HealthCheck{Path: "/"})
	if model.NewCheck(netip.MustParseAddrPort("[::ffff:10.0.0.1]:8080"), model.HealthCheck{Path: "/", Port: 80, Interval: model.DefaultCheckInterval}).ID != base.ID {
		t.Error("the same question has another ID")
	}
	seen := map[string]bool{base.ID: true}
	for i, h := range []model.HealthCheck{
		{Path: "/x"},
		{Path: "/", Kind: model.CheckTCP},
		{Path: "/", Host: "h"},
		{Path: "/", Port: 81},
		{Path: "/", Interval: time.Second},
		{Path: "/", Codes: [][2]uint16{{200, 299}}},
		{Path: "/", Send: []byte("a")},
		{Path: "/", ServerName: "n"},
		{Path: "/", SendProxyProtocol: true},
	} {
		id := model.NewCheck(a, h).ID
		if seen[id] {
			t.Error(fmt.Sprint("another question has the same ID: ", i))
		}
		seen[id] = true
	}
}
