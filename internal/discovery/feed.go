package discovery

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/mirror"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/source/cloud"
)

// event is what a source said.
type event struct {
	upstream string
	runner   uint64
	what     what
	services []*model.UpstreamService
	keys     []model.UpstreamKey
	err      error
	at       time.Time
}

type what uint8

const (
	replaced what = iota
	put
	removed
	contacted
)

// feed joins what all sources say, in order.
type feed struct {
	some chan struct{} // holds a token while there is something

	mu     sync.Mutex
	events []event
}

func newFeed() *feed { return &feed{some: make(chan struct{}, 1)} }

func (f *feed) add(e event) {
	f.mu.Lock()
	// A source that answers says so often: only the last time counts.
	if n := len(f.events); e.what == contacted && n > 0 {
		if last := &f.events[n-1]; last.what == contacted && last.runner == e.runner && (last.err == nil) == (e.err == nil) {
			*last = e
			f.mu.Unlock()
			return
		}
	}
	f.events = append(f.events, e)
	f.mu.Unlock()
	select {
	case f.some <- struct{}{}:
	default:
	}
}

func (f *feed) take() []event {
	f.mu.Lock()
	defer f.mu.Unlock()
	events := f.events
	f.events = nil
	return events
}

// sink gives what one source says to the feed.
type sink struct {
	*feed
	upstream string
	runner   uint64
	now      func() time.Time
}

var _ cloud.Sink = sink{}

func (s sink) say(e event) {
	e.upstream, e.runner, e.at = s.upstream, s.runner, s.now()
	s.add(e)
}

// Replace implements cloud.Sink.
func (s sink) Replace(services []*model.UpstreamService) {
	s.say(event{what: replaced, services: services})
}

// Put implements cloud.Sink.
func (s sink) Put(services ...*model.UpstreamService) { s.say(event{what: put, services: services}) }

// Remove implements cloud.Sink.
func (s sink) Remove(keys ...model.UpstreamKey) { s.say(event{what: removed, keys: keys}) }

// Contact implements cloud.Sink.
func (s sink) Contact(err error) { s.say(event{what: contacted, err: err}) }

// selecting gives those services to a sink that a spec selects, for a source that does not select itself.
type selecting struct {
	cloud.Sink
	spec     *v1alpha1.UpstreamSpec
	selector labels.Selector
}

func (s selecting) selects(o *model.UpstreamService) bool {
	return mirror.Selects(s.spec, o.Key.Scope, o.ScopeName) && s.selector.Matches(labels.Set(o.Labels))
}

// Replace implements cloud.Sink.
func (s selecting) Replace(services []*model.UpstreamService) {
	s.Sink.Replace(slices.DeleteFunc(slices.Clone(services), func(o *model.UpstreamService) bool { return !s.selects(o) }))
}

// Put implements cloud.Sink. A service that is not selected any more goes.
func (s selecting) Put(services ...*model.UpstreamService) {
	var put []*model.UpstreamService
	var gone []model.UpstreamKey
	for _, o := range services {
		if s.selects(o) {
			put = append(put, o)
		} else {
			gone = append(gone, o.Key)
		}
	}
	if len(put) > 0 {
		s.Sink.Put(put...)
	}
	if len(gone) > 0 {
		s.Remove(gone...)
	}
}
