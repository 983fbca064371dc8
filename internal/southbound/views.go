package southbound

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"fairlead.dev/internal/delta"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// ViewID names a view: the resources that a group of machines shares. The empty ID is no
// view.
type ViewID string

const checkpointType delta.Type = agentv1.CheckpointType

// ErrStale is the class of publications that are not after the last one.
var ErrStale = errors.New("stale revision")

// maxWaiting bounds the revisions that are remembered of a machine that does not follow.
const maxWaiting = 256

// Update is what one publication changes. Resources of a shared view and of a
// machine that is placed on it must not have type and name in common.
type Update struct {
	Shared  map[ViewID][]delta.Change
	Machine map[string][]delta.Change
	// Placement puts machines on views; only changed ones are named. A machine without a
	// view is sent nothing, and keeps its resources.
	Placement map[string]ViewID
}

// Views owns every set of resources and every stream that follows them. It is safe
// for concurrent use; one lock guards all, and nothing is encoded or sent under it.
type Views struct {
	mu       sync.Mutex
	revision delta.Revision
	// of revision; nil before the first
	checkpoint *delta.Resource
	shared     map[ViewID]*view
	machines   map[string]*machineView
	concerned  []string // machines that the last publication concerned
}

type view struct {
	set     *delta.Set
	members map[string]*machineView
}

type machineView struct {
	name   string
	own    *delta.Set
	viewID ViewID
	view   *view // nil: not placed
	wanted delta.Revision
	// waiting are the revisions that concerned it since its last stream began, and that it
	// has not said that it runs; oldest first.
	waiting []delta.Revision
	feeds   map[*feed]struct{}
}

// NewViews returns Views without any resource or machine.
func NewViews() *Views {
	return &Views{shared: map[ViewID]*view{}, machines: map[string]*machineView{}}
}

// Publish applies an update at a revision that must be after all before; otherwise
// it changes nothing and returns ErrStale. The machines concerned get a checkpoint
// of that revision: those whose view or own resources really changed, those that
// moved, and all when the epoch is a new one.
func (v *Views) Publish(rev delta.Revision, u Update) error {
	checkpoint, err := checkpointOf(rev)
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if rev.Compare(v.revision) <= 0 {
		return fmt.Errorf("publish %s after %s: %w", rev, v.revision, ErrStale)
	}
	renewed := rev.Epoch > v.revision.Epoch
	v.revision, v.checkpoint = rev, &checkpoint

	concerned := map[*machineView]struct{}{}
	for id, changes := range u.Shared {
		view := v.view(id)
		if view.set.Update(rev, changes) > 0 {
			for _, m := range view.members {
				concerned[m] = struct{}{}
			}
		}
	}
	for name, changes := range u.Machine {
		m := v.machine(name)
		if m.own.Update(rev, changes) > 0 {
			concerned[m] = struct{}{}
		}
	}
	for name, id := range u.Placement {
		if m := v.machine(name); m.viewID != id {
			v.place(m, id)
			concerned[m] = struct{}{}
		}
	}
	if renewed {
		for _, m := range v.machines {
			concerned[m] = struct{}{}
		}
	}
	v.concerned = v.concerned[:0]
	for m := range concerned {
		if m.view == nil {
			continue
		}
		v.concerned = append(v.concerned, m.name)
		m.mark(rev, v.checkpoint)
		for f := range m.feeds {
			f.signal() // it may have been held back
		}
	}
	v.sweep(u)
	return nil
}

// checkpointOf is the checkpoint of a revision: one for all whom it concerns.
func checkpointOf(rev delta.Revision) (delta.Resource, error) {
	return delta.NewResource(agentv1.CheckpointName, &agentv1.Checkpoint{Epoch: rev.Epoch, Revision: rev.Number})
}

// mark makes rev the machine's newest checkpoint.
func (m *machineView) mark(rev delta.Revision, checkpoint *delta.Resource) {
	m.own.Update(rev, []delta.Change{{Type: checkpointType, Name: checkpoint.Name, Resource: checkpoint}})
	m.wanted = rev
	if len(m.feeds) > 0 {
		if len(m.waiting) == maxWaiting {
			m.waiting = slices.Clone(m.waiting[maxWaiting/2:])
		}
		m.waiting = append(m.waiting, rev)
	}
}

// Concerned names the machines that the last publication concerned, in no order.
func (v *Views) Concerned() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.concerned)
}

// Reached records the revision that a machine runs and returns the revisions that
// concerned it and that it had not reached before, oldest first.
func (v *Views) Reached(machine string, applied delta.Revision) []delta.Revision {
	v.mu.Lock()
	defer v.mu.Unlock()
	m := v.machines[machine]
	if m == nil {
		return nil
	}
	n := slices.IndexFunc(m.waiting, func(r delta.Revision) bool { return r.Compare(applied) > 0 })
	if n < 0 {
		n = len(m.waiting)
	}
	reached := m.waiting[:n:n]
	m.waiting = m.waiting[n:]
	return reached
}

