package apisource

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/snapshot"
)

// DefaultPatience is how long a batch waits for changes that follow its first.
const DefaultPatience = 2 * time.Millisecond

// confirmTimeout bounds the question whether a kind is really empty.
const confirmTimeout = 10 * time.Second

// Config says what a Source follows.
type Config struct {
	REST *rest.Config // required
	Log  *slog.Logger // required
	// Patience is how long a batch waits for changes that follow its first one.
	// Zero is DefaultPatience, negative is none.
	Patience time.Duration
	// SecretNamespace is the only one of whose Secrets the passwords are read;
	// v1alpha1.SystemNamespace when empty.
	SecretNamespace string
	// OwnSecrets follows the Secrets of that namespace alone: those of others are not there.
	OwnSecrets bool
}

// Source follows an API. Run it once; one goroutine calls Next.
type Source struct {
	log      *slog.Logger
	patience time.Duration
	queue    *queue
	follow   []func(context.Context)

	mu      sync.Mutex
	trouble map[snapshot.Kind]string
	missing map[snapshot.Kind]bool
	// why objects cannot be read that the API has
	unreadable map[snapshot.Key]string
}

// New prepares a Source. It does not talk to the API yet.
func New(c Config) (*Source, error) {
	scheme, err := NewScheme()
	if err != nil {
		return nil, err
	}
	transport, err := rest.HTTPClientFor(c.REST)
	if err != nil {
		return nil, fmt.Errorf("make a transport to the API at %s: %w", c.REST.Host, err)
	}
	s := &Source{
		log: c.Log, patience: c.Patience, queue: newQueue(snapshot.Kinds()),
		trouble: map[snapshot.Kind]string{}, missing: map[snapshot.Kind]bool{}, unreadable: map[snapshot.Key]string{},
	}
	if s.patience == 0 {
		s.patience = DefaultPatience
	}
	codecs := serializer.NewCodecFactory(scheme)
	mark := rand.Text() + " "
	passwords := cmp.Or(c.SecretNamespace, v1alpha1.SystemNamespace)
	for _, r := range snapshot.Resources() {
		rc, err := restClient(r, c.REST, transport, codecs, mark)
		if err != nil {
			return nil, err
		}
		f := &follower{source: s, resource: r, client: rc, passwords: passwords, mark: mark}
		if c.OwnSecrets && r.Kind == snapshot.KindSecret {
			f.namespace = passwords
		}
		s.follow = append(s.follow, f.run)
	}
	return s, nil
}

// Run follows the API until ctx is done.
func (s *Source) Run(ctx context.Context) {
	// The reflectors speak in klog of what the followers say once and better.
	ctx = klog.NewContext(ctx, logr.Discard())
	var wg sync.WaitGroup
	for _, f := range s.follow {
		wg.Go(func() { f(ctx) })
	}
	wg.Wait()
}

// Next waits for the next batch. The error is ctx's.
func (s *Source) Next(ctx context.Context) (snapshot.Batch, error) {
	return s.queue.next(ctx, s.patience)
}

// Missing returns the kinds that the API does not serve, sorted.
func (s *Source) Missing() []snapshot.Kind {
	s.mu.Lock()
	defer s.mu.Unlock()
	var kinds []snapshot.Kind
	for k := range s.missing {
		kinds = append(kinds, k)
	}
	slices.Sort(kinds)
	return kinds
}

func (s *Source) isMissing(k snapshot.Kind) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.missing[k]
}

// Trouble says, for each kind that cannot be followed at the moment, why.
func (s *Source) Trouble() map[snapshot.Kind]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[snapshot.Kind]string, len(s.trouble))
	for k, v := range s.trouble {
		out[k] = v
	}
	return out
}

// Unreadable says, for each object that the API has and that cannot be read, why. Such an object is as it was before,
// or is left out.
func (s *Source) Unreadable() map[snapshot.Key]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.unreadable)
}

// noteUnreadable notes why an object cannot be read; empty: it can, or is gone.
func (s *Source) noteUnreadable(k snapshot.Key, why string) {
	s.mu.Lock()
	before := s.unreadable[k]
	if delete(s.unreadable, k); why != "" {
		s.unreadable[k] = why
	}
	s.mu.Unlock()
	if why != "" && before != why {
		s.log.Warn("an object cannot be read: its last readable version is used, if any", "kind", k.Kind, "name", k.Name.String(), "error", why)
	}
}

// follower lists and watches one kind.
type follower struct {
	source    *Source
	resource  snapshot.Resource
	client    rest.Interface
	passwords string // namespace of the Secrets whose passwords are kept
	namespace string // the only one that is followed; all when empty
	mark      string // of objects that cannot be read
}

func (f *follower) run(ctx context.Context) {
	st := newStore(f.resource, f.source.queue, f.passwords, func() (bool, error) { return f.empty(ctx) })
	st.mark, st.noteUnreadable = f.mark, f.source.noteUnreadable
	st.pruned = func(name snapshot.Name, text string) {
		f.source.log.Warn("values of an object have the wrong type and are left out", "object", string(f.resource.Kind)+" "+name.String(), "values", text)
	}
	r := cache.NewReflectorWithOptions(f, f.resource.New(), st, cache.ReflectorOptions{
		Name:            string(f.resource.Kind),
		TypeDescription: f.resource.GroupResource().String(),
		Backoff:         &wait.Backoff{Duration: 200 * time.Millisecond, Cap: 5 * time.Second, Steps: 25, Factor: 2, Jitter: 0.5},
	})
	r.RunWithContext(ctx)
}

