package plane

import (
	"context"
	"crypto/x509"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/embedded"
)

// credentials are what the API's database says now, as a restore reads it out of a backup.
func (r *rig) credentials() Credentials {
	r.t.Helper()
	file := filepath.Join(r.t.TempDir(), "backup.tar")
	if err := embedded.Backup(context.Background(), shared.dir, file, "test"); err != nil {
		r.t.Fatal(err)
	}
	looked := errors.New("looked at")
	var a Credentials
	err := embedded.Restore(context.Background(), filepath.Join(r.t.TempDir(), "data"), file, func(ctx context.Context, b embedded.Replacement) (map[string][]byte, error) {
		stored, err := b.Restored.Read(ctx, CredentialPrefixes()...)
		if err != nil {
			return nil, err
		}
		if a, err = ReadCredentials(stored, time.Now()); err != nil {
			return nil, err
		}
		return nil, looked
	})
	if !errors.Is(err, looked) {
		r.t.Fatal(err)
	}
	return a
}

// TestCredentialsThatABackupBringsBack: what a restore says is read from the databases themselves.
func TestCredentialsThatABackupBringsBack(t *testing.T) {
	r := newRig(t)
	ctx := context.Background()
	machine := func(name, keys string) *v1alpha1.Machine {
		return &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{KeysAnnotation: keys}}}
	}
	again, revoked := parse(t, r.token("edge-5", time.Hour)), parse(t, r.token("edge-6", time.Hour)) // they make the authority, too
	r.create(machine("deleted", "k1"), machine("anew", "k2"), machine("renewed", "k3"), machine("same", "k4"),
		&v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "never-joined"}})
	before := r.credentials()
	if got := before.Machines(); !slices.Equal(got, []string{"anew", "deleted", "renewed", "same"}) || len(before.Tokens()) != 2 {
		t.Errorf("the backup has %v, %+v", got, before.Tokens())
	}
	if c := before.Replacing(before); len(c.Back)+len(c.Earlier)+len(c.Gone)+len(c.Tokens) > 0 || c.Authority || c.Retired {
		t.Errorf("against itself it is %+v", c)
	}

	if err := r.client.Delete(ctx, machine("deleted", "")); err != nil {
		t.Fatal(err)
	}
	edit(r, machine("anew", ""), func(m *v1alpha1.Machine) { m.Annotations[KeysAnnotation] = "k9" })
	edit(r, machine("renewed", ""), func(m *v1alpha1.Machine) { m.Annotations[KeysAnnotation] = "k3,k8" })
	r.create(machine("later", "k5"))
	if err := RevokeToken(ctx, r.client, revoked.ID); err != nil {
		t.Fatal(err)
	}
	r.token("edge-7", time.Hour) // one that the backup does not have
	check := func(what string, c CredentialChange, authority, retired bool, tokens ...string) {
		t.Helper()
		var ids []string
		for _, token := range c.Tokens {
			ids = append(ids, token.ID)
		}
		slices.Sort(tokens)
		if !slices.Equal(c.Back, []string{"deleted"}) || !slices.Equal(c.Earlier, []string{"anew"}) || !slices.Equal(c.Gone, []string{"anew", "later"}) ||
			!slices.Equal(ids, tokens) || c.Authority != authority || c.Retired != retired {
			t.Errorf("%s it is %+v, want tokens %v", what, c, tokens)
		}
	}
	check("at first", before.Replacing(r.credentials()), false, false, revoked.ID)
	if _, err := RotateAuthority(ctx, r.client, time.Now); err != nil {
		t.Fatal(err)
	}
	during := r.credentials()
	check("of before a rotation", before.Replacing(during), true, false, revoked.ID)
	if _, err := RetireAuthority(ctx, r.client, time.Now, []string{"anew", "later", "renewed", "same"}); err != nil {
		t.Fatal(err)
	}
	now := r.credentials()
	check("of before a retirement", before.Replacing(now), true, true, again.ID, revoked.ID)
	if c := during.Replacing(now); !c.Authority || !c.Retired {
		t.Errorf("of during a rotation it is %+v", c)
	}
	check("with the authority of now", before.Under(now).Replacing(now), false, false) // no token of the retired one
	check("with that of the rotation", before.Under(during).Replacing(during), false, false, revoked.ID)
}

