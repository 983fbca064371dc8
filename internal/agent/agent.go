package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/gate"
)

// Agent is one machine's agent. Make it with New.
type Agent struct {
	config     Config
	keeper     *keeper
	checks     *checks
	relay      *relay
	balancer   *balancer
	announcer  *announcer
	drainer    *drainer
	parts      []wiredPart
	desired    *desired
	membership *membership
	meter      *meter // nil: the proxy counts nothing
	planeLink  *planeLink

	mu          sync.Mutex
	started     bool
	kernelStays bool // data planes were to be released, and were not
}

// New prepares an agent. It touches nothing outside of the process.
//
// What a plane sends goes from planeLink to desired, and from there to the parts that receive its
// type, in their order here. What the parts see goes from the reporter to the plane. Each knows
// those made before it; who is woken by it is written at the end.
func New(c Config) (*Agent, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	if c.Registerer == nil {
		c.Registerer = prometheus.NewRegistry()
	}
	a := &Agent{config: c}
	counters := newCounters()
	member := make(chan struct{})
	unproxied := c.Proxy.Status().State == proxyNone
	proxyTypes := gate.Types[:]
	if unproxied { // nothing for a proxy is to leave the plane: the keys of listeners are part of that
		proxyTypes = nil
	}

	a.keeper = newKeeper(c.Log, unproxied, counters.remembered.Set)
	a.checks = newChecks(c)
	a.relay = newRelay(c, a.checks.own, a.keeper.add, counters.mended, member)
	a.balancer = newBalancer(c, a.checks.own, a.relay)
	a.announcer = newAnnouncer(c, a.relay, a.balancer)
	a.drainer = newDrainer(c, a.balancer, a.announcer)
	a.parts = []wiredPart{
		{a.relay, proxyTypes},
		{a.checks, []delta.Type{typeCheck}},
		{a.balancer, []delta.Type{typeNode, typeFrontendBackends, typeFrontend, typeVIP}},
		{a.announcer, []delta.Type{typePassword, typePeer, typeVIP}},
		{a.drainer, nil}, // the config of the machine is enough
	}
	a.desired = newDesired(a.keeper.add, a.parts...)
	a.membership = newMembership(c)
	if counter, counts := c.Proxy.(RequestCounter); counts {
		a.meter = newMeter(counter, c.Now)
		a.relay.sampler.exemplars = a.meter.exemplars.take
	}
	reporter := newReporter(c, a.parts, a.balancer, a.membership, a.meter, a.relay.loads)
	a.planeLink = newPlaneLink(c, a.desired, reporter, newTapper(a.relay.sampler, newFlowTapper(a.balancer, c.Now, c.Log), c.Now, c.Log), a.membership, a.checks.plane, member, counters)

	a.checks.found.wakes(reporter.urgent)
	a.checks.changed.wakes(a.relay.checked, a.balancer.checked)
	a.relay.changed.wakes(a.relay.polls, a.relay.says, a.relay.asks, a.balancer.news, a.announcer.news, reporter.changed)
	a.relay.status.wakes(a.announcer.news, reporter.changed)
	a.balancer.changed.wakes(a.announcer.news, reporter.changed)
	a.announcer.changed.wakes(reporter.changed)
	a.membership.changed.wakes(reporter.changed)
	a.planeLink.proved.wakes(reporter.changed)

	if err := a.register(counters); err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	return a, nil
}

// Run serves the machine until ctx is done; it may be called once. It returns an error
// only if waiting does not help: a directory in use, or a first start without a way to
// join. With a stored state it continues without a plane instead.
func (a *Agent) Run(ctx context.Context) error {
	c := a.config
	for _, dir := range []string{c.DataDir, filepath.Dir(a.membership.path), c.RunDir} {
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
	if err := a.relay.listen(SocketPath(c.RunDir)); err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	a.mu.Lock()
	a.started = true
	a.mu.Unlock()

	// What serves Envoy ends after what may still change what is served, and the
	// memory last: it remembers all that happened.
	stop := ctx
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	keepCtx, stopKeeping := context.WithCancel(context.WithoutCancel(ctx))
	var keeping sync.WaitGroup
	keeping.Go(func() { a.keeper.run(keepCtx) })
	defer keeping.Wait()
	defer stopKeeping()
	a.drainer.begin()
	work := []func(context.Context) error{a.planeLink.run}
	for _, p := range a.parts {
		work = append(work, p.run)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- together(ctx, work...)
		cancel() // who drains need not go on
	}()
	select {
	case err := <-ended:
		return failure(err)
	case <-stop.Done():
	}
	a.drainer.halt()
	if c.DrainOnStop {
		if a.announcer.announces() {
			a.drainer.leave(ctx, func() bool { return false })
		}
		a.balancer.leave(true)
		a.release(ctx)
	}
	cancel()
	return failure(<-ended)
}

// failure words why an agent ended.
func failure(err error) error {
	if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("agent: %w", err)
	}
	return nil
}

// recall restores what was remembered. Whatever is wrong with it is said and does not
// stop the agent.
func (a *Agent) recall() {
	state, older, keyless := a.keeper.open(a.config.DataDir, a.config.RunDir)
	if keyless {
		a.config.Log.Warn("the machine was rebooted, or its run directory was emptied: listeners with private keys wait until a plane has sent the keys, because keys are never stored on disk")
	}
	a.relay.recall(state.good, older, keyless)
	whole, err := a.desired.restore(state.revision, state.target)
	if err != nil {
		a.config.Log.Error("part of the stored state cannot be used", "error", err)
	}
	switch {
	case whole && !a.relay.offers():
		a.config.Log.Info("the stored state is from an agent without a proxy: load balancing continues, and the proxy waits for a plane", "revision", state.revision.String(), "older", older)
	case whole:
		a.config.Log.Info("the stored state is complete", "revision", state.revision.String(), "older", older)
	}
}

// trust provides the authorities that the machine's system trusts.
func (a *Agent) trust() {
	r, err := readAuthorities(os.Getenv("SSL_CERT_FILE"))
	if err == nil && r != nil {
		err = a.relay.provide(r)
	}
	switch {
	case err != nil:
		a.config.Log.Warn("cannot read the system's CA certificates: backends that are verified by them cannot be reached", "error", err)
	case r == nil:
		a.config.Log.Warn("this system has no CA certificates, so backends that are verified by them cannot be reached: install them (package ca-certificates) and restart the agent")
	}
}
