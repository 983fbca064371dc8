package openstack

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/source/cloud"
)

const (
	defaultPollInterval  = time.Second
	defaultSweepInterval = 30 * time.Second

	lbaas = v1alpha1.OpenStackLBaaSv2
)

// retries are the pauses after failures, other than those to sign in.
var retries = cloud.Backoff{First: time.Second, Last: time.Minute}

// Config configures a Source. Credentials, Sink and Log are required.
type Config struct {
	// Name of the upstream, for log lines.
	Name        string
	Credentials Credentials
	// Authorities verify the certificates of the cloud's APIs and of its message broker, as
	// PEM. Empty: those of the system do.
	Authorities []byte
	// API of the load balancers; empty: Octavia.
	API v1alpha1.OpenStackAPI
	// Projects by ID or name; empty: all that the credentials may list.
	Projects []string
	// PollInterval and SweepInterval; 0: 1s and 30s.
	PollInterval, SweepInterval time.Duration
	// Notifications is the URL of the RabbitMQ with the cloud's notifications; empty: there
	// are none. Topic is theirs; empty: "notifications".
	Notifications string
	Topic         string
	// RequestsPerSecond and AnswerBytes bound the requests; 0: as cloud.TransportConfig says.
	RequestsPerSecond int
	AnswerBytes       int64
	Allow             cloud.Allow
	// Counters count the requests; nil: nobody does.
	Counters *cloud.Counters
	Sink     cloud.Sink
	Log      *slog.Logger
	// Now is the clock; nil: time.Now.
	Now func() time.Time

	base http.RoundTripper // of tests
}

// Source reads one cloud.
type Source struct {
	cfg    Config
	log    *slog.Logger
	now    func() time.Time
	client *client
	state  *state
	queue  *queue
	broker *broker // nil: none

	views   atomic.Pointer[[]view] // of the last full sweep
	selects selection

	events   chan struct{} // holds one
	sweepNow chan struct{} // holds one
	sweepAll atomic.Bool   // a full sweep is due: much has changed
	// recovered: polls failed, and the next sweep has to tell the sink the complete list.
	recovered atomic.Bool
	idle      interface{ CloseIdleConnections() }
}

// New checks a configuration. Its errors are of the class v1alpha1.ReasonCredentials. It
// sends nothing.
func New(cfg Config) (*Source, error) {
	s, err := newSource(cfg)
	if err != nil {
		return nil, &cloud.Error{Reason: v1alpha1.ReasonCredentials, Err: err}
	}
	return s, nil
}

func newSource(cfg Config) (*Source, error) {
	if err := cfg.Credentials.Check(cfg.Allow); err != nil {
		return nil, err
	}
	if cfg.API == "" {
		cfg.API = v1alpha1.OpenStackOctavia
	}
	if cfg.PollInterval <= 0 {
		cfg.PollInterval = defaultPollInterval
	}
	if cfg.SweepInterval <= 0 {
		cfg.SweepInterval = defaultSweepInterval
	}
	if cfg.RequestsPerSecond <= 0 {
		cfg.RequestsPerSecond = cloud.DefaultRequestsPerSecond
	}
	if cfg.AnswerBytes <= 0 {
		cfg.AnswerBytes = cloud.DefaultAnswerBytes
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	secure, err := tlsConfig(&cfg)
	if err != nil {
		return nil, err
	}
	s := &Source{
		cfg: cfg, log: cfg.Log.With("upstream", cfg.Name), now: cfg.Now,
		queue: newQueue(), state: newState(cfg.Sink, cfg.Now),
		events: make(chan struct{}, 1), sweepNow: make(chan struct{}, 1),
	}
	if cfg.Notifications != "" {
		if s.broker, err = newBroker(cfg.Notifications, cfg.Topic, secure, cfg.Allow); err != nil {
			return nil, err
		}
	}
	base := cfg.base
	if base == nil {
		base = cloud.NewBase(secure, cfg.Allow)
	}
	transport := cloud.NewTransport(base, cloud.TransportConfig{
		RequestsPerSecond: cfg.RequestsPerSecond, AnswerBytes: cfg.AnswerBytes, Counters: cfg.Counters,
	})
	s.idle = transport
	s.client = &client{
		http: transport.Client(), identity: cfg.Credentials.AuthURL, now: cfg.Now, answerBytes: cfg.AnswerBytes,
		background: rate.NewLimiter(rate.Limit(cfg.RequestsPerSecond)*3/4, max(1, cfg.RequestsPerSecond*3/4)),
		sessions: &sessions{
			http: transport.Client(), credentials: cfg.Credentials, api: cfg.API, plainHTTP: cfg.Allow.PlainHTTP, now: cfg.Now,
			slots: map[string]*slot{},
		},
	}
	return s, nil
}

// tlsConfig is for the APIs and for the message broker. Files were allowed before.
func tlsConfig(cfg *Config) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: cfg.Credentials.Insecure} //nolint:gosec // allowed by the operator
	authorities := cfg.Authorities
	if len(authorities) == 0 && cfg.Credentials.CACert != "" {
		var err error
		if authorities, err = os.ReadFile(cfg.Credentials.CACert); err != nil {
			return nil, fmt.Errorf("cacert: %w", err)
		}
	}
	if len(authorities) > 0 {
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(authorities) {
			return nil, errors.New("ca.crt holds no certificate in PEM")
		}
	}
	if cfg.Credentials.Cert != "" {
		key := cfg.Credentials.Key
		if key == "" {
			key = cfg.Credentials.Cert
		}
		pair, err := tls.LoadX509KeyPair(cfg.Credentials.Cert, key)
		if err != nil {
			return nil, fmt.Errorf("cert: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// Run reads the cloud until ctx is done. Its errors go to the sink. It is called once.
func (s *Source) Run(ctx context.Context) {
	var group sync.WaitGroup
	defer s.idle.CloseIdleConnections()
	defer group.Wait()
	for range parallel {
		group.Go(func() { s.work(ctx) })
	}
	if s.broker != nil {
		group.Go(func() { s.broker.listen(ctx, s.log, func() { signal(s.events) }) })
	}
	listed := make(chan struct{})
	group.Go(func() { s.sweepLoop(ctx, listed) })
	if s.cfg.API == lbaas {
		return // its lists say nothing about when something changed
	}
	select {
	case <-listed:
		s.pollLoop(ctx)
	case <-ctx.Done():
	}
}
