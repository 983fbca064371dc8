package openstack

import (
	"context"
	"errors"
	"net/url"
	"time"

	"fairlead.dev/internal/source/cloud"
)

const (
	// attempts to read a load balancer that changes meanwhile.
	attempts = 5
	// second is the resolution of updated_at, and some more: a change within the second of
	// an earlier one shows only in another read after that second.
	second = 1100 * time.Millisecond
	// recent changes that a sweep finds are read twice for that reason, as are all that a poll
	// finds. The clocks of the cloud and of this machine may differ by as much.
	recent = 5 * time.Second
	// failuresShown is how often a load balancer cannot be read before that is shown.
	failuresShown = 3
)

// lists are the parts of one load balancer, as the lists of a sweep had them.
type lists struct {
	listeners []listener
	pools     []pool
	policies  []policy
	// reuse allows to take the members of pools that say the same as before from there.
	reuse bool
}

// work reads load balancers until ctx is done.
func (s *Source) work(ctx context.Context) {
	for {
		j := s.queue.take(ctx)
		if j == nil {
			return
		}
		err := s.read(ctx, j)
		switch {
		case err == nil || ctx.Err() != nil:
		case s.state.forgotten(j.id): // lists have it no more
		default:
			s.log.Debug("load balancer not read", "load_balancer", j.id, "error", err)
			j.failures++
			s.state.fail(j.id, err, j.failures >= failuresShown)
			j.background = true
			if s.cfg.API != lbaas {
				j.row, j.lists = nil, nil
			}
			s.queue.later(ctx, retries.After(j.failures, err), j)
		}
		s.queue.done(j.id)
	}
}

// read reads one load balancer and all its parts, such that it did not change in between, and
// gives them to the state.
func (s *Source) read(ctx context.Context, j *job) error {
	if j.background {
		ctx = inBackground(ctx)
	}
	row, parts, seq := j.row, j.lists, j.seq
	for attempt := 1; ; attempt++ {
		if row == nil {
			seq = s.state.next()
			var err error
			if row, err = s.show(ctx, j.scope, j.id); err != nil {
				return err
			}
			if old := s.state.of(j.id); row != nil && old != nil && !old.tree.loadBalancer.same(row) {
				j.confirms = false
			}
		}
		switch {
		case row == nil || row.gone():
			s.state.remove(j.id, seq)
			return nil
		case row.ProvisioningStatus == pendingCreate:
			s.state.put(&tree{loadBalancer: *row}, seq, time.Time{})
			return nil
		}
		if err := s.nameProject(ctx, row.project()); err != nil {
			return err
		}
		t, membersRead, err := s.parts(ctx, j.scope, row, parts)
		if err != nil && (!isNotFound(err) || s.cfg.API == lbaas) {
			return err
		}
		torn := ""
		if err != nil {
			torn = err.Error()
		} else {
			torn = t.torn()
		}
		if torn == "" && (parts != nil || row.pending()) || s.cfg.API == lbaas {
			// A change since then shows in updated_at, and in the next poll.
			s.accept(ctx, j, t, seq, membersRead)
			return nil
		}
		newer := s.state.next()
		after, err := s.show(ctx, j.scope, j.id)
		switch {
		case err != nil:
			return err
		case after == nil:
			s.state.remove(j.id, newer)
			return nil
		case torn == "" && after.same(row):
			s.accept(ctx, j, t, seq, membersRead)
			return nil
		case attempt == attempts && torn != "":
			return cloud.BadAnswer("its parts contradict each other: %w", errors.New(torn))
		case attempt == attempts: // it changes all the time; what was read is newer than what is known
			s.accept(ctx, j, t, seq, membersRead)
			return nil
		}
		row, parts, seq = after, nil, newer
	}
}

// accept gives a load balancer to the state, and has it read again if it may have changed
// within the same second.
func (s *Source) accept(ctx context.Context, j *job, t *tree, seq uint64, membersRead time.Time) {
	s.state.put(t, seq, membersRead)
	age := s.now().Sub(t.loadBalancer.changed())
	if s.cfg.API != lbaas && !j.confirms && !t.loadBalancer.pending() && (!j.background || age.Abs() < recent) {
		s.queue.later(ctx, second, &job{id: j.id, scope: j.scope, seq: seq, confirms: true})
	}
}

// show reads the row of a load balancer; nil: there is none.
func (s *Source) show(ctx context.Context, of scope, id string) (*loadBalancer, error) {
	var answer struct{ LoadBalancer *loadBalancer }
	err := s.client.do(ctx, of.token, func(s *session) string { return s.balancers + "loadbalancers/" + url.PathEscape(id) }, nil, into(&answer))
	switch {
	case isNotFound(err):
		return nil, nil //nolint:nilnil // there is none, and that is no error
	case err != nil:
		return nil, err
	case answer.LoadBalancer == nil || answer.LoadBalancer.ID != id:
		return nil, cloud.BadAnswer("the answer for load balancer %s is not about it", id)
	}
	if err := trim(answer.LoadBalancer); err != nil {
		return nil, cloud.BadAnswer("load balancer %s has %w", id, err)
	}
	return answer.LoadBalancer, nil
}

// parts reads the parts of a load balancer, or takes them from the lists of a sweep. Members
// are always read, except those that a sweep may reuse.
func (s *Source) parts(ctx context.Context, of scope, row *loadBalancer, from *lists) (_ *tree, membersRead time.Time, _ error) {
	t := &tree{loadBalancer: *row, members: map[string][]member{}}
	membersRead = s.now()
	if from != nil {
		t.listeners, t.pools, t.policies = from.listeners, from.pools, from.policies
	} else {
		query := url.Values{"loadbalancer_id": {row.ID}}
		var err error
		if t.listeners, err = list[listener](ctx, s.client, of.token, "listeners", "listeners", query); err != nil {
			return nil, membersRead, err
		}
		if t.pools, err = list[pool](ctx, s.client, of.token, "pools", "pools", query); err != nil {
			return nil, membersRead, err
		}
		for i := range t.listeners {
			if len(t.listeners[i].L7Policies) == 0 {
				continue
			}
			more, err := list[policy](ctx, s.client, of.token, "l7policies", "l7policies", url.Values{"listener_id": {t.listeners[i].ID}})
			if err != nil {
				return nil, membersRead, err
			}
			t.policies = append(t.policies, more...)
		}
	}
	var old *known
	if from != nil && from.reuse {
		if old = s.state.of(row.ID); old != nil && !old.tree.loadBalancer.same(row) {
			old = nil
		}
	}
	var before map[string]*pool
	if old != nil {
		before = old.tree.poolsByID()
	}
	used := t.used()
	for i := range t.pools {
		p := &t.pools[i]
		if len(p.Members) == 0 || !used[p.ID] {
			continue
		}
		if b := before[p.ID]; b != nil && p.same(b) {
			if members, ok := old.tree.members[p.ID]; ok {
				t.members[p.ID], membersRead = members, old.membersRead
				continue
			}
		}
		members, err := list[member](ctx, s.client, of.token, "pools/"+url.PathEscape(p.ID)+"/members", "members", nil)
		if err != nil && (s.cfg.API != lbaas || !isNotFound(err)) { // there the next sweep finds the pool gone
			return nil, membersRead, err
		}
		t.members[p.ID] = members
	}
	return t, membersRead, nil
}
