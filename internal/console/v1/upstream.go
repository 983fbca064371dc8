package v1

import "time"

// Upstream is one upstream as the plane knows it now, for people.
type Upstream struct {
	Name string `json:"name"`
	Type string `json:"type"` // Kubernetes or OpenStack; empty: the Upstream is deleted
	// Deleted: there is no Upstream of the name, but Services of it are left. Used are those to which something routes,
	// sorted; nil while that is not known.
	Deleted bool     `json:"deleted,omitempty"`
	Used    []string `json:"used,omitempty"`
	// Conditions are Accepted, Reachable, Current and Stored.
	Conditions []UpstreamCondition `json:"conditions"`
	// Seen is what the upstream has, Replicated what of it is in effect here, and Held what of that the upstream does not
	// list any more.
	Seen       UpstreamCounts `json:"seen"`
	Replicated UpstreamCounts `json:"replicated"`
	Held       UpstreamCounts `json:"held"`
	// Refused counts what is left out; Refusals are the first 1,000.
	Refused  int               `json:"refused"`
	Refusals []UpstreamRefusal `json:"refusals"`
	// LastContact is when the upstream answered last, and LastSweep when its last complete list was read.
	LastContact time.Time `json:"lastContact,omitzero"`
	LastSweep   time.Time `json:"lastSweep,omitzero"`
	// Lag is how old the last contact is.
	Lag time.Duration `json:"lagNanoseconds"`
	// Requests to the upstream's API since this plane began to lead.
	Requests UpstreamRequests `json:"requests"`
	// WritesQueued are objects that are in effect and not stored yet, or stored and to be deleted.
	WritesQueued int `json:"writesQueued"`
	// Changes are the last ones, newest first. Only the answer about one upstream has them.
	Changes []Passage `json:"changes,omitempty"`
}

// UpstreamCondition is a condition of an Upstream.
type UpstreamCondition struct {
	Type    string    `json:"type"`
	Status  string    `json:"status"` // True, False or Unknown
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Since   time.Time `json:"since,omitzero"`
}

// UpstreamCounts are numbers of services and endpoints.
type UpstreamCounts struct {
	Services  int `json:"services"`
	Endpoints int `json:"endpoints"`
}

// UpstreamRequests count the requests to an upstream's API.
type UpstreamRequests struct {
	// Answers by class: "2xx", "4xx", and "none" without an answer. Classes without answers are left out.
	Answers map[string]uint64 `json:"answers,omitempty"`
	// AnswerTime is the sum of the times until answers began.
	AnswerTime time.Duration `json:"answerNanoseconds"`
	Bytes      uint64        `json:"bytes"` // of all answers
	// Throttled counts requests that waited because the API had asked for fewer.
	Throttled uint64 `json:"throttled"`
}

// Passage is the way of one change of a service through the plane.
type Passage struct {
	Upstream string `json:"upstream"`
	Service  string `json:"service"` // "scope/name" in the upstream
	// Seen is when the source saw the change.
	Seen time.Time `json:"seen"`
	// Decided is when it came into effect in the plane; zero: it waits, or is held.
	Decided time.Time `json:"decided,omitzero"`
	// Published is when machines were sent it, with this revision. Unused: nothing that machines are sent follows from it.
	Published time.Time `json:"published,omitzero"`
	Revision  uint64    `json:"revision,omitempty"`
	Unused    bool      `json:"unused,omitempty"`
	// InForce is when every connected machine that it concerns carried it out.
	InForce time.Time `json:"inForce,omitzero"`
}

// UpstreamRefusal says what was left out, and why.
type UpstreamRefusal struct {
	Object  string `json:"object"` // of the upstream
	Reason  string `json:"reason"`
	Message string `json:"message"`
}
