package embedded

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// TestRepetitionsAreCounted: what fails with one cause again and again is a line a minute,
// with the number of those between.
func TestRepetitionsAreCounted(t *testing.T) {
	var out bytes.Buffer
	h := newRepeats(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	now := time.Unix(1000, 0)
	say := func(h slog.Handler, level slog.Level, message, cause string, took int) {
		t.Helper()
		record := slog.NewRecord(now, level, message, 0)
		record.AddAttrs(slog.String("error", cause), slog.Int("took", took))
		if err := h.Handle(context.Background(), record); err != nil {
			t.Fatal(err)
		}
	}
	lines := func(want ...string) {
		t.Helper()
		got := strings.Split(strings.TrimSpace(out.String()), "\n")
		out.Reset()
		if len(got) != len(want) {
			t.Fatalf("%d lines, want %d:\n%s", len(got), len(want), strings.Join(got, "\n"))
		}
		for i := range want {
			if !strings.Contains(got[i], want[i]) {
				t.Errorf("line %d is %s, want %s", i, got[i], want[i])
			}
		}
	}
	for i := range 10 {
		say(h, slog.LevelWarn, "apply failed", "no space", i)
		say(h, slog.LevelWarn, "apply failed", "too large", i)
		say(h.WithAttrs([]slog.Attr{slog.String("from", "elsewhere")}), slog.LevelWarn, "apply failed", "no space", i)
	}
	lines("no space", "too large", "elsewhere")
	say(h, slog.LevelInfo, "compacted", "", 1)
	say(h, slog.LevelInfo, "compacted", "", 1)
	lines("compacted", "compacted")
	now = now.Add(repeatTime)
	say(h, slog.LevelWarn, "apply failed", "no space", 11)
	lines("repeated=9")
	now = now.Add(repeatTime)
	say(h, slog.LevelWarn, "apply failed", "no space", 12)
	if strings.Contains(out.String(), "repeated") {
		t.Errorf("nothing was kept back, and it says %s", out.String())
	}
	out.Reset()
	// However many causes there are, all are told, and few are remembered.
	for i := range 3 * repeatMost {
		say(h, slog.LevelError, "failed", time.Duration(i).String(), i)
	}
	if n := strings.Count(out.String(), "\n"); n != 3*repeatMost || len(h.seen.lines) > repeatMost {
		t.Errorf("%d lines of %d, %d remembered", n, 3*repeatMost, len(h.seen.lines))
	}
}

// TestFaultsOfClientsAreTheirs: what the API server tells a client, and holds to be its own
// fault, is no error of the plane's.
func TestFaultsOfClientsAreTheirs(t *testing.T) {
	for level, want := range map[slog.Level]string{slog.LevelInfo: "", slog.LevelDebug: "level=DEBUG"} {
		var out bytes.Buffer
		h := &heldLog{}
		h.hold(newRepeats(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level})))
		h.pass()
		slog.New(kubeHandler{log: h}).Error("[SHOULD NOT HAPPEN] failed to update managedFields", "err", errors.New("expected list, got nonsense"))
		if got := out.String(); (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("at level %s it says %q, want %q", level, got, want)
		}
	}
}
