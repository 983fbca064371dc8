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

// roundServices bounds the services that are heard of in a round, and so how long the plane's own API waits for its turn. So
// many endpoints count as one more service: a service with all that an upstream may have fills a round.
const (
	roundServices    = 512
	serviceEndpoints = 64
)

// effort is how many services one counts for; nil: it is gone.
func effort(s *model.UpstreamService) int {
	if s == nil {
		return 1
	}
	return 1 + s.Endpoints()/serviceEndpoints
}

// feed joins what all sources say. Of a service only the last form waits, so that no source can make it longer than
// what it has. Sources take turns.
type feed struct {
	some chan struct{} // holds a token while there is something

	mu    sync.Mutex
	lines map[uint64]*line // by runner
	turns []uint64         // runners whose lines have something, the next one first
}

// line is what one source has said and nobody has heard.
type line struct {
	upstream string
	contact  *event                                       // the last
	whole    *event                                       // a complete list; changes came after it
	changes  map[model.UpstreamKey]*model.UpstreamService // nil: it is gone
	order    []model.UpstreamKey                          // of changes, as they first came
	at       map[model.UpstreamKey]time.Time              // when
}

func newFeed() *feed { return &feed{some: make(chan struct{}, 1), lines: map[uint64]*line{}} }

func (f *feed) add(e event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.lines[e.runner]
	if l == nil {
		l = &line{upstream: e.upstream}
		f.lines[e.runner] = l
		f.turns = append(f.turns, e.runner)
	}
	switch e.what {
	case contacted:
		l.contact = &e
	case replaced:
		*l = line{upstream: e.upstream, contact: l.contact, whole: &e}
	case put:
		for _, s := range e.services {
			l.change(s.Key, s, e.at)
		}
	case removed:
		for _, k := range e.keys {
			l.change(k, nil, e.at)
		}
	}
	f.ring()
}

func (l *line) change(k model.UpstreamKey, s *model.UpstreamService, at time.Time) {
	if l.changes == nil {
		l.changes, l.at = map[model.UpstreamKey]*model.UpstreamService{}, map[model.UpstreamKey]time.Time{}
	}
	if _, waits := l.changes[k]; !waits {
		l.order = append(l.order, k)
		l.at[k] = at
	}
	l.changes[k] = s
}

func (f *feed) ring() {
	select {
	case f.some <- struct{}{}:
	default:
	}
}

// take takes a round: of each source in turn its last contact, and a list or some changes.
func (f *feed) take() []event {
	f.mu.Lock()
	defer f.mu.Unlock()
	var events []event
	room := roundServices
	for n := len(f.turns); n > 0 && room > 0; n-- {
		runner := f.turns[0]
		f.turns = f.turns[1:]
		l := f.lines[runner]
		events = append(events, l.take(runner, &room)...)
		if l.contact == nil && l.whole == nil && len(l.order) == 0 {
			delete(f.lines, runner)
			continue
		}
		f.turns = append(f.turns, runner)
	}
	if len(f.turns) > 0 {
		f.ring()
	}
	return events
}

func (l *line) take(runner uint64, room *int) (events []event) {
	if l.contact != nil {
		events = append(events, *l.contact)
		l.contact = nil
	}
	if l.whole != nil {
		*room--
		for _, s := range l.whole.services {
			*room -= effort(s)
		}
		events = append(events, *l.whole)
		l.whole = nil
		return events
	}
	turn, n := min(max(*room, 1), roundServices/4), 0
	for ; n < len(l.order) && turn > 0; n++ {
		k := l.order[n]
		*room -= effort(l.changes[k])
		turn -= effort(l.changes[k])
		e := event{upstream: l.upstream, runner: runner, what: removed, keys: []model.UpstreamKey{k}, at: l.at[k]}
		if s := l.changes[k]; s != nil {
			e.what, e.keys, e.services = put, nil, []*model.UpstreamService{s}
		}
		events = append(events, e)
		delete(l.changes, k)
		delete(l.at, k)
	}
	l.order = l.order[n:]
	return events
}

// forget drops what a source has said.
func (f *feed) forget(runner uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.lines, runner)
	f.turns = slices.DeleteFunc(f.turns, func(r uint64) bool { return r == runner })
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
