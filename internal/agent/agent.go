package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// Proxy is the machine's Envoy, whose configuration comes from the socket at
// SocketPath. Its methods may be called from any goroutine.
type Proxy interface {
	// Run keeps the proxy running until ctx is done, and then leaves or stops it as
	// it was told to. changed is called when Status may differ; it does not block. An
	// error means that the proxy can never run.
	Run(ctx context.Context, changed func()) error
	// Status does not block. Its State is one of model.ProxyStatus's names.
	Status() model.ProxyStatus
	// Warming names the clusters that the proxy has taken but does not use yet.
	Warming(ctx context.Context) ([]string, error)
	// Active names the clusters that the proxy uses.
	Active(ctx context.Context) ([]string, error)
	// Groups are the figures of the groups that have taken requests, sorted.
	Groups(ctx context.Context) ([]model.GroupFigures, error)
}

// Witness is a Proxy that tells what it uses of what it has accepted.
type Witness interface {
	// Listeners are those that take connections, and what those wait for that do not yet,
	// or not in their newest version.
	Listeners(ctx context.Context) (serving map[string]struct{}, warming map[string][]string, err error)
	// Routes are the versions of the named route configurations that requests find.
	Routes(ctx context.Context, names []string) (map[string]string, error)
	// Replace ends the proxy gently, and another one is started. It does not block.
	Replace(reason string)
}

// States of a proxy: it takes requests; there is none on purpose, at a machine that only has
// backends, and at an edge.
const (
	proxyReady = "ready"
	proxyOff   = "off"
	proxyNone  = "none"
)

// unproxied is why an edge without a proxy does not serve listeners.
const unproxied = "this machine runs no proxy (--envoy none)"

// NoProxy is the Proxy of a machine that only has backends, or of an edge that balances
// without one: the agent runs no Envoy, and is ready without.
type NoProxy struct {
	Edge bool
}

// Run implements Proxy.
func (NoProxy) Run(ctx context.Context, _ func()) error { <-ctx.Done(); return nil }

// Status implements Proxy.
func (p NoProxy) Status() model.ProxyStatus {
	if p.Edge {
		return model.ProxyStatus{State: proxyNone}
	}
	return model.ProxyStatus{State: proxyOff}
}

// Warming implements Proxy.
func (NoProxy) Warming(context.Context) ([]string, error) { return nil, nil }

// Active implements Proxy.
func (NoProxy) Active(context.Context) ([]string, error) { return nil, nil }

// Groups implements Proxy.
func (NoProxy) Groups(context.Context) ([]model.GroupFigures, error) { return nil, nil }

const (
	joinTimeout = 10 * time.Second
	// pollEvery is how often Envoy is asked which clusters are warming, while that
	// matters.
	pollEvery = 50 * time.Millisecond
)

// Config of an Agent. What is not called optional and has no default is required.
type Config struct {
	Name    string      // of the machine
	Planes  []string    // host:port of the planes' agent endpoints
	Token   TokenSource // used only when there is no valid identity; optional
	Account *Account    // the same, instead of a token: this agent runs in a pod; optional
	Role    string      // that the machine is to have, for which a token must be; optional
	DataDir string      // identity and remembered state
	RunDir  string      // sockets and secrets; should be a tmpfs
	// Addresses are those by which other machines reach this one. With an error, it returns
	// those that were known last.
	Addresses func() ([]netip.Addr, error)
	Proxy     Proxy
	Drainer   Drainer // of the proxy's connections; optional
	// ProxyDrain is how long the proxy takes to end the connections of a listener that
	// changed; then it closes them. Default 30 s.
	ProxyDrain time.Duration
	Network    Network   // optional
	Balancing  Balancing // optional
	Checking   Checking  // of backends; optional
	// DrainOnStop takes the machine out of the traffic before the agent ends. Otherwise
	// the proxy and the routes to it stay for the next agent.
	DrainOnStop bool
	Version     string // of this program, for reports
	Log         *slog.Logger
	Now         func() time.Time
	Rand        *rand.Rand            // for jitter; the agent alone uses it
	Registerer  prometheus.Registerer // optional
}

