package console

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/metricstest"
	"fairlead.dev/internal/model"
)

func TestMetricsAreDocumented(t *testing.T) {
	metricstest.Documented(t, func(r prometheus.Registerer) error { _, err := NewMeter(r); return err }, "fairlead_read_")
}

type userKey struct{}

// crowd is a console that many users ask. Its streams and taps go on, and its answers wait until they are released.
type crowd struct {
	*httptest.Server
	metrics *prometheus.Registry
	release chan struct{}
}

func newCrowd(t *testing.T) *crowd {
	t.Helper()
	c := &crowd{metrics: prometheus.NewRegistry(), release: make(chan struct{})}
	meter, err := NewMeter(c.metrics)
	if err != nil {
		t.Fatal(err)
	}
	reads := Reads(Config{
		Meter: meter, User: func(ctx context.Context) string { name, _ := ctx.Value(userKey{}).(string); return name },
		Status: func(context.Context) any { <-c.release; return "status" },
		Tap: func(ctx context.Context, _ model.TapFilter, show func(model.TapEvent) error) error {
			if err := show(model.TapEvent{}); err != nil {
				return err
			}
			<-ctx.Done()
			return nil
		},
		TapFlows: func(ctx context.Context, _ model.FlowTapQuery, show func(model.FlowTapEvent) error) error {
			if err := show(model.FlowTapEvent{}); err != nil {
				return err
			}
			<-ctx.Done()
			return nil
		},
		Watches: map[string]Watch{v1.RoutesPath: func(ctx context.Context, after *Position, _ string) (Update, error) {
			if after == nil {
				return Update{At: Position{1, 1, 1}, Reset: true}, nil
			}
			<-ctx.Done()
			return Update{}, ctx.Err()
		}},
	})
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reads.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, r.Header.Get("User"))))
	}))
	t.Cleanup(c.Close)
	return c
}

// ask begins an answer for a user. It ends with the context, or when it is closed.
func (c *crowd) ask(ctx context.Context, t *testing.T, user, path string) *http.Response {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("User", user)
	response, err := c.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	return response
}

// counted is the value of a metric with one label, or with two.
func (c *crowd) counted(t *testing.T, name string, labels ...string) (value float64) {
	t.Helper()
	families, err := c.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var have []string
			for _, l := range m.GetLabel() {
				have = append(have, l.GetValue())
			}
			if f.GetName() == name && strings.Join(have, " ") == strings.Join(labels, " ") {
				value = m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return value
}

// TestOneUserLeavesOthersRoom attacks: one user opens as many streams and taps as it can, and more; another one still opens
// its own, until all are too many.
func TestOneUserLeavesOthersRoom(t *testing.T) {
	for _, attack := range []struct {
		kind     kind
		paths    []string
		all, one int
	}{
		{kindStreams, []string{v1.RoutesPath + "?watch=true"}, maxStreams, maxStreams / 4},
		{kindTaps, []string{v1.TapPath, v1.FlowTapPath}, model.MaxTaps, model.MaxTaps / 4},
	} {
		t.Run(string(attack.kind), func(t *testing.T) {
			c := newCrowd(t)
			opened := 0
			open := func(user string) (status int, text string) {
				t.Helper()
				opened++
				r := c.ask(t.Context(), t, user, attack.paths[opened%len(attack.paths)])
				if r.StatusCode == http.StatusOK {
					if _, err := r.Body.Read(make([]byte, 1)); err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { _ = r.Body.Close() })
					return r.StatusCode, ""
				}
				if r.Header.Get("Retry-After") == "" {
					t.Errorf("%s: %s without Retry-After", user, r.Status)
				}
				body, _ := io.ReadAll(r.Body)
				_ = r.Body.Close()
				return r.StatusCode, string(body)
			}
			got := 0
			for range attack.all + 10 {
				status, text := open("mallory")
				if status == http.StatusOK {
					got++
					continue
				}
				want := fmt.Sprintf(`user "mallory" has %d %s at this plane, which is the most for one user: close one`, attack.one, attack.kind.text())
				if status != http.StatusTooManyRequests || strings.TrimSpace(text) != want {
					t.Fatalf("refused by %d %q, want 429 %q", status, text, want)
				}
			}
			if got != attack.one {
				t.Errorf("one user has %d, want %d", got, attack.one)
			}
			if n := c.counted(t, "fairlead_read_refused_total", string(attack.kind), "user"); n != float64(attack.all+10-attack.one) {
				t.Errorf("%v refusals are counted", n)
			}
			for _, user := range []string{"anna", "bert"} {
				if status, text := open(user); status != http.StatusOK {
					t.Errorf("%s: %d %s", user, status, text)
				}
			}
			for range attack.all - attack.one - 2 {
				if status, text := open(""); status != http.StatusOK { // on a plane's machine
					t.Fatalf("%d %s", status, text)
				}
			}
			if status, _ := open("carl"); status != http.StatusServiceUnavailable || c.counted(t, "fairlead_read_refused_total", string(attack.kind), "all") != 1 {
				t.Errorf("beyond the bound of all: %d", status)
			}
			if n := c.counted(t, "fairlead_read_open", string(attack.kind)); n != float64(attack.all) {
				t.Errorf("%v are open", n)
			}
		})
	}
}

