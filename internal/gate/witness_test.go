package gate

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/gate/gatetest"
)

// witnessed is a gate whose listener "l" and routes "r" Envoy has accepted.
type witnessed struct {
	*testing.T
	g    *Gate
	now  time.Time
	seen Seen
}

func newWitnessed(t *testing.T) *witnessed {
	w := &witnessed{T: t, g: newGate(), now: time.Unix(1_000_000, 0)}
	w.g.SetWitnessed()
	w.g.connected(nil, nil)
	changes := []delta.Change{gatetest.Routes(t, "r"), gatetest.Scope(t, "r", "r"), gatetest.Listener(t, "l", "x")}
	if err := w.g.Target(changes); err != nil {
		t.Fatal(err)
	}
	w.g.Checkpoint(delta.Revision{Epoch: 1, Number: 7})
	w.g.step(w.now)
	for range 2 { // a listener waits for its routes
		for _, c := range changes {
			w.g.observe([]delta.Event{{Type: c.Type, Name: c.Name, Version: c.Resource.Version}})
		}
		w.g.step(w.now)
	}
	w.seen = Seen{
		Serving: map[string]struct{}{"l": {}}, Warming: map[string][]string{},
		Routes: map[string]string{"r": changes[0].Resource.Version},
	}
	return w
}

// look asks once, after a pause.
func (w *witnessed) look(pause time.Duration) Mend {
	w.Helper()
	w.now = w.now.Add(pause)
	look, wanted, _ := w.g.looks(w.now)
	if !wanted {
		w.Fatal("nothing is to be asked")
	}
	m := w.g.observeUse(look, w.seen, w.now)
	w.g.step(w.now)
	return m
}

func (w *witnessed) expect(applied uint64, problems ...string) {
	w.Helper()
	var got []string
	for _, p := range w.g.Problems() {
		got = append(got, p.GetName()+": "+p.GetMessage())
	}
	if n := w.g.Applied().Number; n != applied || !slices.Equal(got, problems) {
		w.Errorf("applied %d with %q, want %d with %q", n, got, applied, problems)
	}
}

// TestAppliedIsWhatEnvoyUses: what was accepted is applied when it was seen to be used.
func TestAppliedIsWhatEnvoyUses(t *testing.T) {
	w := newWitnessed(t)
	w.expect(0)
	right := w.seen
	w.seen.Serving, w.seen.Warming = nil, map[string][]string{"l": {"RDS r"}}
	w.look(0)
	w.expect(0)
	w.look(waitGrace)
	w.expect(7, "l: it waits for its prerequisites: RDS r")
	w.seen = right
	w.look(0)
	w.expect(7)
	if _, wanted, next := w.g.looks(w.now); wanted || !next.Equal(w.now.Add(witnessEvery)) {
		t.Errorf("wanted %t, next %v", wanted, next)
	}
	// An answer about an earlier state says nothing of this one.
	look, _, _ := w.g.looks(w.now.Add(witnessEvery))
	w.g.observe([]delta.Event{{Type: typeListener, Name: "l", Version: w.g.items[key{typeListener, "l"}].live.Version}})
	w.g.observeUse(look, w.seen, w.now)
	if _, wanted, _ := w.g.looks(w.now); !wanted {
		t.Error("an old answer counted")
	}
}

// TestListenersThatChangeFast: of a listener that changes again before Envoy was asked, a version
// that it accepted is applied when it was seen to be used, not before, and not only with the last.
func TestListenersThatChangeFast(t *testing.T) {
	w := newWitnessed(t)
	w.look(0)
	w.expect(7)
	changes := map[uint64]delta.Change{}
	wants := func(number uint64) {
		changes[number] = gatetest.Listener(t, "l", strconv.FormatUint(number, 10))
		if err := w.g.Target([]delta.Change{changes[number]}); err != nil {
			t.Fatal(err)
		}
		w.g.Checkpoint(delta.Revision{Epoch: 1, Number: number})
		w.g.step(w.now)
	}
	accepts := func(number uint64) {
		w.g.observe([]delta.Event{{Type: typeListener, Name: "l", Version: changes[number].Resource.Version}})
	}
	wants(8)
	wants(9)
	accepts(8)
	w.expect(7) // the one before was used; of this one nothing is known
	w.seen.Warming["l"] = []string{"RDS r"}
	w.look(witnessEvery)
	w.expect(7)
	clear(w.seen.Warming)
	w.look(doubtEvery)
	w.expect(8) // though the next one is on its way
	// However fast it changes, what was accepted before a question is applied with its answer.
	for n := uint64(9); n < 60; n++ {
		accepts(n)
		look, _, _ := w.g.looks(w.now)
		wants(n + 1)
		w.g.observeUse(look, w.seen, w.now)
		w.expect(n)
	}
	// Nor does it need an answer to the newest, which a listener that is new may never have.
	clear(w.g.accepting)
	wants(61)
	wants(62)
	accepts(61)
	w.look(0)
	w.expect(61)
}

