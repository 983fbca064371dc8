package model

import (
	"net/netip"
	"time"
)

// VIP is an address at which clients reach listeners, as one machine sees it.
type VIP struct {
	Address netip.Addr `json:"address"`
	Pool    string     `json:"pool"`
	Mode    Announce   `json:"announce"`
	// Listeners that the machine's proxy must serve before the machine announces the
	// VIP. Without listeners and frontends nothing serves it yet, and no machine announces it.
	Listeners []ListenerID `json:"listeners"`
	// Frontends at the VIP, sorted: those of its listeners, and those that lead to backends
	// without a proxy.
	Frontends []FrontendKey `json:"frontends,omitempty"`
	// Path holds what the pool adds to an advertisement (Mode AnnounceBGP).
	Path PathOptions `json:"path,omitzero"`
	// Candidates are the machines that may own the VIP, most preferred first (Mode
	// AnnounceL2).
	Candidates []string `json:"candidates,omitempty"`
	// Interfaces on which an owner answers; empty is every one that has an address in
	// the VIP's network, or else the one of the default route (Mode AnnounceL2).
	Interfaces []string `json:"interfaces,omitempty"`
	// Awaited are machines, sorted, whose kernels are not ready for the flows that routers move to
	// the machine once it announces the VIP, which is new there; the machine may be one of them.
	Awaited []string `json:"awaited,omitempty"`
}

// Prefix is the host route of the VIP: /32 or /128.
func (v VIP) Prefix() netip.Prefix { return netip.PrefixFrom(v.Address, v.Address.BitLen()) }

// Assignment is a VIP with its owner, over all machines.
type Assignment struct {
	Address netip.Addr `json:"address"`
	Pool    string     `json:"pool"`
	// Owner has the VIP. The root IngressRoutes that share one are an Object of that kind
	// without namespace and name.
	Owner     Object       `json:"owner"`
	Mode      Announce     `json:"announce"`
	Listeners []ListenerID `json:"listeners"`
	// Machines that the pool selects, sorted.
	Machines []string `json:"machines"`
}

// Announce is how the network learns where a VIP is.
type Announce string

const (
	// AnnounceBGP has every machine of the pool that serves the VIP advertise it to its
	// peers; the router spreads flows over them (ECMP).
	AnnounceBGP Announce = "BGP"
	// AnnounceL2 has one machine of the pool answer ARP and neighbour discovery for it.
	AnnounceL2 Announce = "L2"
)

// PathOptions are the attributes of an advertisement that somebody asked for. Nil
// and empty leave an attribute out, or as the protocol has it.
type PathOptions struct {
	// Communities as "65000:100" (RFC 1997), "65000:1:2" (large, RFC 8092) or a well-known
	// name: "no-export", "no-advertise", "graceful-shutdown", "blackhole".
	Communities []string `json:"communities,omitempty"`
	// LocalPreference goes to internal peers only (RFC 4271, 5.1.5).
	LocalPreference *uint32 `json:"localPreference,omitempty"`
	MED             *uint32 `json:"med,omitempty"`
	// Prepend is how often the local AS is put in front once more; external peers only.
	Prepend uint8 `json:"prepend,omitempty"`
}

