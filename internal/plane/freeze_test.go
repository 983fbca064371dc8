package plane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/plane/status"
	"fairlead.dev/internal/progress"
)

// While routing is frozen a machine's routes stay as they are and its backends follow;
// objects say that they are held back. A rollback turns back what was published before.
func TestFreezeAndRollback(t *testing.T) {
	r := newRig(t)
	r.world()
	p := r.plane("one").awaitReady()
	a := r.joined(p, "edge-1")
	a.connect(p.AgentAddress().String())
	app, other := httpRoute("app", "", ""), httpRoute("other", "", "")
	await(r, app, "the route is programmed", routeIs(metav1.ConditionTrue, status.ReasonProgrammed, ""))

	freeze := &v1alpha1.Freeze{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.FreezeName}, Spec: v1alpha1.FreezeSpec{Reason: "incident"}}
	r.create(freeze)
	frozen := func(want bool) func() error {
		return func() error {
			if got := p.Status(context.Background()).Plane.Freeze; (got != nil) != want {
				return fmt.Errorf("the freeze is %+v", got)
			}
			return nil
		}
	}
	eventually(t, "routing is frozen", frozen(true))

	// What comes, changes and goes is held back; backends of a route that was deleted go on.
	r.create(service("blue"), slice("blue", "10.2.0.1"), httpRoute("other", "other.example", "blue"))
	await(r, other, "the new route is held back", routeIs(metav1.ConditionFalse, progress.ReasonFrozen, "incident"))
	if err := r.client.Delete(t.Context(), httpRoute("app", "", "")); err != nil {
		t.Fatal(err)
	}
	edit(r, slice("app"), func(s *discoveryv1.EndpointSlice) {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{"10.1.0.3"}})
	})
	a.await("has the backend of the route that was deleted", a.holdsBackends(3))
	if err := a.holdsHost("app.example")(); err != nil {
		t.Error("a deleted route is gone though routing is frozen:", err)
	}
	if a.holdsHost("other.example")() == nil {
		t.Error("a new route is there though routing is frozen")
	}

	if err := r.client.Delete(t.Context(), freeze); err != nil {
		t.Fatal(err)
	}
	a.await("has the new route", a.holdsHost("other.example"))
	await(r, other, "the new route is programmed", routeIs(metav1.ConditionTrue, status.ReasonProgrammed, ""))
	eventually(t, "the metrics count one route", func() error {
		for state, want := range map[string]float64{status.StateProgrammed: 1, status.StatePending: 0} {
			if n := p.metric("fairlead_plane_objects", map[string]string{"kind": "HTTPRoute", "state": state}); n != want {
				return fmt.Errorf("%v are %s", n, state)
			}
		}
		return nil
	})
	a.await("has the deleted route no more", gone(a, "app.example"))

	// Back to the start, where there was nothing but the first route.
	list, err := p.Revisions(context.Background())
	if err != nil || len(list) < 3 || !list[len(list)-1].First {
		t.Fatalf("revisions %+v, %v", list, err)
	}
	numbers := map[uint64]bool{}
	for _, rev := range list[:len(list)-1] {
		if numbers[rev.Number] {
			t.Errorf("two steps have the number %d: %+v", rev.Number, list)
		}
		numbers[rev.Number] = true
	}
	at := metav1.NewMicroTime(list[len(list)-1].At)
	r.create(&v1alpha1.Freeze{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.FreezeName}, Spec: v1alpha1.FreezeSpec{AsOf: &at}})
	a.await("has the first route again", a.holdsHost("app.example"))
	a.await("has its backends", a.holdsBackends(3))
	a.await("has the second route no more", gone(a, "other.example"))
	await(r, other, "the second route is held back", routeIs(metav1.ConditionFalse, progress.ReasonFrozen, ""))

	// A plane that begins now, at another machine, holds the same, and endpoints go on.
	p.stop()
	p = r.plane("two").awaitReady()
	eventually(t, "the freeze is known to the new plane", func() error {
		if f := p.Status(context.Background()).Plane.Freeze; f == nil || f.Unknown || !f.AsOf.Equal(at.Time) {
			return fmt.Errorf("it is %+v", f)
		}
		return nil
	})
	a.connect(p.AgentAddress().String())
	edit(r, slice("app"), func(s *discoveryv1.EndpointSlice) {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{"10.1.0.4"}})
	})
	a.await("has a backend that came to what is frozen", a.holdsBackends(4))
	await(r, other, "the second route is held back still", routeIs(metav1.ConditionFalse, progress.ReasonFrozen, ""))
	if err := errors.Join(a.holdsHost("app.example")(), gone(a, "other.example")()); err != nil {
		t.Error("the machine did not keep what it had:", err)
	}
	if err := r.client.Delete(t.Context(), freeze); err != nil {
		t.Fatal(err)
	}
	a.await("has the second route again", a.holdsHost("other.example"))
	a.await("has the first route no more", gone(a, "app.example"))
	eventually(t, "routing is frozen no more", frozen(false))

	// Its revisions are those of the plane before it, and lead as far back.
	later, err := p.Revisions(context.Background())
	if err != nil || len(later) != len(list) || !slices.EqualFunc(later, list, sameRevision) {
		t.Fatalf("revisions %+v, before %+v, %v", later, list, err)
	}
	r.create(&v1alpha1.Freeze{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.FreezeName}, Spec: v1alpha1.FreezeSpec{AsOf: &at}})
	a.await("has the first route again", a.holdsHost("app.example"))
	a.await("has the second route no more", gone(a, "other.example"))
	a.await("has its backends", a.holdsBackends(4))
}