// place moves a machine; its streams then need the differences only.
func (v *Views) place(m *machineView, id ViewID) {
	if m.view != nil {
		delete(m.view.members, m.name)
	}
	old := m.viewID
	m.viewID, m.view = id, nil
	if id != "" {
		m.view = v.view(id)
		m.view.members[m.name] = m
		for f := range m.feeds {
			f.stream.SetLayers(m.layers()...)
		}
	}
	v.forgetView(old)
}

func (m *machineView) layers() []*delta.Set {
	if m.view == nil {
		return []*delta.Set{m.own}
	}
	return []*delta.Set{m.view.set, m.own}
}

func (v *Views) view(id ViewID) *view {
	found := v.shared[id]
	if found == nil {
		found = &view{set: delta.NewSet(), members: map[string]*machineView{}}
		v.shared[id] = found
	}
	return found
}

func (v *Views) machine(name string) *machineView {
	m := v.machines[name]
	if m == nil {
		m = &machineView{name: name, own: delta.NewSet(), feeds: map[*feed]struct{}{}}
		v.machines[name] = m
	}
	return m
}

// sweep forgets views and machines of the update that hold nothing any more.
func (v *Views) sweep(u Update) {
	for id := range u.Shared {
		v.forgetView(id)
	}
	for name := range u.Machine {
		v.forgetMachine(name)
	}
	for name := range u.Placement {
		v.forgetMachine(name)
	}
}

func (v *Views) forgetView(id ViewID) {
	if view := v.shared[id]; view != nil && len(view.members) == 0 && len(view.set.Types()) == 0 {
		delete(v.shared, id)
	}
}

// forgetMachine forgets a machine that is nowhere, has no stream and owns nothing
// but a checkpoint.
func (v *Views) forgetMachine(name string) {
	m := v.machines[name]
	if m == nil || m.view != nil || len(m.feeds) > 0 {
		return
	}
	if slices.ContainsFunc(m.own.Types(), func(t delta.Type) bool { return t != checkpointType }) {
		return
	}
	delete(v.machines, name)
}

// Revision is that of the last publication.
func (v *Views) Revision() delta.Revision {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.revision
}

// Placed says which view a machine is on, and the last revision that concerned it.
func (v *Views) Placed(machine string) (ViewID, delta.Revision) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if m := v.machines[machine]; m != nil {
		return m.viewID, m.wanted
	}
	return "", delta.Revision{}
}

// Any returns a resource as some view of several machines has it.
func (v *Views) Any(t delta.Type, name string) (delta.Resource, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, view := range v.shared {
		if r, ok := view.set.Get(t, name); ok {
			return r, true
		}
	}
	return delta.Resource{}, false
}

// feed is one machine's open stream.
type feed struct {
	views   *Views
	machine *machineView
	stream  *delta.Stream
	wake    chan struct{}
	floor   delta.Revision // the machine has accepted this much already
	closed  bool
	steps   uint64 // counts outcomes
	named   int    // names in requests so far; of the receiver alone
	partly  bool   // a request is taken in part

	refusals *refusals

	checkpoint struct { // the last one that was sent
		version  string
		revision delta.Revision
	}
	delivered delta.Revision
}

// outcome is what a stream knows after a step.
type outcome struct {
	step      uint64 // a larger one knows more
	delivered delta.Revision
	refusals  *refusals // of the stream; they may have moved on since
	refused   uint64    // the version of the refusals
	closed    bool      // nothing is known any more
}

// open starts a stream of a machine that has accepted floor before.
//
// What a machine accepts may be later than what last concerned it: a response
// carries the revision of its view, which moves with publications that come out the
// same, too. Then the machine gets the newest checkpoint, which is true of it, rather
// than nothing until something concerns it again.
func (v *Views) open(machine string, floor delta.Revision) *feed {
	v.mu.Lock()
	defer v.mu.Unlock()
	m := v.machine(machine)
	m.waiting = nil
	if m.view != nil && m.wanted.Compare(floor) < 0 && floor.Compare(v.revision) <= 0 {
		m.mark(v.revision, v.checkpoint)
	}
	f := &feed{views: v, machine: m, wake: make(chan struct{}, 1), floor: floor, refusals: &refusals{}}
	f.stream = delta.NewStream(delta.Options{
		Last: []delta.Type{checkpointType}, Floor: floor,
		Wake: f.signal, Refused: f.refusals.note,
	}, f.machine.layers()...)
	f.machine.feeds[f] = struct{}{}
	return f
}

func (f *feed) signal() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// count is how many resources of a type a machine's view has.
func (v *Views) count(machine string, t delta.Type) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := 0
	if m := v.machines[machine]; m != nil {
		for _, set := range m.layers() {
			n += set.Len(t)
		}
	}
	return n
}

