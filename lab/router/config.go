package router

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// ErrInvalid is wrapped by errors about a Config that cannot work.
var ErrInvalid = errors.New("invalid router configuration")

// Config says what a router does. ASN, ID and at least one of Neighbors and Ranges
// are required; everything else has a default.
type Config struct {
	// ASN is its autonomous system, ID its router id, an IPv4 address.
	ASN uint32
	ID  netip.Addr
	// Neighbors are peers that are known, Ranges networks whose machines may come
	// and peer.
	Neighbors []Neighbor
	Ranges    []Range
	// Announce are prefixes that it announces as its own to all peers. With a
	// client among its peers it reflects what it learns besides; else it passes
	// nothing on.
	Announce []netip.Prefix
	// NoKernel keeps what it learns out of the kernel: for reflectors and speakers.
	NoKernel bool
	// MaxPaths is how many next hops a route may have in the kernel; 0 means 16.
	MaxPaths int
}

// Neighbor is one peer, at an address or at the other end of a link.
type Neighbor struct {
	Address netip.Addr
	// Interface is the link on which the router advertises itself and meets the peer, by
	// link-local addresses that nobody is told. Address is left out.
	Interface string
	Peering
}

// Range is a network whose machines may peer. It never opens a connection.
type Range struct {
	Prefix netip.Prefix
	Peering
}

// Peering says how to speak with a peer. The zero value is an external peer of any
// autonomous system.
type Peering struct {
	// ASN of the peer; the router's own makes it an internal peer, and 0 stands for
	// any other.
	ASN uint32
	// Families are those whose routes are exchanged; empty means that of the peer's
	// address, or IPv6 on a link.
	Families []Family
	// Password signs the TCP connection (RFC 2385); empty means that it is not signed.
	Password string
	// Hold is the time after which a silent peer is gone (0 means 3 s), Keepalive how
	// often a peer says that it is there (0 means a third of Hold). Whole seconds.
	Hold, Keepalive time.Duration
	// BFD notices silent peers faster; nil means that it is off.
	BFD *BFD
	// Passive waits for the peer to connect.
	Passive bool
	// Helper keeps the routes of a peer that announced a graceful restart (RFC 4724)
	// while it restarts.
	Helper bool
	// Multihop is how many hops away the peer may be; 0 means that it is on a segment
	// of the router.
	Multihop int
	// Client makes the peer a client of this reflector (RFC 4456).
	Client bool
	// AddPath exchanges all routes of a prefix, rather than the best (RFC 7911).
	AddPath bool
}

// BFD are the timers of bidirectional forwarding detection (RFC 5880).
type BFD struct {
	// Interval between packets in both directions; 0 means 300 ms. Shorter ones flap
	// on a busy host.
	Interval time.Duration
	// Multiplier is how many may be missing; 0 means 3.
	Multiplier int
	// Graceful takes a failure for a restart of the peer, and keeps its routes as
	// Helper says: the peer's data plane may live. Only BIRD can.
	Graceful bool
}

// Family is an address family.
type Family string

// The families.
const (
	IPv4 Family = "ipv4"
	IPv6 Family = "ipv6"
)

const (
	defaultMaxPaths   = 16
	defaultHold       = 3 * time.Second
	defaultInterval   = 300 * time.Millisecond
	defaultMultiplier = 3
)

// Session is how a router sees one of its peers.
type Session struct {
	Neighbor netip.Addr `json:"neighbor"`
	ASN      uint32     `json:"asn"`
	// State is the state of the protocol's machine (RFC 4271), as the daemon says it.
	State string `json:"state"`
	Up    bool   `json:"up"`
	// Received is how many routes of the peer it uses or could use, of all families.
	Received int `json:"received"`
	// BFD is the state of the BFD session in lower case; empty means that there is none.
	BFD string `json:"bfd,omitempty"`
}

// peer is a neighbour or a range as the templates see it.
type peer struct {
	Peering
	Name      string // unique, a word for both daemons
	Address   string // of a neighbour
	Interface string // of a neighbour without an address
	Prefix    string // of a range
}

// settings are a completed Config as the templates see it.
type settings struct {
	Config
	Host     string
	Peers    []peer
	Reflects bool
}

// Internal reports whether the peer is of the router's own autonomous system.
func (s settings) Internal(p peer) bool { return p.ASN == s.ASN }

// HasBFD reports whether any peer has BFD.
func (s settings) HasBFD() bool {
	return slices.ContainsFunc(s.Peers, func(p peer) bool { return p.BFD != nil })
}

// Helps reports whether any peer gets help when it restarts.
func (s settings) Helps() bool {
	return slices.ContainsFunc(s.Peers, func(p peer) bool { return p.Helper })
}