// Peer is a BGP speaker to which a machine keeps a session.
type Peer struct {
	Name    string     `json:"name"`
	Address netip.Addr `json:"address,omitzero"`
	// Interface is the link whose router is the peer, instead of Address: the machine finds its
	// link-local address.
	Interface string `json:"interface,omitempty"`
	Port      uint16 `json:"port"` // 179 when 0
	LocalASN  uint32 `json:"localASN"`
	PeerASN   uint32 `json:"peerASN"`
	// Source has the machine's address for the session: one address, or a network in which
	// it has one. Zero leaves the choice to the kernel.
	Source netip.Prefix `json:"source,omitzero"`
	// Device, a VRF or an interface, to which the session is bound; empty is none.
	Device string `json:"device,omitempty"`
	// Connection says who opens it.
	Connection Connection `json:"connection,omitempty"`
	// TTL of packets to an external peer that is not on the link; 0: it is on the link.
	TTL uint8 `json:"ttl,omitempty"`
	// TTLSecurity is from how many hops away packets are taken (RFC 5082); 0 is from anywhere.
	TTLSecurity uint8 `json:"ttlSecurity,omitempty"`
	// Role of the machine (RFC 9234); empty tells none. StrictRole wants the peer to tell its.
	Role       Role     `json:"role,omitempty"`
	StrictRole bool     `json:"strictRole,omitempty"`
	Password   Redacted `json:"password,omitempty"` // TCP MD5 (RFC 2385)
	// NeedsPassword is set when Password must be there: without it there is no session.
	NeedsPassword bool          `json:"needsPassword,omitempty"`
	HoldTime      time.Duration `json:"holdTimeNanoseconds"` // 0: sessions never time out (RFC 4271, 4.2)
	Keepalive     time.Duration `json:"keepaliveNanoseconds"`
	ConnectRetry  time.Duration `json:"connectRetryNanoseconds"`
	BFD           *BFD          `json:"bfd,omitempty"`
	// RestartTime is how long the peer keeps our routes when the session breaks without
	// a notification (RFC 4724); 0: not at all.
	RestartTime time.Duration `json:"restartTimeNanoseconds,omitempty"`
	// AddPath offers to send several paths of one prefix (RFC 7911).
	AddPath bool `json:"addPath,omitempty"`
	// IPv4 and IPv6 say which unicast families the session carries.
	IPv4 bool `json:"ipv4"`
	IPv6 bool `json:"ipv6"`
	// NextHop4 and NextHop6 replace the session's own address as next hop. A session over
	// one family that carries the other needs the other's, unless the machine has one
	// address of that family on the same interface.
	// Each is one address, or a network in which the machine has one.
	NextHop4 netip.Prefix `json:"nextHop4,omitzero"`
	NextHop6 netip.Prefix `json:"nextHop6,omitzero"`
	// MaxPrefixes that the peer may send; we use none of them, and count no more.
	MaxPrefixes uint32 `json:"maxPrefixes"`
	// EndAboveMax ends the session above MaxPrefixes.
	EndAboveMax bool `json:"endAboveMax,omitempty"`
	// Path is added to every advertisement to this peer; it goes before the pool's.
	Path PathOptions `json:"path,omitzero"`
}

// BFD is how a session's path is watched (RFC 5880, 5882).
type BFD struct {
	Interval   time.Duration `json:"intervalNanoseconds"` // of transmission and reception alike
	Multiplier uint8         `json:"multiplier"`
	// Mode is "single-hop" or "multi-hop"; empty leaves it to what else is known of the peer.
	Mode BFDMode `json:"mode,omitempty"`
}

// BFDMode says whether BFD packets may cross routers.
type BFDMode string

// The modes.
const (
	BFDSingleHop BFDMode = "single-hop" // RFC 5881
	BFDMultiHop  BFDMode = "multi-hop"  // RFC 5883
)

// Connection says who opens the connection of a session.
type Connection string

// The ways.
const (
	ConnectionActive  Connection = ""
	ConnectionPassive Connection = "passive"
	ConnectionBoth    Connection = "both"
)

// Role is what a speaker is to the other one (RFC 9234).
type Role string

// The roles.
const (
	RoleNone              Role = ""
	RoleProvider          Role = "provider"
	RoleRouteServer       Role = "route-server"
	RoleRouteServerClient Role = "route-server-client"
	RoleCustomer          Role = "customer"
	RolePeer              Role = "peer"
)

// Redacted is a secret. It prints and marshals as "[redacted]", and as "" when empty.
type Redacted string

// String hides the secret.
func (r Redacted) String() string {
	if r == "" {
		return ""
	}
	return "[redacted]"
}

// GoString hides the secret.
func (r Redacted) GoString() string { return `"` + r.String() + `"` }

// MarshalText hides the secret.
func (r Redacted) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// SessionState is a state of BGP's state machine (RFC 4271, 8.2.2), or SessionBlocked.
type SessionState string

// The states of a session.
const (
	SessionIdle        SessionState = "idle"
	SessionConnect     SessionState = "connect"
	SessionActive      SessionState = "active"
	SessionOpenSent    SessionState = "open-sent"
	SessionOpenConfirm SessionState = "open-confirm"
	SessionEstablished SessionState = "established"
	// SessionBlocked is a session that this machine cannot try; its message says why.
	SessionBlocked SessionState = "blocked"
)

// SessionReason says in a word why a session is not established, or what troubles one
// that is.
type SessionReason string

