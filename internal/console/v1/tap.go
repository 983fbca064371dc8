package v1

import "time"

// TapPath is where a plane shows requests as they are answered, as server-sent events, each a TapEvent. Its parameters may be
// left out: namespace, kind and name of the resource that owns the route, host, path (how it begins), status ("5xx",
// "404" or "400-499"), header ("name" or "name: value"), latency (at least, "250ms"), and limit (records, then it ends).
const TapPath = "/v1/tap"

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
	// Percent of the requests are recorded.
	Percent uint32 `json:"percent"`
	// Unable is why none is recorded; empty: they are.
	Unable string `json:"unable,omitempty"`
}

// TapRecord is one request that a proxy has answered. It has no body, and no credential.
type TapRecord struct {
	At      time.Time `json:"at"`
	Machine string    `json:"machine"`
	// Route is its name; empty: no route matched. Owner is the resource that owns it, and Rule the field of the owner that
	// the request follows, both as an Explanation has them.
	Route string `json:"route"`
	Owner string `json:"owner"`
	Rule  string `json:"rule"`
	// Group of backends, and its Service, as namespace/name.
	Group   string `json:"group"`
	Service string `json:"service"`
	// Backend and Client are host:port.
	Backend string `json:"backend"`
	Client  string `json:"client"`
	// Method is empty where it is none of RFC 9110 and RFC 5789, or nothing could be read of the request.
	Method string `json:"method"`
	Host   string `json:"host"`
	Path   string `json:"path"`
	// Status is 0 where there was no answer. Details are the proxy's reason for it.
	Status  uint32 `json:"status"`
	Details string `json:"details"`
	// Seconds that the request took, and those until the first byte of the backend's answer; 0: there was none.
	Seconds   float64 `json:"seconds"`
	FirstByte float64 `json:"firstByteSeconds"`
	// Attempts at backends.
	Attempts  uint32 `json:"attempts"`
	Received  uint64 `json:"receivedBytes"`
	Sent      uint64 `json:"sentBytes"`
	RequestID string `json:"requestID"`
	// Headers of the request, and of the answer, that are recorded.
	Headers         map[string]string `json:"headers"`
	ResponseHeaders map[string]string `json:"responseHeaders"`
}
