package discovery

import (
	"context"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/derive"
	"fairlead.dev/internal/mirror"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/source/cloud"
)

// API is the source of the plane's own API.
type API interface {
	Next(ctx context.Context) (snapshot.Batch, error)
}

// Source follows one upstream until ctx is done.
type Source interface {
	Run(ctx context.Context)
}

// Writer brings derived objects about.
type Writer interface {
	Offer(derive.Object)
}

// Config is what a Discovery needs.
type Config struct {
	API    API    // required
	Writer Writer // required; it takes Services, EndpointSlices and Endpoints
	Log    *slog.Logger
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// Allow says what credentials may contain.
	Allow cloud.Allow
	// Changed hears of upstreams whose status is another now (nil: that is not there any more). It returns at once.
	Changed func(upstream string, status *v1alpha1.UpstreamStatus)
	// Orphaned hears of the Services whose Upstream does not exist, again and again while there are some. Somebody has to say
	// by Use which of them something routes to; the others go.
	Orphaned func([]snapshot.Name)
	// Open makes the source of an Upstream; nil is Open of this package.
	Open func(Origin, cloud.Sink) (Source, error)
}

// Discovery is a source of batches. Run it once; one goroutine calls Next.
type Discovery struct {
	config   Config
	batches  chan snapshot.Batch
	feed     *feed
	calls    chan func(*state)
	uses     chan map[snapshot.Name]bool // the last one
	done     chan struct{}
	meter    *metrics
	timeline *timeline
}

// New prepares a Discovery.
func New(c Config) *Discovery {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Open == nil {
		c.Open = Open
	}
	if c.Changed == nil {
		c.Changed = func(string, *v1alpha1.UpstreamStatus) {}
	}
	if c.Orphaned == nil {
		c.Orphaned = func([]snapshot.Name) {}
	}
	m := newMetrics()
	return &Discovery{
		config: c, batches: make(chan snapshot.Batch), feed: newFeed(), calls: make(chan func(*state)), uses: make(chan map[snapshot.Name]bool, 1), done: make(chan struct{}),
		meter: m, timeline: &timeline{meter: m},
	}
}

// state belongs to the goroutine of Run.
type state struct {
	*Discovery
	run       context.Context // of the sources
	mirror    *mirror.Mirror
	upstreams map[string]*v1alpha1.Upstream
	secrets   map[snapshot.Name]*corev1.Secret // of the operators' namespace, with credentials
	ownUID    string                           // of the API's namespace kube-system
	synced    bool
	leads     bool
	runners   map[string]*runner
	sources   sync.WaitGroup // that run
	starts    startQueue
	reports   map[string]*report
	counters  map[string]*cloud.Counters // of the requests to upstreams
	troubles  map[snapshot.Key]string    // why the last write of an object failed
	unwritten map[string]unwritten       // by upstream, at the last tick
	out       pending
}

// tick is how often statuses are looked at, and what time alone changes.
const tick = time.Second

// Run follows the API and the upstreams until ctx is done.
func (d *Discovery) Run(ctx context.Context) {
	defer close(d.done)
	s := &state{
		Discovery: d, run: ctx, mirror: mirror.New(), upstreams: map[string]*v1alpha1.Upstream{}, secrets: map[snapshot.Name]*corev1.Secret{},
		runners: map[string]*runner{}, reports: map[string]*report{}, counters: map[string]*cloud.Counters{}, troubles: map[snapshot.Key]string{}, out: newPending(),
	}
	defer s.sources.Wait()
	defer s.stopAll()
	stored := make(chan snapshot.Batch)
	go func() {
		for {
			b, err := d.config.API.Next(ctx)
			if err != nil {
				return // ctx is done
			}
			select {
			case stored <- b:
			case <-ctx.Done():
				return
			}
		}
	}()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		var batches chan<- snapshot.Batch
		var next snapshot.Batch
		if !s.out.empty() {
			batches, next = d.batches, s.out.batch(s.synced)
			next.Number = s.timeline.upcoming()
		}
		select {
		case <-ctx.Done():
			return
		case b := <-stored:
			s.store(b)
		case <-d.feed.some:
			s.hear(d.feed.take())
		case batches <- next:
			s.timeline.handOut(next.Number)
			s.out.clear()
			continue
		case f := <-d.calls:
			f(s)
		case used := <-d.uses:
			s.mirror.Use(used)
		case <-timer.C:
		case <-ticker.C:
			s.beginDue()
			s.tell()
			s.measure()
			if names := s.mirror.Orphans(); s.leads && len(names) > 0 {
				s.config.Orphaned(names)
			}
		}
		s.settle(timer)
	}
}

// settle brings into effect what the inputs brought, and sets the timer for what time brings.
func (s *state) settle(timer *time.Timer) {
	now := s.config.Now()
	wait := time.Hour
	if next := s.mirror.Advance(now); !next.IsZero() {
		wait = max(next.Sub(now), time.Millisecond)
	}
	timer.Reset(wait)
	changes, writes := s.mirror.Take()
	s.out.add(changes)
	s.timeline.decide(len(changes) > 0, s.mirror.Waits, now)
	if s.leads {
		for _, w := range writes {
			s.write(w)
		}
	}
}

