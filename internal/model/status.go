package model

import (
	"net/netip"
	"time"
)

// Status is what a plane knows at one moment, for people: `fairlead status`, the
// console and the support bundle show it, in the form of console/v1. Slices are sorted by name.
type Status struct {
	Plane     PlaneStatus      `json:"plane"`
	Machines  []MachineStatus  `json:"machines"`
	Listeners []ListenerStatus `json:"listeners"`
	Routes    []RouteStatus    `json:"routes"`
	// OfOthers counts the IngressRoutes whose class is another controller's. Routes does not have them.
	OfOthers  int              `json:"ofOthers,omitempty"`
	VIPs      []VIPStatus      `json:"vips"`
	Frontends []FrontendStatus `json:"frontends,omitempty"`
	// Sessions are sorted by machine and peer.
	Sessions     []SessionStatus     `json:"sessions"`
	Certificates []CertificateStatus `json:"certificates,omitempty"`
	// Upstreams counts them; zero where none is followed.
	Upstreams UpstreamSummary `json:"upstreams,omitzero"`
	// Problems is everything that is not as it should be, worst first.
	Problems []Problem `json:"problems"`
}

// UpstreamSummary counts upstreams, and those of which nothing is missing.
type UpstreamSummary struct {
	Total   int `json:"total"`
	Current int `json:"current"`
}

// PlaneStatus is the plane's own part of a Status.
type PlaneStatus struct {
	Version  string `json:"version"`
	Identity string `json:"identity"`
	Leading  bool   `json:"leading"`
	// Starting: the plane holds the Lease and does not serve agents yet. Leader is then its own address.
	Starting bool `json:"startingToLead,omitempty"`
	// Ending: the plane ends and serves no agents any more. If it led, Leader is its own address until the Lease is free.
	Ending bool   `json:"ending,omitempty"`
	Leader string `json:"leader,omitempty"` // host:port of the leader's agent endpoint
	// LeaderConsole is host:port of the leader's console, as far as known: at its machine
	// when that is a loopback address.
	LeaderConsole string    `json:"leaderConsole,omitempty"`
	Epoch         uint64    `json:"epoch"`
	Revision      uint64    `json:"revision"`
	Started       time.Time `json:"started"`
	// Freeze is set while routing is frozen.
	Freeze *FreezeStatus `json:"freeze,omitempty"`
}

// FreezeStatus says which state of routing holds.
type FreezeStatus struct {
	Since  time.Time `json:"since"`
	AsOf   time.Time `json:"asOf"`
	Reason string    `json:"reason,omitempty"`
	// Held is how many listeners, hosts and server names are not as their resources want.
	Held int `json:"held"`
	// Unknown: this plane began after AsOf. It sends machines nothing, not even endpoints.
	Unknown bool `json:"unknown,omitempty"`
}

// Revision is one step of routing that a plane can turn back.
type Revision struct {
	Number uint64    `json:"revision"`
	Epoch  uint64    `json:"epoch"`
	At     time.Time `json:"at"`
	// Changes of listeners, hosts and server names, and the first of their Owners.
	Changes int      `json:"changes"`
	Owners  []Object `json:"owners"`
	// Held is set when a Freeze holds it back.
	Held bool `json:"held,omitempty"`
	// Kept is set once it would outlive the plane.
	Kept bool `json:"kept,omitempty"`
	// First is the oldest state that is known: LetGo revisions before it are no more, and
	// Lacks says why none of a plane before this one are.
	First bool   `json:"first,omitempty"`
	LetGo int    `json:"letGo,omitempty"`
	Lacks string `json:"lacks,omitempty"`
}

