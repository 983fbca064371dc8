package access

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Where a Kubernetes API publishes the authorities of its client certificates.
const (
	authoritiesNamespace = "kube-system"
	authoritiesName      = "extension-apiserver-authentication"
	authoritiesField     = "client-ca-file"
)

type kube struct{ client kubernetes.Interface }

// Kubernetes asks a Kubernetes API.
func Kubernetes(c *rest.Config) (API, error) {
	c = rest.CopyConfig(c)
	c.QPS = -1 // a Judge bounds how much it asks at once
	client, err := kubernetes.NewForConfig(c)
	if err != nil {
		return nil, fmt.Errorf("make the client for reviews: %w", err)
	}
	return kube{client}, nil
}

// Authorities implements API.
func (k kube) Authorities(ctx context.Context) ([]byte, error) {
	m, err := k.client.CoreV1().ConfigMaps(authoritiesNamespace).Get(ctx, authoritiesName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read config map %s/%s: %w", authoritiesNamespace, authoritiesName, err)
	}
	return []byte(m.Data[authoritiesField]), nil
}

// Review implements API.
func (k kube) Review(ctx context.Context, token string) (u User, known bool, err error) {
	r, err := k.client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return User{}, false, fmt.Errorf("review a token: %w", err)
	}
	if !r.Status.Authenticated {
		return User{}, false, nil
	}
	from := r.Status.User
	u = User{Name: from.Username, UID: from.UID, Groups: from.Groups}
	for name, values := range from.Extra {
		if u.Extra == nil {
			u.Extra = map[string][]string{}
		}
		u.Extra[name] = values
	}
	return u, true, nil
}

// Allows implements API.
func (k kube) Allows(ctx context.Context, u User, q Question) (allowed bool, reason string, err error) {
	spec := authorizationv1.SubjectAccessReviewSpec{
		User: u.Name, UID: u.UID, Groups: u.Groups,
		ResourceAttributes: &authorizationv1.ResourceAttributes{Group: Group, Version: "v1", Verb: q.Verb, Resource: q.Resource, Namespace: q.Namespace, Name: q.Name},
	}
	for name, values := range u.Extra {
		if spec.Extra == nil {
			spec.Extra = map[string]authorizationv1.ExtraValue{}
		}
		spec.Extra[name] = values
	}
	r, err := k.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		return false, "", fmt.Errorf("review the access of user %q: %w", u.Name, err)
	}
	if !r.Status.Allowed && r.Status.EvaluationError != "" {
		return false, r.Status.EvaluationError, nil
	}
	return r.Status.Allowed && !r.Status.Denied, r.Status.Reason, nil
}
