package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"fairlead.dev/lab"
)

// joiner runs agents on the machine that belongs to no plane yet.
type joiner struct {
	*site
	machine *lab.Machine
	made    int
}

// arguments are those of an agent with directories of its own and a token in a file.
func (j *joiner) arguments(t *testing.T, name, token string) []string {
	t.Helper()
	j.made++
	dir, err := j.machine.Dir(fmt.Sprintf("a%d", j.made))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{
		"agent", "--plane", j.plane.Endpoint(), "--name", name, "--token-file", file,
		"--data-dir", filepath.Join(dir, "data"), "--run-dir", filepath.Join(dir, "run"),
		"--envoy", j.Envoy, "--console-address", fmt.Sprintf("127.0.0.1:%d", 7100+j.made), "--drain-time", "1s",
	}
}

// token creates one with the command line.
func (j *joiner) token(t *testing.T, name string, more ...string) string {
	t.Helper()
	status, out, errs := j.run(t, j.plane.Machine, append([]string{"token", "create", "--kubeconfig", j.plane.Kubeconfig(), "--machine", name}, more...)...)
	if status != 0 || !strings.HasPrefix(out, "fl1.") || !strings.Contains(errs, "machine "+name+" can join with this token, once, until ") {
		t.Fatalf("token create: status %d: %s%s", status, out, errs)
	}
	return out
}

// refused runs an agent that must not get in, and compares the last line that it says.
func (j *joiner) refused(t *testing.T, args []string, says string) {
	t.Helper()
	status, out, errs := j.run(t, j.machine, args...)
	lines := strings.Split(strings.TrimSpace(errs), "\n")
	if last := lines[len(lines)-1]; status != 1 || out != "" || !matches("fairlead: agent: "+says, last) {
		t.Errorf("the agent ended with status %d and said\n%s\nwant status 1 and\nfairlead: agent: %s", status, last, says)
	}
}

// TestTokens joins with tokens that are wrong in every way. Each is refused with what
// is wrong and what to do, and no machine comes of it.
func TestTokens(t *testing.T) {
	s := shared(t)
	j := &joiner{site: s, machine: s.Lab.Machine(newcomer.Name)}
	at := "join at " + s.plane.Endpoint() + ": "
	const again = "run `fairlead token create --machine newcomer` at the plane and start this agent with the new token"
	wrong := strings.Split(j.token(t, "newcomer"), ".")
	for name, c := range map[string]struct{ token, says string }{
		"garbage": {"\x00\xffgarbage", "join token refused: it does not have the form fl1.<id>.<secret>.<pin>: copy it whole, as `fairlead token create` printed it"},
		"cut":     {strings.Join(wrong, ".")[:70], "join token refused: …: copy it whole, as `fairlead token create` printed it"},
		"empty":   {"", "join token refused: it does not have the form …"},
		"secret":  {strings.Join([]string{wrong[0], wrong[1], strings.Repeat("A", len(wrong[2])), wrong[3]}, "."), at + "join token refused: its secret is wrong: " + again},
		"unknown": {strings.Join([]string{wrong[0], "aaaaaaaaaa", wrong[2], wrong[3]}, "."), at + "join token refused: there is no token with ID aaaaaaaaaa: it was revoked, or used long ago, or belongs to another plane: " + again},
		"another": {j.token(t, "somebody"), at + "join token refused: it is for machine somebody, not for \"newcomer\": " + again},
		"role": {j.token(t, "newcomer", "--role", "Backend"), at + "join token refused: the token is for a machine of role backend, and this agent was started with --role edge: " +
			"start it with --role backend, or with a token of `fairlead token create --machine newcomer --role edge`"},
	} {
		t.Run(name, func(t *testing.T) { j.refused(t, j.arguments(t, "newcomer", c.token), c.says) })
	}
	t.Run("pin", func(t *testing.T) {
		// The right secret with the pin of another authority: the plane is not trusted,
		// and does not see the token.
		pin := "A" + strings.Repeat("B", 42)
		token := strings.Join([]string{wrong[0], wrong[1], wrong[2], pin[:len(strings.TrimSpace(wrong[3]))]}, ".")
		dir := j.arguments(t, "newcomer", token)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c := j.machine.Command(ctx, append([]string{s.Binary}, dir...)...)
		var log lockedBuffer
		c.Stderr = &log
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		s.await(t, "the agent to say that the plane is another one", func(context.Context) error {
			if want := "the plane's certificate authority is not the one that this machine was given: check the address; if the plane was set up anew, or its authority was retired, run `fairlead token create --machine newcomer`"; !strings.Contains(log.String(), want) {
				return errors.New(log.String())
			}
			return nil
		})
		cancel() // it would go on trying: the plane may come back
		_ = c.Wait()
		j.end(t)
	})
	t.Run("expired", func(t *testing.T) {
		token := j.token(t, "newcomer", "--ttl", "1s")
		id := strings.Split(token, ".")[1]
		s.await(t, "the token to expire", func(context.Context) error {
			if state := j.state(t, id); state != "expired" {
				return fmt.Errorf("it is %s", state)
			}
			return nil
		})
		j.refused(t, j.arguments(t, "newcomer", token), at+"join token refused: it expired at …Z: "+again)
	})
	t.Run("revoked", func(t *testing.T) {
		token := j.token(t, "newcomer")
		id := strings.Split(token, ".")[1]
		if status, _, errs := s.run(t, s.plane.Machine, "token", "revoke", id, "--kubeconfig", s.plane.Kubeconfig()); status != 0 {
			t.Fatal(errs)
		}
		j.refused(t, j.arguments(t, "newcomer", token), at+"join token refused: there is no token with ID "+id+": …: "+again)
		if status, _, errs := s.run(t, s.plane.Machine, "token", "revoke", id, "--kubeconfig", s.plane.Kubeconfig()); status != 1 || errs != "fairlead: no token has the ID "+id+" ('fairlead token list' lists them)\n" {
			t.Errorf("a second revocation ended with status %d: %s", status, errs)
		}
	})
	t.Run("file", func(t *testing.T) {
		args := j.arguments(t, "newcomer", "x")
		for i, a := range args {
			if a == "--token-file" {
				if err := os.Remove(args[i+1]); err != nil {
					t.Fatal(err)
				}
			}
		}
		j.refused(t, args, "no identity and no join token: run `fairlead token create --machine newcomer` at the plane and start this agent with --token-file: read token: open …: no such file or directory")
	})
	for _, name := range []string{"newcomer", "somebody"} {
		if _, err := s.get(t.Context(), ref("Machine "+name)); !apierrors.IsNotFound(err) {
			t.Errorf("machine %s: got %v, want that there is none", name, err)
		}
	}
	if found, err := j.machine.Residents(); err != nil || len(found) > 0 {
		t.Errorf("agents that were refused left %+v (%v)", found, err)
	}
}

