package model

import (
	"net/netip"
	"time"
)

// FirstByteMetric is the load metric in which a proxy adds up the time until the first byte of a backend's answers, in microseconds.
const FirstByteMetric = "fairlead_first_byte"

// MaxMeasuredGroups is how many groups are measured (BackendGroup), and MaxMeasuredRoutes how many resources have routes with series of
// their own (Route).
const (
	MaxMeasuredGroups = 2_000
	MaxMeasuredRoutes = 200
)

// GroupLoad is what the proxies of one machine have counted of the backends of a group that is measured (BackendGroup).
type GroupLoad struct {
	Group GroupID `json:"group"`
	// Age is how long ago the proxy reported the group last.
	Age      time.Duration `json:"ageNanoseconds"`
	Backends []BackendLoad `json:"backends"` // sorted by address
}

// BackendLoad is what proxies have counted of one backend of a group, tries included. Each number but InFlight only grows.
type BackendLoad struct {
	Address netip.AddrPort `json:"address"`
	// Requests were sent there. Succeeded were answered, but not 5xx; Failed were answered 5xx, or not at all. Those that the
	// client gave up are neither.
	Requests  uint64 `json:"requests"`
	Succeeded uint64 `json:"succeeded"`
	Failed    uint64 `json:"failed"`
	InFlight  uint64 `json:"inFlight"` // when the proxy reported last
	// Timed were answered, and Micros is the sum of the times from a request's first byte to the answer's, in microseconds.
	Timed  uint64 `json:"timed"`
	Micros uint64 `json:"micros"`
	// Named says that it has metrics of its own.
	Named bool `json:"named,omitempty"`
}

// Add adds what has been counted since; InFlight is the newer one's.
func (b *BackendLoad) Add(more BackendLoad) {
	b.Requests += more.Requests
	b.Succeeded += more.Succeeded
	b.Failed += more.Failed
	b.Timed += more.Timed
	b.Micros += more.Micros
	b.InFlight = more.InFlight
}

// Less is what b has counted more than an older one; that is all of it where the older one has counted more, which was another's.
func (b BackendLoad) Less(old BackendLoad) BackendLoad {
	if b.Requests < old.Requests || b.Succeeded < old.Succeeded || b.Failed < old.Failed || b.Timed < old.Timed || b.Micros < old.Micros {
		return b
	}
	b.Requests -= old.Requests
	b.Succeeded -= old.Succeeded
	b.Failed -= old.Failed
	b.Timed -= old.Timed
	b.Micros -= old.Micros
	return b
}

// MaxNamedBackends is how many backends of measured groups have metrics of their own, of each machine.
const MaxNamedBackends = 500