// Agent is one machine's agent. Make it with New.
type Agent struct {
	config    Config
	state     *state
	keeper    *keeper
	upstream  *upstream
	announcer *announcer
	balancer  *balancer
	checks    *checks
	drainer   *drainer
	poll      chan struct{}
	say       chan struct{}
	look      chan struct{}
	mends     func(step string) // counts
	member    chan struct{}     // closed once there is an identity or a state to serve

	mu          sync.Mutex
	started     bool
	blocked     error // why there is no identity
	kernelStays bool  // data planes were to be released, and were not
}

// SocketPath is where an agent with that run directory serves its Envoy.
func SocketPath(runDir string) string { return filepath.Join(runDir, "xds.sock") }

// New prepares an agent. It touches nothing outside of the process.
func New(c Config) (*Agent, error) {
	switch {
	case c.Name == "":
		return nil, errors.New("agent: the machine has no name")
	case len(c.Planes) == 0:
		return nil, errors.New("agent: no plane is given")
	case c.DataDir == "" || c.RunDir == "":
		return nil, errors.New("agent: data and run directory are required")
	case c.Addresses == nil || c.Proxy == nil || c.Log == nil || c.Now == nil || c.Rand == nil:
		return nil, errors.New("agent: Addresses, Proxy, Log, Now and Rand are required")
	}
	if c.Registerer == nil {
		c.Registerer = prometheus.NewRegistry()
	}
	a := &Agent{config: c, poll: make(chan struct{}, 1), say: make(chan struct{}, 1), look: make(chan struct{}, 1), member: make(chan struct{})}
	report := &reporter{
		version: c.Version, proxy: c.Proxy, log: c.Log, changed: make(chan struct{}, 1), urgent: make(chan struct{}, 1),
		addresses: func() ([]string, error) { return machineAddresses(c.Addresses) },
	}
	a.state = newState(c.Now, func(b memoryBatch) { a.keeper.add(b) }, func() {
		poke(report.changed)
		poke(a.poll)
		poke(a.say)
		poke(a.look)
		poke(a.announcer.news)
		poke(a.balancer.news)
		poke(a.drainer.news)
	})
	if _, able := c.Proxy.(Witness); able {
		a.state.feed.SetWitnessed()
	}
	none := c.Proxy.Status().State == proxyNone
	a.state.unproxied = none
	a.state.proxyless = none || c.Proxy.Status().State == proxyOff
	report.state = a.state
	a.announcer = newAnnouncer(c, a.state, func() { poke(report.changed) })
	a.balancer = a.announcer.balancer
	a.checks = newChecks(c.Checking, func() { poke(report.urgent) }, a.state.reassess)
	a.state.own(a.checks.own)
	a.state.network = func(change delta.Change) error {
		if change.Type == typeCheck {
			return a.checks.take(change)
		}
		return a.announcer.take(change)
	}
	report.announcer, report.balancer, report.checks = a.announcer, a.balancer, a.checks
	a.drainer = &drainer{proxy: c.Drainer, announcer: a.announcer, balancer: a.balancer, state: a.state, log: c.Log, news: make(chan struct{}, 1)}
	a.upstream = &upstream{
		planes: c.Planes, state: a.state, report: report, log: c.Log, now: c.Now, random: c.Rand,
		path: filepath.Join(c.DataDir, "identity", "identity.json"), presence: a.checks.plane, news: make(chan struct{}, 1),
	}
	report.issuer, report.offer = a.upstream.issuer, a.upstream.offer
	m, err := newMetrics(c.Registerer, a)
	if err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	a.upstream.metrics = m
	a.mends = func(step string) { m.mends.WithLabelValues(step).Inc() }
	a.keeper = newKeeper(c.Log, nil, nil, func(bytes int64) { m.remembered.Set(float64(bytes)) })
	return a, nil
}

