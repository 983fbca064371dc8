package v1

import (
	"net/netip"
)

// Object names a resource of the API that said something: the owner of a route,
// the bearer of a status. An object without a name stands for all of its kind, in its
// namespace if it has one; SharingServices and SharingIngressRoutes stand for some.
type Object struct {
	Kind      string `json:"kind"`                // as in the manifest: "HTTPRoute"
	Namespace string `json:"namespace,omitempty"` // empty for cluster-scoped kinds
	Name      string `json:"name"`
}

// FrontendKey identifies a frontend: where clients send to.
type FrontendKey struct {
	VIP       netip.Addr `json:"vip"`
	Transport Transport  `json:"transport"`
	Port      uint16     `json:"port"`
}

// Transport is the protocol of a frontend.
type Transport string

// The transports.
const (
	TCP Transport = "TCP"
	UDP Transport = "UDP"
)

// Problem says what is wrong, with what, and why.
type Problem struct {
	Severity Severity `json:"severity"`
	Subject  string   `json:"subject"` // an Object's String, or "Machine edge-1"
	Reason   string   `json:"reason"`
	Message  string   `json:"message"`
}

// Severity orders problems.
type Severity string

// The severities, worst first.
const (
	SeverityError   Severity = "error"
	SeverityWarning Severity = "warning"
)
