package model

import "cmp"

// StatusClass is the class of a response's status (RFC 9110, section 15): its first digit, or 0 if the client left before an
// answer.
type StatusClass uint8

// StatusClasses is the number of classes.
const StatusClasses = 6

// String is such as "2xx", or "none".
func (c StatusClass) String() string {
	if c == 0 {
		return "none"
	}
	return string('0'+rune(c)) + "xx"
}

// RequestFigures is what one proxy has counted of the requests of one route of one host, to one group, since it began.
type RequestFigures struct {
	Listener ListenerID
	Host     string  // of the virtual host; empty: none has the host that clients asked for
	Route    string  // its name; empty: no route matched
	Group    GroupID // that the request was sent to; empty: to none
	Classes  [StatusClasses]uint64
}

// Key is the same of all counters of one route of one host to one group.
func (f RequestFigures) Key() RequestFigures {
	f.Classes = [StatusClasses]uint64{}
	return f
}

// Compare orders by listener, host, route and group.
func (f RequestFigures) Compare(g RequestFigures) int {
	return cmp.Or(cmp.Compare(f.Listener, g.Listener), cmp.Compare(f.Host, g.Host), cmp.Compare(f.Route, g.Route), cmp.Compare(f.Group, g.Group))
}

// Top is what proxies have answered within some seconds.
type Top struct {
	// Sample is the number of the later time. Whoever names it is answered after the next.
	Sample uint64 `json:"sample,omitempty"`
	// Seconds between the two times at which proxies were asked.
	Seconds float64 `json:"seconds"`
	// Machines whose proxies answered both times, sorted.
	Machines []string `json:"machines"`
	// Total is the number of rows, of which Rows may be the first, and Rate the requests a second of all.
	Total int      `json:"total"`
	Rate  float64  `json:"rate"`
	Rows  []TopRow `json:"rows"`
}

// TopRow is what proxies have answered of one route, host, namespace, listener or upstream, or what flows a frontend or backend has.
type TopRow struct {
	Name string `json:"name"`
	// Rate is requests a second, and Rates by the class of the status: none (the client left before an answer), 1xx to 5xx. Of
	// frontends and their backends, Rate is new flows a second; of backends of measured groups, requests a second: Rates[5] failed, and
	// Rates[2] did not.
	Rate  float64                `json:"rate"`
	Rates [StatusClasses]float64 `json:"rates"`
	// Requests since the proxies began, or new flows since the data planes did.
	Requests uint64 `json:"requests"`
	// P50 and P99 are times that half and 99 % of Timed requests did not exceed, in seconds. Timed is 0 where none is known.
	P50   float64 `json:"p50Seconds,omitempty"`
	P99   float64 `json:"p99Seconds,omitempty"`
	Timed uint64  `json:"timed,omitempty"`
	// Received and Sent are bytes a second from and to clients. Routes and hosts have none; frontends and backends have Received.
	Received float64 `json:"receivedBytes,omitempty"`
	Sent     float64 `json:"sentBytes,omitempty"`
	// InFlight are requests that a backend of a measured group has not ended, and FirstByte is the mean time until the first byte of
	// its answers, in seconds; 0: it has answered none.
	InFlight  uint64  `json:"inFlight,omitempty"`
	FirstByte float64 `json:"firstByteSeconds,omitempty"`
}

// RouteRow is one route of a virtual host as the edges have it, for people.
type RouteRow struct {
	Listener ListenerID `json:"listener"`
	Host     string     `json:"host"`
	Match    string     `json:"match"` // "prefix /api", "exact / method GET"
	Name     string     `json:"name"`
	Owner    Object     `json:"owner"`
	// State of the owner: programmed, pending, invalid or orphaned.
	State string `json:"state"`
	// Action is empty for a route that forwards: "redirect 301 to https", "respond 404".
	Action   string         `json:"action,omitempty"`
	Backends []RouteBackend `json:"backends"`
}

// RouteBackend is a share of a route's requests.
type RouteBackend struct {
	// Group is empty for the share of a broken reference, which is answered 500.
	Group GroupID `json:"group"`
	// Percent of the route's requests, by weight.
	Percent float64 `json:"percent"`
	// Ready backends of all, by the API, and those of them that neither checks nor proxies hold for failed; HealthKnown says that
	// the plane was asked for that.
	Ready       int    `json:"ready"`
	Total       int    `json:"total"`
	Healthy     int    `json:"healthy"`
	HealthKnown bool   `json:"healthKnown"`
	Requests    uint64 `json:"requests"` // that the route sent to the group, at all proxies that answer
	Errors      uint64 `json:"errors"`
}
