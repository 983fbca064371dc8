package console

import (
	"strings"
	"testing"
	"time"

	v1 "fairlead.dev/internal/console/v1"
)

func TestWhatMachinesSayCannotMoveTheCursor(t *testing.T) {
	s := v1.Status{Problems: []v1.Problem{{Severity: v1.SeverityError, Subject: "BGPPeer x at y", Reason: "Notified", Message: "it says \x1b[2J\x07é\u009b1m\nand more"}}}
	var out strings.Builder
	if err := WriteText(&out, s, TextOptions{Now: time.Unix(0, 0)}); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); strings.ContainsAny(got, "\x1b\x07\u009b") || !strings.Contains(got, "it says ?[2J?é??1m\n") || !strings.Contains(got, "and more") {
		t.Errorf("%q", got)
	}
}
