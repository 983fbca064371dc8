package openstack

import (
	"context"
	"slices"
	"testing"
	"time"
)

func row(id string) *loadBalancer {
	return &loadBalancer{ID: id, Name: id, ProjectID: "p", ProvisioningStatus: active}
}

// What was read later counts, in whatever order it comes, and a sweep is complete with it.
func TestOlderReads(t *testing.T) {
	s := newSink()
	st := newState(s, time.Now)
	sweep := st.next()
	newer := st.next()
	st.put(&tree{loadBalancer: *row("new")}, newer, time.Time{}) // by a poll, before the sweep knows it
	st.begin(sweep, []string{"new"})
	old := row("new")
	old.Name = "old"
	st.put(&tree{loadBalancer: *old}, sweep, time.Time{})
	st.remove("new", sweep)
	if want := []string{"put new", "replace 1"}; !slices.Equal(s.take(), want) || s.texts() != "new" {
		t.Errorf("got %s, want %v", s.texts(), want)
	}
	// A list that is older than a load balancer does not drop it.
	st.list(newer-1, map[string]bool{}, false)
	if s.get("new") == nil {
		t.Error("an older list dropped it")
	}
	st.list(st.next(), map[string]bool{}, false)
	if want := []string{"replace 0"}; !slices.Equal(s.take(), want) {
		t.Errorf("a newer list did not drop it: %s", s.texts())
	}
}

// A load balancer that is gone completes a sweep, too.
func TestSweepOfWhatIsGone(t *testing.T) {
	s := newSink()
	st := newState(s, time.Now)
	seq := st.next()
	st.begin(seq, []string{"a", "b"})
	st.put(&tree{loadBalancer: *row("a")}, seq, time.Time{})
	st.remove("b", seq)
	if want := []string{"put a", "replace 1"}; !slices.Equal(s.take(), want) {
		t.Errorf("got %s", s.texts())
	}
}

func TestQueue(t *testing.T) {
	q := newQueue()
	put := func(id string, seq uint64, background bool) { q.put(&job{id: id, seq: seq, background: background}) }
	put("a", 1, true)
	put("b", 2, true)
	put("c", 3, false)
	put("b", 1, false) // older, and urgent
	take := func(id string, seq uint64) {
		t.Helper()
		if j := q.take(t.Context()); j.id != id || j.seq != seq {
			t.Errorf("took %s of %d, not %s of %d", j.id, j.seq, id, seq)
		}
	}
	take("c", 3)
	take("b", 2)
	put("b", 4, false) // waits for the one that runs
	take("a", 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if j := q.take(ctx); j != nil {
		t.Errorf("took %s, which is running", j.id)
	}
	q.done("b")
	take("b", 4)
}