// TestWhatEnvoyDoesNotUseIsMended: in steps, none of them for ever.
func TestWhatEnvoyDoesNotUseIsMended(t *testing.T) {
	w := newWitnessed(t)
	w.look(0)
	w.expect(7)
	w.seen.Routes = nil // the scopes are gone
	w.look(witnessEvery)
	var steps []MendStep
	replaced := 0
	for range 3 * 3600 {
		m := w.look(doubtEvery)
		if m.Step == MendNothing {
			continue
		}
		if len(steps) == 0 && !slices.Contains(m.again, key{typeScope, "r"}) {
			t.Errorf("sent again: %v", m.again)
		}
		if len(steps) < 3 {
			steps = append(steps, m.Step)
		}
		if m.Step == MendReplace {
			replaced++
		}
	}
	w.expect(7, "r: "+unusedRoutes, "l: the proxy listens but uses none of its routes")
	if !slices.Equal(steps, []MendStep{MendResend, MendReconnect, MendReplace}) {
		t.Errorf("steps %v", steps)
	}
	if replaced < 1 || replaced > 3 {
		t.Errorf("replaced %d times in 3 hours", replaced)
	}
	w.seen.Routes = map[string]string{"r": w.g.shards["r"].live.version}
	w.look(doubtEvery)
	w.expect(7)
}

// TestRoutesOfNoListener: without a listener that serves, Envoy has no routes, and lacks none.
func TestRoutesOfNoListener(t *testing.T) {
	w := newWitnessed(t)
	w.look(0)
	w.seen.Serving, w.seen.Routes = map[string]struct{}{}, nil
	w.look(witnessEvery)
	for range 3 {
		w.look(doubtEvery)
	}
	w.expect(7, "l: the proxy accepted it but does not listen")
}

// TestAListenerThatNobodyWants: Envoy took it from a response that it refused, and lost the
// stream. It is told again that the listener is gone.
func TestAListenerThatNobodyWants(t *testing.T) {
	w := newWitnessed(t)
	w.seen.Serving["stray"] = struct{}{}
	if m := w.look(0); m.Step != MendNothing {
		t.Errorf("seen once: %v", m)
	}
	if m := w.look(doubtEvery); m.Step != MendResend || !slices.Equal(m.again, []key{{typeListener, "stray"}}) {
		t.Errorf("seen twice: %v", m)
	}
	delete(w.seen.Serving, "stray")
	if m := w.look(doubtEvery); m.Step != MendNothing {
		t.Errorf("gone: %v", m)
	}
}

// TestAListenerWithoutItsSecretIsLeftAlone: no other Envoy would have it.
func TestAListenerWithoutItsSecretIsLeftAlone(t *testing.T) {
	w := newWitnessed(t)
	if err := w.g.Target([]delta.Change{gatetest.TLSListener(t, "tls", "late", "")}); err != nil {
		t.Fatal(err)
	}
	w.g.step(w.now)
	w.now = w.now.Add(waitGrace)
	w.g.step(w.now)
	it := w.g.items[key{typeListener, "tls"}]
	if it.live == nil {
		t.Fatal("the listener still waits")
	}
	w.g.observe([]delta.Event{{Type: typeListener, Name: "tls", Version: it.live.Version}})
	w.seen.Warming["tls"] = []string{"SDS late"}
	for range 100 {
		if m := w.look(doubtEvery); m.Step != MendNothing {
			t.Fatalf("%v for %s", m.Step, m.Reason)
		}
	}
	w.g.Checkpoint(delta.Revision{Epoch: 1, Number: 8})
	w.expect(8, "tls: it waits for its prerequisites: SDS late")
}
