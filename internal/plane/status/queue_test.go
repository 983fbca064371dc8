package status

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
)

// statusBound is how long a status may differ from the truth while the API takes writes
// faster than objects change: ProgrammedDelay and WritePace are within it.
const statusBound = 2 * time.Second

// writerSim runs a status writer and its API in simulated time, in one goroutine.
type writerSim struct {
	t   *testing.T
	api *memoryAPI
	*Writer
	ctx context.Context
	at  time.Time
}

func newWriterSim(t *testing.T, perSecond float64) *writerSim {
	s := &writerSim{t: t, api: &memoryAPI{objects: map[string]*v1alpha1.Machine{}}, ctx: t.Context(), at: time.Unix(1e9, 0)}
	s.restart(perSecond)
	return s
}

// restart begins with a writer that remembers nothing.
func (s *writerSim) restart(perSecond float64) {
	s.Writer = NewWriter(Config{
		Client: s.api, Rate: perSecond, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return s.at }, After: Timer,
		Random: rand.New(rand.NewPCG(1, 1)), Meter: &outcomes{},
	})
	s.Enable(s.ctx)
}

// drain writes what is due now, and returns how long nothing else is.
func (s *writerSim) drain() time.Duration {
	for {
		turn, term, wait, ok := s.next()
		if !ok {
			return wait
		}
		s.write(s.ctx, term, turn, tellNobody)
	}
}

// pass lets time pass.
func (s *writerSim) pass(d time.Duration) {
	end := s.at.Add(d)
	for {
		wait := s.drain()
		if wait < 0 || s.at.Add(wait).After(end) {
			s.at = end
			return
		}
		s.at = s.at.Add(max(wait, time.Microsecond)) // a limiter rounds down
	}
}

// live is an object as the API has it, made when it is not there.
func (s *writerSim) live(name string) *v1alpha1.Machine {
	if o := s.api.objects[name]; o != nil {
		return o
	}
	return s.api.change(name, func(*v1alpha1.Machine) {})
}

func (s *writerSim) version(name string) string { return s.live(name).Status.AgentVersion }

// Our own changes, 50 a second, are written in time and not one by one.
func TestOwnChangesAreNoFight(t *testing.T) {
	s := newWriterSim(t, 200)
	const step, steps = 20 * time.Millisecond, 500
	since := map[string]time.Time{"": s.at} // until when each value was the truth
	last := ""
	for i := range steps {
		since[last] = s.at
		last = fmt.Sprint(i)
		s.Offer(showing(s.live("m"), last, []time.Duration{0, PendingDelay, ProgrammedDelay}[i%3]))
		s.pass(step)
		if shown := s.version("m"); shown != last && s.at.Sub(since[shown]) > statusBound {
			t.Fatalf("after %d changes it shows number %s, which was true until %s ago", i+1, shown, s.at.Sub(since[shown]))
		}
	}
	s.pass(statusBound)
	if shown := s.version("m"); shown != last {
		t.Errorf("it shows %s at last, and not %s", shown, last)
	}
	if most := int(steps*step/WritePace) + 2; s.api.writes > most {
		t.Errorf("%d writes in %s, at most %d are needed", s.api.writes, steps*step, most)
	}
}

// Somebody else overwrites our status whenever we write it: the rate falls. What we change
// meanwhile is written in time.
func TestFightIsCalm(t *testing.T) {
	s := newWriterSim(t, 200)
	overwritten := func(truth string, d time.Duration) int {
		before := s.api.writes
		for end := s.at.Add(d); s.at.Before(end); s.pass(50 * time.Millisecond) {
			if s.version("m") != "theirs" {
				s.api.change("m", func(m *v1alpha1.Machine) { m.Status.AgentVersion = "theirs" })
			}
			s.Offer(showing(s.live("m"), truth, 0))
		}
		return s.api.writes - before
	}
	s.Offer(showing(s.live("m"), "1", 0))
	s.pass(0)
	if n := overwritten("1", time.Minute); n < calmWrites+1 || n > 12 {
		t.Errorf("%d writes in the first minute of a fight", n)
	}
	if n := overwritten("1", 10*time.Minute); n < 9 || n > 11 {
		t.Errorf("%d writes in ten minutes of a fight that goes on", n)
	}
	s.Offer(showing(s.live("m"), "2", 0))
	s.pass(WritePace)
	if shown := s.version("m"); shown != "2" {
		t.Errorf("a change of ours waits in a fight: it shows %s", shown)
	}
	// The others give up; the next one who overwrites it finds it put right at once.
	s.pass(5 * time.Minute)
	s.Offer(showing(s.live("m"), "3", 0))
	s.pass(WritePace)
	s.api.change("m", func(m *v1alpha1.Machine) { m.Status.AgentVersion = "somebody's" })
	s.Offer(showing(s.live("m"), "3", 0))
	s.pass(WritePace)
	if shown := s.version("m"); shown != "3" {
		t.Errorf("it shows %s long after the fight", shown)
	}
}