// Run serves the machine until ctx is done; it may be called once. An error says
// what cannot be mended by waiting: a directory in use, or a first start without a
// way to join. With a remembered state it goes on without a plane instead.
func (a *Agent) Run(ctx context.Context) error {
	c := a.config
	for _, dir := range []string{c.DataDir, filepath.Dir(a.upstream.path), c.RunDir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("agent: %w", err)
		}
	}
	for _, dir := range []string{c.DataDir, c.RunDir} {
		release, err := lockDirectory(dir)
		if err != nil {
			return fmt.Errorf("agent: %w", err)
		}
		defer release()
	}
	a.recall()
	a.trust()
	listener, err := listenUnix(SocketPath(c.RunDir))
	if err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	a.mu.Lock()
	a.started = true
	a.mu.Unlock()

	// What serves Envoy ends after what may still change what is served, and the
	// memory last: it takes all that happened.
	stop := ctx
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	keepCtx, stopKeeping := context.WithCancel(context.WithoutCancel(ctx))
	var keeping, working sync.WaitGroup
	keeping.Go(func() { a.keeper.run(keepCtx) })
	work := func(f func(context.Context) error) {
		working.Go(func() {
			if err := f(ctx); err != nil {
				cancel(err)
			}
		})
	}
	r := &relay{state: a.state, proxy: c.Proxy, log: c.Log}
	work(func(ctx context.Context) error { return r.run(ctx, listener) })
	work(func(ctx context.Context) error {
		// A machine that cannot join has nothing to serve, and leaves no proxy behind.
		select {
		case <-a.member:
		case <-ctx.Done():
			return nil
		}
		return c.Proxy.Run(ctx, func() { poke(a.upstream.report.changed); poke(a.announcer.news) })
	})
	a.drainer.begin()
	work(a.announcer.run)
	work(a.balancer.run)
	work(a.checks.run)
	if s := c.Network.Speaker; s != nil {
		work(s.Run)
	}
	if s := c.Network.Segment; s != nil {
		work(s.Run)
	}
	drained := make(chan struct{})
	working.Go(func() {
		defer close(drained)
		a.drainer.run(stop, ctx)
	})
	work(func(ctx context.Context) error { a.keepTime(ctx); return nil })
	work(func(ctx context.Context) error { a.keepPolling(ctx); return nil })
	work(func(ctx context.Context) error { a.keepSaying(ctx); return nil })
	work(func(ctx context.Context) error { a.keepWitness(ctx); return nil })
	work(a.follow)
	select {
	case <-stop.Done():
		<-drained // so that it takes nothing back
		if c.DrainOnStop && a.announcer.announces() {
			a.drainer.leave(ctx, func() bool { return false })
		}
		if c.DrainOnStop {
			a.balancer.leave(true)
			a.release(ctx)
		}
		cancel(context.Cause(stop))
	case <-ctx.Done():
	}
	working.Wait()
	stopKeeping()
	keeping.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("agent: %w", err)
	}
	return nil
}

// recall reads what was remembered. Whatever is wrong with it is said and does not
// stop the agent.
func (a *Agent) recall() {
	a.keeper.lag = newLag(filepath.Join(a.config.RunDir, "lag"))
	older := a.keeper.lag.set
	open := func(path string) (*memory, remembered) {
		m, r, err := openMemory(path)
		if err != nil {
			a.config.Log.Error("the remembered state cannot be read to its end; a living proxy keeps what it has until the plane answers, a new one is given what was read, which is older",
				"error", err, "revision", r.revision.String())
			// The next write makes the file whole again, but not newer.
			if err := a.keeper.lag.mark(true); err != nil {
				a.config.Log.Warn("an agent that is started after this one takes what is remembered for the newest", "error", err)
			}
			older = true
		}
		if a.state.unproxied {
			m.unproxy()
			r = m.remembered()
			poke(a.keeper.more)
		}
		return m, r
	}
	plain, state := open(filepath.Join(a.config.DataDir, stateFile))
	secret, secrets := open(filepath.Join(a.config.RunDir, "secrets"))
	keyless := secret.file.Broken() && len(state.target) > 0 && !a.state.unproxied
	a.keeper.state, a.keeper.secret = plain, secret
	state.target = append(state.target, secrets.target...)
	state.good = append(state.good, secrets.good...)
	if keyless {
		a.config.Log.Warn("the machine has started anew, or its run directory was emptied: listeners with private keys wait until a plane has sent the keys, since these are never on the disk")
	}
	whole, err := a.state.restore(state, older, keyless)
	if err != nil {
		a.config.Log.Error("part of the remembered state cannot be used", "error", err)
	}
	switch {
	case whole && !a.state.offers():
		a.config.Log.Info("the remembered state is of an agent without a proxy: what it balanced goes on, and the proxy waits for a plane", "revision", state.revision.String(), "older", older)
	case whole:
		a.config.Log.Info("the remembered state is whole", "revision", state.revision.String(), "older", older)
	}
}

