package kube

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/source/cloud"
)

const (
	// patience is how long a change waits for others of the same service.
	patience = 2 * time.Millisecond
	// contactInterval is how often the Sink is told at most that the upstream answers.
	contactInterval = time.Second
)

// Config says what a Source reads, and where.
type Config struct {
	Name       string // of the Upstream
	Kubeconfig []byte
	Context    string // of the kubeconfig; empty: its current one
	Allow      cloud.Allow
	Namespaces v1alpha1.UpstreamNamespaces // include and exclude
	Selector   labels.Selector             // of Services; nil: all
	// RequestsPerSecond and AnswerBytes bound the requests. AnswerBytes bounds what all pages of a list have together,
	// and about what each list takes of our memory, too.
	RequestsPerSecond int
	AnswerBytes       int64
	// OwnUID is the UID of the namespace kube-system of our own API, which must not be an upstream; empty: unknown.
	OwnUID   string
	Counters *cloud.Counters // nil: the source has its own
	Sink     cloud.Sink
	Log      *slog.Logger
	Now      func() time.Time // nil: time.Now
}

// Source reads a cluster. Run it once.
type Source struct {
	config    Config
	transport *cloud.Transport
	table     *table
	followers []*follower
	identity  rest.Interface
	contact   contact

	asking  chan struct{} // has one element while the following are read or written
	uid     string        // of the namespace kube-system; empty: unknown
	uidRead time.Time
}

// New prepares a Source. It sends nothing yet. The error is a *cloud.Error with ReasonCredentials: the kubeconfig cannot
// be used.
func New(c Config) (*Source, error) { return newSource(c, nil) }

// newSource makes a Source that connects by dial, if it is not nil.
func newSource(c Config, base func(*http.Transport)) (*Source, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.AnswerBytes <= 0 {
		c.AnswerBytes = cloud.DefaultAnswerBytes
	}
	if c.Selector == nil {
		c.Selector = labels.Everything()
	}
	s := &Source{config: c, table: newTable(c.Now), asking: make(chan struct{}, 1)}
	s.contact = contact{failing: map[*follower]error{}, back: make(chan struct{})}
	client, host, err := s.client(base)
	if err != nil {
		return nil, err
	}
	if s.identity, _, err = client(corev1.SchemeGroupVersion); err != nil {
		return nil, err
	}
	selected := newSelection(c.Namespaces)
	for _, scope := range selected.scopes() {
		for _, k := range []kind{serviceKind(host, c.Selector), sliceKind(host)} {
			rc, scale, err := client(k.version)
			if err != nil {
				return nil, err
			}
			s.followers = append(s.followers, newFollower(s, rc, scale, selected, k, scope))
		}
	}
	return s, nil
}

// newClient makes a client of the cluster for a version of an API group, and what weighs its answers.
type newClient func(schema.GroupVersion) (rest.Interface, *scale, error)

// client prepares clients of the cluster.
func (s *Source) client(adapt func(*http.Transport)) (newClient, string, error) {
	bad := func(err error) (newClient, string, error) {
		return nil, "", &cloud.Error{Reason: v1alpha1.ReasonCredentials, Err: err}
	}
	c, err := ParseKubeconfig(s.config.Kubeconfig, s.config.Context, s.config.Allow)
	if err != nil {
		return nil, "", err
	}
	c.UserAgent = "fairlead"
	c.QPS = -1 // the transport counts requests
	c.WarningHandler = rest.NoWarnings{}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, discoveryv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return bad(err)
		}
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	tls, err := rest.TLSConfigFor(c)
	if err != nil {
		return bad(fmt.Errorf("the kubeconfig cannot be used: %w", err))
	}
	base := cloud.NewBase(tls, s.config.Allow)
	base.Proxy, base.DisableCompression = c.Proxy, c.DisableCompression
	if adapt != nil {
		adapt(base)
	}
	s.transport = cloud.NewTransport(base, cloud.TransportConfig{
		RequestsPerSecond: s.config.RequestsPerSecond, AnswerBytes: s.config.AnswerBytes, Counters: s.config.Counters,
		Stream: func(r *http.Request) bool { return r.URL.Query().Get("watch") != "" },
	})
	credentials, err := rest.HTTPWrappersForConfig(c, s.transport)
	if err != nil {
		return bad(fmt.Errorf("the kubeconfig cannot be used: %w", err))
	}
	formats := serializer.NewCodecFactory(scheme).WithoutConversion()
	return func(gv schema.GroupVersion) (rest.Interface, *scale, error) {
		weighed := codecs{formats, &scale{most: growth * s.config.AnswerBytes}}
		rc := rest.CopyConfig(c)
		rc.APIPath = "/apis"
		if gv.Group == "" {
			rc.APIPath = "/api"
		}
		rc.GroupVersion = &gv
		rc.NegotiatedSerializer = weighed
		rc.ContentType = runtime.ContentTypeProtobuf
		rc.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
		client, err := rest.RESTClientForConfigAndClient(rc, &http.Client{Transport: credentials})
		if err != nil {
			return nil, nil, &cloud.Error{Reason: v1alpha1.ReasonCredentials, Err: fmt.Errorf("the kubeconfig cannot be used: %w", err)}
		}
		return client, weighed.scale, nil
	}, c.Host, nil
}