// TestSharesComeBack holds that a user whose streams have ended may open others.
func TestSharesComeBack(t *testing.T) {
	c := newCrowd(t)
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		for range model.MaxTaps / 4 {
			r := c.ask(ctx, t, "anna", v1.TapPath)
			if r.StatusCode != http.StatusOK {
				t.Fatal(r.Status)
			}
			defer r.Body.Close()
		}
		cancel()
		for deadline := time.Now().Add(10 * time.Second); c.counted(t, "fairlead_read_open", string(kindTaps)) > 0; {
			if time.Now().After(deadline) {
				t.Fatal("taps are open whose readers are gone")
			}
			time.Sleep(time.Millisecond)
		}
	}
}

// TestScriptLeavesOthersAnswers holds that one user who asks without end, and waits, keeps no answer from another.
func TestScriptLeavesOthersAnswers(t *testing.T) {
	c := newCrowd(t)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	statuses := make(chan int, 3*maxAnswers)
	for range cap(statuses) {
		running.Go(func() {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL+v1.StatusPath, nil)
			if err != nil {
				t.Error(err)
				return
			}
			request.Header.Set("User", "script")
			if r, err := c.Client().Do(request); err == nil {
				statuses <- r.StatusCode
				_ = r.Body.Close()
			}
		})
	}
	for range cap(statuses) - maxAnswers/part { // all but those that wait to be released
		if status := <-statuses; status != http.StatusTooManyRequests {
			t.Errorf("one more answer: %d", status)
		}
	}
	answered := make(chan int, 1)
	go func() {
		r := c.ask(t.Context(), t, "anna", v1.StatusPath)
		answered <- r.StatusCode
		_ = r.Body.Close()
	}()
	c.release <- struct{}{} // anna's, or one of the script's
	for range maxAnswers / part {
		c.release <- struct{}{}
	}
	if status := <-answered; status != http.StatusOK {
		t.Errorf("another user: %d", status)
	}
	cancel()
	running.Wait()
}

// Consoles at several addresses of one process have the same slots.
func TestConsolesShareTheirBounds(t *testing.T) {
	b := NewBounds()
	for _, k := range []kind{kindAnswers, kindFlowAnswers, kindStreams, kindTaps} {
		one, other, third := newSlots(Config{Bounds: b}, k), newSlots(Config{Bounds: b}, k), newSlots(Config{}, k)
		if one.Bound != other.Bound || one.slow != other.slow {
			t.Errorf("two consoles have %s of their own", k)
		}
		if one.Bound == third.Bound || one.slow == third.slow {
			t.Errorf("a console of another process has the same %s", k)
		}
	}
}

// Many more viewers than there are answers at once wait for the next sample of top, and answers of others are made meanwhile.
func TestViewersWhoWaitTakeNoAnswers(t *testing.T) {
	next, waiting := make(chan struct{}), make(chan struct{}, 10*maxAnswers)
	h := Reads(Config{
		Status: func(context.Context) any { return "well" },
		Top:    func(context.Context, TopQuestion) (model.Top, error) { return model.Top{Sample: 8}, nil },
		AwaitTop: func(ctx context.Context, after uint64) error {
			if after == 0 {
				return nil
			}
			waiting <- struct{}{}
			select {
			case <-next:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		},
	})
	ask := func(uri string) int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, uri, nil))
		return w.Code
	}
	var viewers sync.WaitGroup
	for range 5 * maxAnswers {
		viewers.Go(func() {
			if got := ask(v1.TopPath + "?after=7"); got != http.StatusOK {
				t.Errorf("a viewer who waited is answered %d", got)
			}
		})
	}
	for range 5 * maxAnswers {
		<-waiting
	}
	for _, uri := range []string{v1.StatusPath, v1.TopPath, v1.TopPath + "?after=0"} {
		if got := ask(uri); got != http.StatusOK {
			t.Errorf("%s is answered %d while viewers wait", uri, got)
		}
	}
	close(next)
	viewers.Wait()
}
