package agent

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/traffic"
)

const (
	// mostNamespaces, mostHosts, mostListeners, mostUpstreams and mostRoutes bound the names that have totals of their own.
	mostNamespaces, mostHosts, mostListeners, mostUpstreams, mostRoutes = 500, 200, 200, 200, model.MaxMeasuredRoutes
	// maxAsked bounds the routes that are remembered to have asked for series.
	maxAsked = 2 * mostRoutes
	// readTime bounds the time for which somebody waits for the proxy, and readGap is how long what it says is new: longer
	// where the proxy needs long to answer, because its main thread has other work.
	readTime, readGap = 3 * time.Second, time.Second
	// answerTime is readTime for the plane, which waits for 2.5 s.
	answerTime = 2 * time.Second
)

// meter keeps what the machine's proxies have counted, one after the other. It asks the proxy when somebody asks it, once for all who ask
// within readGap.
type meter struct {
	counter RequestCounter
	now     func() time.Time

	mu      sync.Mutex
	reading chan struct{} // closed at the end of the present question; nil: there is none
	at      time.Time     // when the last answer was asked for
	took    time.Duration // until it was there
	last    model.Traffic
	current bool // the last question was answered
	results map[bool]uint64

	// Requests by namespace, host, listener and route; the last only of those that asked for series.
	requests map[traffic.By]*traffic.Totals
	asked    map[string]bool
	// Volumes by namespace, upstream, listener, route and host; the last only of routes that asked for series.
	volumes map[traffic.By]*traffic.Volumes

	exemplars *exemplars // has a lock of its own
}

func newMeter(counter RequestCounter, now func() time.Time) *meter {
	m := &meter{counter: counter, now: now, results: map[bool]uint64{}, asked: map[string]bool{}}
	m.requests = map[traffic.By]*traffic.Totals{
		traffic.Namespaces: traffic.NewTotals(traffic.Namespaces, mostNamespaces), traffic.Hosts: traffic.NewTotals(traffic.Hosts, mostHosts),
		traffic.Listeners: traffic.NewTotals(traffic.Listeners, mostListeners),
		traffic.Routes:    traffic.NewTotals(traffic.Routes, mostRoutes).Only(func(name string) bool { return m.asked[name] }),
	}
	m.volumes = map[traffic.By]*traffic.Volumes{
		traffic.Namespaces: traffic.NewVolumes(mostNamespaces), traffic.Upstreams: traffic.NewVolumes(mostUpstreams),
		traffic.Listeners: traffic.NewVolumes(mostListeners), traffic.Routes: traffic.NewVolumes(mostRoutes), traffic.Hosts: traffic.NewVolumes(mostHosts),
	}
	m.exemplars = newExemplars(now, m.measures)
	return m
}

// measures says whether a route has asked for series of its own, by its owner.
func (m *meter) measures(owner string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.asked[owner]
}

// read brings the totals up to date, or leaves them as they are when the proxy has not answered until ctx is done. The question goes on.
func (m *meter) read(ctx context.Context) {
	m.mu.Lock()
	if m.current && m.now().Sub(m.at) < max(readGap, 2*m.took) {
		m.mu.Unlock()
		return
	}
	if m.reading == nil {
		m.reading = make(chan struct{})
		go m.ask(m.reading)
	}
	reading := m.reading
	m.mu.Unlock()
	select {
	case <-reading:
	case <-ctx.Done():
	}
}

func (m *meter) ask(done chan struct{}) {
	defer close(done)
	ctx, cancel := context.WithTimeout(context.Background(), readTime)
	defer cancel()
	at := m.now()
	t, err := m.counter.Traffic(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reading, m.current = nil, err == nil
	m.results[err == nil]++
	if err != nil {
		return
	}
	m.at, m.took, m.last = at, m.now().Sub(at), t
	m.note(t.Routes)
	for _, totals := range m.requests {
		totals.Take(t.Requests)
	}
	for by, v := range m.volumes {
		v.Take(by.Counted(t))
	}
}

// note adds routes that ask for series of their own. Where they are too many, those that do not ask any more are forgotten.
func (m *meter) note(routes []model.RouteTraffic) {
	now := make(map[string]bool, len(routes))
	for _, r := range routes {
		now[r.Owner] = true
	}
	for owner := range now {
		if !m.asked[owner] && len(m.asked) >= maxAsked {
			maps.DeleteFunc(m.asked, func(known string, _ bool) bool { return !now[known] })
		}
		if len(m.asked) < maxAsked {
			m.asked[owner] = true
		}
	}
}

// latest is what the proxy said last, and whether that is of its last answer.
func (m *meter) latest() (model.Traffic, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last, m.current && m.reading == nil
}

// sums are the volumes of a group of names, and how many names have none of their own.
func (m *meter) sums(by traffic.By) (list []model.TrafficTotal, left int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.volumes[by].All(func(name string, v model.Volume) {
		v.Seconds.Buckets = slices.Clone(v.Seconds.Buckets)
		if by == traffic.Namespaces {
			v.Answers = [model.StatusClasses]uint64{} // requests are counted by routes
		}
		list = append(list, model.TrafficTotal{By: string(by), Name: name, Volume: v})
	})
	return list, m.volumes[by].Left()
}

// eachRequests calls f with the requests of a group of names.
func (m *meter) eachRequests(by traffic.By, f func(name string, class model.StatusClass, n uint64)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests[by].All(f)
}

// totals are all, for the plane.
func (m *meter) totals() []model.TrafficTotal {
	var all []model.TrafficTotal
	for by := range m.volumes {
		if by == traffic.Hosts { // times of some routes would be taken for those of the host
			continue
		}
		list, _ := m.sums(by)
		if by != traffic.Upstreams { // those of upstreams are backends' answers
			at := map[string]int{}
			for i := range list {
				at[list[i].Name] = i
			}
			m.eachRequests(by, func(name string, class model.StatusClass, n uint64) {
				if _, known := at[name]; !known {
					at[name] = len(list)
					list = append(list, model.TrafficTotal{By: string(by), Name: name})
				}
				list[at[name]].Answers[class] = n
			})
		}
		all = append(all, list...)
	}
	return all
}

// reads are how many questions were answered, and how many not.
func (m *meter) reads() (answered, unanswered uint64, current bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.results[true], m.results[false], m.current
}
