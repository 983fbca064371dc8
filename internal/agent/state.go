package agent

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/gate"
	"fairlead.dev/internal/model"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// state is what the agent holds, in one place and under one lock: what the plane
// wants, what the gate lets through, and the stream of the Envoy that follows it.
// Nothing in it does I/O; what must be written goes to the memory's queue.
type state struct {
	mu  sync.Mutex
	now func() time.Time

	feed     *gate.Feed
	versions map[delta.Type]map[string]string
	accepted delta.Revision // largest that a plane has sent
	machine  *agentv1.MachineConfig
	serving  bool // there is a whole state; for Envoy, too, once ready is closed
	// proxyless says that no Envoy will ever ask; unproxied that nothing for one is asked for.
	proxyless, unproxied bool

	recalledAt   time.Time
	older        bool          // what is remembered is known to be older than what Envoy ran
	heard        chan struct{} // closed when a plane has sent a whole state
	withholdTime time.Duration
	withheld     int // streams that wait for what is remembered

	point delta.Revision // the last checkpoint
	// network takes what is of the network's types.
	network func(delta.Change) error
	// assignments and rows know health where the plane does not.
	assignments *assignments
	rows        *rows
	remember    func(memoryBatch)
	ready       chan struct{} // closed when there is a state that Envoy may be given
	changed     func()        // called when anything may differ; must not block or call back
	timed       chan struct{} // gets a token when wakeAt became earlier
	wakeAt      time.Time
}

// memoryBatch is one step of the state that must be remembered, whole or not at all.
type memoryBatch struct {
	revision delta.Revision
	target   []delta.Change // what the plane wants
	good     []delta.Change // what Envoy accepted
}

func newState(now func() time.Time, remember func(memoryBatch), changed func()) *state {
	s := &state{
		now: now, feed: gate.New(), versions: map[delta.Type]map[string]string{},
		remember: remember, machine: &agentv1.MachineConfig{},
		changed: changed, ready: make(chan struct{}), timed: make(chan struct{}, 1),
		heard: make(chan struct{}), withholdTime: withholdTime,
		network: func(delta.Change) error { return nil },
	}
	s.own(nobodyFinds)
	for _, t := range planeTypes {
		s.versions[t] = map[string]string{}
	}
	return s
}

// restore puts back what was remembered, which may be known to be older than what
// Envoy ran, or to lack the private keys. It says whether that was a whole state, be it
// without what is for an Envoy.
func (s *state) restore(r remembered, older, keyless bool) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.feed.SetKeyless(keyless)
	target := slices.Clone(r.target)
	for i, c := range target {
		target[i] = s.assignments.resolve(c)
	}
	err := s.feed.Restore(target, r.good)
	for _, c := range r.target {
		if c.Type == typeMachine && c.Resource != nil {
			if e := s.configure(c.Resource); e != nil {
				continue
			}
		}
		if isNetwork(c.Type) {
			if e := s.takeNetwork(c); e != nil {
				err = errors.Join(err, e)
				continue
			}
		}
		if names := s.versions[c.Type]; names != nil {
			names[c.Name] = c.Resource.Version
		}
	}
	s.accepted, s.recalledAt, s.older = r.revision, s.now(), older
	whole := false
	for _, c := range r.target {
		if isCheckpoint(c) {
			_, e := s.take(typeCheckpoint, []delta.Change{c})
			whole = e == nil
		}
	}
	s.advance()
	return whole, err
}

// serve lets Envoy have the state.
func (s *state) serve() {
	if !s.offers() {
		close(s.ready)
	}
}

// errStale says that a plane is behind one that was heard before.
type errStale struct{ got, have delta.Revision }

func (e errStale) Error() string {
	return fmt.Sprintf("the plane offers revision %s, but %s was accepted before: it is an old leader, or its data was restored from a backup", e.got, e.have)
}

