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
