package plane

import (
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/plane/status"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate"
)

type kindState struct{ kind, state string }

// counts is how many objects are in each state. It is kept up to date object by object:
// there may be 20,000, and one changes.
type counts struct {
	of  map[model.Object]kindState
	sum map[kindState]int
}

func newCounts() counts {
	c := counts{of: map[model.Object]kindState{}, sum: map[kindState]int{}}
	for _, r := range snapshot.Resources() {
		if r.Status != snapshot.StatusTranslated {
			continue
		}
		for _, state := range []string{status.StateProgrammed, status.StatePending, status.StateInvalid, status.StateDegraded, status.StateOrphaned, status.StateUnserved} {
			c.sum[kindState{string(r.Kind), state}] = 0
		}
	}
	return c
}

// set notes the state of an object; an empty one is that of an object without a status. It reports whether the state
// is another one.
func (c counts) set(o model.Object, state string) bool {
	now := kindState{o.Kind, state}
	if old, known := c.of[o]; known {
		if old == now {
			return false
		}
		c.sum[old]--
	}
	if state == "" {
		delete(c.of, o)
		return true
	}
	c.of[o] = now
	c.sum[now]++
	return true
}

func (c counts) show(m *metrics) {
	for k, n := range c.sum {
		m.objects.WithLabelValues(k.kind, k.state).Set(float64(n))
	}
}

// countObject notes the state of an object that was judged.
func (l *loop) countObject(o model.Object) {
	if o.Kind == string(snapshot.KindAddressPool) {
		var uses []translate.PoolUse
		if s := l.statuses[o]; s != nil {
			uses = s.Pool
		}
		l.pools.set(o.Name, uses)
	}
	if l.statuses[o] == nil {
		l.counts.set(o, "")
		return
	}
	state, _, _ := l.objectState(o)
	if l.counts.set(o, state) {
		l.routeRows.noteState(l.statuses[o])
	}
}

// objectState is the state of an object that has a status, for people, and why.
func (l *loop) objectState(o model.Object) (state, reason, message string) {
	return status.StateOf(l.statuses[o], l.tracker.Last(o))
}