// Run reads the cluster until ctx is done, whatever happens. It alone calls the Sink.
func (s *Source) Run(ctx context.Context) {
	// The reflectors speak in klog of what the followers say better.
	ctx = klog.NewContext(ctx, logr.Discard())
	defer s.transport.CloseIdleConnections()
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, f := range s.followers {
		wg.Go(func() { f.run(ctx) })
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.table.wake:
		}
		timer := time.NewTimer(patience)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		s.give()
	}
}

// give gives the Sink what there is to give.
func (s *Source) give() {
	if told, err := s.contact.take(s.config.Now()); told {
		s.config.Sink.Contact(err)
	}
	g := s.table.take()
	switch {
	case g.whole:
		s.config.Sink.Replace(g.put)
		return
	case len(g.put) > 0:
		s.config.Sink.Put(g.put...)
	}
	if len(g.removed) > 0 {
		s.config.Sink.Remove(g.removed...)
	}
}

// note notes how a request of a follower ended.
func (s *Source) note(f *follower, err error) {
	s.contact.note(f, err, s.config.Now())
	s.table.note(f.list, err != nil)
	s.table.ring()
}

// clusterUID is the UID of the cluster's namespace kube-system, which tells clusters apart; empty if the credentials do
// not allow the question. It is not asked again if that was done after since. The error of an upstream that is our own
// API has ReasonOwnAPI.
func (s *Source) clusterUID(ctx context.Context, since time.Time) (string, error) {
	select {
	case s.asking <- struct{}{}:
		defer func() { <-s.asking }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	if s.uidRead.After(since) {
		return s.uid, nil
	}
	var ns corev1.Namespace
	begin := s.config.Now()
	rctx, record := cloud.WithRecord(ctx)
	err := s.identity.Get().Resource("namespaces").Name(metav1.NamespaceSystem).MaxRetries(0).Do(rctx).Into(&ns)
	switch {
	case apierrors.IsForbidden(err) || apierrors.IsNotFound(err):
		ns.UID = ""
	case err != nil:
		return "", because("read the namespace "+metav1.NamespaceSystem, err, record)
	case s.config.OwnUID != "" && string(ns.UID) == s.config.OwnUID:
		return "", &cloud.Error{Reason: v1alpha1.ReasonOwnAPI, Err: fmt.Errorf("the upstream %s is the API of this plane", s.config.Name)}
	}
	s.uid, s.uidRead = string(ns.UID), begin
	return s.uid, nil
}

// contact collects what the Sink is told about the upstream's answers.
type contact struct {
	mu      sync.Mutex
	failing map[*follower]error // the last error of each that fails
	back    chan struct{}       // closed when the first follower gets through after all had failed
	last    error               // that was not told yet
	news    bool                // there is something to tell
	well    time.Time           // when it was last told that the upstream answers
	told    bool                // the last that was told is that it answers
}

// note notes how a request ended. The upstream answers while no follower fails.
func (c *contact) note(f *follower, err error, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.failing[f] = err
		c.last, c.news = err, true
		return
	}
	if _, failed := c.failing[f]; failed && len(c.failing) == len(f.source.followers) {
		// The upstream was away. That only a part of its answers are errors is no such sign: it may be overloaded.
		close(c.back)
		c.back = make(chan struct{})
	}
	delete(c.failing, f)
	if len(c.failing) == 0 && (!c.told || now.Sub(c.well) >= contactInterval) {
		c.last, c.news = nil, true
	}
}

// returns is closed when the upstream next answers after it was away.
func (c *contact) returns() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.back
}

func (c *contact) take(now time.Time) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.news {
		return false, nil
	}
	c.news = false
	if c.told = c.last == nil; c.told {
		c.well = now
	}
	return true, c.last
}
