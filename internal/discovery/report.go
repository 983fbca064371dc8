package discovery

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/mirror"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/source/cloud"
)

const (
	// shownRefusals is how many refusals a status has.
	shownRefusals = 16
	// countsPause is the shortest time between two statuses that differ in numbers alone.
	countsPause = 30 * time.Second
)

// report is what was last said of an upstream.
type report struct {
	accepted error // why it cannot be followed; nil: it can, or it was not tried
	told     *v1alpha1.UpstreamStatus
	at       time.Time
}

// tell says of all upstreams what is new.
func (s *state) tell() {
	s.unwritten = s.unwrittenBy()
	for name := range s.upstreams {
		s.tellOf(name)
	}
}

// tellOf says of an upstream what is new: another condition at once, other numbers after a while.
func (s *state) tellOf(name string) {
	r, u := s.reports[name], s.upstreams[name]
	if r == nil || u == nil || !s.leads {
		return
	}
	m, _ := s.mirror.State(name, shownRefusals)
	next, now := statusOf(u, r.accepted, m, s.unwritten[name]), s.config.Now()
	if r.told != nil && sameConditions(r.told.Conditions, next.Conditions) && (now.Sub(r.at) < countsPause || sameNumbers(r.told, next)) {
		return
	}
	r.told, r.at = next, now
	s.config.Changed(name, next)
}

func sameConditions(a, b []metav1.Condition) bool {
	return slices.EqualFunc(a, b, func(a, b metav1.Condition) bool {
		return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason && a.ObservedGeneration == b.ObservedGeneration &&
			(a.Type != v1alpha1.ConditionAccepted || a.Message == b.Message) // other messages have times and numbers
	})
}

func sameNumbers(a, b *v1alpha1.UpstreamStatus) bool {
	// What is not stored is told by a message alone.
	x, y := meta.FindStatusCondition(a.Conditions, v1alpha1.ConditionStored), meta.FindStatusCondition(b.Conditions, v1alpha1.ConditionStored)
	return x.Message == y.Message && a.Seen == b.Seen && a.Replicated == b.Replicated && a.Held == b.Held && a.Refused == b.Refused && slices.Equal(a.Refusals, b.Refusals)
}

// statusOf is what an Upstream shows. An error says why it is not followed.
func statusOf(u *v1alpha1.Upstream, refused error, m mirror.State, failed unwritten) *v1alpha1.UpstreamStatus {
	if cloud.ReasonOf(m.Err) == v1alpha1.ReasonOwnAPI && m.Err != nil {
		refused = m.Err
	}
	s := &v1alpha1.UpstreamStatus{
		Type: typeOf(u), Seen: counts(m.Seen), Replicated: counts(m.Replicated), Held: counts(m.Held), Refused: int32(min(m.Refused, 1<<30)),
		Conditions: []metav1.Condition{accepted(refused), reachable(m), current(u.Name, m), stored(failed)},
	}
	if refused != nil && cloud.ReasonOf(refused) != v1alpha1.ReasonOwnAPI {
		s.Conditions[1], s.Conditions[2] = notFollowed(m)
	}
	for _, r := range m.Refusals {
		s.Refusals = append(s.Refusals, v1alpha1.UpstreamRefusal{Object: clip(r.Object), Reason: string(r.Reason), Message: clip(r.Message)})
	}
	if !m.Failing.IsZero() && !m.LastContact.IsZero() {
		s.LastContact = &metav1.Time{Time: m.LastContact}
	}
	if s.Conditions[2].Status != metav1.ConditionTrue && !m.LastSweep.IsZero() {
		s.LastSweep = &metav1.Time{Time: m.LastSweep}
	}
	for i := range s.Conditions {
		s.Conditions[i].ObservedGeneration = u.Generation
	}
	return s
}

func typeOf(u *v1alpha1.Upstream) string {
	if u.Spec.OpenStack != nil {
		return "OpenStack"
	}
	return "Kubernetes"
}

func counts(c mirror.Counts) v1alpha1.UpstreamCounts {
	return v1alpha1.UpstreamCounts{Services: int32(c.Services), Endpoints: int32(c.Endpoints)}
}

// shownText is how many bytes a text has at most. Upstreams say what they like, and a status has a size.
const shownText = 1024

func clip(text string) string {
	if len(text) > shownText {
		text = text[:shownText] + "..."
	}
	return strings.ToValidUTF8(text, "?")
}

func condition(kind string, is bool, reason, message string) metav1.Condition {
	c := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: clip(message)}
	if is {
		c.Status = metav1.ConditionTrue
	}
	return c
}

func accepted(refused error) metav1.Condition {
	if refused == nil {
		return condition(v1alpha1.ConditionAccepted, true, v1alpha1.ReasonAccepted, "Spec and credentials are usable.")
	}
	return condition(v1alpha1.ConditionAccepted, false, cmp.Or(reasonOf(refused), v1alpha1.ReasonInvalid), refused.Error())
}

// reasonOf is the class of an error that has one.
func reasonOf(err error) string {
	if reason := cloud.ReasonOf(err); reason != v1alpha1.ReasonUnreachable {
		return reason
	}
	return ""
}

func reachable(m mirror.State) metav1.Condition {
	switch {
	case !m.Failing.IsZero() && cloud.ReasonOf(m.Err) == v1alpha1.ReasonOwnAPI: // it answers
	case !m.Failing.IsZero():
		return condition(v1alpha1.ConditionReachable, false, cloud.ReasonOf(m.Err), m.Err.Error())
	case m.LastContact.IsZero():
		c := condition(v1alpha1.ConditionReachable, false, v1alpha1.ReasonNotTried, "The API was not asked yet.")
		c.Status = metav1.ConditionUnknown
		return c
	}
	return condition(v1alpha1.ConditionReachable, true, v1alpha1.ReasonAnswers, "The API answers.")
}

