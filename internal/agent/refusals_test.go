package agent

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	agentv1 "fairlead.dev/proto/agent/v1"
)

// logged collects lines of a log without their times. It is safe for concurrent use.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// lines are those since the last call.
func (l *logged) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := strings.TrimSpace(l.text.String())
	l.text.Reset()
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

func (l *logged) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

func refusedProblem(t string, name, message string) *agentv1.Problem {
	return &agentv1.Problem{Kind: agentv1.Problem_KIND_REFUSED, TypeUrl: t, Name: name, Message: message}
}

// TestRefusalsAreSaidOnce: a listener is named when it is refused, and when it is taken; of
// other resources each cause has one line a minute, with a count.
func TestRefusalsAreSaidOnce(t *testing.T) {
	var out logged
	r := newRefusals(out.logger())
	now := time.Unix(1_000_000, 0)
	serving := map[string]bool{}
	expect := func(want ...string) {
		t.Helper()
		got := out.lines()
		if len(got) != len(want) {
			t.Fatalf("logged %q, want %d lines", got, len(want))
		}
		for i, w := range want {
			if got[i] != w {
				t.Errorf("logged %s\n  want %s", got[i], w)
			}
		}
	}
	look := func(problems ...*agentv1.Problem) time.Time {
		return r.look(problems, func(name string) bool { return serving[name] }, now)
	}
	port := refusedProblem(string(typeListener), "http-80", "port 80 is in use")
	look(port)
	expect(`level=WARN msg="the proxy refuses a listener" listener=http-80 reason="port 80 is in use"`)
	look(port)
	look() // it changes, and Envoy has yet to say what it thinks of that
	look(port)
	expect()
	serving["http-80"] = true
	look()
	expect(`level=INFO msg="the proxy accepted the listener" listener=http-80`)

	var many []*agentv1.Problem
	for i := range 100 {
		name := fmt.Sprintf("host-%d.example", i)
		many = append(many, refusedProblem(string(typeRoute), "http-80/7/"+name, name+": regex  too large\n"))
	}
	look(many[:60]...)
	expect(`level=WARN msg="the proxy refuses resources" type=RouteConfiguration count=60 of=60 first=http-80/7/host-0.example reason="…: regex too large"`)
	if next := look(many...); !next.Equal(now.Add(refusalGap)) {
		t.Errorf("looks again at %v", next)
	}
	expect()
	now = now.Add(refusalGap)
	look(many...)
	expect(`level=WARN msg="the proxy refuses resources" type=RouteConfiguration count=40 of=100 first=http-80/7/host-60.example reason="…: regex too large"`)
	now = now.Add(refusalGap)
	look(many[0])
	expect()
	look()
	expect(`level=INFO msg="the proxy no longer refuses resources for this reason" type=RouteConfiguration reason="…: regex too large"`)
}