// What a fenced status says follows from the newest version: each write leads to the next
// one, and nobody waits.
func TestFencedStatusHasNoPace(t *testing.T) {
	s := newWriterSim(t, 200)
	for i := range 20 {
		w := showing(s.live("m"), fmt.Sprint(i), 0)
		w.Fenced = true
		s.Offer(w)
		s.pass(0)
		if shown := s.version("m"); shown != fmt.Sprint(i) {
			t.Fatalf("it shows %s instead of %d", shown, i)
		}
	}
	// What follows from a version before the last write is not sent at all.
	old := s.live("m").DeepCopy()
	w := showing(old, "newer", 0)
	w.Fenced = true
	s.Offer(w)
	s.pass(0)
	w = showing(old, "newest", 0)
	w.Fenced = true
	asked := s.api.asked
	s.Offer(w)
	s.pass(time.Minute)
	if s.api.asked != asked || s.version("m") != "newer" {
		t.Errorf("%d requests, and it shows %s", s.api.asked-asked, s.version("m"))
	}
}

// 20,000 objects that change without end: requests stay at the rate, each object has its
// turn, and nobody else waits.
func TestQueueIsFairAndBounded(t *testing.T) {
	const objects, perSecond, seconds = 20_000, 200, 210
	s := newWriterSim(t, perSecond)
	crowd := func(i int) string { return fmt.Sprintf("crowd-%d", i) }
	offer := func(namespace, kind, name, v string) {
		w := showing(s.live(name), v, 0)
		w.Object = model.Object{Kind: kind, Namespace: namespace, Name: name}
		s.Offer(w)
	}
	for i := range objects {
		offer("crowd", "HTTPRoute", crowd(i), "first")
	}
	s.pass(objects / perSecond * time.Second)
	before, asked, began := map[string]string{}, s.api.asked, s.at
	for i := range objects {
		before[crowd(i)] = s.live(crowd(i)).ResourceVersion
	}
	for second := range seconds {
		for i := range objects {
			if i%20 == second%20 || second == 0 {
				offer("crowd", "HTTPRoute", crowd(i), fmt.Sprint(second))
			}
		}
		single, v := fmt.Sprintf("single-%d", second), fmt.Sprint(second)
		offer("crowd", "HTTPRoute", single, v)
		offer("crowd", "Gateway", "gateway", v)
		offer("", "Machine", "machine", v)
		s.pass(time.Second)
		for _, o := range []string{single, "gateway", "machine"} {
			if shown := s.version(o); shown != v {
				t.Fatalf("second %d: %s waits behind the crowd and shows %q", second, o, shown)
			}
		}
	}
	if most := perSecond * int(s.at.Sub(began).Seconds()+1); s.api.asked-asked > most {
		t.Errorf("%d requests in %s, at most %d may be", s.api.asked-asked, s.at.Sub(began), most)
	}
	// 210 s at 200 a second, less 3 for the others: 41,370 turns.
	turns := map[int]int{}
	for i := range objects {
		var old, now int
		_, _ = fmt.Sscan(before[crowd(i)], &old)
		_, _ = fmt.Sscan(s.live(crowd(i)).ResourceVersion, &now)
		turns[now-old]++
	}
	if turns[1]+turns[2]+turns[3] != objects {
		t.Errorf("turns are unequal: objects by turns are %v", turns)
	}
}

// simulated is one object of TestLastStatusIsTheTruth.
type simulated struct {
	name    string
	watched *v1alpha1.Machine // as the watch showed it last
	truth   int
	delay   time.Duration // of its newest status
	since   time.Time     // the oldest truth of ours that was not written and not shown
	open    bool
}