// receive takes a response of the plane. An errStale means that the stream must end;
// any other error is one to refuse the response with.
func (s *state) receive(resp *discoveryv3.DeltaDiscoveryResponse) error {
	revision, err := delta.ParseRevision(resp.GetSystemVersionInfo())
	if err != nil {
		return err
	}
	t := delta.Type(resp.GetTypeUrl())
	if !slices.Contains(planeTypes[:], t) {
		return fmt.Errorf("resource type %q was not asked for", t)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if revision.Compare(s.accepted) < 0 {
		return errStale{revision, s.accepted}
	}
	changes := make([]delta.Change, 0, len(resp.GetResources())+len(resp.GetRemovedResources()))
	for _, r := range resp.GetResources() {
		if r.GetName() == "" || r.GetResource() == nil {
			return fmt.Errorf("%w: %s: it has no name or no body", errUnreadable, r.GetName())
		}
		changes = append(changes, delta.Change{Type: t, Name: r.GetName(), Resource: &delta.Resource{
			Name: r.GetName(), Version: r.GetVersion(), Body: r.GetResource(),
		}})
	}
	for _, name := range resp.GetRemovedResources() {
		changes = append(changes, delta.Change{Type: t, Name: name})
	}
	taken, err := s.take(t, changes)
	for _, c := range taken {
		if c.Resource == nil {
			delete(s.versions[t], c.Name)
		} else {
			s.versions[t][c.Name] = c.Resource.Version
		}
	}
	if err != nil {
		s.remember(memoryBatch{revision: s.accepted, target: taken})
		s.advance()
		return err
	}
	s.accepted = revision
	s.remember(memoryBatch{revision: revision, target: s.covered(taken)})
	whole := slices.ContainsFunc(taken, isCheckpoint)
	if whole {
		s.feed.SetKeyless(false)
	}
	s.advance()
	if whole {
		s.hear()
	}
	return nil
}

// isCheckpoint says that all before the change makes a whole state.
func isCheckpoint(c delta.Change) bool {
	return c.Type == typeCheckpoint && c.Name == agentv1.CheckpointName && c.Resource != nil
}

// take applies changes of one type and returns those that could be.
func (s *state) take(t delta.Type, changes []delta.Change) ([]delta.Change, error) {
	switch t {
	case typeMachine:
		for _, c := range changes {
			if c.Resource != nil {
				if err := s.configure(c.Resource); err != nil {
					return nil, err
				}
			}
		}
	case typeCheckpoint:
		for _, c := range changes {
			if c.Resource == nil {
				continue
			}
			var m agentv1.Checkpoint
			if err := unmarshal(c.Resource, &m); err != nil {
				return nil, err
			}
			s.point, s.serving = delta.Revision{Epoch: m.GetEpoch(), Number: m.GetRevision()}, true
			if c.Resource.Version == unproxiedVersion && !s.proxyless {
				continue // of what is for an Envoy nothing is known
			}
			s.feed.Checkpoint(s.point)
			s.serve()
		}
	default:
		if s.unproxied && slices.Contains(gate.Types[:], t) {
			return nil, nil // it was not asked for
		}
		// One at a time, so that one that cannot be read leaves the others alone.
		taken := changes[:0:0]
		var first error
		for _, c := range changes {
			take := func(c delta.Change) error { return s.feed.Target([]delta.Change{s.assignments.resolve(c)}) }
			if isNetwork(t) {
				take = s.takeNetwork
			}
			if err := take(c); err != nil {
				if first == nil {
					first = err
				}
				continue
			}
			taken = append(taken, c)
		}
		return taken, first
	}
	return changes, nil
}

func (s *state) configure(r *delta.Resource) error {
	var m agentv1.MachineConfig
	if err := unmarshal(r, &m); err != nil {
		return err
	}
	s.machine = &m
	s.feed.SetDrain(m.GetDrainTime().AsDuration())
	return nil
}

// held is what to tell a plane at the beginning of a stream.
func (s *state) held() (versions map[delta.Type]map[string]string, accepted delta.Revision) {
	s.mu.Lock()
	defer s.mu.Unlock()
	versions = make(map[delta.Type]map[string]string, len(planeTypes))
	for _, t := range planeTypes {
		if t != typeCheckpoint { // it is wanted again: it says that all before it is here
			versions[t] = maps.Clone(s.versions[t])
		}
	}
	return versions, s.accepted
}

// advance has Envoy's stream follow, and notes when time alone would change something.
func (s *state) advance() {
	good, wake := s.feed.Advance(s.now(), s.accepted)
	if len(good) > 0 {
		s.remember(memoryBatch{revision: s.accepted, good: good})
	}
	s.plan(wake)
	s.changed()
}

func (s *state) plan(at time.Time) {
	earlier := !at.IsZero() && (s.wakeAt.IsZero() || at.Before(s.wakeAt))
	if s.wakeAt = at; earlier {
		poke(s.timed)
	}
}

// tick does what is due by time, and returns when to do it again; zero: not before
// timed says so.
func (s *state) tick() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.wakeAt.IsZero() && !s.now().Before(s.wakeAt) {
		s.advance()
	}
	return s.wakeAt
}

// connect makes a new stream of Envoy the one that is served.
func (s *state) connect(wake func()) *delta.Stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.feed.Connect(wake)
}

// disconnect ends a stream, unless a newer one has replaced it.
func (s *state) disconnect(stream *delta.Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.feed.Disconnect(stream)
}

// open takes Envoy's first request for clusters and returns the request to go on with.
func (s *state) open(stream *delta.Stream, req *discoveryv3.DeltaDiscoveryRequest, active map[string]struct{}) *discoveryv3.DeltaDiscoveryRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	req = s.feed.Open(stream, req, active, s.now())
	s.advance()
	return req
}

