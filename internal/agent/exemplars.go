package agent

import (
	"sync"
	"time"

	datav3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/traffic"
	"fairlead.dev/internal/traffic/exposition"
)

const (
	// exemplarLife is how long a request is an exemplar, unless a later one takes its place.
	exemplarLife = 10 * time.Minute
	// traceDigits is the length of a trace's ID.
	traceDigits = 32
)

// exemplars keep the last traced request of each namespace and of each route with series of its own, for each classic bucket
// of their histograms. They have no more names than the histograms.
type exemplars struct {
	now      func() time.Time
	measured func(owner string) bool // the route has series of its own

	mu    sync.Mutex
	names map[traffic.By]map[string]*bucketExemplars
}

// bucketExemplars have one exemplar for each classic bucket; without a trace there is none.
type bucketExemplars [len(traffic.Limits) + 1]exposition.Exemplar

func newExemplars(now func() time.Time, measured func(owner string) bool) *exemplars {
	return &exemplars{now: now, measured: measured, names: map[traffic.By]map[string]*bucketExemplars{traffic.Namespaces: {}, traffic.Routes: {}}}
}

// take remembers a traced request that a backend has answered: the histograms have no others.
func (x *exemplars) take(e *datav3.HTTPAccessLogEntry) {
	common := e.GetCommonProperties()
	trace, group := common.GetCustomTags()[model.ExemplarTrace], model.GroupID(common.GetCustomTags()[model.TapGroup])
	asked, answered := common.GetTimeToLastRxByte(), common.GetTimeToLastUpstreamRxByte()
	if !isTrace(trace) || group.Namespace() == "" || answered == nil {
		return
	}
	now := x.now()
	// That is what the proxy's histograms have: from the end of the request to the end of the answer.
	one := exposition.Exemplar{Trace: trace, Seconds: max(0, (answered.AsDuration() - asked.AsDuration()).Seconds()), At: now}
	owner := traffic.OwnerKey(common.GetRouteName())
	own := owner != "" && x.measured(owner)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.put(traffic.Namespaces, group.Namespace(), mostNamespaces, one)
	if own {
		x.put(traffic.Routes, owner, mostRoutes, one)
	}
}

// put is called with x.mu held.
func (x *exemplars) put(by traffic.By, name string, most int, one exposition.Exemplar) {
	names := x.names[by]
	if names[name] == nil {
		if len(names) >= most {
			for other, list := range names {
				if len(list.since(one.At.Add(-exemplarLife))) == 0 {
					delete(names, other)
				}
			}
		}
		if len(names) >= most {
			return
		}
		names[name] = &bucketExemplars{}
	}
	names[name][traffic.Bucket(one.Seconds)] = one
}

// of are the exemplars of a name that are not too old.
func (x *exemplars) of(by traffic.By, name string) []exposition.Exemplar {
	x.mu.Lock()
	defer x.mu.Unlock()
	if list := x.names[by][name]; list != nil {
		return list.since(x.now().Add(-exemplarLife))
	}
	return nil
}

// since are the exemplars after a time.
func (b *bucketExemplars) since(begin time.Time) (list []exposition.Exemplar) {
	for _, e := range b {
		if e.Trace != "" && e.At.After(begin) {
			list = append(list, e)
		}
	}
	return list
}

// isTrace says whether a text is the ID of a trace: 32 hex digits, in lower case, not all of them 0.
func isTrace(text string) bool {
	zero := true
	for _, c := range []byte(text) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
		zero = zero && c == '0'
	}
	return len(text) == traceDigits && !zero
}

// takeExemplars takes the traced requests of one thread of the proxy. m is the first message.
func (s *sampler) takeExemplars(m *accesslogv3.StreamAccessLogsMessage, st accesslogv3.AccessLogService_StreamAccessLogsServer) error {
	for {
		if s.exemplars != nil {
			for _, entry := range m.GetHttpLogs().GetLogEntry() {
				s.exemplars(entry)
			}
		}
		var err error
		if m, err = st.Recv(); err != nil {
			return err
		}
	}
}
