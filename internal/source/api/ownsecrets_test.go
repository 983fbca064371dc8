package apisource

import (
	"log/slog"
	"testing"

	"fairlead.dev/internal/snapshot"
)

// TestOwnSecrets: a plane that may read the Secrets of its own namespace alone is told
// to, and does not wait for the others.
func TestOwnSecrets(t *testing.T) {
	api, cfg := newFakeAPI(t)
	api.guarded = true
	c := Config{REST: cfg, Log: slog.New(slog.DiscardHandler), Patience: -1, SecretNamespace: "system", OwnSecrets: true}
	v := followWith(t, c)
	v.until("synced", func() bool { return v.synced })
	if v.secret == nil || string(v.secret.Data[snapshot.PasswordKey]) != "hunter2" {
		t.Errorf("of the Secret came %v", v.secret)
	}
	c.OwnSecrets = false
	v = followWith(t, c)
	poll(t, "the refusal is told", func() bool {
		_, told := v.source.Trouble()[snapshot.KindSecret]
		return told
	})
}
