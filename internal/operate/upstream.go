package operate

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/api/v1alpha1"
	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/near"
)

// Loss is what an operator confirms to be gone: what an Upstream holds, or what a deleted one has left.
type Loss struct {
	name    string
	deleted bool
	// Of a deleted Upstream.
	services []corev1.Service
	slices   []discoveryv1.EndpointSlice
}

// FindLoss finds an Upstream, or what is left of a deleted one.
func FindLoss(ctx context.Context, api client.Client, name string) (Loss, error) {
	err := api.Get(ctx, client.ObjectKey{Name: name}, &v1alpha1.Upstream{})
	switch {
	case err == nil:
		return Loss{name: name}, nil
	case !apierrors.IsNotFound(err):
		return Loss{}, fmt.Errorf("read Upstream %s: %w", name, err)
	}
	l := Loss{name: name, deleted: true}
	var services corev1.ServiceList
	var slices discoveryv1.EndpointSliceList
	ours := client.MatchingLabels{v1alpha1.LabelUpstream: name}
	if err := api.List(ctx, &services, ours); err != nil {
		return Loss{}, fmt.Errorf("list the Services of Upstream %s: %w", name, err)
	}
	if err := api.List(ctx, &slices, ours); err != nil {
		return Loss{}, fmt.Errorf("list the EndpointSlices of Upstream %s: %w", name, err)
	}
	l.services, l.slices = services.Items, slices.Items
	if len(l.services)+len(l.slices) == 0 {
		return Loss{}, fmt.Errorf("there is no Upstream %s, and nothing is left of one%s", name, nearUpstreams(ctx, api, name))
	}
	return l, nil
}

// nearUpstreams are the names that may have been meant.
func nearUpstreams(ctx context.Context, api client.Client, name string) string {
	var list v1alpha1.UpstreamList
	if err := api.List(ctx, &list); err != nil {
		return ""
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return near.DidYouMean(name, names)
}

// mostUsed is how many Services are named to which something routes.
const mostUsed = 20

// Consequences say what goes, as far as the plane says; nil: it does not.
func (l Loss) Consequences(u *v1.Upstream) (lines []string) {
	if l.deleted {
		lines = append(lines, fmt.Sprintf("Upstream %s is deleted; %d Services and %d EndpointSlices of it are left", l.name, len(l.services), len(l.slices)))
		if u == nil || u.Used == nil {
			return append(lines, "warning: whether something routes to them is not known")
		}
		for i, name := range u.Used {
			if i == mostUsed {
				return append(lines, fmt.Sprintf("warning: something routes to %d more of them", len(u.Used)-mostUsed))
			}
			lines = append(lines, "warning: something routes to Service "+name)
		}
		return lines
	}
	switch {
	case u == nil:
	case u.Held.Services > 0:
		lines = append(lines, fmt.Sprintf("%d services with %d endpoints are held: what the upstream does not list of them goes", u.Held.Services, u.Held.Endpoints))
	case isAway(*u):
		lines = append(lines, fmt.Sprintf("the upstream is away: the %d endpoints of its %d services go until it answers again", u.Replicated.Endpoints, u.Replicated.Services))
	default:
		lines = append(lines, "nothing of the upstream is held now: the confirmation changes nothing")
	}
	return lines
}

func isAway(u v1.Upstream) bool {
	for _, c := range u.Conditions {
		if c.Type == v1alpha1.ConditionReachable {
			return c.Status == "False"
		}
	}
	return false
}

// Question asks whether the loss is to be confirmed.
func (l Loss) Question() string {
	if l.deleted {
		return "Delete them?"
	}
	return "Confirm the loss of Upstream " + l.name + "?"
}

// Confirm confirms the loss as of a time, and says what was done.
func (l Loss) Confirm(ctx context.Context, api client.Client, now time.Time) (outcome string, err error) {
	if l.deleted {
		return l.remove(ctx, api)
	}
	u := &v1alpha1.Upstream{}
	if err := api.Get(ctx, client.ObjectKey{Name: l.name}, u); err != nil {
		return "", fmt.Errorf("read Upstream %s: %w", l.name, err)
	}
	before := u.DeepCopy()
	if u.Annotations == nil {
		u.Annotations = map[string]string{}
	}
	at := now.UTC().Format(time.RFC3339)
	u.Annotations[v1alpha1.AnnotationConfirmedAt] = at
	if err := api.Patch(ctx, u, client.MergeFrom(before)); err != nil {
		return "", fmt.Errorf("confirm the loss of Upstream %s: %w", l.name, err)
	}
	return fmt.Sprintf("losses of Upstream %s up to %s are confirmed", l.name, at), nil
}

// remove deletes what a deleted Upstream has left: Services first, so that no route leads to one without endpoints.
func (l Loss) remove(ctx context.Context, api client.Client) (string, error) {
	if err := api.Get(ctx, client.ObjectKey{Name: l.name}, &v1alpha1.Upstream{}); !apierrors.IsNotFound(err) {
		return "", fmt.Errorf("Upstream %s exists again: nothing was deleted", l.name) //nolint:staticcheck // a kind
	}
	drop := func(kind string, o client.Object) error {
		uid := o.GetUID()
		err := api.Delete(ctx, o, client.Preconditions{UID: &uid})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) { // another one has its name
			return fmt.Errorf("delete %s %s: %w", kind, client.ObjectKeyFromObject(o), err)
		}
		return nil
	}
	for i := range l.services {
		if err := drop("Service", &l.services[i]); err != nil {
			return "", err
		}
	}
	for i := range l.slices {
		if err := drop("EndpointSlice", &l.slices[i]); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%d Services and %d EndpointSlices of Upstream %s are deleted", len(l.services), len(l.slices), l.name), nil
}
