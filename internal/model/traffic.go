package model

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// Traffic is what one proxy has counted since it began.
type Traffic struct {
	Requests  []RequestFigures  // of the routes that have taken requests, sorted
	Services  []ServiceTraffic  // of all Services of a namespace and an Upstream that have taken requests or connections, sorted
	Listeners []ListenerTraffic // sorted
	// Routes are the answers of those that have series of their own, sorted.
	Routes []RouteTraffic
	// Hosts are the answers of those routes again, by virtual host, sorted.
	Hosts []HostTraffic
}

// ServiceTraffic is what one proxy has counted of the Services of a namespace that come from the same Upstream; empty: from none.
type ServiceTraffic struct {
	Namespace, Upstream string
	Volume
}

// servicesUpstream stands between the namespace and the Upstream of a ServicesKey.
const servicesUpstream = "@"

// ServicesKey names the Services of a namespace that come from an Upstream, "NAMESPACE@UPSTREAM".
func ServicesKey(namespace, upstream string) string { return namespace + servicesUpstream + upstream }

// ParseServicesKey reads what ServicesKey writes.
func ParseServicesKey(key string) (namespace, upstream string, ok bool) {
	return strings.Cut(key, servicesUpstream)
}

// Key names these Services.
func (s *ServiceTraffic) Key() string { return ServicesKey(s.Namespace, s.Upstream) }

// ListenerTraffic is what one proxy has counted of a listener.
type ListenerTraffic struct {
	Listener ListenerID
	Volume
}

// RouteTraffic is what one proxy has counted of the routes of one resource, such as "HTTPRoute/news/app".
type RouteTraffic struct {
	Owner string
	Volume
}

// HostTraffic is what one proxy has counted of the routes of one virtual host that have series of their own.
type HostTraffic struct {
	Host string
	Volume
}

// Volume is how much went on. Received is from clients, towards backends, and Sent is to clients.
type Volume struct {
	Received, Sent  uint64 // bytes
	Retries, Resets uint64
	Answers         [StatusClasses]uint64 // by class: of groups those of backends, tries included
	Connections     uint64                // taken
	Open            uint64                // connections that are open
	Seconds         Histogram
}

// TrafficTotal is what proxies of a machine have counted of all that has a name, one proxy after the other. Open is of the present one.
type TrafficTotal struct {
	By, Name string // By is what the name is of, such as "namespaces"
	Volume
}

// HistogramScale is the number of buckets of a Histogram from one power of two to the next; it is schema 4 of Prometheus' native
// histograms. A bucket's limits differ by 4.4 %.
const HistogramScale = 16

// Histogram counts durations.
type Histogram struct {
	Micros  uint64            // the sum, in microseconds
	Buckets []HistogramBucket // sorted by Index; none is empty
}

// HistogramBucket counts durations above 2^((Index-1)/HistogramScale) seconds, up to 2^(Index/HistogramScale).
type HistogramBucket struct {
	Index int32
	Count uint64
}

// BucketOf is the Index of the bucket of a duration, in seconds.
func BucketOf(seconds float64) int32 {
	return int32(math.Ceil(HistogramScale * math.Log2(max(seconds, 1e-6))))
}

// Middle is the geometric middle of a bucket, in seconds.
func (b HistogramBucket) Middle() float64 {
	return math.Exp2((float64(b.Index) - 0.5) / HistogramScale)
}

// Count is the number of durations.
func (h Histogram) Count() (n uint64) {
	for _, b := range h.Buckets {
		n += b.Count
	}
	return n
}

// Add adds n durations of the same bucket.
func (h *Histogram) Add(seconds float64, n uint64) {
	if n == 0 {
		return
	}
	h.Micros += uint64(math.Round(seconds*1e6)) * n
	h.add(BucketOf(seconds), n)
}

func (h *Histogram) add(index int32, n uint64) {
	i, found := slices.BinarySearchFunc(h.Buckets, index, func(b HistogramBucket, index int32) int { return cmp.Compare(b.Index, index) })
	if !found {
		h.Buckets = slices.Insert(h.Buckets, i, HistogramBucket{Index: index})
	}
	h.Buckets[i].Count += n
}

// Merge adds all durations of another one.
func (h *Histogram) Merge(o Histogram) {
	h.Micros += o.Micros
	for _, b := range o.Buckets {
		h.add(b.Index, b.Count)
	}
}

// Less is what h has more than an older one. It says no if the older one has something that h has not.
func (h Histogram) Less(old Histogram) (Histogram, bool) {
	if h.Micros < old.Micros {
		return Histogram{}, false
	}
	more := Histogram{Micros: h.Micros - old.Micros}
	for _, b := range h.Buckets {
		for len(old.Buckets) > 0 && old.Buckets[0].Index < b.Index {
			return Histogram{}, false
		}
		if len(old.Buckets) > 0 && old.Buckets[0].Index == b.Index {
			if old.Buckets[0].Count > b.Count {
				return Histogram{}, false
			}
			b.Count -= old.Buckets[0].Count
			old.Buckets = old.Buckets[1:]
		}
		if b.Count > 0 {
			more.Buckets = append(more.Buckets, b)
		}
	}
	return more, len(old.Buckets) == 0
}

// Quantile is the duration that a share of all does not exceed, in seconds; 0 without any.
func (h Histogram) Quantile(q float64) float64 {
	rank := q * float64(h.Count())
	below := 0.0
	for i, b := range h.Buckets {
		if n := float64(b.Count); below+n >= rank || i == len(h.Buckets)-1 {
			return math.Exp2((float64(b.Index) - 1 + min((rank-below)/n, 1)) / HistogramScale)
		}
		below += float64(b.Count)
	}
	return 0
}

// Merge adds what another one has counted.
func (v *Volume) Merge(o Volume) {
	v.Received += o.Received
	v.Sent += o.Sent
	v.Retries += o.Retries
	v.Resets += o.Resets
	v.Connections += o.Connections
	v.Open += o.Open
	for class, n := range o.Answers {
		v.Answers[class] += n
	}
	v.Seconds.Merge(o.Seconds)
}

// Less is what v has counted more than an older one. It says no if the older one has counted something that v has not: then another proxy
// has begun.
func (v Volume) Less(old Volume) (Volume, bool) {
	seconds, more := v.Seconds.Less(old.Seconds)
	if !more || v.Received < old.Received || v.Sent < old.Sent || v.Retries < old.Retries || v.Resets < old.Resets || v.Connections < old.Connections {
		return Volume{}, false
	}
	answers := v.Answers
	for class, n := range old.Answers {
		if answers[class] < n {
			return Volume{}, false
		}
		answers[class] -= n
	}
	return Volume{
		Received: v.Received - old.Received, Sent: v.Sent - old.Sent, Retries: v.Retries - old.Retries, Resets: v.Resets - old.Resets,
		Connections: v.Connections - old.Connections, Open: v.Open, Answers: answers, Seconds: seconds,
	}, true
}
