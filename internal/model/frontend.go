package model

import (
	"cmp"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Transport is the protocol of a frontend.
type Transport string

// The transports.
const (
	TCP Transport = "TCP"
	UDP Transport = "UDP"
)

// FrontendKey identifies a frontend: where clients send to.
type FrontendKey struct {
	VIP       netip.Addr `json:"vip"`
	Transport Transport  `json:"transport"`
	Port      uint16     `json:"port"`
}

// String is "tcp://192.0.2.1:80" or "udp://[2001:db8::1]:53".
func (k FrontendKey) String() string {
	return strings.ToLower(string(k.Transport)) + "://" + netip.AddrPortFrom(k.VIP, k.Port).String()
}

// ParseFrontend reads what FrontendKey.String writes.
func ParseFrontend(text string) (FrontendKey, error) {
	transport, at, found := strings.Cut(text, "://")
	k := FrontendKey{Transport: Transport(strings.ToUpper(transport))}
	if !found || k.Transport != TCP && k.Transport != UDP {
		return FrontendKey{}, fmt.Errorf("frontend %s: want tcp://VIP:PORT or udp://VIP:PORT", strconv.Quote(text))
	}
	ap, err := netip.ParseAddrPort(at)
	if err != nil {
		problem := err.Error()
		if host, port, found := strings.Cut(at, ":"); !found {
			problem = "the port is missing"
		} else if _, err := netip.ParseAddr(at); err == nil || strings.Contains(port, ":") && !strings.HasPrefix(at, "[") {
			problem = "an IPv6 address stands in brackets, as in [2001:db8::1]:53"
		} else if strings.ContainsAny(host, "ghijklmnopqrstuvwxyzGHIJKLMNOPQRSTUVWXYZ-_") {
			problem = strconv.Quote(host) + " is no address, and names are not looked up"
		}
		return FrontendKey{}, fmt.Errorf("frontend %s: want tcp://VIP:PORT or udp://VIP:PORT: %s", strconv.Quote(text), problem)
	}
	k.VIP, k.Port = ap.Addr().Unmap(), ap.Port()
	return k, nil
}

// Compare orders keys by VIP, port and transport.
func (k FrontendKey) Compare(l FrontendKey) int {
	return cmp.Or(k.VIP.Compare(l.VIP), cmp.Compare(k.Port, l.Port), cmp.Compare(k.Transport, l.Transport))
}

// Frontend is a VIP, a port and a protocol, with how its flows reach backends. Zero
// values are the defaults.
type Frontend struct {
	FrontendKey
	// Owner is the Service, the Gateway, or the resource that has the VIP.
	Owner Object `json:"owner"`
	// Listener is set for a listener of the proxies: the backends are the proxies of the
	// machines that have the VIP, and Targets is empty.
	Listener ListenerID `json:"listener,omitempty"`
	// Targets are the sets that share the flows, sorted by set.
	Targets []Target `json:"targets,omitempty"`
	// Machines that have the VIP, sorted.
	Machines []string `json:"machines"`

	Mode      ForwardMode   `json:"mode,omitempty"`
	DataPlane DataPlaneKind `json:"dataPlane,omitempty"`
	Hash      FlowHash      `json:"hash,omitempty"`
	// Affinity keeps a client address at its backend until it has been silent for so long;
	// 0 is none.
	Affinity time.Duration `json:"affinityNanoseconds,omitempty"`
	// Sources that may be clients, sorted; empty is everybody.
	Sources []netip.Prefix `json:"sources,omitempty"`
	// NewFlows that a machine accepts in a second; more are dropped. 0 is no limit.
	NewFlows uint32 `json:"newFlows,omitempty"`
	// Drain is how long a backend that is to accept no new flow keeps its flows.
	Drain time.Duration `json:"drainNanoseconds,omitempty"`
	// LocalOnly takes new flows to backends of the machine that they reach only, which
	// announces the VIP while it has one (externalTrafficPolicy: Local).
	LocalOnly bool `json:"localOnly,omitempty"`
	// Panic is the share of healthy backends, percent, below which all count as healthy; 0
	// is never.
	Panic uint8        `json:"panicPercent,omitempty"`
	Check *HealthCheck `json:"check,omitempty"`
	QUIC  *QUICServer  `json:"quic,omitempty"`
	// Weights of single backends among their set, by address; 100 where nothing is said.
	Weights map[netip.Addr]uint32 `json:"weights,omitempty"`
	// Drained backends accept no new flow, by address.
	Drained []netip.Addr `json:"drained,omitempty"`
	// Scheduler of IPVS: wlc, wrr or mh; empty is mh. Other data planes hash always.
	Scheduler string `json:"scheduler,omitempty"`
	// MaxFlows to one backend (IPVS: uthreshold); 0 is no limit.
	MaxFlows uint32 `json:"maxFlows,omitempty"`
}

// Named says whether a text names the frontend: as "tcp://192.0.2.1:80", by its VIP, with the port or without, or by its owner as
// "NAMESPACE/NAME" or "KIND NAMESPACE/NAME". An empty one names all.
func (f *Frontend) Named(text string) bool {
	if key, err := ParseFrontend(text); err == nil {
		return key == f.FrontendKey
	}
	if a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]")); err == nil {
		return a.Unmap() == f.VIP
	}
	if at, err := netip.ParseAddrPort(text); err == nil {
		return at.Addr().Unmap() == f.VIP && at.Port() == f.Port
	}
	return text == "" || text == f.Owner.String() || text == f.Owner.Namespace+"/"+f.Owner.Name
}

