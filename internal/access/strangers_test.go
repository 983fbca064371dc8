package access

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"fairlead.dev/internal/metricstest"
)

func TestMetricsAreDocumented(t *testing.T) {
	metricstest.Documented(t, func(r prometheus.Registerer) error { _, err := NewMeter(r); return err }, "fairlead_access_")
}

// Answers are counted by result, and timed unless they are streams.
func TestAnswersAreCounted(t *testing.T) {
	j := newJudge(t, newFake())
	about := list
	g := Guard{Judge: j, About: func(*http.Request) (Question, error) { return about, nil }}
	h := g.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("answer")) }))
	for _, token := range []string{"of anna", "of bert", "x", "of anna"} {
		h.ServeHTTP(httptest.NewRecorder(), request(token))
	}
	about = watch
	h.ServeHTTP(httptest.NewRecorder(), request(anna.Token))
	for result, want := range map[string]float64{"ok": 3, "denied": 1, "unknown": 1, "refused": 0} {
		var m dto.Metric
		if err := j.meter.answers.WithLabelValues(result).Write(&m); err != nil || m.GetCounter().GetValue() != want {
			t.Errorf("%s: %v, %v", result, m.GetCounter(), err)
		}
	}
	var m dto.Metric
	if err := j.meter.seconds.Write(&m); err != nil || m.GetHistogram().GetSampleCount() != 4 {
		t.Errorf("%v, %v", m.GetHistogram(), err)
	}
	for kind, want := range map[string]float64{kindTokens: 3, kindRights: 3} { // anna's and bert's to list, and anna's to watch
		if err := j.meter.asked.WithLabelValues(kind, resultAnswered).Write(&m); err != nil || m.GetCounter().GetValue() != want {
			t.Errorf("questions about %s: %v, %v", kind, m.GetCounter(), err)
		}
	}
}

// flood shows so many tokens at once that are nobody's, and counts those that are refused. It ends when all were answered.
func flood(t *testing.T, j *Judge, n int, from netip.Addr) (refused *atomic.Int64, wait func()) {
	t.Helper()
	refused, all := &atomic.Int64{}, &sync.WaitGroup{}
	for i := range n {
		all.Go(func() {
			_, err := j.May(context.WithoutCancel(t.Context()), Credential{Token: fmt.Sprintf("%s %d %d", from, time.Now().UnixNano(), i), From: from}, list)
			if errors.Is(err, StrangersError{}) {
				refused.Add(1)
			}
		})
	}
	synctest.Wait()
	return refused, all.Wait
}

// What strangers send neither fills the memory nor asks more than is bounded: at once, and in a second.
func TestStrangersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.hold = make(chan struct{})
		j := newJudge(t, f)
		refused, wait := flood(t, j, 2*maxKept, netip.Addr{})
		if f.count() != maxAskedBy || refused.Load() != 2*maxKept-burstOfAll {
			t.Errorf("%d questions at once, want %d; %d tokens refused, want %d", f.count(), maxAskedBy, refused.Load(), 2*maxKept-burstOfAll)
		}
		var m dto.Metric
		if err := j.meter.refused.Write(&m); err != nil || m.GetCounter().GetValue() != float64(refused.Load()) {
			t.Errorf("%v counted, %v", m.GetCounter(), err)
		}
		close(f.hold)
		wait()
		if n := len(j.users.kept); n > maxKept || len(j.users.pending) != 0 || len(j.known.tokens) != 0 {
			t.Errorf("%d answers kept, %d pending, %d known", n, len(j.users.pending), len(j.known.tokens))
		}
		f.set(func(f *fake) { f.asked = 0 })
		time.Sleep(time.Second)
		_, wait = flood(t, j, maxKept, netip.Addr{})
		wait()
		if f.count() != strangersOfAll {
			t.Errorf("%d questions a second later, want %d", f.count(), strangersOfAll)
		}
	})
}

// However many strangers there are and however slowly they are judged: who was known is served, also when it is time to ask again.
func TestStrangersKeepNoKnownUserOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.stall = make(chan struct{})
		j := newJudge(t, f)
		if _, err := j.May(t.Context(), anna, list); err != nil {
			t.Fatal(err)
		}
		waits := []func(){}
		for range 4 {
			time.Sleep(MaxAge)
			refused, wait := flood(t, j, maxKept, netip.Addr{})
			waits = append(waits, wait)
			if refused.Load() == 0 {
				t.Error("no stranger is refused")
			}
			at := time.Now()
			if _, err := j.May(t.Context(), anna, list); err != nil || time.Since(at) > 0 {
				t.Errorf("anna: %v after %s", err, time.Since(at))
			}
		}
		close(f.stall)
		for _, wait := range waits {
			wait()
		}
	})
}

