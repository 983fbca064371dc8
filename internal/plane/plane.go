package plane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/internal/collector"
	"fairlead.dev/internal/console"
	"fairlead.dev/internal/derive"
	"fairlead.dev/internal/discovery"
	"fairlead.dev/internal/history"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/plane/status"
	"fairlead.dev/internal/plane/watch"
	apisource "fairlead.dev/internal/source/api"
	"fairlead.dev/internal/source/cloud"
	"fairlead.dev/internal/southbound"
	"fairlead.dev/internal/translate"
	"fairlead.dev/internal/version"
	"fairlead.dev/internal/xds"
)

// Defaults of a Config.
const (
	defaultTTL        = 10 * time.Second
	defaultStatusRate = 200
	// retryStart is how long Run waits for an API that does not answer at the start.
	retryStart = time.Second
	// derivedRate bounds how many derived objects of a kind are written a second.
	derivedRate = 20
	// discoveredRate is that of discovered objects: an upstream that is new brings thousands.
	discoveredRate = 200
	// stopLimit bounds giving the Lease back at the end.
	stopLimit = 3 * time.Second
)

// Config is what one plane is told.
type Config struct {
	REST *rest.Config // required
	// Identity takes part in the election; required. It must not be that of another
	// plane of the same API that may run at the same time. A plane that starts again
	// under the same identity leads again at once instead of waiting for its old Lease
	// to run out: give a plane that has an API of its own a fixed one.
	Identity string
	// AgentAddress is host:port to listen on for agents; required. Port 0 takes a free one.
	AgentAddress string
	// AdvertiseAddress is host:port at which agents reach this plane. Empty is the
	// address that is listened on.
	AdvertiseAddress string
	// API is where the Kubernetes API of this process listens; not valid: the API is somebody else's.
	API netip.AddrPort
	// Addresses are this machine's own: where agents reach a plane that listens at every address.
	// Nil: they are not told.
	Addresses func() ([]netip.Addr, error)
	// ConsoleAddress is host:port of this plane's console, as others are told of it.
	ConsoleAddress string
	// ReadAddress is host:port of the read API, which the leader publishes; empty: there is none.
	ReadAddress string
	// ReadURL is what is published instead of that address; empty: the address is.
	ReadURL string
	Log     *slog.Logger // required
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// Random spreads retries; nil is seeded by the runtime.
	Random *rand.Rand
	// TTL is after how long without a report a machine is lost. 0 is 10 s.
	TTL time.Duration
	// MachineAddresses are where addresses that machines report are theirs without proof.
	MachineAddresses []RoleAddresses
	Translate        translate.Config
	XDS              xds.Options
	// Registerer takes the metrics; nil takes none. A registry takes one plane.
	Registerer prometheus.Registerer
	// Agents are the pods that may join as machines, each as its node; the zero value
	// lets none. They are told the agents' authority in their namespace.
	Agents ServiceAccount
	// UpstreamAllow says what the credentials of upstreams may contain besides inline data.
	UpstreamAllow cloud.Allow
	// OwnSecrets reads the Secrets of Namespace alone: certificates of others are not found.
	OwnSecrets bool
	// OCSPStapling asks the responders that certificates name, and has machines show what
	// they say. Certificates are the users': whoever writes one says whom the plane asks.
	OCSPStapling bool
	// AuthorityFile holds agents' authorities that a restore has left: they take the place of the
	// stored ones before anything is served, and the file is removed. Empty, or no such file: none do.
	AuthorityFile string
	// Lease is how leadership is kept; the zero value is 3 s, 2 s and 0.4 s.
	Lease LeaseTimes
	// StatusRate bounds status writes a second. 0 is 200.
	StatusRate float64
	// HistoryFile is where revisions outlive the plane; empty keeps them in Secrets of
	// Namespace, where every plane of the API finds them. A file is for a plane that has an
	// API of its own.
	HistoryFile string
	// Stamped says that the API says who changes objects; else the plane looks for the policy that has it do so.
	Stamped bool
	// ChangesFile is where changes of objects outlive the plane; empty keeps them in Secrets, as with HistoryFile.
	ChangesFile string
	// MayWrite says why these files are better not written to, for want of room, say; nil is
	// never.
	MayWrite func(context.Context) error
	// Collector is the URL of a collector of OpenTelemetry that is sent a trace of each change; empty: nobody is.
	Collector  string
	responders *http.Client // nil is staple.Client()
	// upstreamSource makes the source of an Upstream; nil is discovery.Open.
	upstreamSource func(discovery.Origin, cloud.Sink) (discovery.Source, error)
	// statusNow and statusAfter are the clock of status writes; nil is Now, and timers.
	statusNow   func() time.Time
	statusAfter func(time.Duration) (elapsed <-chan time.Time, stop func())
}

