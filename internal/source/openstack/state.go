package openstack

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/source/cloud"
)

// known is a load balancer that was read.
type known struct {
	seq      uint64 // of the read: what was read later has a larger one
	tree     *tree
	services []*model.UpstreamService // that the sink has
	// losing are the services as a sweep that is not complete found them, with fewer endpoints; nil: the sink has the newest. It
	// gets them with the complete list, which is judged as a whole.
	losing []*model.UpstreamService
	// membersRead is when the members of all its pools were last read.
	membersRead time.Time
	// unreadable is why it could not be read again; empty: it was.
	unreadable string
}

// state is what was read, and what of it was given to the sink. Methods may be called by
// several goroutines; the sink gets everything in one order.
type state struct {
	sink cloud.Sink
	now  func() time.Time

	mu  sync.Mutex
	seq uint64
	// projects are names by ID; empty: it cannot be read.
	projects map[string]string
	// wanted are the newest entries of lists, by ID: they were read, or a job for them is
	// on its way, or their project is not selected.
	wanted map[string]*loadBalancer
	known  map[string]*known // by ID
	// sweep is the full sweep that is not complete yet; nil: none is.
	sweep *sweep
	// complete says that Replace was called: from then on the sink knows everything.
	complete bool
	failures map[activity]error
	unread   map[string]error // load balancers that could never be read
}

// sweep is a complete list of load balancers whose parts are being read.
type sweep struct {
	seq  uint64
	ids  map[string]bool
	left map[string]bool // those that are not read yet
	// failed are those of left that could not be read.
	failed map[string]bool
}

// activity is something that fails and recovers by itself.
type activity string

const (
	sweeping activity = "sweep"
	polling  activity = "poll"
)

func newState(sink cloud.Sink, now func() time.Time) *state {
	return &state{
		sink: sink, now: now, projects: map[string]string{}, wanted: map[string]*loadBalancer{},
		known: map[string]*known{}, failures: map[activity]error{}, unread: map[string]error{},
	}
}

// next is the number of a read that begins now.
func (s *state) next() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seq++
	return s.seq
}

// want notes an entry of a list and reports whether it says something new.
func (s *state) want(row *loadBalancer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.wanted[row.ID]
	if old != nil && old.same(row) {
		return false
	}
	s.wanted[row.ID] = row
	return true
}

// put takes a load balancer that was read whole, and gives the sink the services that differ.
// An older read than the one that is known counts for nothing.
func (s *state) put(t *tree, seq uint64, membersRead time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := t.loadBalancer.ID
	k := s.known[id]
	delete(s.unread, id)
	swept := s.sweep != nil && (s.sweep.left[id] || k != nil && k.losing != nil)
	s.read(id)
	defer s.finish()
	if k != nil && k.seq > seq {
		return
	}
	if k == nil {
		k = &known{}
		s.known[id] = k
	}
	k.seq, k.tree, k.membersRead, k.unreadable = seq, t, membersRead, ""
	s.wanted[id] = &t.loadBalancer
	s.emit(k, swept)
}

// emit converts a load balancer and gives the sink the services that differ from those that
// it was given. What a sweep has found waits for the complete list if it has fewer endpoints.
func (s *state) emit(k *known, swept bool) {
	project := k.tree.loadBalancer.project()
	k.tree.served = k.tree.served || len(k.services) > 0
	services := convert(k.tree, s.projects[project], s.now())
	for _, service := range services {
		if k.unreadable != "" {
			service.Refused = append(service.Refused, model.UpstreamRefusal{
				Object: service.Object, Reason: model.RefusedAnswer, Message: "it is in effect as it was last read: " + k.unreadable,
			})
		}
	}
	if k.losing = nil; swept && endpointsOf(services) < endpointsOf(k.services) {
		k.losing = services
		return
	}
	before := make(map[model.UpstreamKey]*model.UpstreamService, len(k.services))
	for _, o := range k.services {
		before[o.Key] = o
	}
	var changed []*model.UpstreamService
	for i, n := range services {
		o := before[n.Key]
		delete(before, n.Key)
		if o != nil && o.Same(n) {
			services[i] = o
			continue
		}
		changed = append(changed, n)
	}
	var removed []model.UpstreamKey
	for _, o := range k.services {
		if before[o.Key] != nil {
			removed = append(removed, o.Key)
		}
	}
	k.services = services
	if len(changed) > 0 {
		s.sink.Put(changed...)
	}
	if len(removed) > 0 {
		s.sink.Remove(removed...)
	}
}