// Strangers at one address leave others who are not known yet their turn; those of IPv6 have as many addresses as they like.
func TestStrangersOfOneAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		j := newJudge(t, f)
		refused := int64(0)
		for i := range 10 {
			n, wait := flood(t, j, 100, netip.MustParseAddr(fmt.Sprintf("2001:db8::%x", i)))
			wait()
			refused += n.Load()
		}
		if refused != 1000-burstOfOne {
			t.Errorf("%d refused, want all but %d", refused, burstOfOne)
		}
		c := anna
		c.From = netip.MustParseAddr("2001:db8:1::1")
		if _, err := j.May(t.Context(), c, list); err != nil {
			t.Error(err)
		}
	})
}

// Addresses are counted within a bound, and those that are quiet make room.
func TestAddressesOfStrangersAreBounded(t *testing.T) {
	s, now := newStrangers(), time.Now()
	admit := func(i int) { s.admit(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), now) }
	for i := range 2 * maxAddresses {
		admit(i)
	}
	if len(s.one) != maxAddresses {
		t.Errorf("%d addresses", len(s.one))
	}
	now = now.Add(time.Minute)
	admit(1 << 20)
	if len(s.one) != 1 {
		t.Errorf("%d addresses a minute later", len(s.one))
	}
}

// The tokens that are known are bounded, too: the one that was shown last the longest ago goes first.
func TestKnownTokensAreBounded(t *testing.T) {
	n, now := newKnown(), time.Now()
	of := func(i int) key { return key{byte(i), byte(i >> 8)} }
	for i := range maxKept + 1 {
		n.note(of(i), "anna", true, now.Add(time.Duration(i)))
	}
	if _, is := n.user(of(0), now); is || len(n.tokens) != maxKept {
		t.Errorf("the oldest is known: %t, of %d", is, len(n.tokens))
	}
	if name, is := n.user(of(1), now); !is || name != "anna" {
		t.Errorf("the next is known: %t, as %q", is, name)
	}
	if _, is := n.user(of(1), now.Add(2*knownFor)); is {
		t.Error("a token is known for ever")
	}
	n.note(of(1), "", false, now)
	if _, is := n.user(of(1), now); is {
		t.Error("a token is known that the API does not know any more")
	}
}

// One user who asks for ever other rights leaves others their questions.
func TestQuestionsOfOneUserAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		j := newJudge(t, f)
		for _, token := range []string{"of anna", "of bert"} {
			_, _ = j.May(t.Context(), Credential{Token: token}, list)
		}
		f.set(func(f *fake) { f.asked, f.hold = 0, make(chan struct{}) })
		var all sync.WaitGroup
		ask := func(token string, n int) {
			for i := range n {
				all.Go(func() {
					_, _ = j.May(context.WithoutCancel(t.Context()), Credential{Token: token}, Question{Verb: "list", Resource: "routes", Namespace: fmt.Sprint(i)})
				})
			}
			synctest.Wait()
		}
		ask("of anna", 100)
		if f.count() != maxAskedBy {
			t.Errorf("%d questions for one user, want %d", f.count(), maxAskedBy)
		}
		ask("of bert", 1)
		if f.count() != maxAskedBy+1 {
			t.Errorf("%d questions, want one more for another user", f.count())
		}
		close(f.hold)
		all.Wait()
	})
}

// A refused stranger is told when to come again; a plane's address is not that of its callers.
func TestStrangersAreToldToWait(t *testing.T) {
	f := newFake()
	j := newJudge(t, f)
	h := Guard{Judge: j, About: func(*http.Request) (Question, error) { return list, nil }}.Handler(http.NotFoundHandler())
	for i := range burstOfOne + 5 {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, request(fmt.Sprint(i)))
		if w.Code == http.StatusTooManyRequests {
			if w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), "ask again in 2 seconds") {
				t.Errorf("refused by %v, %q", w.Header(), w.Body)
			}
			return
		}
		if w.Code != http.StatusUnauthorized {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	t.Error("nobody is refused")
}
