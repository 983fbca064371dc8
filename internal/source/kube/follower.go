package kube

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/source/cloud"
)

// retries are the pauses between attempts.
var retries = cloud.Backoff{First: 200 * time.Millisecond, Last: 20 * time.Second}

// kind is one of the two kinds that are followed.
type kind struct {
	version  schema.GroupVersion
	resource string
	selector labels.Selector
	object   runtime.Object
	list     func() runtime.Object
	missing  string // what it means that the API does not serve the kind
}

func serviceKind(host string, selector labels.Selector) kind {
	return kind{
		corev1.SchemeGroupVersion, "services", selector, &corev1.Service{}, func() runtime.Object { return &corev1.ServiceList{} },
		"the API at " + host + " does not serve Services: it is not the API of a Kubernetes cluster, or the URL has a wrong path",
	}
}

func sliceKind(host string) kind {
	return kind{
		discoveryv1.SchemeGroupVersion, "endpointslices", labels.Everything(), &discoveryv1.EndpointSlice{}, func() runtime.Object { return &discoveryv1.EndpointSliceList{} },
		"the API at " + host + " does not serve EndpointSlices (discovery.k8s.io/v1), as Kubernetes does since version 1.21",
	}
}

// follower lists and watches one kind, in all namespaces or in one.
type follower struct {
	source    *Source
	client    rest.Interface
	scale     *scale // of the client
	selection selection
	kind      kind
	list      *list

	// The rest belongs to the goroutine of the reflector, and to that of a stream while the reflector waits for it.

	pages   int64 // bytes of the pages of the list that is being read
	weight  int64 // of the objects in these pages
	doubted bool  // it is not sure that the same cluster answers as before
	since   time.Time
	uid     string // of the cluster
	warned  bool   // of a name, since the list before
	refused error  // of the list that was tried as a stream: it need not be tried in pages
	// unstreamed is an API whose watches do not say when all objects were there. It is listed in pages.
	unstreamed bool
}

func newFollower(s *Source, c rest.Interface, w *scale, sel selection, k kind, scope string) *follower {
	return &follower{source: s, client: c, scale: w, selection: sel, kind: k, list: s.table.add(scope), doubted: true}
}

// run lists and watches until ctx is done. A reflector's own loop would do the same, with other pauses and its own log.
func (f *follower) run(ctx context.Context) {
	r := cache.NewReflectorWithOptions(f, f.kind.object, f, cache.ReflectorOptions{Name: f.String(), TypeDescription: f.kind.resource})
	for failed := 0; ctx.Err() == nil; {
		begin := time.Now()
		_ = r.ListAndWatchWithContext(ctx) // noted where it came up
		if failed++; time.Since(begin) >= steadyTime {
			failed = 1
		}
		f.pause(ctx, failed)
	}
}

// pause waits after failures in a row, the longer the more there were, and no longer than until another follower is the first
// to get through again. It says whether it has waited to the end.
func (f *follower) pause(ctx context.Context, failed int) bool {
	t := time.NewTimer(retries.After(failed, nil))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-f.source.contact.returns():
		return true
	case <-ctx.Done():
		return false
	}
}

// String says what is followed.
func (f *follower) String() string {
	if f.list.scope == "" {
		return f.kind.resource
	}
	return f.kind.resource + " of the namespace " + f.list.scope
}

func (f *follower) get(o metav1.ListOptions) *rest.Request {
	o.LabelSelector = f.kind.selector.String()
	return f.client.Get().NamespaceIfScoped(f.list.scope, f.list.scope != "").Resource(f.kind.resource).MaxRetries(0).
		SpecificallyVersionedParams(&o, metav1.ParameterCodec, schema.GroupVersion{Version: "v1"})
}

// List is the form that reflectors of old call.
func (f *follower) List(o metav1.ListOptions) (runtime.Object, error) {
	return f.ListWithContext(context.Background(), o)
}

// ListWithContext reads one page for a reflector.
func (f *follower) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	if err := f.refused; err != nil {
		f.refused = nil
		return nil, err
	}
	if o.Continue == "" {
		f.pages, f.weight = 0, 0
	}
	if o.ResourceVersion == "0" {
		o.ResourceVersion = "" // not from a cache that may be old
	}
	if err := f.check(ctx); err != nil {
		return nil, f.note(ctx, err)
	}
	list := f.kind.list()
	rctx, record := cloud.WithRecord(ctx)
	err := f.get(o).Do(rctx).Into(list)
	if err == nil {
		err = f.judge(list, record)
	}
	if err != nil {
		if stale(err) && (o.ResourceVersion != "" || o.Continue != "") {
			return nil, err // the reflector begins again
		}
		return nil, f.note(ctx, f.describe("list", err, record))
	}
	if m, err := meta.ListAccessor(list); err == nil && m.GetContinue() == "" {
		_ = f.note(ctx, nil) // not of a part
	}
	return list, nil
}

// judge says what is wrong with a page.
func (f *follower) judge(page runtime.Object, record *cloud.Record) error {
	m, err := meta.ListAccessor(page)
	if err != nil {
		return cloud.BadAnswer("the answer is no list: %w", err)
	}
	if m.GetResourceVersion() == "" {
		return cloud.BadAnswer("the list has no resource version: it is not of a Kubernetes API")
	}
	f.pages += record.Bytes()
	f.weight += f.scale.last
	if f.pages > f.source.config.AnswerBytes || f.weight > f.scale.most {
		return f.tooLarge()
	}
	return nil
}

func (f *follower) tooLarge() error {
	return cloud.BadAnswer("the list is larger than %d MiB (spec.limits.answerMiB)", f.source.config.AnswerBytes>>20)
}