// MachineStatus is one machine as its agent last reported it.
type MachineStatus struct {
	Name         string      `json:"name"`
	Connected    bool        `json:"connected"`
	LastReport   time.Time   `json:"lastReport,omitzero"`
	Cordoned     bool        `json:"cordoned"`
	Addresses    []string    `json:"addresses"`
	AgentVersion string      `json:"agentVersion"`
	Proxy        ProxyStatus `json:"proxy"`
	Applied      uint64      `json:"applied"`   // revision that the proxy runs
	Delivered    uint64      `json:"delivered"` // revision that the agent holds
	Wanted       uint64      `json:"wanted"`    // last revision that concerned the machine
	// Announces are the VIPs that it announces by its last report, sorted.
	Announces []netip.Addr `json:"announces,omitempty"`
	// JustCame: its stream is so new that routers may keep routes of the agent before, though this
	// one says that it withholds them (RFC 4724).
	JustCame bool          `json:"justCame,omitempty"`
	Refused  []RefusedItem `json:"refused,omitempty"`
}

// ProxyStatus is the machine's Envoy.
type ProxyStatus struct {
	State    string `json:"state"` // starting, ready, draining, backoff, stopped, off (the machine only has backends), none (an edge that is to run none), unknown
	Version  string `json:"version,omitempty"`
	Starts   uint32 `json:"starts"`
	Message  string `json:"message,omitempty"`
	RSSBytes uint64 `json:"rssBytes"`
	Requests uint64 `json:"requests"`
}

// RefusedItem is a resource that a proxy does not run as wanted.
type RefusedItem struct {
	Kind    string `json:"kind"` // refused or waiting
	Type    string `json:"type"`
	Name    string `json:"name"`
	Message string `json:"message"`
}

// ListenerStatus is one listener over all machines.
type ListenerStatus struct {
	ID       ListenerID `json:"id"`
	Port     uint16     `json:"port"`
	Protocol Protocol   `json:"protocol"`
	Hosts    int        `json:"hosts"`
	Machines []string   `json:"machines"`
}

// RouteStatus is one route resource.
type RouteStatus struct {
	Kind      string   `json:"kind"`
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	Hosts     []string `json:"hosts"`
	// State is programmed, pending, invalid or orphaned.
	State   string `json:"state"`
	Message string `json:"message,omitempty"`
}

// VIPStatus is a VIP over all machines.
type VIPStatus struct {
	Assignment
	// Frontends at it, sorted.
	Frontends []FrontendKey `json:"frontends,omitempty"`
	// State is announced, withheld or unserved (nothing of ours serves the owner yet).
	State   string `json:"state"`
	Message string `json:"message,omitempty"` // why it is not announced, or not everywhere
	// At says what each connected machine of the pool does about it, sorted by machine.
	At []VIPAt `json:"at"`
}

// VIPAt is a VIP at one machine.
type VIPAt struct {
	Machine string `json:"machine"`
	VIPObserved
	// HandsOver: the machine is to have the VIP no longer, or is cordoned, and goes on until
	// another one announces it.
	HandsOver bool `json:"handsOver,omitempty"`
}

// SessionStatus is a BGP session as its machine last reported it.
type SessionStatus struct {
	Machine string `json:"machine"`
	Session
}

// CertificateStatus is a certificate that machines show, and for whom.
type CertificateStatus struct {
	ID        CertificateID `json:"id"`
	Names     []string      `json:"names"`
	NotBefore time.Time     `json:"notBefore"`
	NotAfter  time.Time     `json:"notAfter"`
	// StapledUntil is when the OCSP response that is shown with it ends; zero without one.
	StapledUntil time.Time `json:"stapledUntil,omitzero"`
	// Owners and Hosts show it, sorted; empty when it is shown to backends.
	Owners []string `json:"owners,omitempty"`
	Hosts  []string `json:"hosts,omitempty"`
}

// Severity orders problems.
type Severity string

// The severities, worst first.
const (
	SeverityError   Severity = "error"
	SeverityWarning Severity = "warning"
)

// Problem says what is wrong, with what, and why.
type Problem struct {
	Severity Severity `json:"severity"`
	Subject  string   `json:"subject"` // an Object's String, or "Machine edge-1"
	Reason   string   `json:"reason"`
	Message  string   `json:"message"`
}
