package discovery

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/internal/metricstest"
	"fairlead.dev/internal/model"
)

func TestMetricsAreDocumented(t *testing.T) {
	metricstest.Documented(t, func(r prometheus.Registerer) error { return New(Config{}).Register(r, quiet{}) }, "fairlead_discovery_")
}

// quiet is a writer without work.
type quiet struct{}

func (quiet) Pending() int    { return 0 }
func (quiet) Applied() uint64 { return 0 }

func second(n int) time.Time { return time.Unix(int64(n), 0).UTC() }

func keyOf(name string) model.UpstreamKey { return model.UpstreamKey{Scope: "team01", Name: name} }

func put1(upstream, name string, at int) event {
	return event{upstream: upstream, what: put, services: []*model.UpstreamService{{Key: keyOf(name)}}, at: second(at)}
}

func none(string, model.UpstreamKey) bool { return false }

// A change is followed from the source to the machines; one that is held, or of which nothing follows, says so.
func TestPassages(t *testing.T) {
	d := New(Config{})
	line := d.timeline
	line.see(put1("up01", "app", 10))
	line.see(put1("up01", "held", 10))
	line.see(event{upstream: "up02", what: removed, keys: []model.UpstreamKey{keyOf("gone")}, at: second(11)})
	if n := line.upcoming(); n != 0 {
		t.Fatalf("nothing is decided, and the next batch is %d", n)
	}
	held := func(_ string, k model.UpstreamKey) bool { return k == keyOf("held") }
	line.decide(true, held, second(12))
	if n := line.upcoming(); n != 1 {
		t.Fatalf("the next batch is %d, want 1", n)
	}
	line.handOut(1)
	line.see(put1("up01", "same", 13))
	line.decide(false, held, second(13))
	line.see(put1("up01", "later", 14))
	line.decide(true, held, second(14))
	line.handOut(line.upcoming())
	d.Published(1, 7, second(15))
	d.Published(2, 0, second(16)) // no machine needs it
	d.InForce(1, second(17))
	d.InForce(2, second(18))
	d.InForce(1, second(19)) // said twice

	line.decide(false, none, second(20)) // its turn has come

	want := []Passage{
		{Upstream: "up01", Service: keyOf("later"), Seen: second(14), Decided: second(14), Published: second(16)},
		{Upstream: "up01", Service: keyOf("same"), Seen: second(13), Decided: second(13), Published: second(13)},
		{Upstream: "up01", Service: keyOf("held"), Seen: second(10), Decided: second(20), Published: second(20)},
		{Upstream: "up01", Service: keyOf("app"), Seen: second(10), Decided: second(12), Published: second(15), Revision: 7, InForce: second(17)},
	}
	got := d.Passages("up01", 100)
	if len(got) != len(want) {
		t.Fatalf("%d passages, want %d: %+v", len(got), len(want), got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("passage %d is %+v, want %+v", i, got[i], want[i])
		}
	}
	if first := d.Passages("up02", 1); len(first) != 1 || first[0].Service != keyOf("gone") || first[0].InForce != second(17) {
		t.Errorf("of up02 there is %+v", first)
	}
}

// However many changes come, and however few of them get further, what is kept is bounded, and the newest are kept.
func TestPassagesAreBounded(t *testing.T) {
	d := New(Config{})
	for i := range 3 * passages {
		d.timeline.see(put1("up01", "app", i))
		d.timeline.decide(true, none, second(i))
		d.timeline.handOut(d.timeline.upcoming())
	}
	if n := len(d.timeline.ring); n != passages {
		t.Errorf("%d passages are kept, want %d", n, passages)
	}
	if n := len(d.timeline.unfinished); n > maxUnfinished {
		t.Errorf("%d batches are followed, want %d at most", n, maxUnfinished)
	}
	d.Published(1, 1, second(1)) // its passages made room
	d.Published(d.timeline.number, 9, second(3*passages))
	all := d.Passages("up01", 2*passages)
	if len(all) != passages || all[0].Revision != 9 || all[1].Revision != 0 || all[len(all)-1].Seen != second(2*passages) {
		t.Errorf("%d passages, first %+v, last %+v", len(all), all[0], all[len(all)-1])
	}
	d.timeline.see(put1("up01", "app", 4*passages))
	for i := range 2 * passages { // in one go
		d.timeline.see(put1("up01", "app", 4*passages+i))
	}
	d.timeline.decide(true, none, second(6*passages))
	if n := len(d.timeline.batch); n != passages {
		t.Errorf("%d passages are decided, want %d", n, passages)
	}
}