// The reasons. SessionOK is that of an established session without trouble.
const (
	SessionOK              SessionReason = ""
	SessionStarting        SessionReason = "Starting"         // not tried for long enough to tell
	SessionUnreachable     SessionReason = "Unreachable"      // no route, or the network says so
	SessionRefused         SessionReason = "Refused"          // the TCP connection is refused
	SessionReset           SessionReason = "Reset"            // the peer closed or reset the connection
	SessionWrongAS         SessionReason = "WrongAS"          // OPEN with another AS, or ours refused (2/2)
	SessionWrongPassword   SessionReason = "NoAnswer"         // nothing answers: often a wrong password
	SessionMissingPassword SessionReason = "PasswordMissing"  // the Secret is missing
	SessionNoFamily        SessionReason = "NoCommonFamily"   // established without a family that we need
	SessionNotified        SessionReason = "Notified"         // the peer sent a NOTIFICATION
	SessionProtocolError   SessionReason = "ProtocolError"    // we sent one: the peer said something wrong
	SessionHoldExpired     SessionReason = "HoldTimeExpired"  // nothing came within the hold time
	SessionBFDDown         SessionReason = "BFDDown"          // BFD lost the peer
	SessionTooManyPrefixes SessionReason = "TooManyPrefixes"  // above MaxPrefixes
	SessionFlapping        SessionReason = "Flapping"         // lost again and again; tried with a growing delay
	SessionNoLocalAddress  SessionReason = "NoLocalAddress"   // the machine lacks the address or family
	SessionFault           SessionReason = "Fault"            // a bug of this machine's speaker ended it
	SessionAwaited         SessionReason = "NotConnected"     // the peer is to connect, and has not
	SessionCannotListen    SessionReason = "CannotListen"     // the port for the peer's connections is not ours
	SessionNoRouter        SessionReason = "NoRouter"         // no router is heard on the peer's interface
	SessionManyRouters     SessionReason = "ManyRouters"      // several routers are heard on the peer's interface
	SessionWrongRole       SessionReason = "WrongRole"        // the roles of the two ends do not fit (RFC 9234)
	SessionUnwanted        SessionReason = "UnwantedPrefixes" // established; the peer sends prefixes, all ignored
)

// Session is one machine's session with one peer, as the machine sees it.
type Session struct {
	Peer string `json:"peer"`
	// Address is link-local with its zone; zero while the router of Interface is not found.
	Address   netip.Addr    `json:"address,omitzero"`
	Interface string        `json:"interface,omitempty"` // on which the router was, or is to be, found
	State     SessionState  `json:"state"`
	Reason    SessionReason `json:"reason,omitempty"`
	Message   string        `json:"message,omitempty"` // the reason in words: what, where, what to do
	Since     time.Time     `json:"since,omitzero"`    // of the state
	// Flaps counts how often an established session was lost since the agent began.
	Flaps uint32 `json:"flaps"`
	// Panics counts the bugs that ended this session or its BFD since the agent began.
	Panics uint32 `json:"panics,omitempty"`
	// BFD is "up", "down" or "init"; empty when it is not used.
	BFD string `json:"bfd,omitempty"`
	// Advertised are the prefixes that were sent to the peer, sorted.
	Advertised []netip.Prefix `json:"advertised,omitempty"`
	Received   uint32         `json:"received"` // prefixes that the peer sends; none is used
	LocalASN   uint32         `json:"localASN"`
	PeerASN    uint32         `json:"peerASN"`
	RouterID   netip.Addr     `json:"routerID,omitzero"`             // ours
	PeerID     netip.Addr     `json:"peerRouterID,omitzero"`         // theirs, once known
	HoldTime   time.Duration  `json:"holdTimeNanoseconds,omitempty"` // negotiated
}

// VIPState is what a machine does about a VIP.
type VIPState string

const (
	// VIPAnnounced is sent to at least one peer, or owned on the segment.
	VIPAnnounced VIPState = "announced"
	// VIPStandby is a candidate that does not own the VIP (Mode AnnounceL2).
	VIPStandby VIPState = "standby"
	// VIPWithheld is not announced; the reason says why.
	VIPWithheld VIPState = "withheld"
)

// VIPObserved is a VIP as one machine sees it.
type VIPObserved struct {
	Address netip.Addr `json:"address"`
	State   VIPState   `json:"state"`
	Message string     `json:"message,omitempty"` // why it is withheld
	Since   time.Time  `json:"since,omitzero"`
}

// Speaking is what a machine's BGP speaker should do.
type Speaking struct {
	Machine string
	// RouterID is zero where the speaker chooses.
	RouterID netip.Addr
	Peers    []Peer          // sorted by name
	Prefixes []Advertisement // sorted by prefix
}

// Advertisement is one prefix for every peer.
type Advertisement struct {
	Prefix netip.Prefix
	Path   PathOptions
}

// Candidacy is a VIP that a machine may own on a segment (AnnounceL2).
type Candidacy struct {
	VIP        netip.Addr
	Candidates []string // machines, most preferred first
	Interfaces []string // where an owner answers; empty leaves the choice to the driver
	// Ready says that this machine can serve the VIP. One that is not must not own it.
	Ready bool
}
