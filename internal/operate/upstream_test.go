package operate

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/api/v1alpha1"
	v1 "fairlead.dev/internal/console/v1"
)

// clouds is an API with Upstreams and what is discovered of them.
type clouds struct {
	client.Client // nil: nothing else is asked
	upstreams     map[string]*v1alpha1.Upstream
	services      []corev1.Service
	slices        []discoveryv1.EndpointSlice
	deleted       []string
}

func (a *clouds) Get(_ context.Context, k client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	u := a.upstreams[k.Name]
	if u == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "upstreams"}, k.Name)
	}
	u.DeepCopyInto(o.(*v1alpha1.Upstream))
	return nil
}

func (a *clouds) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(options)
	of := func(labels map[string]string) bool {
		return o.LabelSelector.String() == v1alpha1.LabelUpstream+"="+labels[v1alpha1.LabelUpstream]
	}
	switch l := list.(type) {
	case *v1alpha1.UpstreamList:
		for _, u := range a.upstreams {
			l.Items = append(l.Items, *u)
		}
	case *corev1.ServiceList:
		l.Items = slices.DeleteFunc(slices.Clone(a.services), func(s corev1.Service) bool { return !of(s.Labels) })
	case *discoveryv1.EndpointSliceList:
		l.Items = slices.DeleteFunc(slices.Clone(a.slices), func(s discoveryv1.EndpointSlice) bool { return !of(s.Labels) })
	}
	return nil
}

func (a *clouds) Patch(_ context.Context, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
	u := o.(*v1alpha1.Upstream)
	a.upstreams[u.Name] = u
	return nil
}

func (a *clouds) Delete(_ context.Context, o client.Object, options ...client.DeleteOption) error {
	var d client.DeleteOptions
	d.ApplyOptions(options)
	if d.Preconditions == nil || *d.Preconditions.UID != o.GetUID() {
		return apierrors.NewConflict(schema.GroupResource{}, o.GetName(), nil)
	}
	a.deleted = append(a.deleted, o.GetName())
	return nil
}

func newClouds() *clouds {
	meta := func(upstream, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "team01", Name: name, UID: "u", Labels: map[string]string{v1alpha1.LabelUpstream: upstream}}
	}
	return &clouds{
		upstreams: map[string]*v1alpha1.Upstream{"up01": {ObjectMeta: metav1.ObjectMeta{Name: "up01"}}},
		services:  []corev1.Service{{ObjectMeta: meta("up01", "up01-app")}, {ObjectMeta: meta("gone", "gone-app")}},
		slices:    []discoveryv1.EndpointSlice{{ObjectMeta: meta("gone", "gone-app-1")}},
	}
}

func TestLossOfAnUpstreamIsConfirmed(t *testing.T) {
	api := newClouds()
	loss, err := FindLoss(t.Context(), api, "up01")
	if err != nil {
		t.Fatal(err)
	}
	if q := loss.Question(); q != "Confirm the loss of Upstream up01?" {
		t.Errorf("it asks %q", q)
	}
	outcome, err := loss.Confirm(t.Context(), api, time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC))
	if err != nil || outcome != "losses of Upstream up01 up to 2026-01-02T03:04:05Z are confirmed" {
		t.Errorf("%q, %v", outcome, err)
	}
	if at := api.upstreams["up01"].Annotations[v1alpha1.AnnotationConfirmedAt]; at != "2026-01-02T03:04:05Z" || len(api.deleted) > 0 {
		t.Errorf("it is annotated %q, and %v are deleted", at, api.deleted)
	}
}

func TestWhatADeletedUpstreamLeft(t *testing.T) {
	api := newClouds()
	loss, err := FindLoss(t.Context(), api, "gone")
	if err != nil {
		t.Fatal(err)
	}
	outcome, err := loss.Confirm(t.Context(), api, time.Now())
	if err != nil || outcome != "1 Services and 1 EndpointSlices of Upstream gone are deleted" || !slices.Equal(api.deleted, []string{"gone-app", "gone-app-1"}) {
		t.Errorf("%q, %v; %v are deleted", outcome, err, api.deleted)
	}
	api.upstreams["gone"], api.deleted = &v1alpha1.Upstream{}, nil
	if _, err := loss.Confirm(t.Context(), api, time.Now()); err == nil || len(api.deleted) > 0 {
		t.Errorf("it exists again: %v, and %v are deleted", err, api.deleted)
	}
	if _, err := FindLoss(t.Context(), api, "up02"); err == nil || !strings.HasPrefix(err.Error(), "there is no Upstream up02, and nothing is left of one; did you mean up01?") {
		t.Errorf("of a name that nobody has: %v", err)
	}
}

func TestConsequencesOfAConfirmation(t *testing.T) {
	deleted := Loss{name: "gone", deleted: true, services: make([]corev1.Service, 3)}
	away := v1.Upstream{Conditions: []v1.UpstreamCondition{{Type: "Reachable", Status: "False"}}, Replicated: v1.UpstreamCounts{Services: 2, Endpoints: 5}}
	const left = "Upstream gone is deleted; 3 Services and 0 EndpointSlices of it are left"
	for name, c := range map[string]struct {
		loss Loss
		row  *v1.Upstream
		want []string
	}{
		"held":    {Loss{name: "up01"}, &v1.Upstream{Held: v1.UpstreamCounts{Services: 2, Endpoints: 5}}, []string{"2 services with 5 endpoints are held: what the upstream does not list of them goes"}},
		"away":    {Loss{name: "up01"}, &away, []string{"the upstream is away: the 5 endpoints of its 2 services go until it answers again"}},
		"neither": {Loss{name: "up01"}, &v1.Upstream{}, []string{"nothing of the upstream is held now: the confirmation changes nothing"}},
		"silent":  {Loss{name: "up01"}, nil, nil},
		"used":    {deleted, &v1.Upstream{Used: []string{"team01/gone-app"}}, []string{left, "warning: something routes to Service team01/gone-app"}},
		"unused":  {deleted, &v1.Upstream{Used: []string{}}, []string{left}},
		"unknown": {deleted, nil, []string{left, "warning: whether something routes to them is not known"}},
	} {
		if got := c.loss.Consequences(c.row); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
