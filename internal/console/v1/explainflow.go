package v1

import (
	"net/netip"
)

// FlowExplanation is what becomes of a flow's packets, and why.
type FlowExplanation struct {
	Request  ExplainedFlow    `json:"request"`
	VIP      *VIPStatus       `json:"vip,omitempty"`
	Frontend *Frontend        `json:"frontend,omitempty"`
	At       []FlowFrontendAt `json:"at,omitempty"`
	// Discovered are the services of upstreams whose endpoints are backends of the frontend.
	Discovered []Discovered `json:"discovered,omitempty"`
	// Hash of the flow, and the row that it chooses of so many.
	Hash string `json:"hash,omitempty"` // hexadecimal
	Row  int    `json:"row"`
	Rows int    `json:"rows,omitempty"`
	// Asked are the backends of the row, in the order in which they are asked. The first
	// takes the flow if it is new; the others, which tunnels only lead on to, may have begun
	// it before a change.
	Asked []FlowBackend `json:"asked,omitempty"`
	// Flows that machines have in their tables already.
	Flows []FlowSeenAt `json:"flows,omitempty"`
	// Backend takes the flow if it is new; nil when nobody does.
	Backend *FlowBackend `json:"backend,omitempty"`
	// Reason by which load balancers count what they drop of it, if it is new; else empty.
	Reason string   `json:"reason,omitempty"`
	Answer string   `json:"answer"`
	Notes  []string `json:"notes,omitempty"`
}

// ExplainedFlow is a flow to explain: where a client sends to, and from where.
type ExplainedFlow struct {
	Frontend FrontendKey    `json:"frontend"`
	Client   netip.AddrPort `json:"client"`
	// Machine at which its packets arrive; empty leaves it open.
	Machine string `json:"machine,omitempty"`
}

// FlowFrontendAt is what one machine does about a frontend.
type FlowFrontendAt struct {
	Machine string `json:"machine"`
	FrontendObserved
}

// FlowBackend is a backend with its share.
type FlowBackend struct {
	FrontendBackend
	// Percent of the rows of which it is the first.
	Percent float64 `json:"percent"`
	Why     string  `json:"why"`
}

// FlowSeenAt is a flow in the table of one machine.
type FlowSeenAt struct {
	At string `json:"at"`
	Flow
}
