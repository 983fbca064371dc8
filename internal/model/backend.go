package model

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// GroupID identifies a backend group: "namespace/service/port", with a suffix
// when the route asks for options of its own.
type GroupID string

// Namespace is that of the group's Service.
func (id GroupID) Namespace() string { return namespaceOf(string(id)) }

// Service is the group's Service; ok is false for an ID of another form.
func (id GroupID) Service() (namespace, name string, ok bool) {
	parts := strings.SplitN(string(id), "/", 3)
	if len(parts) != 3 {
		return "", "", false
	}
	return parts[0], parts[1], true
}

// Ejection is a backend that a machine's proxy holds for failed: its outlier detection saw
// requests of a group fail there.
type Ejection struct {
	Group   GroupID
	Backend netip.AddrPort
}

// Compare orders by group, then by backend.
func (e Ejection) Compare(o Ejection) int {
	return cmp.Or(cmp.Compare(e.Group, o.Group), e.Backend.Compare(o.Backend))
}

// SetID identifies a backend set: "namespace/service/port".
type SetID string

// Namespace is that of the set's Service.
func (id SetID) Namespace() string { return namespaceOf(string(id)) }

func namespaceOf(id string) string {
	namespace, _, _ := strings.Cut(id, "/")
	return namespace
}

// BackendGroup is how routes reach the backends of one Service port: the set of
// backends with balancing and health check. Two routes that want different
// options of one Service get two groups over one set.
type BackendGroup struct {
	ID      GroupID `json:"id"`
	Set     SetID   `json:"set"`
	Balance Balance `json:"balance,omitempty"`
	// Cookie of BalanceCookie; empty is the proxy's.
	Cookie      string       `json:"cookie,omitempty"`
	HealthCheck *HealthCheck `json:"healthCheck,omitempty"`
	// Protocol that backends speak; the zero value is HTTP/1.1.
	Protocol BackendProtocol `json:"protocol,omitempty"`
	TLS      *BackendTLS     `json:"tls,omitempty"`
	// SendProxyProtocol begins connections with a PROXY header (v2) that says the client, as
	// its connection does: what X-Forwarded-For of trusted hops says is not in it.
	SendProxyProtocol bool              `json:"sendProxyProtocol,omitempty"`
	Outlier           *OutlierDetection `json:"outlier,omitempty"`
	Limits            *BackendLimits    `json:"limits,omitempty"`
	// IdleTimeout closes connections without requests; 0 is the proxy's default (50 s).
	IdleTimeout time.Duration `json:"idleTimeoutNanoseconds,omitempty"`
	// Upstream that the Service comes from; empty: none. It is for people, and no option.
	Upstream string `json:"upstream,omitempty"`
	// Measured says that proxies tell what they count of each backend. It is no option either.
	Measured bool `json:"measured,omitempty"`
}

// BackendProtocol is what backends of a group speak.
type BackendProtocol string

// The protocols of backends.
const (
	BackendHTTP1 BackendProtocol = ""
	// BackendHTTP2 is HTTP/2 from the first byte (h2c), or by ALPN where the group has TLS.
	BackendHTTP2 BackendProtocol = "HTTP2"
	// BackendAuto is HTTP/2 or HTTP/1.1 as the backend chooses by ALPN; only with TLS.
	BackendAuto BackendProtocol = "Auto"
	// BackendTCP is sent bytes.
	BackendTCP BackendProtocol = "TCP"
)

// Balance is how a proxy picks a backend of a group.
type Balance string

// The ways to balance. The zero value is round robin.
const (
	BalanceRoundRobin   Balance = ""
	BalanceLeastRequest Balance = "LeastRequest"
	BalanceRandom       Balance = "Random"
	// BalanceCookie keeps a client at one backend by a cookie and a ring hash.
	BalanceCookie Balance = "Cookie"
)