// get begins a request. The reflector does the retrying: the client itself would sit
// out the second that an API asks for which has just begun to serve a kind.
func (f *follower) get() *rest.Request {
	return f.client.Get().NamespaceIfScoped(f.namespace, f.namespace != "").Resource(f.resource.Resource).MaxRetries(0)
}

// IsWatchListSemanticsUnSupported makes a reflector list first and then watch. The
// other way, a watch that begins with what there is, tells its end only with the
// API server's next bookmark: a second and more at every start.
func (f *follower) IsWatchListSemanticsUnSupported() bool { return true }

// ListWithContext lists once for a reflector.
func (f *follower) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	list := f.resource.NewList()
	err := f.get().
		SpecificallyVersionedParams(&o, metav1.ParameterCodec, schema.GroupVersion{Version: "v1"}).
		Do(ctx).Into(list)
	f.note(ctx, f.confirm(ctx, err))
	return list, err
}

// WatchWithContext opens a watch for a reflector.
func (f *follower) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.Watch = true
	w, err := f.get().
		SpecificallyVersionedParams(&o, metav1.ParameterCodec, schema.GroupVersion{Version: "v1"}).
		Watch(ctx)
	f.note(ctx, f.confirm(ctx, err))
	return w, err
}

// List is the form that reflectors of old call.
func (f *follower) List(o metav1.ListOptions) (runtime.Object, error) {
	return f.ListWithContext(context.Background(), o)
}

// Watch is the form that reflectors of old call.
func (f *follower) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return f.WatchWithContext(context.Background(), o)
}

func (f *follower) empty(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	list, err := f.ListWithContext(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return false, err
	}
	return meta.LenList(list) == 0, nil
}

// confirm makes sure that an answer of "not found" means that the API does not serve
// the kind. A plane that has just begun would take it for an empty kind and remove
// everything of it from the machines; and every proxy between can give that answer.
func (f *follower) confirm(ctx context.Context, err error) error {
	if !apierrors.IsNotFound(err) || f.source.isMissing(f.resource.Kind) {
		return err
	}
	name := f.resource.GroupResource().String()
	switch served, unknown := f.served(ctx); {
	case unknown != nil: // not wrapped: it may be another "not found"
		return fmt.Errorf("%s is not found, and the API does not say whether it serves it: %s", name, unknown.Error())
	case served:
		return fmt.Errorf("%s is not found, though the API lists it", name)
	}
	return err
}

// served asks the API's own list whether it serves the kind.
func (f *follower) served(ctx context.Context) (bool, error) {
	if f.resource.BuiltIn {
		return true, nil // built in: every API has it
	}
	ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	gv := f.resource.GroupVersion()
	var resources metav1.APIResourceList
	switch err := f.ask(ctx, "/apis/"+gv.String(), "APIResourceList", &resources); {
	case err == nil:
		return slices.ContainsFunc(resources.APIResources, func(r metav1.APIResource) bool { return r.Name == f.resource.Resource }), nil
	case !apierrors.IsNotFound(err):
		return false, err
	}
	var groups metav1.APIGroupList
	if err := f.ask(ctx, "/apis", "APIGroupList", &groups); err != nil {
		return false, err
	}
	for _, g := range groups.Groups {
		if g.Name == gv.Group && slices.ContainsFunc(g.Versions, func(v metav1.GroupVersionForDiscovery) bool { return v.Version == gv.Version }) {
			return true, nil
		}
	}
	return false, nil
}

// ask reads one of the API's lists of what it serves.
func (f *follower) ask(ctx context.Context, path, kind string, into any) error {
	body, err := f.client.Get().MaxRetries(0).AbsPath(path).DoRaw(ctx)
	if err != nil {
		return err
	}
	var is metav1.TypeMeta
	if err := json.Unmarshal(body, &is); err != nil || is.Kind != kind {
		return fmt.Errorf("%s answers with something else than its %s", path, kind)
	}
	return json.Unmarshal(body, into)
}

// note keeps what the last answer of the API says, and logs when that changes.
func (f *follower) note(ctx context.Context, err error) {
	if ctx.Err() != nil || reflectorsOwn(err) {
		return
	}
	s, kind, log := f.source, f.resource.Kind, f.source.log.With("kind", f.resource.Kind)
	missing := apierrors.IsNotFound(err)
	s.mu.Lock()
	wasMissing, before := s.missing[kind], s.trouble[kind]
	delete(s.missing, kind)
	delete(s.trouble, kind)
	switch {
	case missing:
		s.missing[kind] = true
	case err != nil:
		s.trouble[kind] = err.Error()
	}
	s.mu.Unlock()
	switch {
	case missing && !wasMissing:
		log.Warn("the API does not serve this kind: its custom resource definition is not installed; waiting for it", "resource", f.resource.GroupResource().String())
	case err == nil && wasMissing:
		log.Info("the API serves this kind now")
	case err == nil && before != "":
		log.Info("the API answers again")
	case err != nil && !missing && before == "":
		log.Warn("the API does not answer; the known objects stay in use", "error", err)
	}
	if missing {
		s.queue.listed(kind)
	}
}

// reflectorsOwn are the answers that a reflector expects: it lists anew, without
// streaming, or a moment later.
func reflectorsOwn(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsInvalid(err) ||
		apierrors.IsTooManyRequests(err) || errors.Is(err, context.Canceled)
}