// Target is a share of a frontend's flows.
type Target struct {
	Set    SetID  `json:"set"`
	Weight uint32 `json:"weight"`
}

// ForwardMode is how a packet gets from the load balancer to the backend.
type ForwardMode string

// The modes. The zero value is chosen by the machine: DSRGeneve where every backend is on
// a machine with an agent and the way back is open, else NAT.
const (
	ModeAuto  ForwardMode = ""
	ModeLocal ForwardMode = "Local" // to sockets of the machine itself
	ModeNAT   ForwardMode = "NAT"   // addresses of both ends are rewritten, both ways
	// ModeDSRGeneve goes through a tunnel (RFC 8926) to the agent at the backend's machine,
	// which answers the client directly.
	ModeDSRGeneve ForwardMode = "DSRGeneve"
	// ModeDSRIPIP goes through a tunnel (RFC 2003, RFC 2473) to any host that has the VIP
	// and undoes it.
	ModeDSRIPIP ForwardMode = "DSRIPIP"
	// ModeDSRL2 changes the destination's link address only: the backend has the VIP and is
	// on the same segment.
	ModeDSRL2 ForwardMode = "DSRL2"
)

// DataPlaneKind is what carries a frontend out in the kernel.
type DataPlaneKind string

// The data planes. The zero value is the first of these that the machine can.
const (
	DataPlaneAuto     DataPlaneKind = ""
	DataPlaneXDP      DataPlaneKind = "XDP"
	DataPlaneNFTables DataPlaneKind = "NFTables"
	DataPlaneIPVS     DataPlaneKind = "IPVS"
)

// FlowHash is what of a packet chooses its row in the lookup table.
type FlowHash string

// The hashes. The zero value is the 5-tuple.
const (
	HashFiveTuple  FlowHash = ""
	HashThreeTuple FlowHash = "ThreeTuple" // client address, VIP, protocol: all ports of a client
	HashSource     FlowHash = "Source"     // client address only
)

// QUICServer says where in a connection ID (RFC 9000, 5.1) the server wrote who it is, so
// that a client that changes its address stays (draft-ietf-quic-load-balancers, plaintext).
type QUICServer struct {
	Offset uint8 `json:"offset"` // of the server ID in the connection ID, bytes
	Length uint8 `json:"length"` // of the server ID, 1 to 8 bytes
}

// FrontendBackend is a backend of one frontend as every load balancer is told, the same
// to all.
type FrontendBackend struct {
	// Address where it answers. Of a proxy it is the VIP.
	Address netip.AddrPort `json:"address"`
	// Machine of ours that it is on; empty when it is on none.
	Machine string `json:"machine,omitempty"`
	// Weight is its share of new flows, relative to the others'; 0 is none.
	Weight uint32 `json:"weight"`
	// HopWeight is the largest weight within the last drain time, at least Weight. It says
	// for which rows the backend may own flows.
	HopWeight uint32 `json:"hopWeight"`
	// State is draining while it only finishes what it has, and unready when nothing may be
	// sent to it.
	State  BackendState `json:"state"`
	Health Health       `json:"health,omitempty"`
	// Backup says that it is to have flows only while no other backend of its set is able to.
	Backup bool `json:"backup,omitempty"`
	// Standby is the weight that a backup without flows has as soon as it is needed; 0 of all
	// other backends. Weight is 0 until then.
	Standby uint32 `json:"standby,omitempty"`
}

// Proxy says that the backend is a machine's proxy for that frontend.
func (b FrontendBackend) Proxy(k FrontendKey) bool { return b.Address.Addr() == k.VIP }

// AllFail says that backends accept new flows, and that every one of those fails its check.
func AllFail(backends []FrontendBackend) bool {
	accepting := 0
	for _, b := range backends {
		if b.Weight == 0 {
			continue
		}
		if accepting++; b.Health != Unhealthy {
			return false
		}
	}
	return accepting > 0
}

// Compare orders by address and machine.
func (b FrontendBackend) Compare(c FrontendBackend) int {
	return cmp.Or(b.Address.Compare(c.Address), cmp.Compare(b.Machine, c.Machine))
}