// HealthCheck asks each backend whether it works. Zero values are the defaults.
type HealthCheck struct {
	Kind     CheckKind     `json:"kind,omitempty"`
	Port     uint16        `json:"port,omitempty"` // 0 is the backend's own
	Path     string        `json:"path"`
	Host     string        `json:"host"` // Host header
	Interval time.Duration `json:"intervalNanoseconds"`
	Timeout  time.Duration `json:"timeoutNanoseconds,omitempty"`
	// Jitter is the share of the interval, percent, that is drawn at random; 0 is 10.
	Jitter    uint8  `json:"jitterPercent,omitempty"`
	Unhealthy uint32 `json:"unhealthy"` // failures in a row until a backend is out (fall)
	Healthy   uint32 `json:"healthy"`   // successes in a row until it is back (rise)
	// Codes of HTTP that are healthy, as ranges from and to; empty is 200.
	Codes   [][2]uint16 `json:"codes,omitempty"`
	Service string      `json:"service,omitempty"` // of gRPC's health protocol
	// Send is what a UDP check sends, Expect what the answer must begin with.
	Send   []byte `json:"send,omitempty"`
	Expect []byte `json:"expect,omitempty"`
	// ServerName that a TLS handshake asks for; empty is Host.
	ServerName string `json:"serverName,omitempty"`
	// SendProxyProtocol begins connections with a PROXY header (v2) of nobody in particular.
	SendProxyProtocol bool `json:"sendProxyProtocol,omitempty"`
	// Presumed says that nobody asked for the check, so that it must not do harm. A machine says
	// nothing of a backend before it has seen it answer well: something on its way may keep it
	// out, but not clients. And where all backends of a frontend are out, all are in.
	Presumed bool `json:"presumed,omitempty"`
}

// CheckKind is how a backend is asked.
type CheckKind string

// The kinds. The zero value is HTTP/1.1.
const (
	CheckHTTP  CheckKind = ""
	CheckHTTP2 CheckKind = "HTTP2" // from the first byte, without TLS
	CheckHTTPS CheckKind = "HTTPS" // HTTP/2 or HTTP/1.1; the certificate is not verified
	CheckTCP   CheckKind = "TCP"   // a connection
	CheckTLS   CheckKind = "TLS"   // a handshake; the certificate is not verified
	CheckGRPC  CheckKind = "GRPC"  // grpc.health.v1
	CheckGRPCS CheckKind = "GRPCS" // the same over TLS; the certificate is not verified
	CheckUDP   CheckKind = "UDP"   // a payload, and an answer
	CheckNone  CheckKind = "None"  // not at all; only where a policy says so, never of a frontend
)

// BackendSet is where the backends of one Service port are. Backends are sorted
// by address and unique.
type BackendSet struct {
	ID       SetID     `json:"id"`
	Backends []Backend `json:"backends"`
	// Refusal says how many endpoints are refused, which is the first, and why; empty where none is.
	Refusal string `json:"refusal,omitempty"`
}

// Accepting says which backends accept new requests: those that are ready or, where none is,
// those that drain. A Service whose last backend ends serves on until it has ended (KEP-1669).
// none is true when nothing does.
func (s BackendSet) Accepting() (state BackendState, none bool) {
	state, none = BackendUnready, true
	for _, b := range s.Backends {
		if b.State < state {
			state, none = b.State, false
		}
	}
	return state, none
}

// Backend is one server that accepts requests.
type Backend struct {
	Address netip.AddrPort `json:"address"`
	State   BackendState   `json:"state"`
	// Backup says that it accepts requests only while no other backend of the set is able to.
	Backup bool `json:"backup,omitempty"`
	// Weight among the backends of the set; 0 counts as 1, and 1 is written as 0.
	Weight uint32 `json:"weight,omitempty"`
	Zone   string `json:"zone,omitempty"` // failure domain; empty when unknown
	// Machine of ours that it is on; empty when it is on none.
	Machine string `json:"machine,omitempty"`
}

// Share is its weight: 1 where nothing is said.
func (b Backend) Share() uint32 { return max(b.Weight, 1) }

// BackendState says whether a backend accepts new work.
type BackendState uint8

const (
	// BackendReady accepts new requests.
	BackendReady BackendState = iota
	// BackendDraining finishes what it has (EndpointSlice: serving and terminating).
	BackendDraining
	// BackendUnready accepts nothing.
	BackendUnready
)

// String is ready, draining or unready.
func (s BackendState) String() string {
	switch s {
	case BackendReady:
		return "ready"
	case BackendDraining:
		return "draining"
	default:
		return "unready"
	}
}

// MarshalText writes the state as String does.
func (s BackendState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (s *BackendState) UnmarshalText(text []byte) error {
	for _, state := range []BackendState{BackendReady, BackendDraining, BackendUnready} {
		if state.String() == string(text) {
			*s = state
			return nil
		}
	}
	return fmt.Errorf("backend state %q: want ready, draining or unready", text)
}
