package plane

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

const (
	// infrastructureSuffix ends the names of what stands for Gateways.
	infrastructureSuffix = "-fairlead"
	labelManagedBy       = "app.kubernetes.io/managed-by"
	managedBy            = "fairlead"
	// infrastructureRate bounds requests for it a second.
	infrastructureRate = 20
	// forbiddenPause is until a missing right is looked for again.
	forbiddenPause = 5 * time.Minute
)

// infrastructure keeps the object that stands for a Gateway with spec.infrastructure in its
// namespace: a ServiceAccount without rights, which bears the labels and annotations that
// the Gateway asks for, so that tools that look for what belongs to a Gateway find it. The
// machines that serve Gateways are shared, so nothing else could bear them.
//
// It goes with its Gateway, whose owner reference it has. An object of the same name that
// is somebody else's is left alone.
type infrastructure struct {
	client  client.Client
	log     *slog.Logger
	limiter *rate.Limiter
	queue   workqueue.TypedRateLimitingInterface[types.NamespacedName]

	mu      sync.Mutex
	enabled context.Context // of the term; nil while there is none
	wanted  map[types.NamespacedName]*gatewayv1.Gateway
	done    map[types.NamespacedName]stands // in this term
}

// stands is what was brought about for a Gateway.
type stands struct {
	uid                 types.UID
	labels, annotations map[string]string // nil: nothing stands
}

func newInfrastructure(c client.Client, log *slog.Logger) *infrastructure {
	return &infrastructure{
		client: c, log: log, limiter: rate.NewLimiter(infrastructureRate, infrastructureRate),
		queue:  workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[types.NamespacedName]()),
		wanted: map[types.NamespacedName]*gatewayv1.Gateway{}, done: map[types.NamespacedName]stands{},
	}
}

// run acts until ctx is done.
func (i *infrastructure) run(ctx context.Context) {
	defer context.AfterFunc(ctx, i.queue.ShutDown)()
	for {
		n, shutdown := i.queue.Get()
		if shutdown {
			return
		}
		if i.bring(ctx, n) {
			i.queue.Forget(n)
		} else {
			i.queue.AddRateLimited(n)
		}
		i.queue.Done(n)
	}
}

// enable lets it act for a term.
func (i *infrastructure) enable(term context.Context) {
	i.disable()
	i.mu.Lock()
	defer i.mu.Unlock()
	i.enabled = term
}

// disable ends that.
func (i *infrastructure) disable() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.enabled = nil
	clear(i.wanted)
	clear(i.done)
}

// offer says what a Gateway of ours is now.
func (i *infrastructure) offer(g *gatewayv1.Gateway) {
	i.mu.Lock()
	defer i.mu.Unlock()
	n := client.ObjectKeyFromObject(g)
	if done, known := i.done[n]; i.enabled == nil || known && done.equal(wantedOf(g)) {
		delete(i.wanted, n)
		return
	}
	i.wanted[n] = g
	i.queue.Add(n)
}

// forget says that a Gateway is gone; what stands for it goes by its owner reference.
func (i *infrastructure) forget(n types.NamespacedName) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.wanted, n)
	delete(i.done, n)
}

// wantedOf is what a Gateway asks for.
func wantedOf(g *gatewayv1.Gateway) stands {
	s := stands{uid: g.UID}
	o := g.Spec.Infrastructure
	if o == nil || len(o.Labels)+len(o.Annotations) == 0 || g.DeletionTimestamp != nil {
		return s
	}
	s.labels, s.annotations = map[string]string{}, map[string]string{}
	for k, v := range o.Labels {
		s.labels[string(k)] = string(v)
	}
	for k, v := range o.Annotations {
		s.annotations[string(k)] = string(v)
	}
	s.labels[gatewayv1.GatewayNameLabelKey], s.labels[labelManagedBy] = g.Name, managedBy
	if len(g.Name) > 63 { // the longest value of a label
		sum := sha256.Sum256([]byte(g.Name))
		s.labels[gatewayv1.GatewayNameLabelKey] = hex.EncodeToString(sum[:16])
	}
	return s
}

