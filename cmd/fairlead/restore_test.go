package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/embedded"
	"fairlead.dev/internal/plane"
	"fairlead.dev/internal/southbound"
)

// stored is a database with machines ("name=key"), a token that can be used and an authority.
func stored(t *testing.T, now time.Time, ca *southbound.CA, token string, machines ...string) plane.Credentials {
	t.Helper()
	objects := map[string][]byte{}
	put := func(key string, o any) {
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		objects[key] = text
	}
	for _, m := range machines {
		name, key, _ := strings.Cut(m, "=")
		put("fairlead.dev/machines/"+name, v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{plane.KeysAnnotation: key}}})
	}
	secret := func(name string, kind corev1.SecretType, data map[string][]byte) {
		put("secrets/fairlead-system/"+name, corev1.Secret{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: metav1.ObjectMeta{Namespace: plane.Namespace, Name: name}, Type: kind, Data: data,
		})
	}
	secret("join-token-"+token, plane.TokenSecretType, map[string][]byte{
		"machine": []byte("edge-9"), "expires": []byte(now.Add(time.Hour).UTC().Format(time.RFC3339)),
	})
	data, err := ca.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	secret(plane.AuthoritySecret, corev1.SecretTypeOpaque, map[string][]byte{"authority.pem": data})
	a, err := plane.ReadCredentials(objects, now)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestRestoreSaysWhoComesBack: whoever restores is told whom the backup lets in that was put out since.
func TestRestoreSaysWhoComesBack(t *testing.T) {
	now := time.Date(2026, 11, 24, 14, 0, 0, 0, time.UTC)
	authority := func() *southbound.CA {
		ca, err := southbound.NewCA(func() time.Time { return now })
		if err != nil {
			t.Fatal(err)
		}
		return ca
	}
	first, second := authority(), authority()
	before := stored(t, now, first, "aaaaaaaaaa", "edge-1=k1", "edge-2=k2", "edge-3=k3")
	var many []string
	for i := range listedNames + 5 {
		many = append(many, fmt.Sprintf("m%02d=k", i))
	}
	for name, c := range map[string]struct {
		r    restoreReview
		says []string
		not  string
	}{
		"the same": {restoreReview{restored: before, present: before}, []string{"of 2026-11-21T10:00:00Z, 76h0m0s ago, made on plane-1", "the same machines and tokens"}, "deleted"},
		"changes": {
			restoreReview{restored: before, present: stored(t, now, first, "bbbbbbbbbb", "edge-2=k9", "edge-3=k3", "edge-4=k4")},
			[]string{
				"accepted again: edge-1\n", "joined again since: their earlier certificates are accepted again: edge-2\n", "can be used again: aaaaaaaaaa (edge-9, until 2026-11-24T15:00:00Z)\n",
				"must join once more: edge-2, edge-4\n", "fairlead token revoke ID",
			},
			"authority of agents that was retired",
		},
		"a rotation": {
			restoreReview{restored: before, present: stored(t, now, second, "aaaaaaaaaa", "edge-1=k1", "edge-2=k2", "edge-3=k3")},
			[]string{"retired since is trusted again", "--authority present"},
			"accepted again",
		},
		"a rotation, and the present authority": {
			restoreReview{authority: authorityPresent, restored: before, present: stored(t, now, second, "bbbbbbbbbb", "edge-1=k1", "edge-2=k2", "edge-3=k3")},
			[]string{"the same machines and tokens"},
			"--authority present",
		},
		"a new authority": {restoreReview{authority: authorityNew, restored: before, present: before}, []string{"every machine has to join again"}, "edge-1"},
		"nothing to compare with": {
			restoreReview{restored: before, unknown: embedded.ErrNoDatabase},
			[]string{"there is no database", "accepted again, if they are among these", "machines: edge-1, edge-2, edge-3\n", "tokens: aaaaaaaaaa"},
			"Compared",
		},
		"an unreadable backup": {restoreReview{unread: errors.New("it is damaged")}, []string{"it is damaged", "are accepted again"}, "Compared"},
		"many":                 {restoreReview{restored: stored(t, now, first, "aaaaaaaaaa", many...), present: before}, []string{"m19 and 5 more\n"}, "m20"},
	} {
		t.Run(name, func(t *testing.T) {
			c.r.now, c.r.backup = now, embedded.Manifest{Created: now.Add(-76 * time.Hour), Host: "plane-1"}
			var out strings.Builder
			c.r.write(&out)
			for _, says := range c.says {
				if !strings.Contains(out.String(), says) {
					t.Errorf("it does not say %q:\n%s", says, out.String())
				}
			}
			if strings.Contains(out.String(), c.not) {
				t.Errorf("it says %q:\n%s", c.not, out.String())
			}
		})
	}
	if _, err := (restoreReview{authority: authorityPresent, restored: before, unknown: embedded.ErrNoDatabase}).files(); !errors.Is(err, embedded.ErrNoDatabase) {
		t.Errorf("what is not known is kept: %v", err)
	}
	for authority, want := range map[string]int{authorityBackup: 0, authorityPresent: 1, authorityNew: 1} {
		if files, err := (restoreReview{now: now, authority: authority, restored: before, present: before}).files(); err != nil || len(files) != want {
			t.Errorf("--authority %s leaves %d files, %v", authority, len(files), err)
		}
	}
}

