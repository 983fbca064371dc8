package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/certificates/rootcacertpublisher"
	"k8s.io/kubernetes/pkg/controller/clusterroleaggregation"
	"k8s.io/kubernetes/pkg/controller/endpointslice"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	"k8s.io/kubernetes/pkg/controller/namespace"
	"k8s.io/kubernetes/pkg/controller/serviceaccount"
	satoken "k8s.io/kubernetes/pkg/serviceaccount"
)

const (
	restartBackoff    = time.Second
	restartBackoffMax = 30 * time.Second
	// gcSyncPeriod is how soon the garbage collector notices a new kind of resource.
	gcSyncPeriod = 30 * time.Second
	// namespaceResync is how often unfinished deletions of namespaces are looked at again.
	namespaceResync = 5 * time.Minute
)

// controllers are the loops of kube-controller-manager that an API without pods needs. Each gets
// its own small caches: pods, owned slices and token secrets only, and metadata for the rest.
type controllers struct {
	log    *slog.Logger
	cfg    *rest.Config
	client kubernetes.Interface
	rootCA []byte
	tokens satoken.TokenGenerator
	now    func() time.Time

	loops    []loop
	synced   sync.WaitGroup
	syncOnce []sync.Once

	mu    sync.Mutex
	again chan struct{} // closed by restart
}

// loop is one controller. build makes it anew; run lasts until its context ends.
type loop struct {
	name  string
	build func(ctx context.Context) (controller, error)
}

// controller is a built controller, ready to run when its caches are synced.
type controller struct {
	start  []interface{ Start(stop <-chan struct{}) }
	synced []cache.InformerSynced
	run    func(ctx context.Context)
}

func newControllers(cfg *rest.Config, p *pki, server Config) (*controllers, error) {
	key, err := loadKey(p.path(serviceAccountCA + ".key"))
	if err != nil {
		return nil, p.damaged(err)
	}
	rootCA, err := os.ReadFile(p.path(clusterCA + ".crt"))
	if err != nil {
		return nil, fmt.Errorf("read the root certificate: %w", err)
	}
	tokens, err := satoken.JWTTokenGenerator(satoken.LegacyIssuer, key)
	if err != nil {
		return nil, fmt.Errorf("make the generator of ServiceAccount tokens: %w", err)
	}
	c := &controllers{log: server.Log, cfg: rest.CopyConfig(cfg), rootCA: rootCA, tokens: tokens, now: server.Now, again: make(chan struct{})}
	c.cfg.UserAgent = "fairlead-controllers"
	if server.wrapControllers != nil {
		c.cfg.Wrap(server.wrapControllers)
	}
	typed := rest.CopyConfig(c.cfg)
	typed.ContentType = "application/vnd.kubernetes.protobuf"
	if c.client, err = kubernetes.NewForConfig(typed); err != nil {
		return nil, fmt.Errorf("make the controllers' client: %w", err)
	}
	c.loops = []loop{
		{"namespace", c.namespaces},
		{"garbage-collector", c.garbage},
		{"service-account", c.serviceAccounts},
		{"service-account-token", c.serviceAccountTokens},
		{"root-ca", c.rootCAs},
		{"cluster-role-aggregation", c.clusterRoles},
		{"endpoint-slice", c.endpointSlices},
	}
	c.synced.Add(len(c.loops))
	c.syncOnce = make([]sync.Once, len(c.loops))
	return c, nil
}

// run runs every controller until ctx ends, each one again after it panicked or returned.
func (c *controllers) run(ctx context.Context) {
	var all sync.WaitGroup
	for i, l := range c.loops {
		all.Go(func() {
			supervise(ctx, c.log.With("controller", l.name), c.now, func(ctx context.Context) error {
				return c.runOnce(ctx, l, func() { c.syncOnce[i].Do(c.synced.Done) })
			})
		})
	}
	all.Wait()
}

// await returns once every controller has synced for the first time.
func (c *controllers) await(ctx context.Context) error {
	synced := make(chan struct{})
	go func() {
		c.synced.Wait()
		close(synced)
	}()
	select {
	case <-synced:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the controllers did not start: %w", ctx.Err())
	}
}

