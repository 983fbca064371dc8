package agent

import (
	"errors"
	"fmt"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/gate"
	"fairlead.dev/internal/model"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// What the relay does with its feed, each under the lock.

// Bounds of the problems in a report: what a plane reads, and bytes; gRPC takes 4 MiB.
const (
	maxProblems = 4096
	maxReport   = 3 << 20
	// maxMessage bounds the proxy's words, bytes.
	maxMessage = 1024
)

// offer lets Envoy have the state.
func (r *relay) offer() {
	if !r.offers() {
		close(r.ready)
	}
}

// offers says whether Envoy may be given the state.
func (r *relay) offers() bool {
	select {
	case <-r.ready:
		return true
	default:
		return false
	}
}

// advance has Envoy's stream follow, and notes when time alone would change something.
func (r *relay) advance() {
	good, wake := r.feed.Advance(r.now(), r.revision)
	if len(good) > 0 {
		r.remember(memoryBatch{revision: r.revision, good: good})
	}
	sooner := !wake.IsZero() && (r.wakeAt.IsZero() || wake.Before(r.wakeAt))
	if r.wakeAt = wake; sooner {
		r.timed.raise()
	}
	r.changed.raise()
}

// provide adds what the machine itself knows to what the plane wants. It is not the plane's, so
// it is neither remembered nor told to one.
func (r *relay) provide(resource *delta.Resource) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.feed.Target([]delta.Change{{Type: typeSecret, Name: resource.Name, Resource: resource}}); err != nil {
		return err
	}
	r.advance()
	return nil
}

// reassess has Envoy follow what this machine itself finds of backends, where the plane does
// not know it or is away. It is not remembered.
func (r *relay) reassess() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if changes := r.assignments.Again(); len(changes) > 0 {
		if err := r.feed.Target(changes); err == nil {
			r.advance()
		}
	}
}

// renew has Envoy end the connections of a listener gently, and go on with new ones; false
// gives it the listener as the plane has it again.
func (r *relay) renew(id model.ListenerID, on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range []string{string(id), string(id) + "/quic"} {
		r.feed.Renew(name, on)
	}
	r.advance()
}

// assigned is the load assignment that the proxy is to have of a group.
func (r *relay) assigned(group string) (delta.Resource, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.feed.Get(typeEndpoint, group)
}

// listening says which of the listeners the proxy has.
func (r *relay) listening(names map[string]struct{}) map[string]struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	has := map[string]struct{}{}
	for name := range names {
		if r.feed.Has(name) {
			has[name] = struct{}{}
		}
	}
	return has
}

// waits says why Envoy does not serve what is wanted yet, nil if it does, or if it lives on
// with what it had.
func (r *relay) waits() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.withheld > 0 {
		return nil
	}
	if !r.whole {
		return errors.New("no state yet: the plane has not sent a complete state, and none is stored")
	}
	if !r.offers() {
		return errors.New("no state for the proxy yet: the previous agent ran without a proxy, and no plane has sent the state")
	}
	n, keyless := r.feed.OpenListeners()
	if n > 0 && keyless {
		return fmt.Errorf("%d listeners wait; a listener with a private key waits until a plane has sent the key, because keys are never stored on disk", n)
	}
	if n > 0 {
		return fmt.Errorf("the proxy has not accepted %d listeners yet", n)
	}
	return nil
}

// applied is how far Envoy follows the plane.
func (r *relay) applied() *agentv1.Applied {
	r.mu.Lock()
	defer r.mu.Unlock()
	revision := r.feed.Applied()
	return bounded(&agentv1.Applied{Epoch: revision.Epoch, Revision: revision.Number, Problems: r.allProblems()})
}

// revisionApplied is the newest revision that Envoy has applied, less its problems.
func (r *relay) revisionApplied() delta.Revision {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.feed.Applied()
}

// bounded shortens what does not fit a report. Problems that are left out are not
// listed, so then no revision counts as applied.
func bounded(a *agentv1.Applied) *agentv1.Applied {
	if len(a.Problems) > maxProblems {
		a.Problems, a.Epoch, a.Revision = a.Problems[:maxProblems], 0, 0
	}
	if len(a.Problems) > 1000 && proto.Size(a) > maxReport {
		for _, p := range a.Problems {
			p.Message = cut(p.Message, 256)
		}
	}
	return a
}

func (r *relay) allProblems() []*agentv1.Problem {
	problems := r.feed.Problems()
	for _, p := range problems {
		p.Message = cut(p.GetMessage(), maxMessage)
	}
	return problems
}

// problems lists what is wrong, if that may differ from what it was at a version of 1 or
// more, and its version.
func (r *relay) problems(version uint64) (uint64, []*agentv1.Problem) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.feed.ProblemsVersion() + 1
	if now == version {
		return now, nil
	}
	return now, r.allProblems()
}

// runs says whether Envoy runs a listener as the plane wants it.
func (r *relay) runs(listener string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.feed.Runs(listener)
}

// connect makes a new stream of Envoy the one that is served.
func (r *relay) connect(wake func()) *delta.Stream {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.feed.Connect(wake)
}

// disconnect ends a stream, unless a newer one has replaced it.
func (r *relay) disconnect(stream *delta.Stream) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.feed.Disconnect(stream)
}

// ends says whether a stream must be ended, for Envoy to connect anew.
func (r *relay) ends(stream *delta.Stream) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.feed.Ends(stream)
}

// asksActive says whether Envoy must be asked which of the clusters that it holds it uses.
func (r *relay) asksActive(held map[string]string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.feed.AsksActive(held)
}

// open handles Envoy's first request for clusters and returns the request to go on with.
func (r *relay) open(stream *delta.Stream, req *discoveryv3.DeltaDiscoveryRequest, active map[string]struct{}) *discoveryv3.DeltaDiscoveryRequest {
	r.mu.Lock()
	defer r.mu.Unlock()
	req = r.feed.Open(stream, req, active, r.now())
	r.advance()
	return req
}

// request handles a request of Envoy. It returns false when the stream is no longer the one that
// is served.
func (r *relay) request(stream *delta.Stream, req *discoveryv3.DeltaDiscoveryRequest) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	served, err := r.feed.Request(stream, req)
	if served {
		r.advance()
	}
	return served, err
}

// next is the next response for Envoy, nil for none now.
func (r *relay) next(stream *delta.Stream) *discoveryv3.DeltaDiscoveryResponse {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.feed.Next(stream)
}

// warm says whether a new Envoy may be given listeners, or when it may at the latest.
func (r *relay) warm() (bool, time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.feed.Warm(r.now())
}

// tick does what is due by time, and returns when to do it again; zero: not before timed says so.
func (r *relay) tick() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.wakeAt.IsZero() && !r.now().Before(r.wakeAt) {
		r.advance()
	}
	return r.wakeAt
}

// polling says whether the warming clusters must be asked for, and the number to give back
// with the answer.
func (r *relay) polling() (bool, uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.feed.Polling()
}

func (r *relay) warming(seq uint64, names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.feed.Warming(seq, names)
	r.advance()
}

// looks is the question about what Envoy uses, if one is to be asked now; next is when one
// will be otherwise; round changes when something new is in doubt.
func (r *relay) looks() (look gate.Look, wanted bool, next time.Time, round uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.feed.Looks(r.now())
}

// saw gives the feed the answer, and begins the mending that a stream can do.
func (r *relay) saw(look gate.Look, seen gate.Seen) gate.Mend {
	r.mu.Lock()
	defer r.mu.Unlock()
	mend := r.feed.Saw(look, seen, r.now())
	r.advance()
	return mend
}