// TestRestoreKeepsADecision: a restore forgets no authority that an earlier one left and that no plane has
// taken in yet.
func TestRestoreKeepsADecision(t *testing.T) {
	dir := t.TempDir()
	refuses := func(authority string) bool {
		t.Helper()
		f := &restoreFlags{dataDir: dir, authority: authority}
		err := f.pending()
		if err != nil && !strings.Contains(err.Error(), filepath.Join(dir, restoredAuthority)) {
			t.Errorf("--authority %s: %v", authority, err)
		}
		return err != nil
	}
	if refuses(authorityBackup) || refuses(authorityPresent) {
		t.Error("it is refused where nothing was left")
	}
	if err := os.WriteFile(filepath.Join(dir, restoredAuthority), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if !refuses(authorityBackup) || !refuses(authorityPresent) || refuses(authorityNew) {
		t.Error("an authority that an earlier restore left is forgotten, or in the way of a new one")
	}
	_, err := (&restoreFlags{dataDir: dir, authority: authorityBackup}).approval(&cobra.Command{})(t.Context(), embedded.Replacement{})
	if err == nil || !strings.Contains(err.Error(), "an earlier restore") {
		t.Errorf("the restore goes on: %v", err)
	}
}

// TestQuestionsWantAYes: everything else is a no, and so is nobody to ask.
func TestQuestionsWantAYes(t *testing.T) {
	for said, want := range map[string]error{
		"y\n": nil, "Yes\n": nil, " y \n": nil, "y": nil,
		"\n": errDeclined, "": errDeclined, "n\n": errDeclined, "yesterday\n": errDeclined, "no\ny\n": errDeclined,
	} {
		var out strings.Builder
		if err := answer(t.Context(), strings.NewReader(said), &out, "Do it?"); !errors.Is(err, want) {
			t.Errorf("%q: %v", said, err)
		}
		if out.String() != "Do it? [y/N] " {
			t.Errorf("it asks %q", out.String())
		}
	}
	// Whoever ends the command while it asks has not agreed.
	in, end := io.Pipe()
	defer end.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := answer(ctx, in, io.Discard, "Do it?"); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	c := &cobra.Command{}
	c.SetIn(strings.NewReader("y\n"))
	if err := confirm(t.Context(), c, false, "Do it?"); err == nil || !strings.Contains(err.Error(), "--yes") {
		t.Errorf("without a terminal: %v", err)
	}
	if err := confirm(t.Context(), c, true, "Do it?"); err != nil {
		t.Errorf("with --yes: %v", err)
	}
}