// sameRevision compares what does not depend on who says it.
func sameRevision(a, b model.Revision) bool {
	return a.At.Equal(b.At) && a.Changes == b.Changes && a.First == b.First && (a.First || a.Epoch == b.Epoch && a.Number == b.Number) && slices.Equal(a.Owners, b.Owners)
}

// A plane that does not know what is frozen, because what was kept is gone, sends machines
// nothing: they keep what they have.
func TestFreezeThatIsNotKnown(t *testing.T) {
	r := newRig(t)
	r.world()
	p := r.plane("one").awaitReady()
	a := r.joined(p, "edge-1")
	a.connect(p.AgentAddress().String())
	await(r, httpRoute("app", "", ""), "the route is programmed", routeIs(metav1.ConditionTrue, status.ReasonProgrammed, ""))
	freeze := &v1alpha1.Freeze{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.FreezeName}}
	r.create(freeze)
	eventually(t, "routing is frozen", func() error {
		if p.Status(context.Background()).Plane.Freeze == nil {
			return errors.New("it is not")
		}
		return nil
	})
	r.create(service("blue"), slice("blue", "10.2.0.1"), httpRoute("other", "other.example", "blue"))
	other := httpRoute("other", "", "")
	await(r, other, "the new route is held back", routeIs(metav1.ConditionFalse, progress.ReasonFrozen, ""))
	p.stop()
	a.counts()
	if err := r.client.DeleteAllOf(t.Context(), &corev1.Secret{}, client.InNamespace(Namespace), client.HasLabels{historyLabel}); err != nil {
		t.Fatal(err)
	}
	// The API says in seconds when the Freeze was created; a plane of the same second holds what it finds.
	if err := reread(r, freeze); err != nil {
		t.Fatal(err)
	}
	two := &clock{step: 2 * time.Second}
	p = r.plane("two", func(c *Config) { c.Now = two.Now }).awaitReady()
	eventually(t, "the freeze is unknown to the new plane", func() error {
		if s := p.Status(context.Background()).Plane; s.Freeze == nil || !s.Freeze.Unknown || !s.Leading {
			return fmt.Errorf("it is %+v", s)
		}
		return nil
	})
	a.connect(p.AgentAddress().String())
	await(r, other, "the second route is held back still", routeIs(metav1.ConditionFalse, progress.ReasonFrozen, ""))
	if err := errors.Join(a.holdsHost("app.example")(), gone(a, "other.example")()); err != nil {
		t.Error("the machine did not keep what it had:", err)
	}
	if err := r.client.Delete(t.Context(), freeze); err != nil {
		t.Fatal(err)
	}
	a.await("has the second route", a.holdsHost("other.example"))
}

// gone checks that the agent has no routes of a host.
func gone(a *fakeAgent, host string) func() error {
	return func() error {
		if a.holdsHost(host)() == nil {
			return fmt.Errorf("it has %s", host)
		}
		return nil
	}
}