// trust takes the authorities that the machine's system trusts.
func (a *Agent) trust() {
	r, err := readAuthorities(os.Getenv("SSL_CERT_FILE"))
	if err == nil && r != nil {
		err = a.state.provide(r)
	}
	switch {
	case err != nil:
		a.config.Log.Warn("backends that are verified by the system's authorities cannot be reached", "error", err)
	case r == nil:
		a.config.Log.Info("this system has no certificates of authorities: backends that are verified by them cannot be reached")
	}
}

// follow gets an identity and keeps connected to a plane.
func (a *Agent) follow(ctx context.Context) error {
	c := a.config
	joiner := Joiner{Now: c.Now, Timeout: joinTimeout, Account: c.Account, Token: c.Token, Role: c.Role, tries: newTries(c.Log)}
	a.upstream.tries = joiner.tries
	a.upstream.rejoin = joiner.rejoin(a.upstream.path, c.Planes, c.Name)
	said, join := "", sync.OnceFunc(func() { close(a.member) })
	if a.state.isServing() {
		join()
	}
	for wait := backoffFirst; ; wait = min(2*wait, backoffMost) {
		id, err := joiner.identify(ctx, a.upstream.path, c.Planes, c.Name)
		if id != nil {
			a.upstream.mu.Lock()
			a.upstream.identity = id
			a.upstream.mu.Unlock()
		}
		a.mu.Lock()
		a.blocked = err
		a.mu.Unlock()
		if err == nil {
			join()
			a.upstream.run(ctx)
			return nil
		}
		if ctx.Err() != nil {
			return nil
		}
		final := !errors.Is(err, ErrUnreachable) && !errors.Is(err, ErrPin)
		// What a cluster gives to a pod may come, or be right, a moment later.
		mends := c.Account != nil && !errors.Is(err, ErrName)
		if final && !mends && !a.state.isServing() {
			return err
		}
		if err.Error() != said {
			said = err.Error()
			if a.state.isServing() {
				c.Log.Error("no plane for this machine; traffic goes on with what is remembered", "error", err, "planes", c.Planes)
			} else {
				c.Log.Error("this machine has not joined yet and serves nothing", "error", err, "planes", c.Planes)
			}
		}
		switch {
		case final && mends:
			wait = accountPause
		case final:
			wait = time.Minute
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait + time.Duration(c.Rand.Int64N(int64(wait/4)))):
		}
	}
}

// keepTime does what is due by time alone.
func (a *Agent) keepTime(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-a.state.timed:
		}
		if at := a.state.tick(); !at.IsZero() {
			timer.Reset(max(0, at.Sub(a.config.Now())))
		}
	}
}

// keepPolling asks Envoy which clusters are warming while that decides anything.
func (a *Agent) keepPolling(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.poll:
		}
		wanted, seq := a.state.polling()
		if !wanted {
			continue
		}
		names, err := a.config.Proxy.Warming(ctx)
		if err == nil {
			a.state.warming(seq, names)
		} else {
			a.config.Log.Debug("warming clusters are not known", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pollEvery):
		}
		poke(a.poll)
	}
}

