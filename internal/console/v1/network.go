package v1

import (
	"net/netip"
	"time"
)

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

// VIPAt is a VIP at one machine.
type VIPAt struct {
	Machine string `json:"machine"`
	VIPObserved
	// HandsOver: the machine is to have the VIP no longer, or is cordoned, and goes on until
	// another one announces it.
	HandsOver bool `json:"handsOver,omitempty"`
}

// VIPObserved is a VIP as one machine sees it.
type VIPObserved struct {
	Address netip.Addr `json:"address"`
	State   VIPState   `json:"state"`
	Message string     `json:"message,omitempty"` // why it is withheld
	Since   time.Time  `json:"since,omitzero"`
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

// SessionStatus is a BGP session as its machine last reported it.
type SessionStatus struct {
	Machine string `json:"machine"`
	Session
}

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

// FrontendStatus is a frontend over all machines that have its VIP.
type FrontendStatus struct {
	FrontendKey
	Owner    Object     `json:"owner"`
	Listener ListenerID `json:"listener,omitempty"` // of proxies, which are its backends
	Machines []string   `json:"machines"`
	// State is balanced, pending, refused or idle (no backend takes new flows).
	State   string `json:"state"`
	Message string `json:"message,omitempty"`
	// Backends that there are, and those of them that take new flows.
	Backends  int `json:"backends"`
	Available int `json:"available"`
	// At says what each connected machine of its VIP does about it, sorted by machine.
	At []FrontendAt `json:"at"`
}

// FrontendAt is a frontend at one machine.
type FrontendAt struct {
	Machine   string        `json:"machine"`
	State     FrontendState `json:"state"`
	Mode      ForwardMode   `json:"mode,omitempty"`
	DataPlane DataPlaneKind `json:"dataPlane,omitempty"`
	Message   string        `json:"message,omitempty"`
	Available uint32        `json:"available"`
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