// notFollowed are the conditions Reachable and Current of an upstream that nobody reads.
func notFollowed(m mirror.State) (reachable, current metav1.Condition) {
	reachable = condition(v1alpha1.ConditionReachable, false, v1alpha1.ReasonNotTried, "The API is not asked: the condition Accepted says why.")
	reachable.Status = metav1.ConditionUnknown
	if !m.Synced {
		return reachable, condition(v1alpha1.ConditionCurrent, false, v1alpha1.ReasonSyncing, "Nothing is read: the condition Accepted says why. What is stored is in effect.")
	}
	return reachable, condition(v1alpha1.ConditionCurrent, false, v1alpha1.ReasonStale, "Nothing is read any more: the condition Accepted says why. What was last read is in effect.")
}

func current(name string, m mirror.State) metav1.Condition {
	no := func(reason, format string, args ...any) metav1.Condition {
		return condition(v1alpha1.ConditionCurrent, false, reason, fmt.Sprintf(format, args...))
	}
	switch {
	case m.Expired:
		return no(v1alpha1.ReasonStale, "The upstream is away, and its endpoints are not in effect any more: spec.loss.keepFor is over, or the loss was confirmed.")
	case !m.Synced:
		return no(v1alpha1.ReasonSyncing, "No complete list was read yet. What is stored is in effect.")
	case !m.Failing.IsZero():
		return no(v1alpha1.ReasonStale, "The upstream is away since %s. What was last read is in effect.", m.Failing.UTC().Format(time.RFC3339))
	case m.Held.Services > 0:
		return no(v1alpha1.ReasonLossHeld, "Since %s the upstream lists much less than before. %d services with %d endpoints stay in effect as they were. If the loss is real, confirm it: fairlead upstream confirm %s",
			m.HeldSince.UTC().Format(time.RFC3339), m.Held.Services, m.Held.Endpoints, name)
	case m.Returning:
		return no(v1alpha1.ReasonReturning, "The upstream was away. Its changes come into effect bit by bit.")
	case m.OverLimit:
		return no(v1alpha1.ReasonOverLimit, "The upstream has more than spec.limits allow. What is beyond is left out.")
	}
	return condition(v1alpha1.ConditionCurrent, true, v1alpha1.ReasonCurrent, "What is in effect is what the upstream has.")
}

func stored(failed unwritten) metav1.Condition {
	if failed.n == 0 {
		return condition(v1alpha1.ConditionStored, true, v1alpha1.ReasonStored, "No write is refused.")
	}
	return condition(v1alpha1.ConditionStored, false, v1alpha1.ReasonWriteFailed, fmt.Sprintf(
		"%d objects are not stored, or not deleted. What the upstream has is in effect all the same. The first is %s %s: %s", failed.n, failed.first.Kind, failed.first.Name, failed.why))
}

// View is what is known of one upstream now. Status is nil if its Upstream does not exist: then Left is left of it.
type View struct {
	Name     string
	Status   *v1alpha1.UpstreamStatus // the conditions say since when, as far as it is known
	State    mirror.State
	Counters *cloud.Counters
	Unstored int // objects that are to be written, or deleted
	Left     mirror.Left
}

// Views tells about all upstreams, by name, with so many refusals of each at most.
func (d *Discovery) Views(ctx context.Context, refusals int) (views []View, err error) {
	err = d.ask(ctx, func(s *state) {
		unstored := s.mirror.Unstored()
		for _, name := range sortedNames(s.upstreams) {
			u := s.upstreams[name]
			m, _ := s.mirror.State(name, refusals)
			var refused error
			if r := s.reports[name]; r != nil {
				refused = r.accepted
			}
			v := View{Name: name, Status: statusOf(u, refused, m, s.unwritten[name]), State: m, Counters: s.counters[name], Unstored: unstored[name]}
			since(v.Status.Conditions, u.Status.Conditions, m)
			views = append(views, v)
		}
		left := s.mirror.Left()
		for _, name := range sortedNames(left) {
			views = append(views, View{Name: name, Left: left[name], Unstored: unstored[name]})
		}
	})
	slices.SortFunc(views, func(a, b View) int { return cmp.Compare(a.Name, b.Name) })
	return views, err
}

// since notes since when conditions are so: by the stored ones, if these say the same, and by what is known of the upstream.
func since(now, stored []metav1.Condition, m mirror.State) {
	for i := range now {
		c := &now[i]
		if s := meta.FindStatusCondition(stored, c.Type); s != nil && s.Status == c.Status {
			c.LastTransitionTime = s.LastTransitionTime
		}
		switch {
		case c.Type == v1alpha1.ConditionReachable && !m.Failing.IsZero():
			c.LastTransitionTime = metav1.NewTime(m.Failing)
		case c.Type == v1alpha1.ConditionCurrent && c.Reason == v1alpha1.ReasonLossHeld:
			c.LastTransitionTime = metav1.NewTime(m.HeldSince)
		}
	}
}

// Services finds of which services of upstreams Services are. Those that are not discovered are left out.
func (d *Discovery) Services(ctx context.Context, names []snapshot.Name) (found map[snapshot.Name]mirror.Service, err error) {
	err = d.ask(ctx, func(s *state) {
		found = map[snapshot.Name]mirror.Service{}
		for _, n := range names {
			if service, is := s.mirror.Lookup(n); is {
				found[n] = service
			}
		}
	})
	return found, err
}
