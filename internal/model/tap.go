package model

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// TapKey is the runtime key of the fraction of requests that a proxy sends to its agent as records; unset, it sends none.
// TapLayer is the resource with that key, by which the proxy asks its agent. TapGroup is the tag of a record with the group that the
// request was sent to: the record's own upstream_cluster is the name that clusters share in their statistics.
const (
	TapKey   = "fairlead.tap"
	TapLayer = "fairlead-tap"
	TapGroup = "group"
)

// ExemplarLog is the name of the log by which a proxy sends traced requests to its agent, for the exemplars of histograms. ExemplarTrace is
// the tag of such a record with the ID of the trace; the group is that of TapGroup.
const (
	ExemplarLog   = "fairlead-exemplars"
	ExemplarTrace = "trace_id"
)

const (
	// MaxTaps is how many taps, of requests and of flows together, may be open at a plane.
	MaxTaps = 32
	// MaxTapRecords is how many records of requests, and how many events of flows, a machine sends a plane at once.
	MaxTapRecords = 2000
)

// TapFilter selects requests that are shown live. Empty fields select all.
type TapFilter struct {
	Kind, Namespace, Name string // of the resource that owns the route
	Host                  string // that clients ask for, without a port; "*.example.com" is all below
	Path                  string // how the path begins
	StatusFrom, StatusTo  uint32 // both included; 0 and 0: all
	Header, Value         string // a header that is recorded, lower case, and its value; empty: any
	SlowerThan            time.Duration
}

// TapRecord is one request that a proxy has answered. It has no body, and no credential.
type TapRecord struct {
	At              time.Time         `json:"at"`
	Machine         string            `json:"machine"`
	Route           string            `json:"route"` // model.Route's Name; empty: no route matched
	Owner           string            `json:"owner"` // the resource that owns the route
	Rule            string            `json:"rule"`  // the field of the owner that the request follows
	Group           GroupID           `json:"group"`
	Service         string            `json:"service"` // of the group
	Backend         string            `json:"backend"` // host:port
	Client          string            `json:"client"`
	Method          string            `json:"method"`
	Host            string            `json:"host"`
	Path            string            `json:"path"`
	Status          uint32            `json:"status"` // 0: there was no answer
	Details         string            `json:"details"`
	Seconds         float64           `json:"seconds"`
	FirstByte       float64           `json:"firstByteSeconds"` // of the backend's answer; 0: there was none
	Attempts        uint32            `json:"attempts"`
	Received        uint64            `json:"receivedBytes"` // of the body
	Sent            uint64            `json:"sentBytes"`
	RequestID       string            `json:"requestID"`
	Headers         map[string]string `json:"headers"`
	ResponseHeaders map[string]string `json:"responseHeaders"`
}

// TapEvent is a record, or how the machines are with a tap.
type TapEvent struct {
	Record *TapRecord `json:"record,omitempty"`
	// Dropped is how many records that match were beyond a bound since the last event.
	Dropped uint64 `json:"dropped,omitempty"`
	// Machines that run a proxy, sorted, where something of them is new.
	Machines []TapMachine `json:"machines,omitempty"`
	// Note is why nothing may come, in the first event; empty: nothing is against it.
	Note string `json:"note,omitempty"`
}

// TapMachine is how a machine is with a tap.
type TapMachine struct {
	Machine string `json:"machine"`
	Percent uint32 `json:"percent"`          // of the requests are recorded
	Unable  string `json:"unable,omitempty"` // why none is
}

// String is the filter as text, for logs.
func (f TapFilter) String() string {
	var parts []string
	say := func(name, value string) {
		if value != "" {
			parts = append(parts, name+"="+strconv.Quote(value))
		}
	}
	say("kind", f.Kind)
	say("namespace", f.Namespace)
	say("name", f.Name)
	say("host", f.Host)
	say("path", f.Path)
	if f.StatusTo > 0 {
		parts = append(parts, fmt.Sprintf("status=%d-%d", f.StatusFrom, f.StatusTo))
	}
	say("header", f.Header)
	say("value", f.Value)
	if f.SlowerThan > 0 {
		parts = append(parts, "slower_than="+f.SlowerThan.String())
	}
	if len(parts) == 0 {
		return "all"
	}
	return strings.Join(parts, " ")
}

// tapHeaders and tapResponseHeaders are recorded of a request and of an answer. No header is among them that is a
// credential by itself: what the proxy does not record, nobody can leak.
var (
	tapHeaders = map[string]bool{
		"accept": true, "accept-encoding": true, "accept-language": true, "cache-control": true, "content-length": true, "content-type": true,
		"grpc-timeout": true, "if-modified-since": true, "if-none-match": true, "origin": true, "range": true, "referer": true, "te": true,
		"traceparent": true, "upgrade": true, "user-agent": true, "x-b3-traceid": true, "x-canary": true, "x-env": true, "x-forwarded-for": true,
		"x-forwarded-proto": true, "x-request-id": true, "x-tenant": true, "x-version": true,
	}
	tapResponseHeaders = map[string]bool{
		"age": true, "cache-control": true, "content-encoding": true, "content-length": true, "content-type": true, "etag": true,
		"grpc-message": true, "grpc-status": true, "location": true, "retry-after": true, "server": true, "vary": true, "x-request-id": true, "x-version": true,
	}
)

// TapHeaders are the headers that are recorded of requests, sorted.
func TapHeaders() []string { return slices.Sorted(maps.Keys(tapHeaders)) }

// TapResponseHeaders are the headers that are recorded of answers, sorted.
func TapResponseHeaders() []string { return slices.Sorted(maps.Keys(tapResponseHeaders)) }

// TapHeader says whether a header is recorded, in lower case.
func TapHeader(name string) bool { return tapHeaders[name] || tapResponseHeaders[name] }