// TestNameOfLiveMachine joins a machine, and tries to take its name while it lives and
// to use its token again afterwards.
func TestNameOfLiveMachine(t *testing.T) {
	s := shared(t)
	j := &joiner{site: s, machine: s.Lab.Machine(newcomer.Name), made: 50}
	first := j.token(t, "newcomer")
	args := j.arguments(t, "newcomer", first)
	p, err := j.machine.Start(t.Context(), lab.ProcessSpec{Name: "agent", Argv: append([]string{s.Binary}, append(args, "--on-stop=drain")...)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.end(t) })
	if err := s.plane.AwaitConnected(t.Context(), j.machine); err != nil {
		t.Fatal(err)
	}
	second := j.token(t, "newcomer")
	id := strings.Split(second, ".")[1]
	j.refused(t, j.arguments(t, "newcomer", second),
		"join at "+s.plane.Endpoint()+": machine name is taken: machine newcomer is alive; stop its agent first, or join under another name")
	if state := j.state(t, id); state != "usable" {
		t.Errorf("the token that was refused is %s, want it usable still", state)
	}
	if err := p.Stop(t.Context(), stopTime); err != nil {
		t.Fatal(err)
	}
	j.refused(t, j.arguments(t, "newcomer", first),
		"join at "+s.plane.Endpoint()+": join token refused: it was used at …Z: run `fairlead token create --machine newcomer` at the plane and start this agent with the new token")
	s.kubectl(t, "delete", "machine", "newcomer")
}

// state is what `fairlead token list` says of a token.
func (j *joiner) state(t *testing.T, id string) string {
	t.Helper()
	status, out, errs := j.run(t, j.plane.Machine, "token", "list", "--kubeconfig", j.plane.Kubeconfig(), "-o", "json")
	var tokens []struct {
		ID      string `json:"id"`
		Expired bool   `json:"expired"`
		Spent   string `json:"spent"`
	}
	if err := json.Unmarshal([]byte(out), &tokens); status != 0 || err != nil {
		t.Fatalf("token list: status %d: %v: %s", status, err, errs)
	}
	for _, token := range tokens {
		switch {
		case token.ID != id:
		case token.Spent != "":
			return "used"
		case token.Expired:
			return "expired"
		default:
			return "usable"
		}
	}
	return "gone"
}

// end kills what an agent left running on the machine.
func (j *joiner) end(t *testing.T) {
	t.Helper()
	found, err := j.machine.Residents()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range found {
		if err := r.Kill9(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Error(err)
		}
	}
}