// Health is what the checkers of a backend say.
type Health string

// The states of health. The zero value: nobody checks.
const (
	HealthUnchecked Health = ""
	HealthUnknown   Health = "unknown" // checked, no verdict yet
	Healthy         Health = "healthy"
	Unhealthy       Health = "unhealthy"
)

// Node is a machine as others reach it.
type Node struct {
	Name string `json:"name"`
	// Tunnel4 and Tunnel6 are its tunnel endpoints; the zero address where it has none.
	Tunnel4 netip.Addr `json:"tunnel4,omitzero"`
	Tunnel6 netip.Addr `json:"tunnel6,omitzero"`
	// Decaps says that its agent takes packets out of tunnels now.
	Decaps bool `json:"decaps,omitempty"`
}

// Balanced is a frontend with its backends.
type Balanced struct {
	Frontend *Frontend `json:"frontend"`
	// Backends are sorted and unique.
	Backends []FrontendBackend `json:"backends"`
}

// Balancing is all that a machine's data planes should do. Values are immutable, so that
// equal pointers mean no change.
type Balancing struct {
	Machine string
	// Frontends by key. Those whose VIP is here (Frontend.Machines) are to be balanced; of
	// the others the machine has backends, for which it takes packets out of tunnels.
	Frontends map[FrontendKey]*Balanced
	Nodes     map[string]*Node
	// Unready are the keys whose proxy or local backend does not serve at this machine now.
	Unready map[FrontendKey]bool
	// Guarded are VIPs at which nothing but frontends is to be reached, with what something
	// else than this data plane serves there, sorted: the proxy alone, or another data plane.
	// TCP and UDP to other ports is to be dropped while the data plane balances a frontend of
	// the VIP, but for what sockets have begun themselves. Values are never changed.
	Guarded map[netip.Addr][]FrontendKey
}

// FrontendObserved is what a machine does about a frontend.
type FrontendObserved struct {
	FrontendKey
	// State is balanced, decap (the machine only has backends of it), pending (the data plane
	// has not taken it yet) or refused.
	State     FrontendState `json:"state"`
	Mode      ForwardMode   `json:"mode,omitempty"`
	DataPlane DataPlaneKind `json:"dataPlane,omitempty"`
	// Message says why it is pending or refused, or why mode and data plane are not as asked.
	Message string `json:"message,omitempty"`
	// Available backends: those that new flows may go to.
	Available uint32 `json:"available"`
	// Parting are connections that the machine's proxy still has though the machine has the
	// VIP no longer.
	Parting uint32 `json:"parting,omitempty"`
}

// FrontendState is what a machine does about a frontend.
type FrontendState string

// The states.
const (
	FrontendBalanced FrontendState = "balanced"
	FrontendDecap    FrontendState = "decap"
	FrontendPending  FrontendState = "pending"
	FrontendRefused  FrontendState = "refused"
)

// Carried says that a data plane does what it is to do about the frontend.
func (s FrontendState) Carried() bool { return s == FrontendBalanced || s == FrontendDecap }

// FrontendFigures count a frontend at one machine since its data plane was made.
type FrontendFigures struct {
	FrontendKey
	Packets  uint64           `json:"packets"`
	Bytes    uint64           `json:"bytes"`
	NewFlows uint64           `json:"newFlows"`
	Backends []BackendFigures `json:"backends"`
}

// BackendFigures count one backend of a frontend at one machine.
type BackendFigures struct {
	Address  netip.AddrPort `json:"address"`
	Machine  string         `json:"machine,omitempty"`
	Packets  uint64         `json:"packets"`
	Bytes    uint64         `json:"bytes"`
	NewFlows uint64         `json:"newFlows"`
	Flows    uint64         `json:"flows"` // in the flow table now
	Rows     uint32         `json:"rows"`  // of the lookup table that it is first in
	// Tunnelled are those of Flows that go through a tunnel: the backend's machine has them in
	// Owned, too.
	Tunnelled uint64 `json:"tunnelled,omitempty"`
	// Owned are the flows that came out of tunnels and began at the backend, of one on this
	// machine. Owns says that they are known.
	Owned uint64 `json:"owned,omitempty"`
	Owns  bool   `json:"owns,omitempty"`
}

// Flow is an entry of a flow table.
type Flow struct {
	Frontend FrontendKey    `json:"frontend"`
	Client   netip.AddrPort `json:"client"`
	Backend  netip.AddrPort `json:"backend"`
	Machine  string         `json:"machine,omitempty"` // of the backend
	// State is new, established, closing or owned (at the backend's machine).
	State string        `json:"state"`
	Idle  time.Duration `json:"idleNanoseconds"`
}

// FlowQuery selects flows. Zero fields select all.
type FlowQuery struct {
	Frontend FrontendKey
	Client   netip.Prefix
	Backend  netip.Addr
	Limit    int // 0 is 1,000
}
