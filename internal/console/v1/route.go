package v1

// Route is one route of a virtual host as the edges have it, for people.
type Route struct {
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
	// Ready backends of all, by the API, and healthy ones by the proxies that have the
	// fewest; HealthKnown says that a proxy was asked.
	Ready       int    `json:"ready"`
	Total       int    `json:"total"`
	Healthy     int    `json:"healthy"`
	HealthKnown bool   `json:"healthKnown"`
	Requests    uint64 `json:"requests"` // that the route sent to the group, at all proxies that answer
	Errors      uint64 `json:"errors"`
}

// GroupID identifies a backend group: "namespace/service/port", with a suffix
// when the route asks for options of its own.
type GroupID string
