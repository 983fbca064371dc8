package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/lab"
	"fairlead.dev/lab/rig"
)

// revisions are those that the plane on a machine lists, newest first.
func (s *site) revisions(t *testing.T, m *lab.Machine) []v1.Revision {
	t.Helper()
	status, out, errs := s.run(t, m, "revisions", "-o", "json")
	if status != 0 {
		t.Fatalf("revisions ended with %d: %s%s", status, out, errs)
	}
	var list []v1.Revision
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatal(err)
	}
	return list
}

// keptRevision is the newest revision of the plane on a machine, once that would outlive it.
func (s *site) keptRevision(t *testing.T, m *lab.Machine) (newest v1.Revision) {
	t.Helper()
	s.await(t, "the newest revision to be kept", func(context.Context) error {
		if newest = s.revisions(t, m)[0]; newest.First || !newest.Kept {
			return fmt.Errorf("it is %+v", newest)
		}
		return nil
	})
	return newest
}

// TestRollbackPastAPlanesDeath: a plane is killed, and the next one turns back to what the
// first has sent. Killed again while routing is frozen, it comes back with the same state,
// and endpoints go on.
func TestRollbackPastAPlanesDeath(t *testing.T) {
	s := newLab(t, "rollback", client, edge1, os1, plane)
	if err := s.start(t.Context(), rig.PlaneOptions{}); err != nil {
		t.Fatal(err)
	}
	s.apply(t, exampleFiles(t)...)
	s.apply(t, namespace("back"), service("back", "a", s.backends["os1-a"]), service("back", "b", s.backends["os1-b"]), httpRoute("back", "app", "back.example.com", to("a")))
	s.awaitAnswer(t, request{host: "back.example.com"}, 200, "os1-a")
	good := s.keptRevision(t, s.plane.Machine)
	s.apply(t, httpRoute("back", "app", "back.example.com", to("b")))
	s.awaitAnswer(t, request{host: "back.example.com"}, 200, "os1-b")

	f := s.startTraffic(t, "back.example.com")
	s.plane.Process.Kill9()
	s.startPlane(t)
	name := fmt.Sprintf("%d/%d", good.Epoch, good.Number)
	s.await(t, "the plane to know revision "+name, func(context.Context) error {
		for _, r := range s.revisions(t, s.plane.Machine) {
			if r.Epoch == good.Epoch && r.Number == good.Number {
				return nil
			}
		}
		return errors.New("it is not listed")
	})
	kubeconfig := s.plane.Kubeconfig()
	if status, out, errs := s.run(t, s.plane.Machine, "rollback", name, "--kubeconfig", kubeconfig); status != 0 || !matches("routing is frozen as of revision "+name+", …", out) {
		t.Fatalf("rollback ended with %d: %s%s", status, out, errs)
	}
	s.awaitAnswer(t, request{host: "back.example.com"}, 200, "os1-a")

	s.plane.Process.Kill9()
	s.startPlane(t)
	s.await(t, "the freeze to be known", func(ctx context.Context) error {
		status, err := s.plane.Status(ctx)
		if err != nil {
			return err
		}
		if f := status.Plane.Freeze; f == nil || f.Unknown || !f.AsOf.Equal(good.At) {
			return fmt.Errorf("it is %+v", f)
		}
		return nil
	})
	s.apply(t, service("back", "a", s.backends["os1-b"])) // the endpoint of what is frozen moves
	s.awaitAnswer(t, request{host: "back.example.com"}, 200, "os1-b")
	s.apply(t, service("back", "a", s.backends["os1-a"]))
	s.awaitAnswer(t, request{host: "back.example.com"}, 200, "os1-a")
	if status, out, errs := s.run(t, s.plane.Machine, "unfreeze", "--kubeconfig", kubeconfig); status != 0 {
		t.Fatalf("unfreeze ended with %d: %s%s", status, out, errs)
	}
	s.awaitAnswer(t, request{host: "back.example.com"}, 200, "os1-b")
	s.awaitConditions(t, "HTTPRoute back/app", programmed)
	f.none(t)
}
