package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	authorities "fairlead.dev/internal/plane"
	"fairlead.dev/lab/rig"
)

// TestAuthorityIsReplaced replaces the agents' authority with the command line while clients ask: nothing is
// lost, the machine need not join again, who joins afterwards does so by the new one, and a token of before
// lets nobody in.
func TestAuthorityIsReplaced(t *testing.T) {
	s := newLab(t, "authority", client, edge1, newcomer, os1, plane)
	var err error
	if s.plane, err = s.StartPlane(t.Context(), s.Lab.Machine(plane.Name), rig.PlaneOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := s.connect(); err != nil {
		t.Fatal(err)
	}
	agent, err := s.StartAgent(t.Context(), s.Lab.Machine(edge1.Name), s.plane)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(agent.AwaitReady(t.Context()), s.plane.AwaitConnected(t.Context(), agent.Machine)); err != nil {
		t.Fatal(err)
	}
	s.apply(t, exampleFiles(t)...)
	s.apply(t, namespace("replace"), service("replace", "a", s.backends["os1-a"]), httpRoute("replace", "app", "replace.example.com", to("a")))
	s.awaitAnswer(t, request{host: "replace.example.com"}, 200, "os1-a")
	j := &joiner{site: s, machine: s.Lab.Machine(newcomer.Name)}
	unused := j.token(t, newcomer.Name)

	authority := func(t *testing.T, args ...string) string {
		t.Helper()
		status, out, errs := s.run(t, s.plane.Machine, append([]string{"authority"}, append(args, "--kubeconfig", s.plane.Kubeconfig())...)...)
		if status != 0 {
			t.Fatalf("authority %v: status %d: %s%s", args, status, out, errs)
		}
		return out + errs
	}
	state := func(t *testing.T) (a authorities.AuthorityStatus) {
		t.Helper()
		if err := json.Unmarshal([]byte(authority(t, "status", "-o", "json")), &a); err != nil {
			t.Fatal(err)
		}
		return a
	}
	first := state(t)
	if len(first.Authorities) != 1 || first.Authorities[0].Machines != 1 || first.Rotating() {
		t.Fatalf("before: %+v", first)
	}

	f := s.startTraffic(t, "replace.example.com")
	authority(t, "rotate")
	if a := state(t); !a.Rotating() || len(a.Authorities) != 2 {
		t.Fatalf("during: %+v", a)
	}
	s.await(t, "the machine to have renewed its certificate", func(context.Context) error {
		if a := state(t); len(a.Behind) > 0 || a.Authorities[1].Machines != 1 {
			return fmt.Errorf("%+v", a)
		}
		return nil
	})
	if out := authority(t, "retire"); !strings.Contains(out, "authority "+first.Authorities[0].Pin+" is retired") || !strings.Contains(out, "of machine newcomer carried its pin, and is revoked") {
		t.Errorf("retire said %s", out)
	}
	if a := state(t); len(a.Authorities) != 1 || a.Authorities[0].Pin == first.Authorities[0].Pin || a.Authorities[0].Machines != 1 || len(a.Strangers) > 0 {
		t.Errorf("after: %+v", a)
	}
	// What changes now reaches the machine, which need not have noticed.
	s.apply(t, service("replace", "b", s.backends["os1-b"]), httpRoute("replace", "app", "replace.example.com", to("b")))
	s.awaitAnswer(t, request{host: "replace.example.com"}, 200, "os1-b")
	s.awaitConditions(t, "HTTPRoute replace/app", programmed)

	t.Run("unused token", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c := j.machine.Command(ctx, append([]string{s.Binary}, j.arguments(t, newcomer.Name, unused)...)...)
		var log lockedBuffer
		c.Stderr = &log
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		// Within the two seconds that a plane may take to retire an authority it still shows the one of before,
		// and refuses the token in words.
		s.await(t, "the agent to say that the plane is another one, or that the token was revoked", func(context.Context) error {
			if said := log.String(); !strings.Contains(said, "the plane's certificate authority is not the one that this machine was given") && !strings.Contains(said, "token refused: there is no token with ID") {
				return errors.New(said)
			}
			return nil
		})
		cancel()
		_ = c.Wait()
		j.end(t)
	})
	fresh, err := s.StartAgent(t.Context(), j.machine, s.plane)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(fresh.AwaitReady(t.Context()), s.plane.AwaitConnected(t.Context(), fresh.Machine)); err != nil {
		t.Fatal(err)
	}
	if a := state(t); len(a.Authorities) != 1 || a.Authorities[0].Machines != 2 {
		t.Errorf("with a machine more: %+v", a)
	}
	f.none(t)
}