func (c Config) complete() (Config, error) {
	if c.REST == nil || c.Identity == "" || c.AgentAddress == "" || c.Log == nil {
		return c, errors.New("plane: REST, Identity, AgentAddress and Log are required")
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.statusNow == nil {
		c.statusNow = c.Now
	}
	if c.statusAfter == nil {
		c.statusAfter = status.Timer
	}
	if c.Random == nil {
		c.Random = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	}
	if c.TTL <= 0 {
		c.TTL = defaultTTL
	}
	if c.Lease == (LeaseTimes{}) {
		c.Lease = defaultLeaseTimes
	}
	if c.StatusRate <= 0 {
		c.StatusRate = defaultStatusRate
	}
	if c.Translate.ControllerName == "" {
		c.Translate.ControllerName = translate.ControllerName
	}
	return c, nil
}

// Plane is one plane: the leader of its API, or a standby.
type Plane struct {
	*watch.Viewers // top, tap and the lists that are watched

	config  Config
	started time.Time

	// What wakes the loop: signals, changed keys, and functions that it runs.
	signals   struct{ term, turn chan struct{} }
	touched   changed[string]              // machines that changed at the server
	stapled   changed[model.CertificateID] // certificates whose OCSP response changed
	upstreams upstreams                    // whose status is another now
	calls     calls                        // of probes, and of a caller that hands the loop something
	questions chan func(*loop)             // of consoles

	// For consoles.
	flowing   flowQueue
	figured   singleflight.Group // while they are asked for figures
	routes    *watch.List[model.RouteRow]
	bringing  atomic.Bool // its rows are being brought up to date
	statuses  common[model.Status]
	revisions common[[]model.Revision]

	// The API, and leadership.
	client    client.Client
	source    *apisource.Source
	discovery *discovery.Discovery // between the source and the loop
	pods      *pods                // nil: none joins
	before    predecessor
	lease     *lease
	serving   atomic.Uint64 // the epoch in which agents are served; 0: they are not
	ended     atomic.Bool   // the loop has

	// What the loop writes to.
	views      *southbound.Views
	writer     *status.Writer
	derived    *derive.Writer
	discovered *derive.Writer // of discovered objects
	metrics    *metrics
	staples    staples
	keeper     *keeper
	recorder   *recorder
	collector  *collector.Collector // of traces of changes; nil: there is none

	// What machines connect to. Run sets them as soon as the API has given the agents' authorities,
	// before anything that uses them begins.
	machines *registry
	server   *southbound.Server
	trust    *trust
	// authority is nil until then. Others ask for it meanwhile.
	authority atomic.Pointer[southbound.Authorities]

	mu      sync.Mutex
	address net.Addr
	running bool
}

// New prepares a plane. Nothing runs and nothing is asked of the API before Run.
func New(c Config) (*Plane, error) {
	c, err := c.complete()
	if err != nil {
		return nil, err
	}
	p := &Plane{
		config: c, started: c.Now(), views: southbound.NewViews(),
		touched: newChanged[string](), stapled: newChanged[model.CertificateID](), upstreams: newUpstreams(),
		calls: make(calls), questions: make(chan func(*loop)), flowing: newFlowQueue(), before: newPredecessor(),
	}
	p.signals.term, p.signals.turn = make(chan struct{}, 1), make(chan struct{}, 1)
	if p.client, err = apisource.NewClient(c.REST); err != nil {
		return nil, err
	}
	if p.source, err = apisource.New(apisource.Config{REST: c.REST, Log: c.Log, OwnSecrets: c.OwnSecrets}); err != nil {
		return nil, err
	}
	if p.pods, err = newPods(c.REST, c.Agents); err != nil {
		return nil, err
	}
	// Each of these is given only what is above it.
	p.lease = &lease{
		client: p.client, identity: c.Identity, address: c.AdvertiseAddress, console: c.ConsoleAddress, read: c.ReadAddress, log: c.Log,
		changed: func() { signal(p.signals.term) }, took: p.before.note,
	}
	p.Viewers = watch.New(watch.Config{Plane: viewed{p}, Loop: viewed{p}, Machines: viewed{p}, Lists: viewed{p}, Now: c.Now, Log: c.Log})
	p.routes = watch.NewList(func(r model.RouteRow) string { return r.Owner.Namespace })
	writes := newWriteMetrics()
	p.writer = status.NewWriter(status.Config{
		Client: p.client, Rate: c.StatusRate, Log: c.Log, Now: c.statusNow, After: c.statusAfter, Random: c.Random, Meter: writes,
	})
	p.derived = derive.NewWriter(p.client, derivedRate, &corev1.ServiceAccount{}, &corev1.ConfigMap{})
	p.discovered = derive.NewWriter(p.client, discoveredRate, &corev1.Service{}, &discoveryv1.EndpointSlice{}, gimbalEndpoints)
	p.discovery = discovery.New(discovery.Config{
		API: p.source, Writer: p.discovered, Log: c.Log, Now: c.Now, Allow: c.UpstreamAllow, Changed: p.upstreams.note, Orphaned: p.upstreams.orphan,
		Open: c.upstreamSource,
	})
	if p.metrics, err = newMetrics(c.Registerer, writes, p.writer, p.source); err != nil {
		return nil, err
	}
	if c.Registerer != nil {
		if err := p.discovery.Register(c.Registerer, p.discovered); err != nil {
			return nil, err
		}
	}
	p.staples = newStaples(c, p.stapled.note)
	p.keeper = newKeeper(newVault(c, p.client, p.lease), c.Log, p.calls.adopt)
	if p.recorder, err = newRecorder(c, newChangesVault(c, p.client, p.lease)); err != nil {
		return nil, err
	}
	if c.Collector != "" {
		p.collector, err = collector.New(collector.Config{
			URL: c.Collector, Service: "fairlead-plane", Instance: c.Identity, Version: version.String(), Log: c.Log, Count: p.metrics.countTraces,
		})
		if err != nil {
			return nil, err
		}
	}
	return p, nil
}

// Listen opens the agents' endpoint.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for agents at %s (--agent-port chooses another port): %w", address, err)
	}
	return l, nil
}