// Next waits for the next batch. The error is ctx's.
func (d *Discovery) Next(ctx context.Context) (snapshot.Batch, error) {
	select {
	case b := <-d.batches:
		return b, nil
	case <-ctx.Done():
		return snapshot.Batch{}, ctx.Err()
	}
}

// Lead says whether this plane leads: then the upstreams are followed, and what is discovered is written.
func (d *Discovery) Lead(ctx context.Context, leads bool) {
	_ = d.ask(ctx, func(s *state) { s.lead(leads) }) // else it ends
}

// Rewrite has everything offered to the Writer again that is not stored: it may have been deaf.
func (d *Discovery) Rewrite(ctx context.Context) {
	_ = d.ask(ctx, func(s *state) { s.mirror.Recheck() }) // else it ends
}

// lead begins or ends to follow the upstreams.
func (s *state) lead(leads bool) {
	if leads == s.leads {
		return
	}
	s.leads = leads
	s.mirror.Forget()
	clear(s.troubles)
	if !leads {
		s.stopAll()
		return
	}
	for name := range s.upstreams {
		s.follow(name)
	}
}

// store notes a batch of changes in the API.
func (s *state) store(b snapshot.Batch) {
	touched := map[string]bool{}
	for _, c := range b.Changes {
		switch c.Key.Kind {
		case snapshot.KindUpstream:
			name := c.Key.Name.Name
			o, _ := c.Object.(*v1alpha1.Upstream)
			if touched[name] = true; o == nil {
				delete(s.upstreams, name)
			} else {
				s.upstreams[name] = o
			}
			s.mirror.SetUpstream(name, o, s.config.Now())
		case snapshot.KindSecret:
			if c.Key.Name.Namespace == v1alpha1.SystemNamespace {
				s.setSecret(c, touched)
			}
		case snapshot.KindNamespace:
			if o, is := c.Object.(*corev1.Namespace); is && o.Name == metaSystem {
				s.ownUID = string(o.UID)
			}
		}
		if mirror.Follows(c.Key.Kind) {
			s.mirror.Stored(c)
		}
		if c.Key.Kind != snapshot.KindService && c.Key.Kind != snapshot.KindEndpointSlice {
			s.out.add([]snapshot.Change{c})
		}
	}
	if b.Synced && !s.synced {
		s.synced = true
		s.out.told = false
		s.mirror.Known()
		for name := range s.upstreams {
			touched[name] = true
		}
	}
	for name := range touched {
		s.follow(name)
	}
}

// metaSystem is the namespace by whose UID an API is known.
const metaSystem = "kube-system"

// setSecret notes a Secret of the operators' namespace.
func (s *state) setSecret(c snapshot.Change, touched map[string]bool) {
	o, _ := c.Object.(*corev1.Secret)
	if o == nil {
		delete(s.secrets, c.Key.Name)
	} else {
		s.secrets[c.Key.Name] = o
	}
	for name, u := range s.upstreams {
		if secretOf(u) == c.Key.Name.Name {
			touched[name] = true
		}
	}
}

// hear takes what sources have said.
func (s *state) hear(events []event) {
	now := s.config.Now()
	for _, e := range events {
		r := s.runners[e.upstream]
		if r == nil || r.id != e.runner {
			continue // of a source that was stopped
		}
		switch e.what {
		case replaced:
			s.mirror.Replace(e.upstream, e.services, now)
			s.tellOf(e.upstream)
		case put:
			s.mirror.Put(e.upstream, now, e.services...)
		case removed:
			s.mirror.Remove(e.upstream, now, e.keys...)
		case contacted:
			s.mirror.Contact(e.upstream, e.err, e.at)
			s.tellOf(e.upstream)
		}
		s.timeline.see(e)
	}
}

// Use says to which of the orphaned Services something routes.
func (d *Discovery) Use(used map[snapshot.Name]bool) {
	select {
	case <-d.uses: // an older one
	default:
	}
	select {
	case d.uses <- used:
	default: // a newer one
	}
}

// pending are changes that wait for the plane's loop, each key once.
type pending struct {
	at      map[snapshot.Key]int
	changes []snapshot.Change
	told    bool // that everything is synced, or not yet
}

func newPending() pending { return pending{at: map[snapshot.Key]int{}, told: true} }

func (p *pending) empty() bool { return len(p.changes) == 0 && p.told }

func (p *pending) add(changes []snapshot.Change) {
	for _, c := range changes {
		if i, waits := p.at[c.Key]; waits {
			p.changes[i] = c
			continue
		}
		p.at[c.Key] = len(p.changes)
		p.changes = append(p.changes, c)
	}
}

func (p *pending) batch(synced bool) snapshot.Batch {
	return snapshot.Batch{Changes: p.changes, Synced: synced}
}

func (p *pending) clear() {
	p.changes, p.at, p.told = nil, map[snapshot.Key]int{}, true
}