func (c *controllers) runOnce(ctx context.Context, l loop, synced func()) error {
	c.mu.Lock()
	again := c.again
	c.mu.Unlock()
	outer := ctx
	ctx, cancel := context.WithCancelCause(outer)
	defer cancel(nil)
	go func() {
		select {
		case <-again:
			cancel(errPanicked)
		case <-ctx.Done():
		}
	}()
	built, err := l.build(ctx)
	if err != nil {
		return fmt.Errorf("make controller %s: %w", l.name, err)
	}
	for _, f := range built.start {
		f.Start(ctx.Done())
	}
	if cache.WaitForCacheSync(ctx.Done(), built.synced...) {
		synced()
		built.run(ctx)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.New("it returned")
}

var errPanicked = errors.New("a panic was seen in this process")

// restart makes every controller begin anew. A worker that panicked was started again by the
// library, but it forgot what it worked on; a new controller lists everything.
func (c *controllers) restart() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.again)
	c.again = make(chan struct{})
}

// supervise calls run again until ctx ends, after a pause that grows while run fails fast.
func supervise(ctx context.Context, log *slog.Logger, now func() time.Time, run func(context.Context) error) {
	protected := func() (err error) {
		defer func() {
			if r := recover(); r != nil {
				err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
			}
		}()
		return run(ctx)
	}
	pause := restartBackoff
	for {
		began := now()
		err := protected()
		if ctx.Err() != nil {
			return
		}
		if now().Sub(began) > restartBackoffMax {
			pause = restartBackoff
		}
		log.Error("controller stopped: it is started again", "error", err, "after", pause)
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		pause = min(2*pause, restartBackoffMax)
	}
}

// factory makes informers that keep what matters, of the objects that tweak selects.
func (c *controllers) factory(tweak func(*metav1.ListOptions)) informers.SharedInformerFactory {
	return informers.NewSharedInformerFactoryWithOptions(c.client, 0, informers.WithTransform(dropManagedFields), informers.WithTweakListOptions(tweak))
}

func dropManagedFields(obj any) (any, error) {
	if m, err := meta.Accessor(obj); err == nil {
		m.SetManagedFields(nil)
	}
	return obj, nil
}

func (c *controllers) namespaces(ctx context.Context) (controller, error) {
	md, err := metadata.NewForConfig(c.cfg)
	if err != nil {
		return controller{}, err
	}
	f := c.factory(nil)
	ns := f.Core().V1().Namespaces()
	n := namespace.NewNamespaceController(ctx, c.client, md, c.client.Discovery().ServerPreferredNamespacedResources, ns, namespaceResync, corev1.FinalizerKubernetes)
	return controller{
		start:  []interface{ Start(<-chan struct{}) }{f},
		synced: []cache.InformerSynced{ns.Informer().HasSynced},
		run:    func(ctx context.Context) { n.Run(ctx, 5) },
	}, nil
}

func (c *controllers) serviceAccounts(ctx context.Context) (controller, error) {
	f := c.factory(nil)
	sa, ns := f.Core().V1().ServiceAccounts(), f.Core().V1().Namespaces()
	s, err := serviceaccount.NewServiceAccountsController(klog.FromContext(ctx), sa, ns, c.client, serviceaccount.DefaultServiceAccountsControllerOptions())
	if err != nil {
		return controller{}, err
	}
	return controller{
		start:  []interface{ Start(<-chan struct{}) }{f},
		synced: []cache.InformerSynced{sa.Informer().HasSynced, ns.Informer().HasSynced},
		run:    func(ctx context.Context) { s.Run(ctx, 1) },
	}, nil
}

// serviceAccountTokens fills Secrets of the type that asks for a ServiceAccount's token.
func (c *controllers) serviceAccountTokens(ctx context.Context) (controller, error) {
	all := c.factory(nil)
	secrets := c.factory(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("type", string(corev1.SecretTypeServiceAccountToken)).String()
	})
	sa, sec := all.Core().V1().ServiceAccounts(), secrets.Core().V1().Secrets()
	t, err := serviceaccount.NewTokensController(klog.FromContext(ctx), sa, sec, c.client, serviceaccount.TokensControllerOptions{
		TokenGenerator: c.tokens, RootCA: c.rootCA,
	})
	if err != nil {
		return controller{}, err
	}
	return controller{
		start:  []interface{ Start(<-chan struct{}) }{all, secrets},
		synced: []cache.InformerSynced{sa.Informer().HasSynced, sec.Informer().HasSynced},
		run:    func(ctx context.Context) { t.Run(ctx, 1) },
	}, nil
}

