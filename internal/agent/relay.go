package agent

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"fairlead.dev/internal/agent/health"
	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/gate"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/wire"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// relay is the part that has the machine's proxy serve what a plane wants: it holds the feed
// under one lock, serves Envoy's stream of it, and asks the proxy what the feed must know.
type relay struct {
	proxy    Proxy
	off      bool // no Envoy will ever ask
	log      *slog.Logger
	now      func() time.Time
	remember func(memoryBatch)
	mended   func(step string) // counts
	// member is closed once there is something to run a proxy for.
	member <-chan struct{}
	// changed: Envoy has other resources, or something is wrong with others. status: the proxy's
	// own status may differ.
	changed, status          event
	timed, polls, says, asks signal // of keepTime, keepPolling, keepSaying and keepWitness
	checked                  signal // the machine found something else about backends

	listener net.Listener
	served   servedStream
	sampler  *sampler // by the same socket
	loads    *loads   // by the same socket

	mu          sync.Mutex
	feed        *gate.Feed
	assignments *health.Assignments // which know health where the plane does not
	good        []delta.Change
	revision    delta.Revision
	whole       bool          // there is a whole state, be it without what is for an Envoy
	ready       chan struct{} // closed when there is a state that Envoy may be given
	wakeAt      time.Time     // when time alone changes something; zero: never

	// What an Envoy that lived on waits for; see withhold.
	recalledAt   time.Time
	older        bool          // what is remembered is known to be older than what Envoy ran
	heard        chan struct{} // closed when a plane has sent a whole state
	withholdTime time.Duration
	withheld     int // streams that wait for what is remembered
}

func newRelay(c Config, own func(check string) health.Finding, remember func(memoryBatch), mended func(step string), member <-chan struct{}) *relay {
	state := c.Proxy.Status().State
	r := &relay{
		proxy: c.Proxy, off: state == proxyNone || state == proxyOff, log: c.Log, now: c.Now, remember: remember, mended: mended, member: member,
		timed: newSignal(), polls: newSignal(), says: newSignal(), asks: newSignal(), checked: newSignal(),
		sampler: newSampler(), feed: gate.New(), assignments: health.NewAssignments(own), ready: make(chan struct{}), heard: make(chan struct{}), withholdTime: withholdTime,
	}
	r.loads = newLoads(r.assigned, c.Now)
	if _, able := c.Proxy.(Witness); able {
		r.feed.SetWitnessed()
	}
	return r
}

// receive implements part.
func (r *relay) receive(c delta.Change) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.loads.see(c)
	return r.feed.Target([]delta.Change{r.assignments.Resolve(c)})
}

// recall notes what an agent before remembered, before anything is received: what Envoy had
// accepted, whether that is known to be older than what Envoy ran, and whether the private keys
// are lost.
func (r *relay) recall(good []delta.Change, older, keyless bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.feed.SetKeyless(keyless)
	r.good, r.older, r.recalledAt = good, older, r.now()
}

// commit implements part.
func (r *relay) commit(got received) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.revision = got.revision
	r.feed.SetDrain(got.config.GetDrainTime().AsDuration())
	if got.remembered {
		r.feed.Restore(r.good)
		r.good = nil
	}
	if got.completes {
		r.whole = true
		if !got.unproxied || r.off { // else nothing is known of what is for an Envoy
			r.feed.Checkpoint(got.checkpoint)
			r.offer()
		}
		if !got.remembered {
			r.feed.SetKeyless(false)
		}
	}
	r.advance()
	if got.completes && !got.remembered {
		r.hear()
	}
}

// listen opens the socket at which Envoy finds its agent.
func (r *relay) listen(path string) (err error) {
	r.listener, err = listenUnix(path)
	return err
}

// run implements part. It serves what listen opened.
func (r *relay) run(ctx context.Context) error {
	return together(ctx, r.serve, r.runProxy, r.keepTime, r.keepPolling, r.keepSaying, r.keepWitness, r.keepHealth)
}

// runProxy keeps the proxy running. A machine that cannot join has nothing to serve, and
// leaves no proxy behind.
func (r *relay) runProxy(ctx context.Context) error {
	select {
	case <-r.member:
	case <-ctx.Done():
		return nil
	}
	return r.proxy.Run(ctx, r.status.raise)
}

// report implements part.
func (r *relay) report(to *agentv1.Report) {
	to.Applied, to.Proxy = r.applied(), proxyReport(r.proxy.Status())
	if e, is := r.proxy.(Ejector); is {
		to.Ejected = wire.Ejected(ejections(e.Ejected()))
	}
}

// proxyStates are the states by the names of model.ProxyStatus.
var proxyStates = map[string]agentv1.Proxy_State{
	"starting": agentv1.Proxy_STATE_STARTING,
	proxyReady: agentv1.Proxy_STATE_READY,
	"draining": agentv1.Proxy_STATE_DRAINING,
	"backoff":  agentv1.Proxy_STATE_BACKOFF,
	"stopped":  agentv1.Proxy_STATE_STOPPED,
	proxyOff:   agentv1.Proxy_STATE_OFF,
	proxyNone:  agentv1.Proxy_STATE_NONE,
}

func proxyReport(s model.ProxyStatus) *agentv1.Proxy {
	return &agentv1.Proxy{
		State: proxyStates[s.State], Version: s.Version, Starts: s.Starts, Message: cut(strings.ToValidUTF8(s.Message, "?"), maxMessage),
		RssBytes: s.RSSBytes, Requests: s.Requests,
	}
}