// Run is the plane until ctx is done; it then gives its leadership back and returns
// nil. It waits for an API that does not answer. Run it once.
func (p *Plane) Run(ctx context.Context) error {
	c := p.config
	listener, err := Listen(ctx, c.AgentAddress)
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }() // the server closed it, or never had it
	if p.lease.address == "" {
		p.lease.address = listener.Addr().String()
	}
	p.mu.Lock()
	p.address = listener.Addr()
	p.mu.Unlock()
	authority, err := p.awaitAuthority(ctx)
	if err != nil || ctx.Err() != nil {
		return err
	}
	p.authority.Store(authority)
	if p.config.Translate.GatewayAPIVersion == "" {
		p.config.Translate.GatewayAPIVersion = gatewayAPIVersion(ctx, c.REST)
	}
	leader := leader{p.lease, &p.serving}
	p.machines = newRegistry(p.client, leader, authority, c.Now, c.Log)
	config := southbound.Config{
		Views: p.views, Authority: authority, Tokens: tokens{p.client, c.Now}, Leader: leader,
		Now: c.Now, Log: c.Log, TTL: c.TTL, Endpoints: p.agentWays, Known: p.machines.counts, Joined: p.machines.another,
		Expected: p.machines.expects, Succeeded: p.lease.succeeded,
	}
	if p.pods != nil {
		config.Accounts = p.pods
	}
	p.server, err = southbound.New(config)
	if err != nil {
		return err
	}
	p.server.Watch(p.touched.note)
	p.trust = newTrust(trustConfig{
		client: p.client, authorities: authority, lease: p.lease, serving: &p.serving, machines: p.machines, server: p.server,
		read: p.signals.term, identity: c.Identity, now: c.Now, log: c.Log,
	})
	g := grpc.NewServer(append(p.server.Options(), grpc.ChainUnaryInterceptor(p.machines.unary), grpc.ChainStreamInterceptor(p.machines.stream))...)
	p.server.Register(g)

	all, work := errgroup.WithContext(ctx)
	all.Go(func() error {
		defer context.AfterFunc(work, g.Stop)()
		if err := g.Serve(listener); err != nil && work.Err() == nil {
			return fmt.Errorf("serve agents at %s: %w", listener.Addr(), err)
		}
		return nil
	})
	if p.staples.enabled() {
		all.Go(func() error { p.staples.run(work); return nil })
	}
	all.Go(func() error { p.source.Run(work); return nil })
	told := status.NewTeller(work, p.client)
	defer told.Stop()
	all.Go(func() error { p.writer.Run(work, told.Tell); return nil })
	all.Go(func() error { p.derived.Run(work); return nil })
	all.Go(func() error { p.discovered.Run(work); return nil })
	all.Go(func() error { p.discovery.Run(work); return nil })
	all.Go(func() error { p.keeper.run(work); return nil })
	all.Go(func() error { p.keeper.write(work); return nil })
	all.Go(func() error { p.recorder.run(work); return nil })
	all.Go(func() error { newLoop(p).run(work); return nil })
	if p.collector != nil {
		all.Go(func() error { p.collector.Run(work); return nil })
	}
	all.Go(func() error { p.prune(work); return nil })
	all.Go(func() error { p.trust.run(work); return nil })
	all.Go(func() error { p.succeed(work); return nil })
	all.Go(func() error { p.followAuthority(work); return nil })
	// The Lease is given back last: nothing of this plane may act on it any more.
	terms, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	ended := make(chan struct{})
	all.Go(func() error {
		select {
		case <-ended:
			return p.lease.failure
		case <-work.Done():
			return nil
		}
	})
	go func() {
		defer close(ended)
		p.lease.failure = p.lease.run(terms, c.Lease)
	}()
	p.setRunning(true)
	err = all.Wait()
	p.setRunning(false)
	release()
	limit := time.NewTimer(stopLimit)
	defer limit.Stop()
	select {
	case <-ended:
	case <-limit.C: // the API is away; the Lease runs out by itself
	}
	return err
}