// Own are the prefixes of a family that the router announces.
func (s settings) Own(f Family) []netip.Prefix {
	var own []netip.Prefix
	for _, p := range s.Announce {
		if familyOf(p.Addr()) == f {
			own = append(own, p)
		}
	}
	return own
}

// Has reports whether routes of the family are exchanged.
func (p peer) Has(f Family) bool { return slices.Contains(p.Families, f) }

// Target is what the peer is called in FRR's configuration.
func (p peer) Target() string {
	if p.Prefix != "" {
		return p.Name
	}
	return p.Address + p.Interface
}

func familyOf(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

// complete returns what the templates need, or why the configuration cannot work.
func (c Config) complete(host string) (settings, error) {
	s := settings{Config: c, Host: host}
	if c.ASN == 0 || !c.ID.Is4() {
		return s, fmt.Errorf("%w: AS %d and id %s: want a number and an IPv4 address", ErrInvalid, c.ASN, c.ID)
	}
	if s.MaxPaths == 0 {
		s.MaxPaths = defaultMaxPaths
	}
	if s.MaxPaths < 1 || s.MaxPaths > 64 {
		return s, fmt.Errorf("%w: %d paths, want 1 to 64", ErrInvalid, s.MaxPaths)
	}
	for i, n := range c.Neighbors {
		p := peer{Peering: n.Peering, Name: fmt.Sprintf("neighbor%d", i+1), Interface: n.Interface}
		if n.Interface == "" {
			p.Address = n.Address.String()
		}
		if n.Address.IsValid() == (n.Interface != "") || n.Address.Is4In6() {
			return s, fmt.Errorf("%w: neighbour %d has the address %s and the interface %q", ErrInvalid, i+1, n.Address, n.Interface)
		}
		s.Peers = append(s.Peers, p)
	}
	for i, r := range c.Ranges {
		if !r.Prefix.IsValid() {
			return s, fmt.Errorf("%w: range %d has the prefix %s", ErrInvalid, i+1, r.Prefix)
		}
		r.Passive = true
		s.Peers = append(s.Peers, peer{Peering: r.Peering, Name: fmt.Sprintf("range%d", i+1), Prefix: r.Prefix.Masked().String()})
	}
	if len(s.Peers) == 0 {
		return s, fmt.Errorf("%w: it has no neighbours", ErrInvalid)
	}
	for i := range s.Peers {
		p := &s.Peers[i]
		if err := p.complete(c.ASN, p.Interface != "" || strings.Contains(p.Address+p.Prefix, ":")); err != nil {
			return s, fmt.Errorf("%w: %s: %w", ErrInvalid, p.Address+p.Interface+p.Prefix, err)
		}
		s.Reflects = s.Reflects || p.Client
	}
	return s, nil
}

// complete fills the defaults of a peering in.
func (p *Peering) complete(own uint32, ipv6 bool) error {
	if len(p.Families) == 0 {
		p.Families = []Family{IPv4}
		if ipv6 {
			p.Families = []Family{IPv6}
		}
	}
	for _, f := range p.Families {
		if f != IPv4 && f != IPv6 {
			return fmt.Errorf("there is no family %q", f)
		}
	}
	if p.Hold == 0 {
		p.Hold = defaultHold
	}
	if p.Keepalive == 0 {
		p.Keepalive = max(p.Hold/3, time.Second).Truncate(time.Second)
	}
	if p.Hold%time.Second != 0 || p.Keepalive%time.Second != 0 || p.Hold < 3*time.Second || p.Keepalive < time.Second {
		return fmt.Errorf("hold time %s and keepalive %s: want whole seconds, at least 3 and 1", p.Hold, p.Keepalive)
	}
	if strings.ContainsAny(p.Password, "\"\\\n ") {
		return errors.New("the password has a quote, a backslash, a space or a line's end")
	}
	if p.BFD != nil {
		b := *p.BFD
		if b.Interval == 0 {
			b.Interval = defaultInterval
		}
		if b.Multiplier == 0 {
			b.Multiplier = defaultMultiplier
		}
		if b.Interval < 50*time.Millisecond || b.Interval%time.Millisecond != 0 || b.Multiplier < 2 || b.Multiplier > 255 {
			return fmt.Errorf("BFD every %s, %d times: want 50 ms or more, 2 to 255 times", b.Interval, b.Multiplier)
		}
		p.BFD = &b
	}
	if p.Client && p.ASN != own {
		return fmt.Errorf("a client of AS %d: a reflector's clients are of its own, %d", p.ASN, own)
	}
	return nil
}