// receive takes a request; an error ends the stream. What a machine claims to hold may be much: it is
// taken in parts, between which others have the lock.
func (f *feed) receive(req *discoveryv3.DeltaDiscoveryRequest) (outcome, error) {
	if e := req.GetErrorDetail(); e != nil {
		e.Message = strings.Clone(cut(e.GetMessage(), f.refusals.room())) // it is kept for each name, and not all that it is cut from
	}
	for _, names := range [][]string{req.GetResourceNamesSubscribe(), req.GetResourceNamesUnsubscribe()} {
		if f.named += len(names); f.named > maxNamed {
			return outcome{}, fmt.Errorf("more than %d names on a stream: subscribe to %q", maxNamed, wildcard)
		}
	}
	var rest []map[string]string
	if f.subscribed(delta.Type(req.GetTypeUrl())) {
		req.InitialResourceVersions = nil // which counts in the first request of a type only
	} else {
		rest = shorten(req)
	}
	o, err := f.step(len(rest) == 0, func() error { return f.stream.Receive(req) })
	for i, claims := range rest {
		if err != nil {
			break
		}
		o, err = f.step(i == len(rest)-1, func() error { return f.stream.Claim(delta.Type(req.GetTypeUrl()), claims) })
	}
	return o, err
}

// subscribed says whether the type was asked for on the stream before.
func (f *feed) subscribed(t delta.Type) bool {
	f.views.mu.Lock()
	defer f.views.mu.Unlock()
	return f.stream.Subscribed(t)
}

// shorten leaves in a request what may be taken at once of what it claims, and returns the rest. Who
// does not follow everything claims what it names, and that is not much.
func shorten(req *discoveryv3.DeltaDiscoveryRequest) []map[string]string {
	claims := req.GetInitialResourceVersions()
	if len(claims) <= claimsAtOnce || len(req.GetResourceNamesSubscribe()) > 0 && !slices.Contains(req.GetResourceNamesSubscribe(), wildcard) {
		return nil
	}
	var parts []map[string]string
	for names := range slices.Chunk(slices.Collect(maps.Keys(claims)), claimsAtOnce) {
		part := make(map[string]string, len(names))
		for _, name := range names {
			part[name] = claims[name]
		}
		parts = append(parts, part)
	}
	req.InitialResourceVersions = parts[0]
	return parts[1:]
}

// step takes a request, or a part of one. Nothing is sent before the last.
func (f *feed) step(last bool, take func() error) (outcome, error) {
	f.views.mu.Lock()
	defer f.views.mu.Unlock()
	if f.closed {
		return f.outcome(), nil
	}
	if err := take(); err != nil {
		return outcome{}, err
	}
	if f.partly && last {
		f.signal() // what woke the sender before was not to be sent yet
	}
	f.partly = !last
	for _, e := range f.stream.Events() {
		if e.Type == checkpointType && !e.Refused {
			f.reached(e.Version)
		}
	}
	return f.outcome(), nil
}

// reached notes which checkpoint the machine holds.
func (f *feed) reached(version string) {
	rev := delta.Revision{}
	if r, ok := f.machine.own.Get(checkpointType, agentv1.CheckpointName); ok && r.Version == version {
		rev = f.machine.wanted
	} else if version == f.checkpoint.version {
		rev = f.checkpoint.revision
	}
	if rev.Compare(f.delivered) > 0 {
		f.delivered = rev
	}
}

// next returns what to send now, or nil. Nothing is sent before the machine is
// placed, before the plane has published in epoch, and below the floor.
func (f *feed) next(epoch uint64) (*discoveryv3.DeltaDiscoveryResponse, outcome) {
	f.views.mu.Lock()
	defer f.views.mu.Unlock()
	if f.closed || f.partly || f.machine.view == nil || f.views.revision.Epoch < epoch || f.machine.wanted.Compare(f.floor) < 0 {
		return nil, f.outcome()
	}
	resp := f.stream.Next()
	if resp.GetTypeUrl() == agentv1.CheckpointType && len(resp.GetResources()) > 0 {
		f.checkpoint.version, f.checkpoint.revision = resp.GetResources()[0].GetVersion(), revisionOf(resp.GetResources()[0])
	}
	return resp, f.outcome()
}

// revisionOf is what a checkpoint says: while changes go on, an older one than the machine's
// newest.
func revisionOf(r *discoveryv3.Resource) delta.Revision {
	var c agentv1.Checkpoint
	if err := r.GetResource().UnmarshalTo(&c); err != nil {
		return delta.Revision{} // none of ours
	}
	return delta.Revision{Epoch: c.GetEpoch(), Number: c.GetRevision()}
}

func (f *feed) outcome() outcome {
	f.steps++
	return outcome{step: f.steps, delivered: f.delivered, refusals: f.refusals, refused: f.refusals.at(), closed: f.closed}
}

func (f *feed) close() {
	f.views.mu.Lock()
	defer f.views.mu.Unlock()
	if !f.closed {
		f.closed = true
		f.stream.Close()
		delete(f.machine.feeds, f)
		f.views.forgetMachine(f.machine.name)
	}
}
