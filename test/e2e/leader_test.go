package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/lab"
	"fairlead.dev/lab/rig"
)

var leases = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}

// TestStandbyTakesOver runs two planes on one API, that of a third one, and kills the
// one that leads.
func TestStandbyTakesOver(t *testing.T) {
	one, two := lab.MachineSpec{Name: "plane-1", Role: lab.RolePlane}, lab.MachineSpec{Name: "plane-2", Role: lab.RolePlane}
	s := newLab(t, "leader", client, edge1, os1, plane, one, two)
	api, err := s.StartPlane(t.Context(), s.Lab.Machine(plane.Name), rig.PlaneOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.plane = api
	if err := s.connect(); err != nil {
		t.Fatal(err)
	}
	// The file that the plane wrote is for its own machine; other machines need its address.
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	raw, err := os.ReadFile(api.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	server := regexp.MustCompile(`(?m)^( *server: ).*$`)
	raw = server.ReplaceAll(raw, fmt.Appendf(nil, "${1}https://%s:6443", api.Machine.Addr4()))
	if err := os.WriteFile(kubeconfig, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	planes := map[string]*rig.Plane{}
	for _, spec := range []lab.MachineSpec{one, two} {
		planes[spec.Name], err = s.StartPlane(t.Context(), s.Lab.Machine(spec.Name), rig.PlaneOptions{Args: []string{"--kubeconfig", kubeconfig}})
		if err != nil {
			t.Fatal(err)
		}
	}
	// The first plane has the lease; it is handed to plane-1, as an operator may.
	first := s.leadership(t, planes[one.Name], false, api.Endpoint())
	s.handLease(t, first.identity)
	leading := s.leadership(t, planes[one.Name], true, planes[one.Name].Endpoint())
	s.leadership(t, planes[two.Name], false, planes[one.Name].Endpoint())
	s.leadership(t, api, false, planes[one.Name].Endpoint())
	if err := s.Get(t.Context(), planes[two.Name].Machine, "http://127.0.0.1:7080/readyz"); err != nil {
		t.Errorf("a standby is not ready: %v", err)
	}
	_, out, _ := s.run(t, planes[two.Name].Machine, "status")
	if want := ", standby of " + planes[one.Name].Endpoint() + ", up "; !strings.Contains(out, want) {
		t.Errorf("status of the standby has no %q:\n%s", want, out)
	}

	// The agent knows the addresses of both, and joins by way of the standby's.
	agent, err := s.StartAgent(t.Context(), s.Lab.Machine(edge1.Name), api, "--plane", planes[two.Name].Endpoint(), "--plane", planes[one.Name].Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(agent.AwaitReady(t.Context()), planes[one.Name].AwaitConnected(t.Context(), agent.Machine)); err != nil {
		t.Fatal(err)
	}
	s.apply(t, exampleFiles(t)...)
	s.apply(t, namespace("lead"), service("lead", "a", s.backends["os1-a"]), service("lead", "b", s.backends["os1-b"]), httpRoute("lead", "app", "lead.example.com", to("a")))
	s.awaitConditions(t, "HTTPRoute lead/app", programmed)
	s.awaitAnswer(t, request{host: "lead.example.com"}, 200, "os1-a")

	before := s.keptRevision(t, planes[one.Name].Machine)
	f := s.startTraffic(t, "lead.example.com")
	killed := s.Now()
	planes[one.Name].Process.Kill9()
	var next *rig.Plane
	s.await(t, "another plane to lead", func(ctx context.Context) error {
		for _, p := range []*rig.Plane{planes[two.Name], api} {
			status, err := p.Status(ctx)
			if err != nil {
				return err
			}
			if status.Plane.Leading {
				next = p
				if status.Plane.Epoch <= leading.epoch {
					return rig.Fatal(fmt.Errorf("it leads in epoch %d, the one before in %d", status.Plane.Epoch, leading.epoch))
				}
				return nil
			}
		}
		return errors.New("nobody does")
	})
	t.Logf("another plane led %s after the first one was killed", s.Now().Sub(killed))
	if err := next.AwaitConnected(t.Context(), agent.Machine); err != nil {
		t.Fatal(err)
	}
	t.Logf("it had the agent %s after", s.Now().Sub(killed))
	s.apply(t, httpRoute("lead", "app", "lead.example.com", to("b")))
	s.awaitConditions(t, "HTTPRoute lead/app", programmed)
	s.awaitAnswer(t, request{host: "lead.example.com"}, 200, "os1-b")

	// Whoever leads now, plane-2 is to: it has never shared a disk with plane-1, and yet
	// knows what that has sent, and turns back to it.
	if next != planes[two.Name] {
		second := s.leadership(t, planes[two.Name], false, next.Endpoint())
		s.handLease(t, second.identity)
		next = planes[two.Name]
		s.leadership(t, next, true, next.Endpoint())
	}
	name := fmt.Sprintf("%d/%d", before.Epoch, before.Number)
	s.await(t, "plane-2 to know revision "+name, func(ctx context.Context) error {
		for _, r := range s.revisions(t, next.Machine) {
			if r.Epoch == before.Epoch && r.Number == before.Number {
				return nil
			}
		}
		return errors.New("it is not listed")
	})
	if status, out, errs := s.run(t, next.Machine, "rollback", name, "--kubeconfig", kubeconfig); status != 0 {
		t.Fatalf("rollback ended with %d: %s%s", status, out, errs)
	}
	s.awaitAnswer(t, request{host: "lead.example.com"}, 200, "os1-a")
	if status, out, errs := s.run(t, next.Machine, "unfreeze", "--kubeconfig", kubeconfig); status != 0 {
		t.Fatalf("unfreeze ended with %d: %s%s", status, out, errs)
	}
	s.awaitAnswer(t, request{host: "lead.example.com"}, 200, "os1-b")

	// The first one comes back and stands by.
	if err := planes[one.Name].Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.leadership(t, planes[one.Name], false, next.Endpoint())
	f.none(t)
}

// handLease gives the lease to a plane, as an operator may.
func (s *site) handLease(t *testing.T, identity string) {
	t.Helper()
	s.await(t, "the lease to be that of "+identity, func(ctx context.Context) error {
		lease, err := s.api.Resource(leases).Namespace("fairlead-system").Get(ctx, "fairlead-plane", metav1.GetOptions{})
		if err != nil {
			return err
		}
		patch := fmt.Sprintf(`{"metadata": {"resourceVersion": %q}, "spec": {"holderIdentity": %q}}`, lease.GetResourceVersion(), identity)
		_, err = s.api.Resource(leases).Namespace("fairlead-system").Patch(ctx, "fairlead-plane", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err // a conflict with the holder's renewal is tried again
	})
}

// lead is how a plane sees who leads.
type lead struct {
	identity string
	epoch    uint64
}

// leadership waits until a plane leads, or does not, and names the leader's endpoint.
func (s *site) leadership(t *testing.T, p *rig.Plane, leads bool, leader string) (l lead) {
	t.Helper()
	s.await(t, fmt.Sprintf("%s to see %s lead", p.Machine.Name(), leader), func(ctx context.Context) error {
		status, err := p.Status(ctx)
		if err != nil {
			return err
		}
		if status.Plane.Leading != leads || status.Plane.Leader != leader {
			return fmt.Errorf("leading: %t, leader: %s", status.Plane.Leading, status.Plane.Leader)
		}
		l = lead{status.Plane.Identity, status.Plane.Epoch}
		return nil
	})
	return l
}