// TestAuthorityOfARestore: a plane takes in what a restore left before it serves anybody, once. With the
// authorities that were there before the restore, machines go on; with new ones, nobody gets in.
func TestAuthorityOfARestore(t *testing.T) {
	r := newRig(t)
	ctx := context.Background()
	file := filepath.Join(t.TempDir(), "authority")
	p := r.plane("one").awaitReady()
	// A token that cannot be read is in nobody's way.
	r.create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: tokenPrefix + "unreadable"},
		Type:       TokenSecretType, Data: map[string][]byte{tokenMachine: []byte("edge-1")},
	})
	spent := r.token("edge-1", time.Hour)
	a := newFakeAgent(t, "edge-1")
	if err := a.join(p.AgentAddress().String(), spent); err != nil {
		t.Fatal(err)
	}
	p.stop()
	present := r.credentials()
	take := func(text []byte, err error) *running {
		t.Helper()
		if err == nil {
			err = os.WriteFile(file, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		p := r.plane("one", func(c *Config) { c.AuthorityFile = file }).awaitReady()
		if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the file is still there: %v", err)
		}
		return p
	}

	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "edge-1"}}
	edit(r, m, func(m *v1alpha1.Machine) { m.Annotations[authorityAnnotation] = "of another database" })
	unused := r.token("edge-2", time.Hour)
	p = take(NewAuthorityFile(time.Now()))
	if err := reread(r, m); err != nil || m.Annotations[authorityAnnotation] != "" || m.Annotations[KeysAnnotation] == "" {
		t.Errorf("of what it keeps is written %v, %v", m.Annotations, err)
	}
	a.connect(p.AgentAddress().String())
	a.ends(codes.Unavailable, "unknown authority") // of the plane
	// Not even one who takes any plane for his own.
	anyone := newFakeAgent(t, "edge-1")
	anyone.key, anyone.cert, anyone.root = a.key, a.cert, x509.NewCertPool()
	anyone.root.AppendCertsFromPEM(p.trust.authorities.Roots())
	anyone.connect(p.AgentAddress().String())
	anyone.ends(codes.Unauthenticated, "unknown authority")
	// Nor one who shows the token that he has spent, which is good for his key.
	parts := strings.Split(spent, ".")
	parts[3] = p.trust.authorities.Pin()
	if err := anyone.join(p.AgentAddress().String(), strings.Join(parts, ".")); err == nil || !strings.Contains(err.Error(), "there is no token with ID "+parts[1]) {
		t.Errorf("with a token that was spent before: %v", err)
	}
	if left, err := tokenSecrets(ctx, r.client); err != nil || len(left) != 1 || left[0].Name != tokenPrefix+"unreadable" {
		t.Errorf("of the unused %s and others there are %v, %v", parse(t, unused).ID, left, err)
	}
	p.stop()

	// The database has a new authority now, and gets back the one that the machine knows.
	p = take(present.AuthorityFile(r.credentials()))
	a.connect(p.AgentAddress().String())
	a.served()
	p.stop()

	printed := r.token("edge-2", time.Hour)
	p = take(present.AuthorityFile(r.credentials())) // those that are there already
	if err := newFakeAgent(t, "edge-2").join(p.AgentAddress().String(), printed); err != nil {
		t.Errorf("with a token of the same authority: %v", err)
	}
}

// TestUnusableAuthorityFile ends a start, and says what to do; it changes nothing.
func TestUnusableAuthorityFile(t *testing.T) {
	r := newRig(t)
	ctx := context.Background()
	log := slog.New(slog.DiscardHandler)
	stored, err := loadAuthority(ctx, r.client, time.Now, log)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"empty": "", "garbage": "{", "no authority": `{"fields":{"authority.pem":"eA=="}}`} {
		file := filepath.Join(t.TempDir(), "authority")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		err := adoptAuthorities(ctx, r.client, file, time.Now, log)
		if !errors.As(err, new(unusableAuthority)) || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "remove the file") {
			t.Errorf("%s: %v", name, err)
		}
	}
	now, err := loadAuthority(ctx, r.client, time.Now, log)
	if err != nil || now.Pin() != stored.Pin() {
		t.Errorf("the authority is another: %v", err)
	}
	if err := adoptAuthorities(ctx, r.client, filepath.Join(t.TempDir(), "none"), time.Now, log); err != nil {
		t.Errorf("without a file: %v", err)
	}
}
