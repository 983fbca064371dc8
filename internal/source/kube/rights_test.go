package kube

import (
	"log/slog"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

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

func TestReads(t *testing.T) {
	if all := Reads(); len(all) != len(snapshot.Kinds()) || !slices.Contains(all, corev1.SchemeGroupVersion.WithResource("secrets")) {
		t.Errorf("of %d kinds, these are read: %v", len(snapshot.Kinds()), all)
	}
}