// rootCAs keeps the ConfigMap with our root certificate in every namespace.
func (c *controllers) rootCAs(context.Context) (controller, error) {
	all := c.factory(nil)
	maps := c.factory(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, rootcacertpublisher.RootCACertConfigMapName).String()
	})
	cm, ns := maps.Core().V1().ConfigMaps(), all.Core().V1().Namespaces()
	r, err := rootcacertpublisher.NewPublisher(cm, ns, c.client, c.rootCA)
	if err != nil {
		return controller{}, err
	}
	return controller{
		start:  []interface{ Start(<-chan struct{}) }{all, maps},
		synced: []cache.InformerSynced{cm.Informer().HasSynced, ns.Informer().HasSynced},
		run:    func(ctx context.Context) { r.Run(ctx, 1) },
	}, nil
}

// clusterRoles fills admin, edit and view, which without it grant nothing.
func (c *controllers) clusterRoles(context.Context) (controller, error) {
	f := c.factory(nil)
	roles := f.Rbac().V1().ClusterRoles()
	a := clusterroleaggregation.NewClusterRoleAggregation(roles, c.client.RbacV1())
	return controller{
		start:  []interface{ Start(<-chan struct{}) }{f},
		synced: []cache.InformerSynced{roles.Informer().HasSynced},
		run:    func(ctx context.Context) { a.Run(ctx, 5) },
	}, nil
}

func (c *controllers) endpointSlices(ctx context.Context) (controller, error) {
	all := c.factory(nil)
	owned := c.factory(func(o *metav1.ListOptions) {
		o.LabelSelector = labels.Set{discoveryv1.LabelManagedBy: endpointslice.ControllerName}.String()
	})
	core := all.Core().V1()
	pods, services, nodes, slices := core.Pods(), core.Services(), core.Nodes(), owned.Discovery().V1().EndpointSlices()
	e := endpointslice.NewController(ctx, pods, services, nodes, slices, 100, c.client, 0)
	return controller{
		start: []interface{ Start(<-chan struct{}) }{all, owned},
		synced: []cache.InformerSynced{
			pods.Informer().HasSynced, services.Informer().HasSynced,
			nodes.Informer().HasSynced, slices.Informer().HasSynced,
		},
		run: func(ctx context.Context) { e.Run(ctx, 5) },
	}, nil
}

func (c *controllers) garbage(ctx context.Context) (controller, error) {
	md, err := metadata.NewForConfig(c.cfg)
	if err != nil {
		return controller{}, err
	}
	disco, err := discovery.NewDiscoveryClientForConfig(c.cfg)
	if err != nil {
		return controller{}, err
	}
	// The mapper is reset when resources change, so it must not share the client that notices that.
	mapperDisco, err := discovery.NewDiscoveryClientForConfig(c.cfg)
	if err != nil {
		return controller{}, err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(mapperDisco))
	all := metadataInformers{metadatainformer.NewSharedInformerFactoryWithOptions(md, 0, metadatainformer.WithTransform(ownershipOnly))}
	started := make(chan struct{})
	close(started)
	g, err := garbagecollector.NewGarbageCollector(ctx, c.client, md, mapper, garbagecollector.DefaultIgnoredResources(), all, started)
	if err != nil {
		return controller{}, err
	}
	return controller{run: func(ctx context.Context) {
		ctx, cancel := context.WithCancel(ctx)
		var both sync.WaitGroup
		both.Go(func() { g.Sync(ctx, disco, gcSyncPeriod) })
		g.Run(ctx, 20, gcSyncPeriod)
		cancel()
		both.Wait()
	}}, nil
}

// metadataInformers gives the garbage collector metadata alone, whatever the resource.
type metadataInformers struct {
	metadatainformer.SharedInformerFactory
}

// ownershipOnly keeps of an object what the garbage collector reads.
func ownershipOnly(obj any) (any, error) {
	if m, err := meta.Accessor(obj); err == nil {
		m.SetManagedFields(nil)
		m.SetAnnotations(nil)
		m.SetLabels(nil)
	}
	return obj, nil
}

func (f metadataInformers) ForResource(r schema.GroupVersionResource) (informers.GenericInformer, error) {
	return f.SharedInformerFactory.ForResource(r), nil
}
