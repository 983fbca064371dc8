package plane

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authentication "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/internal/derive"
	"fairlead.dev/internal/southbound"
	agentv1 "fairlead.dev/proto/agent/v1"
)

const (
	// authorityConfigMap of the agents' namespace holds the agents' authorities without their
	// keys, for pods to trust: whoever may change it can be the plane of those pods.
	authorityConfigMap = "fairlead-agent-authority"
	// publishEvery is how often the leader sees to it that it still says the truth.
	publishEvery = time.Minute
	// nodeClaim is what a bound token says of its pod's node (Kubernetes 1.32).
	nodeClaim = "authentication.kubernetes.io/node-name"
)

// ServiceAccount names one of a cluster.
type ServiceAccount struct{ Namespace, Name string }

// ParseServiceAccount reads "namespace/name".
func ParseServiceAccount(s string) (ServiceAccount, error) {
	namespace, name, ok := strings.Cut(s, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return ServiceAccount{}, fmt.Errorf("%q: want NAMESPACE/NAME", s)
	}
	return ServiceAccount{Namespace: namespace, Name: name}, nil
}

// user is what the API calls the account.
func (a ServiceAccount) user() string {
	return "system:serviceaccount:" + a.Namespace + ":" + a.Name
}

// pods lets the pods of one service account join, each as the node that it runs on.
type pods struct {
	account ServiceAccount
	reviews authentication.TokenReviewsGetter
}

var _ southbound.Accounts = (*pods)(nil)

// newPods returns nil when no account is named.
func newPods(cfg *rest.Config, account ServiceAccount) (*pods, error) {
	if account == (ServiceAccount{}) {
		return nil, nil
	}
	reviews, err := authentication.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("make a client for token reviews: %w", err)
	}
	return &pods{account: account, reviews: reviews}, nil
}

// Review asks the API whose token it is. Nothing that the token itself says is believed.
func (p *pods) Review(ctx context.Context, token string) (southbound.Identity, error) {
	review, err := p.reviews.TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{agentv1.Audience}},
	}, metav1.CreateOptions{})
	if err != nil {
		return southbound.Identity{}, fmt.Errorf("%w: review the token of a service account: %w", southbound.ErrAway, err)
	}
	return p.identify(review.Status)
}

// identify reads the machine out of what the API says of a token.
func (p *pods) identify(s authenticationv1.TokenReviewStatus) (southbound.Identity, error) {
	refused := func(format string, args ...any) (southbound.Identity, error) {
		return southbound.Identity{}, fmt.Errorf("%w: "+format, append([]any{southbound.ErrToken}, args...)...)
	}
	switch node := s.User.Extra[nodeClaim]; {
	case !s.Authenticated && s.Error != "":
		return refused("the API does not know it: %s", s.Error)
	case !s.Authenticated:
		return refused("the API does not know it")
	case !slices.Contains(s.Audiences, agentv1.Audience):
		return refused("it is not for us: its audience must be %s", agentv1.Audience)
	case s.User.Username != p.account.user():
		return refused("it is of %s, and machines are pods of %s only", s.User.Username, p.account.user())
	case len(node) != 1 || node[0] == "":
		return refused("it does not say on which node its pod runs: it must be bound to a pod, and the API be Kubernetes 1.32 or newer")
	default:
		return southbound.Identity{Machine: node[0]}, nil
	}
}

// authorityFor derives the ConfigMap that tells the pods which authorities to trust.
func (p *pods) authorityFor(roots string, log *slog.Logger) derive.Object {
	o := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.account.Namespace, Name: authorityConfigMap},
		Data:       map[string]string{authorityField: roots},
	}
	return derive.Object{
		Wanted: o, Merge: mergeAuthority, Recheck: publishEvery,
		Tell: func(_ derive.Trouble, err error) {
			log.Error("pods that start now cannot join", "error",
				fmt.Errorf("publish the agents' authority in config map %s: %w", client.ObjectKeyFromObject(o), err))
		},
	}
}

// mergeAuthority sets the field of the authorities. An installation's manifests bring an empty ConfigMap.
func mergeAuthority(live, wanted client.Object) bool {
	at, is := live.(*corev1.ConfigMap)
	want, isToo := wanted.(*corev1.ConfigMap)
	if !is || !isToo || at.Data[authorityField] == want.Data[authorityField] {
		return false
	}
	if at.Data == nil {
		at.Data = map[string]string{}
	}
	at.Data[authorityField] = want.Data[authorityField]
	return true
}

// offerAuthority has the pods, and those who read, told of all authorities that are trusted now.
func (p *Plane) offerAuthority() {
	p.offerRead(string(p.trust.authorities.Roots()))
	if p.pods != nil {
		p.derived.Offer(p.pods.authorityFor(string(p.trust.authorities.Roots()), p.config.Log))
	}
}

// followAuthority offers the authorities again whenever they change.
func (p *Plane) followAuthority(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.trust.changed:
			p.offerAuthority()
		}
	}
}
