package agent

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// podOf is a pod's two files, as a cluster brings them.
func podOf(t *testing.T, p *plane, node string) *Account {
	t.Helper()
	dir := t.TempDir()
	a := &Account{TokenFile: filepath.Join(dir, "token"), AuthorityFile: filepath.Join(dir, "authority.pem")}
	put(t, a.TokenFile, "token-of-"+node+"\n")
	put(t, a.AuthorityFile, string(p.authority.roots()))
	p.with(func() { p.pods = map[string]string{"token-of-" + node: node} })
	return a
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestPodJoins: an agent in a pod needs no token of ours, and its own as often as it must.
func TestPodJoins(t *testing.T) {
	t.Parallel()
	p := newPlane(t, newAuthority(t))
	j := p.joining()
	j.Account = podOf(t, p, "node-1")
	path := filepath.Join(t.TempDir(), "identity.json")
	for range 2 {
		id, err := j.identify(t.Context(), path, []string{p.address}, "node-1")
		if err != nil {
			t.Fatal(err)
		}
		if id.Machine != "node-1" {
			t.Fatalf("joined as %s", id.Machine)
		}
		if err := os.Remove(path); err != nil { // the node got a new disk
			t.Fatal(err)
		}
	}
}

func TestPodDoesNotJoin(t *testing.T) {
	t.Parallel()
	p, foreign := newPlane(t, newAuthority(t)), newAuthority(t)
	for name, c := range map[string]struct {
		machine string
		spoil   func(*Account)
		class   error
		words   string
	}{
		"another node's name": {"node-2", func(*Account) {}, errToken, "--agent-service-account"},
		"unknown token":       {"node-1", func(a *Account) { put(t, a.TokenFile, "stolen") }, errToken, "unknown"},
		"no token yet":        {"node-1", func(a *Account) { a.TokenFile += ".none" }, errNoIdentity, "service account's token"},
		"no authority yet":    {"node-1", func(a *Account) { a.AuthorityFile += ".none" }, errNoIdentity, "plane's authority"},
		"empty authority":     {"node-1", func(a *Account) { put(t, a.AuthorityFile, "") }, errNoIdentity, "there is no certificate"},
		"another's authority": {"node-1", func(a *Account) { put(t, a.AuthorityFile, string(foreign.roots())) }, errPin, "within two minutes"},
	} {
		t.Run(name, func(t *testing.T) {
			j := p.joining()
			j.Account = podOf(t, p, "node-1")
			c.spoil(j.Account)
			_, err := j.identify(t.Context(), filepath.Join(t.TempDir(), "identity.json"), []string{p.address}, c.machine)
			wantError(t, err, c.class, c.words)
		})
	}
}

// TestPodJoinsAgain: the same token brings a machine back that was deleted, but not
// again at once, as a plane that takes it and refuses the machine would be asked for ever.
func TestPodJoinsAgain(t *testing.T) {
	t.Parallel()
	p := newPlane(t, newAuthority(t))
	j := p.joining()
	j.Account = podOf(t, p, "node-1")
	rejoin := j.rejoin(filepath.Join(t.TempDir(), "identity.json"), []string{p.address}, "node-1")
	for i, wants := range []bool{true, false, true} {
		id, err := rejoin(t.Context())
		if err != nil || (id != nil) != wants {
			t.Fatalf("try %d: %v, %v", i+1, id, err)
		}
		if i == 1 {
			p.authority.clock.set(p.authority.clock.Now().Add(accountPause))
		}
	}
	j.Account.TokenFile += ".none"
	if _, err := j.rejoin("", nil, "node-1")(t.Context()); !errors.Is(err, errNoIdentity) {
		t.Errorf("without a token: %v", err)
	}
}