func endpointsOf(services []*model.UpstreamService) int {
	n := 0
	for _, s := range services {
		n += s.Endpoints()
	}
	return n
}

// remove takes a load balancer out of which the cloud says that it is gone.
func (s *state) remove(id string, seq uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.unread, id)
	s.read(id)
	k := s.known[id]
	if k == nil || k.seq <= seq {
		delete(s.wanted, id)
		delete(s.known, id)
	}
	if k != nil && k.seq <= seq && len(k.services) > 0 {
		s.sink.Remove(k.keys()...)
	}
	s.finish()
}

func (k *known) keys() []model.UpstreamKey {
	keys := make([]model.UpstreamKey, 0, len(k.services))
	for _, service := range k.services {
		keys = append(keys, service.Key)
	}
	return keys
}

// fail notes that a load balancer could not be read. If it was read before, that form stays,
// and no sweep waits for it. Otherwise the sweep is not complete without it. show: it was
// tried often enough to say so.
func (s *state) fail(id string, err error, show bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.known[id]
	switch {
	case k == nil:
		if s.sweep != nil && s.sweep.left[id] {
			s.sweep.failed[id] = true
		}
		if show {
			s.unread[id] = fmt.Errorf("load balancer %s: %w", id, err)
		}
		return
	case show && k.unreadable == "":
		k.unreadable = err.Error()
		s.emit(k, false)
	}
	s.read(id)
	s.finish()
}

// read says that no sweep has to wait for a load balancer.
func (s *state) read(id string) {
	if s.sweep != nil {
		delete(s.sweep.left, id)
		delete(s.sweep.failed, id)
	}
}

// finish gives the sink the complete list, if a sweep has just become complete.
func (s *state) finish() {
	if s.sweep == nil || len(s.sweep.left) > 0 {
		return
	}
	sweep := s.sweep
	s.sweep = nil
	s.drop(sweep.ids, sweep.seq)
	s.replace()
}

// drop forgets the load balancers that a complete list does not have, and reports whether
// there were any. Those that were read after the list was are not dropped.
func (s *state) drop(ids map[string]bool, seq uint64) bool {
	dropped := false
	for id, k := range s.known {
		if !ids[id] && k.seq < seq {
			delete(s.known, id)
			delete(s.wanted, id)
			dropped = true
		}
	}
	maps.DeleteFunc(s.unread, func(id string, _ error) bool { return !ids[id] })
	for id := range s.wanted {
		if !ids[id] && s.known[id] == nil {
			delete(s.wanted, id) // a newer one is wanted again by the next list
		}
	}
	return dropped
}

// forgotten reports whether no list has a load balancer that was never read.
func (s *state) forgotten(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wanted[id] == nil && s.known[id] == nil && (s.sweep == nil || !s.sweep.left[id])
}

func (s *state) replace() {
	all := make([]*model.UpstreamService, 0, len(s.known))
	for _, k := range s.known {
		if k.losing != nil {
			k.services, k.losing = k.losing, nil
		}
		all = append(all, k.services...)
	}
	slices.SortFunc(all, func(a, b *model.UpstreamService) int { return a.Key.Compare(b.Key) })
	s.complete = true
	s.sink.Replace(all)
}