// ends says whether the stream must be ended, for Envoy to connect anew.
func (s *state) ends(stream *delta.Stream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.feed.Ends(stream)
}

// asks says whether Envoy must be asked which clusters it uses.
func (s *state) asks(held map[string]string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.feed.AsksActive(held)
}

// request takes a request of Envoy. It returns false when the stream is no longer
// the one that is served.
func (s *state) request(stream *delta.Stream, req *discoveryv3.DeltaDiscoveryRequest) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	served, err := s.feed.Request(stream, req)
	if served {
		s.advance()
	}
	return served, err
}

// next is the next response for Envoy, nil for none now.
func (s *state) next(stream *delta.Stream) *discoveryv3.DeltaDiscoveryResponse {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.feed.Next(stream)
}

// warm says whether a new Envoy may be given listeners, or when it may at the latest.
func (s *state) warm() (bool, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.feed.Warm(s.now())
}

// looks is the question about what Envoy uses, if one is to be asked now; next is when one
// will be otherwise; round changes when something new is in doubt.
func (s *state) looks() (look gate.Look, wanted bool, next time.Time, round uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.feed.Looks(s.now())
}

// saw takes the answer, and begins the mending that a stream can do.
func (s *state) saw(look gate.Look, seen gate.Seen) gate.Mend {
	s.mu.Lock()
	defer s.mu.Unlock()
	mend := s.feed.Saw(look, seen, s.now())
	s.advance()
	return mend
}

// polling says whether the warming clusters must be asked for, and the number to
// give back with the answer.
func (s *state) polling() (bool, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.feed.Polling()
}

func (s *state) warming(seq uint64, names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.feed.Warming(seq, names)
	s.advance()
}

// applied is how far Envoy follows the plane.
func (s *state) applied() *agentv1.Applied {
	s.mu.Lock()
	defer s.mu.Unlock()
	applied := s.feed.Applied()
	a := &agentv1.Applied{Epoch: applied.Epoch, Revision: applied.Number, Problems: s.feed.Problems()}
	return bounded(a)
}

// maxMessage bounds the proxy's words in a problem, bytes.
const maxMessage = 1024

func cutMessages(problems []*agentv1.Problem) {
	for _, p := range problems {
		p.Message = cut(p.GetMessage(), maxMessage)
	}
}

// cut shortens a text to at most n bytes, at a rune's border.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xc0 == 0x80 {
		n--
	}
	return s[:n]
}

// Bounds of the problems in a report: what a plane reads, and bytes; gRPC takes 4 MiB.
const (
	maxProblems = 4096
	maxReport   = 3 << 20
)

// bounded shortens what does not fit a report. Problems that are left out are not
// listed, so then no revision is claimed.
func bounded(a *agentv1.Applied) *agentv1.Applied {
	cutMessages(a.GetProblems())
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

func (s *state) config() *agentv1.MachineConfig {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.machine
}

// served says why Envoy does not serve what is wanted yet, nil if it does, or if it
// lives on with what it had.
func (s *state) served() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.withheld > 0 {
		return nil
	}
	if !s.serving {
		return errors.New("no state yet: the plane has not sent a whole one, and none is remembered")
	}
	if !s.offers() {
		return errors.New("no state for the proxy yet: the agent before ran without one, and the plane has not sent it")
	}
	n, keyless := s.feed.OpenListeners()
	if n > 0 && keyless {
		return fmt.Errorf("%d listeners wait, those with private keys until a plane has sent these: they are never on the disk", n)
	}
	if n > 0 {
		return fmt.Errorf("the proxy has not taken %d listeners yet", n)
	}
	return nil
}

// listening says which of the listeners the proxy has.
func (s *state) listening(names map[string]struct{}) map[string]struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	has := map[string]struct{}{}
	for name := range names {
		if s.feed.Has(name) {
			has[name] = struct{}{}
		}
	}
	return has
}

// renew has Envoy end the connections of a listener gently, and go on with new ones; false
// gives it the listener as the plane has it again.
func (s *state) renew(id model.ListenerID, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range []string{string(id), string(id) + "/quic"} {
		s.feed.Renew(name, on)
	}
	s.advance()
}

// isServing says whether there is a whole state, be it without what is for an Envoy.
func (s *state) isServing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.serving
}

// revisions are the largest that a plane has sent, and that Envoy has applied.
func (s *state) revisions() (accepted, applied delta.Revision) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.accepted, s.feed.Applied()
}

// checkpoint is the last one: everything up to it has been taken.
func (s *state) checkpoint() delta.Revision {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.point
}

// poke leaves one token in a channel of capacity one.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
