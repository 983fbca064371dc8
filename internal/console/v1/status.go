package v1

import (
	"net/netip"
	"time"
)

// Status is what a plane knows at one moment, for people: `fairlead status`, the
// console and the support bundle show it. Slices are sorted by name.
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

// ListenerID identifies a listener over all machines: "http-80" is the one that is
// shared by all who want the port at the machines' own addresses, "http-80_team_web" the
// one of Gateway team/web at addresses of its own.
type ListenerID string

// Protocol is what a listener speaks with clients.
type Protocol string

const (
	// ProtocolHTTP is HTTP/1.1 and HTTP/2 in clear text.
	ProtocolHTTP Protocol = "HTTP"
	// ProtocolHTTPS is HTTP over TLS; a server name may also be handed on as it is.
	ProtocolHTTPS Protocol = "HTTPS"
)

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

// CertificateID identifies a certificate with its key: "namespace/name" of the Secret.
type CertificateID string
