package agent

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"fairlead.dev/internal/delta"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// desired is what planes have sent: it refuses what is older, hands each change to the parts
// that receive its type, and has the accepted ones remembered. The parts hold the resources;
// only their versions are kept here.
type desired struct {
	parts    []wiredPart
	types    []delta.Type // that are asked of a plane, in this order
	remember func(memoryBatch)

	mu       sync.Mutex
	versions map[delta.Type]map[string]string
	received received
}

// memoryBatch is one step of the state that must be remembered, whole or not at all.
type memoryBatch struct {
	revision delta.Revision
	target   []delta.Change // what the plane wants
	good     []delta.Change // what Envoy accepted
}

func newDesired(remember func(memoryBatch), parts ...wiredPart) *desired {
	d := &desired{
		parts: parts, remember: remember, versions: map[delta.Type]map[string]string{},
		received: received{config: &agentv1.MachineConfig{}},
	}
	for _, t := range planeTypes {
		if t == typeMachine || t == typeCheckpoint || slices.ContainsFunc(parts, func(p wiredPart) bool { return slices.Contains(p.types, t) }) {
			d.types = append(d.types, t)
			d.versions[t] = map[string]string{}
		}
	}
	return d
}

// restore gives the parts what was remembered, and says whether that was a whole state, be it
// without what is for a proxy. What cannot be read is left out, and asked of a plane again.
func (d *desired) restore(revision delta.Revision, target []delta.Change) (whole bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.received.revision, d.received.remembered = revision, true
	var errs []error
	for _, last := range []bool{false, true} { // a checkpoint after all that it speaks of
		for _, c := range target {
			if isCheckpoint(c) == last && d.versions[c.Type] != nil {
				errs = append(errs, d.accept(c))
			}
		}
	}
	whole = d.received.whole
	d.commit()
	return whole, errors.Join(errs...)
}

// errStale says that a plane is behind one that was heard before.
type errStale struct{ got, have delta.Revision }

func (e errStale) Error() string {
	return fmt.Sprintf("the plane offers revision %s, but %s was accepted before: it is an old leader, or its data was restored from a backup", e.got, e.have)
}

// receive handles a response of the plane. An errStale means that the stream must end;
// any other error is one to refuse the response with.
func (d *desired) receive(resp *discoveryv3.DeltaDiscoveryResponse) error {
	revision, err := delta.ParseRevision(resp.GetSystemVersionInfo())
	if err != nil {
		return err
	}
	t := delta.Type(resp.GetTypeUrl())
	if !slices.Contains(planeTypes[:], t) {
		return fmt.Errorf("resource type %q: the agent is not subscribed to it", t)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if revision.Compare(d.received.revision) < 0 {
		return errStale{revision, d.received.revision}
	}
	changes, err := changesIn(t, resp)
	if err != nil {
		return err
	}
	if !slices.Contains(d.types, t) {
		changes = nil // nobody here wants it, and it holds up nothing
	}
	// One at a time, so that one that cannot be read leaves the others alone.
	accepted, first := changes[:0:0], error(nil)
	for _, c := range changes {
		if err := d.accept(c); err == nil {
			accepted = append(accepted, c)
		} else if first == nil {
			first = err
		}
	}
	if first == nil {
		d.received.revision = revision
	}
	d.remember(memoryBatch{revision: d.received.revision, target: accepted})
	d.commit()
	return first
}

func changesIn(t delta.Type, resp *discoveryv3.DeltaDiscoveryResponse) ([]delta.Change, error) {
	changes := make([]delta.Change, 0, len(resp.GetResources())+len(resp.GetRemovedResources()))
	for _, r := range resp.GetResources() {
		if r.GetName() == "" || r.GetResource() == nil {
			return nil, fmt.Errorf("%w: %s: it has no name or no body", errUnreadable, r.GetName())
		}
		changes = append(changes, delta.Change{Type: t, Name: r.GetName(), Resource: &delta.Resource{
			Name: r.GetName(), Version: r.GetVersion(), Body: r.GetResource(),
		}})
	}
	for _, name := range resp.GetRemovedResources() {
		changes = append(changes, delta.Change{Type: t, Name: name})
	}
	return changes, nil
}

// accept hands a change to the parts that receive its type, and notes its version.
func (d *desired) accept(c delta.Change) error {
	switch {
	case c.Type == typeMachine && c.Resource != nil:
		var m agentv1.MachineConfig
		if err := unmarshal(c.Resource, &m); err != nil {
			return err
		}
		d.received.config = &m
	case isCheckpoint(c):
		var m agentv1.Checkpoint
		if err := unmarshal(c.Resource, &m); err != nil {
			return err
		}
		d.received.checkpoint = delta.Revision{Epoch: m.GetEpoch(), Number: m.GetRevision()}
		d.received.whole, d.received.completes = true, true
		d.received.unproxied = c.Resource.Version == unproxiedVersion
	}
	for _, p := range d.parts {
		if slices.Contains(p.types, c.Type) {
			if err := p.receive(c); err != nil {
				return err
			}
		}
	}
	if c.Resource == nil {
		delete(d.versions[c.Type], c.Name)
	} else {
		d.versions[c.Type][c.Name] = c.Resource.Version
	}
	return nil
}

// commit has the parts act on what they received.
func (d *desired) commit() {
	for _, p := range d.parts {
		p.commit(d.received)
	}
	d.received.completes, d.received.unproxied, d.received.remembered = false, false, false
}

// held is what to tell a plane at the beginning of a stream.
func (d *desired) held() (versions map[delta.Type]map[string]string, accepted delta.Revision) {
	d.mu.Lock()
	defer d.mu.Unlock()
	versions = make(map[delta.Type]map[string]string, len(d.types))
	for _, t := range d.types {
		if t != typeCheckpoint { // it is wanted again: it says that all before it is here
			versions[t] = maps.Clone(d.versions[t])
		}
	}
	return versions, d.received.revision
}

// latest is how far the machine is.
func (d *desired) latest() received {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.received
}
