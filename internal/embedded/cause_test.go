package embedded

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"fairlead.dev/internal/muffle"
)

// TestFaultsOfClientsAreTheirs: what the API server tells a client, and holds to be its own
// fault, is no error of the plane's.
func TestFaultsOfClientsAreTheirs(t *testing.T) {
	for level, want := range map[slog.Level]string{slog.LevelInfo: "", slog.LevelDebug: "level=DEBUG"} {
		var out bytes.Buffer
		h := &heldLog{}
		h.hold(muffle.NewHandler(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level}), causeOf))
		h.pass()
		slog.New(kubeHandler{log: h}).Error("[SHOULD NOT HAPPEN] failed to update managedFields", "err", errors.New("expected list, got nonsense"))
		if got := out.String(); (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("at level %s it says %q, want %q", level, got, want)
		}
	}
}