func (p *Plane) setRunning(running bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running = running
}

// awaitAuthority loads the agents' authorities as soon as the API answers.
func (p *Plane) awaitAuthority(ctx context.Context) (*southbound.Authorities, error) {
	said := false
	for {
		authority, err := p.ownedAuthority(ctx)
		var unusable unusableAuthority
		switch {
		case err == nil:
			return authority, nil
		case errors.As(err, &unusable):
			return nil, err
		case !said && ctx.Err() == nil:
			p.config.Log.Warn("the API does not answer yet; waiting for it", "api", p.config.REST.Host, "error", err)
			said = true
		}
		select {
		case <-ctx.Done():
			return nil, nil
		case <-time.After(retryStart):
		}
	}
}

// ownedAuthority loads the agents' authorities, which go when this plane is uninstalled.
func (p *Plane) ownedAuthority(ctx context.Context) (*southbound.Authorities, error) {
	if err := adoptAuthorities(ctx, p.client, p.config.AuthorityFile, p.config.Now, p.config.Log); err != nil {
		return nil, err
	}
	if err := mayMakeAuthority(ctx, p.client); err != nil && p.config.Now().Sub(p.started) < storedAgain {
		return nil, err // one that leads may be about to store it again
	}
	authority, err := loadAuthority(ctx, p.client, p.config.Now, p.config.Log)
	if err != nil {
		return nil, err
	}
	if p.lease.owner, err = findOwner(ctx, p.config.REST); err != nil {
		return nil, err
	}
	return authority, ownAuthority(ctx, p.client, p.lease.owner)
}

