package plane

import (
	"context"
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	authentication "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/internal/derive"
)

// findOwner returns what the objects of a plane belong to that runs in its cluster: its
// service account. Whoever uninstalls the plane deletes that, and the cluster collects
// the rest. It is nil for a plane that runs elsewhere or as somebody else.
func findOwner(ctx context.Context, cfg *rest.Config) (*metav1.OwnerReference, error) {
	c, err := authentication.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("make a client for reviews: %w", err)
	}
	review, err := c.SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("ask the API who this plane is: %w", err)
	}
	user := review.Status.UserInfo
	name, ok := strings.CutPrefix(user.Username, ServiceAccount{Namespace: Namespace}.user())
	if !ok || user.UID == "" {
		return nil, nil
	}
	return &metav1.OwnerReference{APIVersion: "v1", Kind: "ServiceAccount", Name: name, UID: types.UID(user.UID)}, nil
}

// ownAuthority makes the Secret of the agents' authority belong to the owner.
func ownAuthority(ctx context.Context, c client.Client, owner *metav1.OwnerReference) error {
	if owner == nil {
		return nil
	}
	key := client.ObjectKey{Namespace: Namespace, Name: AuthoritySecret}
	secret := &corev1.Secret{}
	if err := c.Get(ctx, key, secret); err != nil {
		return fmt.Errorf("read secret %s: %w", key, err)
	}
	references, changed := derive.Owned(secret.OwnerReferences, owner)
	if !changed {
		return nil
	}
	secret.OwnerReferences = references
	if err := c.Update(ctx, secret); err != nil {
		return fmt.Errorf("give secret %s its owner: %w", key, err)
	}
	return nil
}
