package derive

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ErrForeign is the class of objects that have the name of a derived one and belong to somebody else.
var ErrForeign = errors.New("an object of this name exists and was not created by Fairlead")

// Object is a derived object.
type Object struct {
	// Wanted is the object as it is created, without owner references. It is not changed. Of an Absent object its type and
	// name are enough.
	Wanted client.Object
	// Absent objects are deleted.
	Absent bool
	// Owner is the object in the same namespace from which this one follows. An existing object without this owner is
	// foreign and left alone. nil: every object of this name is ours.
	Owner *metav1.OwnerReference
	// Ours says whether a live object may be changed and deleted. Others are foreign and left alone. nil: Owner says it.
	Ours func(live client.Object) bool
	// Merge sets the fields of a live object to the wanted ones and reports whether that changes it. It is pure.
	Merge func(live, wanted client.Object) (changed bool)
	// Recheck is how often a Writer compares the object with the API although nothing was offered; 0: never.
	Recheck time.Duration
	// Pause is the shortest time between two writes of a Writer to the object. Forms between them are not written.
	Pause time.Duration
	// A Writer keeps no memory of Watched objects after it wrote them; the caller watches the API and offers them again when it
	// has another form.
	Watched bool
	// Tell hears why a Writer cannot bring about the object: each reason once in a row. nil: nobody does.
	Tell func(Trouble, error)
}

// Trouble says why an object is not as it should be.
type Trouble int

// The troubles of a Writer.
const (
	Failed    Trouble = iota // it is tried again soon
	Forbidden                // the right is missing; it is tried again after a pause
	Foreign                  // ErrForeign; it is tried again when it is offered in a new form or term
)

// same reports whether bringing about one of two objects brings about the other.
func (o Object) same(p Object) bool {
	return o.Absent == p.Absent && o.ownerUID() == p.ownerUID() && equality.Semantic.DeepEqual(o.Wanted, p.Wanted)
}

func (o Object) ownerUID() types.UID {
	if o.Owner == nil {
		return ""
	}
	return o.Owner.UID
}

// Apply brings about one object by one try. It changes nothing that is as it should be.
func Apply(ctx context.Context, c client.Client, o Object) error {
	live := reflect.New(reflect.TypeOf(o.Wanted).Elem()).Interface().(client.Object)
	err := c.Get(ctx, client.ObjectKeyFromObject(o.Wanted), live)
	switch {
	case apierrors.IsNotFound(err) && o.Absent:
		return nil
	case apierrors.IsNotFound(err):
		return create(ctx, c, o)
	case err != nil:
		return err
	case o.Owner != nil && !has(live.GetOwnerReferences(), o.Owner), o.Ours != nil && !o.Ours(live):
		if o.Absent {
			return nil
		}
		return ErrForeign
	case o.Absent:
		uid, version := live.GetUID(), live.GetResourceVersion() // it may be somebody else's a moment later
		return client.IgnoreNotFound(c.Delete(ctx, live, client.Preconditions{UID: &uid, ResourceVersion: &version}))
	case !o.Merge(live, o.Wanted):
		return nil
	}
	return c.Update(ctx, live)
}

func create(ctx context.Context, c client.Client, o Object) error {
	next := o.Wanted.DeepCopyObject().(client.Object)
	references, _ := Owned(nil, o.Owner)
	next.SetOwnerReferences(references)
	err := c.Create(ctx, next)
	if o.Owner != nil && (apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)) {
		return nil // the namespace is going, and the owner with it
	}
	return err
}

// Create makes an object and reports whether it did: one that exists is left as it is.
func Create(ctx context.Context, c client.Client, o client.Object) (made bool, err error) {
	err = c.Create(ctx, o)
	if apierrors.IsAlreadyExists(err) {
		return false, nil
	}
	return err == nil, err
}

// Owned returns the references with the owner's among them, and whether that is new. A reference to an earlier object of
// the owner's name goes: the cluster would delete the owned object with it. Without an owner (nil) nothing changes.
func Owned(references []metav1.OwnerReference, owner *metav1.OwnerReference) ([]metav1.OwnerReference, bool) {
	if owner == nil || has(references, owner) {
		return references, false
	}
	others := slices.DeleteFunc(slices.Clone(references), func(r metav1.OwnerReference) bool {
		return r.APIVersion == owner.APIVersion && r.Kind == owner.Kind && r.Name == owner.Name
	})
	return append(others, *owner), true
}

func has(references []metav1.OwnerReference, owner *metav1.OwnerReference) bool {
	return slices.ContainsFunc(references, func(r metav1.OwnerReference) bool { return r.UID == owner.UID })
}
