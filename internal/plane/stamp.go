package plane

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/snapshot"
)

// StampPolicy is the name of the admission policy that writes who changed an object, and of its binding.
const StampPolicy = "fairlead-changed-by"

const (
	// stampEvery is how often it is looked whether the API says who changes objects.
	stampEvery = time.Minute
	// maxWho bounds the name of a user, bytes.
	maxWho = 256
)

// stamp is whom the API names as the author of objects, and whether it can be believed.
type stamp struct {
	api     kubernetes.Interface
	always  bool        // the configuration says that the API stamps objects
	stamped atomic.Bool // it does
}

func newStamp(c Config) (*stamp, error) {
	api, err := kubernetes.NewForConfig(c.REST)
	if err != nil {
		return nil, fmt.Errorf("make the client for admission policies: %w", err)
	}
	s := &stamp{api: api, always: c.Stamped}
	s.stamped.Store(c.Stamped)
	return s, nil
}

// author is who wrote an object last; empty: that is not known.
func (s *stamp) author(o snapshot.Object) string {
	if !s.stamped.Load() {
		return ""
	}
	who := o.GetAnnotations()[v1alpha1.AnnotationChangedBy]
	return strings.ToValidUTF8(strings.Clone(who[:min(len(who), maxWho)]), "")
}

// look looks whether the API says who changes objects: otherwise whoever writes an object could say so.
func (s *stamp) look(ctx context.Context) {
	if s.always {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	policies := s.api.AdmissionregistrationV1()
	_, err := policies.MutatingAdmissionPolicies().Get(ctx, StampPolicy, metav1.GetOptions{})
	if err == nil {
		_, err = policies.MutatingAdmissionPolicyBindings().Get(ctx, StampPolicy, metav1.GetOptions{})
	}
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return // it is looked again
	}
	s.stamped.Store(err == nil)
}