// begin starts a sweep over a complete list of load balancers. A sweep that is not complete
// is given up, and what it has found counts.
func (s *state) begin(seq uint64, ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.known {
		if k.losing != nil {
			s.emit(k, false)
		}
	}
	s.sweep = &sweep{seq: seq, ids: map[string]bool{}, left: map[string]bool{}, failed: map[string]bool{}}
	for _, id := range ids {
		s.sweep.ids[id], s.sweep.left[id] = true, true
	}
	s.finish()
}

// list takes a complete list of IDs. If load balancers are missing from it, or if the sink
// must be told anyway, the sink gets the complete list of services.
func (s *state) list(seq uint64, ids map[string]bool, anyway bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	dropped := s.drop(ids, seq)
	if s.complete && (dropped || anyway) {
		s.replace()
	}
	if s.sweep != nil {
		for id := range s.sweep.left {
			if !ids[id] {
				s.read(id)
			}
		}
		s.finish()
	}
}

// name notes the names of projects. Names that are not among them stay as they were.
func (s *state) name(projects []project) {
	s.mu.Lock()
	defer s.mu.Unlock()
	renamed := map[string]bool{}
	for _, p := range projects {
		if p.Name != "" && s.projects[p.ID] != p.Name {
			s.projects[p.ID] = p.Name
			renamed[p.ID] = true
		}
	}
	if len(renamed) == 0 {
		return
	}
	for _, k := range s.known {
		if renamed[k.tree.loadBalancer.project()] {
			s.emit(k, false)
		}
	}
}

// keepNames forgets the names of projects that are not in a list of projects and that no load
// balancer is of.
func (s *state) keepNames(projects []project) {
	s.mu.Lock()
	defer s.mu.Unlock()
	keep := map[string]bool{}
	for _, p := range projects {
		keep[p.ID] = true
	}
	for _, row := range s.wanted {
		keep[row.project()] = true
	}
	for _, k := range s.known {
		keep[k.tree.loadBalancer.project()] = true
	}
	maps.DeleteFunc(s.projects, func(id, _ string) bool { return !keep[id] })
}

// count is the number of load balancers that were read.
func (s *state) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.known)
}

// nameless reports whether the name of a project was not asked for yet.
func (s *state) nameless(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, asked := s.projects[id]
	return !asked && id != ""
}

// unnamed notes that the name of a project cannot be read, unless it is known.
func (s *state) unnamed(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.projects[id]; !ok {
		s.projects[id] = ""
	}
}

// of is the load balancer as it was last read; nil: it never was.
func (s *state) of(id string) *known {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.known[id]; k != nil {
		clone := *k
		return &clone
	}
	return nil
}

// oldest are the IDs of at most n load balancers, those whose members were last read longest
// ago, and before a time.
func (s *state) oldest(n int, before time.Time) map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []string
	for id, k := range s.known {
		if k.membersRead.Before(before) && len(k.services) > 0 {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b string) int { return s.known[a].membersRead.Compare(s.known[b].membersRead) })
	chosen := map[string]bool{}
	for _, id := range ids[:min(n, len(ids))] {
		chosen[id] = true
	}
	return chosen
}

// untried is the number of load balancers that a sweep waits for and that nobody has tried to
// read yet.
func (s *state) untried() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sweep == nil {
		return 0
	}
	return len(s.sweep.left) - len(s.sweep.failed)
}

// contact tells the sink the outcome of an activity: an error of the other one goes on to
// count, and so does a load balancer that could never be read. It reports whether the activity
// had failed before.
func (s *state) contact(a activity, err error) (recovered bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	recovered = err == nil && s.failures[a] != nil
	s.failures[a] = err
	if err == nil {
		err = cmp.Or(s.failures[polling], s.failures[sweeping])
	}
	if err == nil && len(s.unread) > 0 {
		err = s.unread[slices.Min(slices.Collect(maps.Keys(s.unread)))]
	}
	s.sink.Contact(err)
	return recovered
}