// check makes sure that the cluster is not our own. It asks once, and again after failures.
func (f *follower) check(ctx context.Context) error {
	if !f.doubted {
		return nil
	}
	uid, err := f.source.clusterUID(ctx, f.since)
	if err != nil {
		return err
	}
	f.doubted, f.uid = false, uid
	return nil
}

// same says whether what was read still holds: the same cluster answers, and its state is not older than that with
// resource version rv, as it is after a restore from a backup.
func (f *follower) same(ctx context.Context, rv string) (bool, error) {
	uid, err := f.source.clusterUID(ctx, f.since)
	if err != nil {
		return false, err
	}
	if uid != "" && f.uid != "" && uid != f.uid {
		f.source.config.Log.Info("another cluster answers: it is read anew", "upstream", f.source.config.Name)
		return false, nil
	}
	if uid != "" {
		f.uid = uid
	}
	rctx, record := cloud.WithRecord(ctx)
	page := f.kind.list()
	if err := f.get(metav1.ListOptions{Limit: 1}).Do(rctx).Into(page); err != nil {
		return false, f.describe("list", err, record)
	}
	m, err := meta.ListAccessor(page)
	if err != nil || m.GetResourceVersion() == "" {
		return false, f.describe("list", f.judge(page, record), record)
	}
	if older(m.GetResourceVersion(), rv) {
		f.source.config.Log.Info("the cluster has gone back to an earlier state: it is read anew", "upstream", f.source.config.Name, "of", f.kind.resource)
		return false, nil
	}
	return true, nil
}

// note notes how a request ended, and gives reflectors an error that they do not interpret. The end of ctx is no error
// of the upstream.
func (f *follower) note(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	f.source.note(f, err)
	if err == nil {
		return nil
	}
	f.doubt()
	// Reflectors wait for some errors without regard for their context.
	return errors.New(err.Error())
}

// doubt notes that another cluster may answer from now on.
func (f *follower) doubt() { f.doubted, f.since = true, f.source.config.Now() }

// describe names the attempt, and gives the error its class.
func (f *follower) describe(verb string, err error, record *cloud.Record) error {
	if apierrors.IsNotFound(err) {
		return cloud.BadAnswer("%s", f.kind.missing)
	}
	return because(fmt.Sprintf("%s %s", verb, f), err, record)
}

// item is an object as the reflector has it until the list is complete: its key, and what is kept of it.
type item struct {
	metav1.ObjectMeta
	service *service
	slice   *slice
}

// Transformer makes the reflector trim what it collects.
func (f *follower) Transformer() cache.TransformFunc {
	return func(o any) (any, error) { return f.trim(o), nil }
}

// trim keeps of an object what is needed; it is nil for what is no object of the kind.
func (f *follower) trim(o any) *item {
	var i item
	switch o := o.(type) {
	case *item:
		return o
	case cache.DeletedFinalStateUnknown:
		return f.trim(o.Obj)
	case *corev1.Service:
		if !f.accepts(o) {
			break
		}
		i.Namespace, i.Name = o.Namespace, o.Name
		if f.selected(o.Namespace) {
			i.service = convertService(o)
		}
	case *discoveryv1.EndpointSlice:
		if !f.accepts(o) {
			break
		}
		i.Namespace, i.Name = o.Namespace, o.Name
		if f.selected(o.Namespace) {
			i.slice = convertSlice(o)
		}
	}
	return &i
}

// accepts says whether an object has a name that Kubernetes can have. Others are left out, since nothing here can have
// the name, and there is no bound for it.
func (f *follower) accepts(o metav1.Object) bool {
	if canBe(o.GetNamespace(), o.GetName()) {
		return true
	}
	if !f.warned {
		f.warned = true
		f.source.config.Log.Warn("objects are left out whose names Kubernetes cannot have", "upstream", f.source.config.Name,
			"of", f.kind.resource, "namespace", clip(o.GetNamespace()), "name", clip(o.GetName()))
	}
	return false
}

func (f *follower) selected(namespace string) bool {
	return f.selection.has(namespace) && (f.list.scope == "" || f.list.scope == namespace)
}

func (f *follower) set(i *item, there bool) {
	key := model.UpstreamKey{Scope: i.Namespace, Name: i.Name}
	if !f.selected(i.Namespace) {
		return
	}
	if !there {
		i = &item{}
	}
	if _, ok := f.kind.object.(*corev1.Service); ok {
		f.source.table.putService(f.list, key, i.service)
	} else {
		f.source.table.putSlice(f.list, key, i.slice)
	}
}

// Add is for the reflector.
func (f *follower) Add(o any) error { f.set(f.trim(o), true); return nil }

// Update is for the reflector.
func (f *follower) Update(o any) error { f.set(f.trim(o), true); return nil }

// Delete is for the reflector.
func (f *follower) Delete(o any) error { f.set(f.trim(o), false); return nil }

// Resync is for the reflector.
func (f *follower) Resync() error { return nil }

// Replace is for the reflector: the list is complete.
func (f *follower) Replace(all []any, _ string) error {
	f.warned = false
	services, parts := map[model.UpstreamKey]*service{}, map[model.UpstreamKey]*slice{}
	for _, o := range all {
		i := f.trim(o)
		key := model.UpstreamKey{Scope: i.Namespace, Name: i.Name}
		if i.service != nil {
			services[key] = i.service
		}
		if i.slice != nil {
			parts[key] = i.slice
		}
	}
	if _, ok := f.kind.object.(*corev1.Service); ok {
		f.source.table.replaceServices(f.list, services)
	} else {
		f.source.table.replaceSlices(f.list, parts)
	}
	return nil
}
