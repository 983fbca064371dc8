package operate

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/api/v1alpha1"
	v1 "fairlead.dev/internal/console/v1"
)

// Freeze orders every change of routing to be held back. Routing that is frozen stays as of the same time; only the reason
// becomes another.
func Freeze(ctx context.Context, api client.Client, reason string) error {
	return write(ctx, api, func(before *v1alpha1.FreezeSpec) v1alpha1.FreezeSpec {
		spec := v1alpha1.FreezeSpec{Reason: reason}
		if before != nil {
			spec.AsOf = before.AsOf
		}
		return spec
	})
}

// Rollback orders routing to be turned back to a revision and frozen there.
func Rollback(ctx context.Context, api client.Client, to v1.Revision, reason string) error {
	at := metav1.NewMicroTime(to.At)
	return write(ctx, api, func(*v1alpha1.FreezeSpec) v1alpha1.FreezeSpec { return v1alpha1.FreezeSpec{Reason: reason, AsOf: &at} })
}

// Unfreeze takes the order back, and reports whether routing was frozen.
func Unfreeze(ctx context.Context, api client.Client) (was bool, err error) {
	err = api.Delete(ctx, &v1alpha1.Freeze{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.FreezeName}})
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("delete Freeze %s: %w", v1alpha1.FreezeName, err)
	}
	return true, nil
}

// write creates the Freeze, or replaces its spec by one that may follow from it.
func write(ctx context.Context, api client.Client, spec func(before *v1alpha1.FreezeSpec) v1alpha1.FreezeSpec) error {
	o := &v1alpha1.Freeze{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.FreezeName}, Spec: spec(nil)}
	err := api.Create(ctx, o)
	if apierrors.IsAlreadyExists(err) {
		if err := api.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return fmt.Errorf("read Freeze %s: %w", o.Name, err)
		}
		o.Spec = spec(&o.Spec)
		err = api.Update(ctx, o)
	}
	if err != nil {
		return fmt.Errorf("write Freeze %s: %w", v1alpha1.FreezeName, err)
	}
	return nil
}