func (s stands) equal(o stands) bool {
	return s.uid == o.uid && (s.labels == nil) == (o.labels == nil) && maps.Equal(s.labels, o.labels) && maps.Equal(s.annotations, o.annotations)
}

// infrastructureName is the name of what stands for a Gateway.
func infrastructureName(gateway string) string {
	const longest = 253
	if len(gateway)+len(infrastructureSuffix) <= longest {
		return gateway + infrastructureSuffix
	}
	sum := sha256.Sum256([]byte(gateway))
	return gateway[:longest-len(infrastructureSuffix)-17] + "-" + hex.EncodeToString(sum[:8]) + infrastructureSuffix
}

// bring brings about what a Gateway asks for. It is false when it must be tried again.
func (i *infrastructure) bring(ctx context.Context, n types.NamespacedName) bool {
	i.mu.Lock()
	g, term := i.wanted[n], i.enabled
	i.mu.Unlock()
	if g == nil || term == nil || i.limiter.Wait(ctx) != nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	defer context.AfterFunc(term, cancel)()
	want := wantedOf(g)
	if err := i.write(ctx, g, want); err != nil {
		switch {
		case term.Err() != nil:
			return true
		case apierrors.IsForbidden(err) && want.labels == nil:
			err = nil // where it may not write, nothing of its own is left to remove
		case apierrors.IsForbidden(err):
			i.log.Warn("the plane has no right to ServiceAccounts in the namespace of a Gateway with spec.infrastructure; the Gateway is served all the same (rbac.infrastructureNamespaces of the chart)",
				"gateway", n.String(), "error", err)
			i.queue.AddAfter(n, forbiddenPause) // somebody may grant it
			return true
		}
		if err == nil {
			i.settle(term, n, g, want)
			return true
		}
		i.log.Warn("what stands for a Gateway cannot be written; it is tried again", "gateway", n.String(), "error", err)
		return false
	}
	i.settle(term, n, g, want)
	return true
}

// settle notes what was brought about.
func (i *infrastructure) settle(term context.Context, n types.NamespacedName, g *gatewayv1.Gateway, want stands) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.enabled == term {
		i.done[n] = want
		if i.wanted[n] == g {
			delete(i.wanted, n)
		}
	}
}

func (i *infrastructure) write(ctx context.Context, g *gatewayv1.Gateway, want stands) error {
	o := &corev1.ServiceAccount{}
	k := types.NamespacedName{Namespace: g.Namespace, Name: infrastructureName(g.Name)}
	err := i.client.Get(ctx, k, o)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return err
	}
	ours := slices.ContainsFunc(o.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == g.UID })
	switch {
	case missing && want.labels == nil:
		return nil
	case missing:
		controller := true
		o = &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
			Namespace: k.Namespace, Name: k.Name, Labels: want.labels, Annotations: want.annotations,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: gatewayv1.GroupVersion.String(), Kind: "Gateway", Name: g.Name, UID: g.UID, Controller: &controller,
			}},
		}}
		o.AutomountServiceAccountToken = new(bool)
		err = i.client.Create(ctx, o)
		if apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return nil // the namespace is going
		}
		return err
	case !ours:
		if want.labels != nil {
			i.log.Warn("a ServiceAccount that is somebody else's has the name of what would stand for a Gateway", "service_account", k.String())
		}
		return nil
	case want.labels == nil:
		return client.IgnoreNotFound(i.client.Delete(ctx, o, client.Preconditions{UID: &o.UID}))
	case maps.Equal(o.Labels, want.labels) && maps.Equal(o.Annotations, want.annotations):
		return nil
	}
	o.Labels, o.Annotations = want.labels, want.annotations
	return i.client.Update(ctx, o)
}
