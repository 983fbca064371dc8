package muffle_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"fairlead.dev/internal/muffle"
)

// TestHandlerCounts: what fails with one cause again and again is a line a minute, with the number
// of records that it stands for.
func TestHandlerCounts(t *testing.T) {
	var out bytes.Buffer
	h := slog.Handler(muffle.NewHandler(slog.NewTextHandler(&out, nil), func(r slog.Record) string {
		cause := r.Message
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == "error" {
				cause += a.String()
			}
			return true
		})
		return cause
	}))
	now := time.Unix(1000, 0)
	say := func(h slog.Handler, level slog.Level, message, cause string, took int) {
		t.Helper()
		record := slog.NewRecord(now, level, message, 0)
		record.AddAttrs(slog.String("error", cause), slog.Int("took", took))
		if err := h.Handle(context.Background(), record); err != nil {
			t.Fatal(err)
		}
	}
	lines := func(want ...string) { // in any order
		t.Helper()
		got := out.String()
		out.Reset()
		if n := strings.Count(got, "\n"); n != len(want) {
			t.Fatalf("%d lines, want %d:\n%s", n, len(want), got)
		}
		for _, w := range want {
			if !strings.Contains(got, w+"\n") {
				t.Errorf("no line has %s:\n%s", w, got)
			}
		}
	}
	elsewhere := h.WithAttrs([]slog.Attr{slog.String("from", "elsewhere")})
	for i := range 10 {
		say(h, slog.LevelWarn, "apply failed", "no space", i)
		say(h, slog.LevelWarn, "apply failed", "too large", i)
		say(elsewhere, slog.LevelWarn, "apply failed", "no space", i)
	}
	lines(`error="no space" took=0`, `error="too large" took=0`, `from=elsewhere error="no space" took=0`)
	say(h, slog.LevelInfo, "compacted", "", 1)
	say(h, slog.LevelInfo, "compacted", "", 1)
	lines(`error="" took=1`, `error="" took=1`)
	// What was held back is written with whatever comes once it is due.
	now = now.Add(muffle.Every)
	say(h, slog.LevelWarn, "apply failed", "no space", 10)
	lines(`error="no space" took=10 events=10`, `error="too large" took=9 events=9`, `from=elsewhere error="no space" took=9 events=9`)
	now = now.Add(muffle.Every)
	say(h, slog.LevelInfo, "compacted", "", 2)
	say(h, slog.LevelWarn, "apply failed", "no space", 12)
	lines(`error="" took=2`, `error="no space" took=12`)
	// However many causes there are, the lines have a bound, and tell of all.
	for i := range 10_000 {
		say(h, slog.LevelError, "failed", fmt.Sprint(i), i)
	}
	now = now.Add(muffle.Every)
	say(h, slog.LevelInfo, "compacted", "", 3)
	total := 0
	for line := range strings.Lines(out.String()) {
		n := 1
		if _, events, more := strings.Cut(strings.TrimSpace(line), "events="); more {
			if _, err := fmt.Sscan(events, &n); err != nil {
				t.Fatal(err)
			}
		}
		if strings.Contains(line, "msg=failed") {
			total += n
		}
	}
	if n := strings.Count(out.String(), "\n"); total != 10_000 || n > 140 {
		t.Errorf("%d lines tell of %d failures, want 10000", n, total)
	}
}