// Whatever the order of changes, writes, conflicts, foreign writes and restarts: the last
// status is the truth, and no change of ours waits longer than statusBound.
func TestLastStatusIsTheTruth(t *testing.T) {
	for seed := range uint64(500) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { simulate(t, seed) })
	}
}

func simulate(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 37))
	const perSecond = 100
	s := newWriterSim(t, perSecond)
	var objects []*simulated
	for i := range 1 + random.IntN(4) {
		o := &simulated{name: fmt.Sprintf("m%d", i)}
		o.watched = s.live(o.name)
		objects = append(objects, o)
	}
	offer := func(o *simulated) { s.Offer(showing(o.watched, fmt.Sprint(o.truth), o.delay)) }
	watch := func(o *simulated) {
		if now := s.live(o.name); now != o.watched {
			if now.UID != o.watched.UID {
				s.Forget(model.Object{Kind: "Machine", Name: o.name})
			}
			o.watched = now
			offer(o)
		}
	}
	away, refused := time.Time{}, time.Time{} // while the API does not take writes
	check := func() {
		for _, o := range objects {
			shown := s.version(o.name)
			if shown == fmt.Sprint(o.truth) {
				o.open = false
			}
			if s.live(o.name).Generation > o.watched.Generation {
				o.since = s.at // no status of the older one is written any more
			}
			excused := later(away, refused).Add(awayLongest * 3 / 2)
			if o.open && s.at.Sub(later(o.since, excused)) > statusBound+100*time.Millisecond {
				t.Fatalf("%s shows %s for %s after the truth became %d", o.name, shown, s.at.Sub(o.since), o.truth)
			}
		}
	}
	for range 400 {
		o := objects[random.IntN(len(objects))]
		switch n := random.IntN(100); {
		case n < 50:
			o.truth++
			o.delay = []time.Duration{0, 0, PendingDelay, ProgrammedDelay}[random.IntN(4)]
			if !o.open {
				o.since, o.open = s.at, true
			}
			offer(o)
		case n < 60: // somebody else's status, or one of another field
			s.api.change(o.name, func(m *v1alpha1.Machine) {
				m.Status.AgentVersion = []string{"theirs", m.Status.AgentVersion}[random.IntN(2)]
				m.Status.Addresses = append(m.Status.Addresses[:0:0], fmt.Sprint(random.Int()))
			})
		case n < 64: // a change of what is wanted
			s.api.change(o.name, func(m *v1alpha1.Machine) { m.Generation++ })
		case n < 66:
			delete(s.api.objects, o.name)
			s.api.change(o.name, func(m *v1alpha1.Machine) {
				m.UID, m.ResourceVersion = types.UID(fmt.Sprint(random.Int())), fmt.Sprint(1_000_000+s.api.asked)
			})
			watch(o)
			o.since, o.open = s.at, true
		case n < 68:
			s.restart(perSecond)
			for _, o := range objects {
				o.since = s.at
				offer(o)
			}
		case n < 70:
			s.api.away = !s.api.away
		case n < 72:
			s.api.refuse = !s.api.refuse
		case n < 73: // the clock is set
			by := time.Duration(random.IntN(7200)-3600) * time.Second
			s.at, away, refused = s.at.Add(by), away.Add(by), refused.Add(by)
			for _, o := range objects {
				o.since = s.at
			}
		default:
			watch(o)
		}
		if s.api.away {
			away = s.at
		}
		if s.api.refuse {
			refused = s.at
		}
		s.pass(time.Duration(random.IntN(200)) * time.Millisecond)
		if s.api.away {
			away = s.at
		}
		if s.api.refuse {
			refused = s.at
		}
		// The watch is never further behind than this.
		if random.IntN(4) == 0 {
			for _, o := range objects {
				watch(o)
			}
		}
		check()
	}
	s.api.away, s.api.refuse = false, false
	for range 100 { // until the longest calm has passed
		for _, o := range objects {
			watch(o)
		}
		s.pass(time.Second)
	}
	writes := s.api.writes
	for _, o := range objects {
		watch(o)
		if shown := s.version(o.name); shown != fmt.Sprint(o.truth) {
			t.Errorf("%s shows %s at last, the truth is %d", o.name, shown, o.truth)
		}
	}
	s.pass(5 * time.Minute)
	if s.api.writes != writes || s.Pending() != 0 {
		t.Errorf("%d writes and %d waiting when everything is said", s.api.writes-writes, s.Pending())
	}
}