// Healthz is nil while the agent runs. What it cannot remember is in its Status and
// metrics: starting it again would not mend a full disk, and would lose what it holds.
func (a *Agent) Healthz(context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.started {
		return errors.New("not started")
	}
	return nil
}

// Readyz is nil while Envoy serves a state, be the plane there or not.
func (a *Agent) Readyz(context.Context) error {
	a.mu.Lock()
	blocked := a.blocked
	a.mu.Unlock()
	if blocked != nil && !a.state.isServing() {
		return fmt.Errorf("not joined: %w", blocked)
	}
	if s := a.config.Proxy.Status(); s.State != proxyReady && s.State != proxyOff && s.State != proxyNone {
		return fmt.Errorf("the proxy is %s: %s", s.State, s.Message)
	}
	return a.state.served()
}

// Status is an agent for people and the console.
type Status struct {
	Machine string `json:"machine"`
	Version string `json:"version"`
	Plane   string `json:"plane,omitempty"` // connected to; empty when to none
	Trouble string `json:"trouble,omitempty"`
	// Forgetting says why the state is not remembered; empty while it is.
	Forgetting string `json:"forgetting,omitempty"`
	// Withheld says why the proxy waits for a state; empty while it does not, or while there is none.
	Withheld string            `json:"withheld,omitempty"`
	Expires  time.Time         `json:"certificateExpires,omitzero"`
	Cordoned bool              `json:"cordoned"`
	Accepted string            `json:"accepted"` // revision that a plane has sent
	Applied  string            `json:"applied"`  // revision that the proxy runs
	Problems []Problem         `json:"problems"`
	Proxy    model.ProxyStatus `json:"proxy"`
	// Sessions with BGP peers and VIPs, as the machine sees them.
	Sessions []model.Session     `json:"sessions"`
	VIPs     []model.VIPObserved `json:"vips"`
	// Unhealthy are the checks of this machine that fail; the plane counts those of others too.
	Unhealthy []model.CheckResult `json:"unhealthy"`
	// Frontends that the machine balances or has backends of.
	Frontends []model.FrontendObserved `json:"frontends"`
	// Interfaces at which data planes have programs, or could have.
	Interfaces []model.InterfaceObserved `json:"interfaces"`
}

// Problem is one resource that the proxy does not run as the plane wants it.
type Problem struct {
	Kind    string `json:"kind"` // refused or waiting
	Type    string `json:"type"`
	Name    string `json:"name"`
	Message string `json:"message"`
}

// Status is the agent as it is now. A cordoned machine's listeners go on; draining
// them is the plane's, which takes them out of the machine's view.
func (a *Agent) Status() Status {
	accepted, applied := a.state.revisions()
	s := Status{
		Machine: a.config.Name, Version: a.config.Version, Cordoned: a.state.config().GetCordoned(),
		Accepted: accepted.String(), Applied: applied.String(), Problems: []Problem{}, Proxy: a.config.Proxy.Status(),
		Sessions: a.announcer.sessions(), VIPs: a.announcer.observed(), Frontends: a.balancer.observed(), Interfaces: a.balancer.interfaces(), Unhealthy: a.checks.unhealthy(),
	}
	var err error
	if s.Plane, err = a.upstream.status(); err != nil {
		s.Trouble = err.Error()
	}
	a.mu.Lock()
	if a.blocked != nil {
		s.Trouble = a.blocked.Error()
	}
	a.mu.Unlock()
	if err := a.keeper.healthy(); err != nil {
		s.Forgetting = "traffic goes on, but the state is not remembered: " + err.Error()
	}
	s.Withheld = a.state.withholds()
	if id := a.upstream.who(); id != nil {
		s.Expires = id.NotAfter()
	}
	for _, p := range a.state.applied().GetProblems() {
		kind := "refused"
		if p.GetKind() == agentv1.Problem_KIND_WAITING {
			kind = "waiting"
		}
		s.Problems = append(s.Problems, Problem{Kind: kind, Type: p.GetTypeUrl(), Name: p.GetName(), Message: p.GetMessage()})
	}
	return s
}
