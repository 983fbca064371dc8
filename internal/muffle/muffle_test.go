package muffle_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"fairlead.dev/internal/muffle"
)

// clocked is a Log with a clock that the test sets, and the lines that it wrote.
func clocked() (l *muffle.Log, pass func(time.Duration), lines func() []string) {
	now := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	var b bytes.Buffer
	h := slog.NewTextHandler(&b, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})
	l = muffle.New(slog.New(h), func() time.Time { return now })
	lines = func() []string {
		out := strings.FieldsFunc(b.String(), func(r rune) bool { return r == '\n' })
		b.Reset()
		return out
	}
	return l, func(d time.Duration) { now = now.Add(d) }, lines
}

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the lines are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestOneLineAMinute(t *testing.T) {
	l, pass, lines := clocked()
	for i := range 1000 {
		l.Warn("a", "an event", "n", i)
	}
	l.Info("b", "another", "n", 1)
	expect(t, lines(), `level=WARN msg="an event" n=0`, `level=INFO msg=another n=1`)
	l.Flush()
	expect(t, lines())
	pass(muffle.Every)
	l.Flush()
	expect(t, lines(), `level=WARN msg="an event" n=999 events=999`)
	pass(muffle.Every - 1)
	l.Warn("a", "an event", "n", 7)
	l.Flush()
	expect(t, lines())
	pass(1)
	l.Warn("a", "an event", "n", 8)
	expect(t, lines(), `level=WARN msg="an event" n=8 events=2`)
	l.Warn("a", "an event", "n", 9)
	l.Close()
	expect(t, lines(), `level=WARN msg="an event" n=9`)
	l.Close()
	expect(t, lines())
	pass(muffle.Every)
	l.Flush()
	l.Warn("a", "an event", "n", 10)
	expect(t, lines(), `level=WARN msg="an event" n=10`)
}

// However many kinds there are, the lines and what is kept have a bound.
func TestKindsAreBounded(t *testing.T) {
	l, pass, lines := clocked()
	const events = 10000
	total := 0
	for round := range 2 {
		for i := range events {
			l.Warn(fmt.Sprint(round, i), "an event")
		}
		l.Close()
		written := lines()
		if len(written) > 70 {
			t.Fatalf("%d lines", len(written))
		}
		for _, line := range written {
			total++
			if _, events, ok := strings.Cut(line, "events="); ok {
				n := 0
				if _, err := fmt.Sscan(events, &n); err != nil {
					t.Fatal(err)
				}
				total += n - 1
			}
		}
		pass(muffle.Every)
		l.Flush()
	}
	if total != 2*events {
		t.Errorf("the lines tell of %d events, want %d", total, 2*events)
	}
}