// prune removes what nobody needs any more, now and then.
func (p *Plane) prune(ctx context.Context) {
	ticker := time.NewTicker(time.Hour)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if p.serving.Load() == 0 {
				continue
			}
			if err := pruneTokens(ctx, p.client, p.config.Now()); err != nil {
				p.config.Log.Warn("old tokens stay", "error", err)
			}
		}
	}
}

// calls are functions for the loop to run.
type calls chan func(*loop)

// adopt hands the loop steps of planes before this one.
func (c calls) adopt(ctx context.Context, a history.Adoption) error {
	done := make(chan error, 1)
	select {
	case c <- func(l *loop) { done <- l.adopt(a) }:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Healthz says whether the plane's loop turns. A plane that waits for the API is
// healthy: starting it again would not help.
func (p *Plane) Healthz(ctx context.Context) error {
	if !p.runs() {
		return nil
	}
	return p.ask(ctx, func(*loop) {})
}

// Readyz says whether the plane does what it is there for: as the leader, it serves
// agents; as a standby, it knows everything and could lead at once.
func (p *Plane) Readyz(ctx context.Context) error {
	synced := false
	if err := p.ask(ctx, func(l *loop) { synced = l.synced }); err != nil {
		return err
	}
	t := p.lease.current()
	switch {
	case !synced:
		return errors.New("the resources of the API are not all read yet")
	case t.Held && p.serving.Load() == 0:
		return errors.New("leading, but not serving agents yet")
	case !t.Held && t.Leader == "":
		return errors.New("no plane leads yet")
	}
	return nil
}

// Status is what the plane knows now; nobody may change it. An error is one of its problems when
// the loop does not answer.
func (p *Plane) Status(ctx context.Context) model.Status {
	s, err := p.statuses.get(ctx, p, (*loop).status)
	if err != nil {
		s.Plane = p.planeStatus(0, nil)
		s.Problems = []model.Problem{{Severity: model.SeverityError, Subject: "Plane " + p.config.Identity, Reason: "NotRunning", Message: err.Error()}}
	}
	return s
}

// Standby is why this plane does not know what machines do: a console.Standby when another
// one leads. It is nil when it leads.
func (p *Plane) Standby() error {
	switch t := p.lease.current(); {
	case t.Held:
		return nil
	case t.Leader == "":
		return errors.New("no plane leads yet, and only the leader knows the state of machines")
	default:
		return console.Standby{Leader: t.Identity, Agents: t.Leader, Console: t.Console, Read: t.Read}
	}
}

// leader is what the machines' server sees of the election.
type leader struct {
	lease   *lease
	serving *atomic.Uint64
}

var _ southbound.Leader = leader{}

// Leading is true once everything is published in the epoch.
func (l leader) Leading() (uint64, bool) {
	epoch := l.serving.Load()
	return epoch, epoch > 0
}

// Address is the leader's, unless that is this plane, which is not ready then.
func (l leader) Address() string {
	if t := l.lease.current(); !t.Held {
		return t.Leader
	}
	return ""
}

// Exceed raises the epoch; the loop publishes in it.
func (l leader) Exceed(ctx context.Context, epoch uint64) error {
	return l.lease.exceed(ctx, epoch)
}
