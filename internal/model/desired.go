package model

import (
	"cmp"
	"net/netip"
)

// ViewID names a view: listeners that machines serve for one reason.
type ViewID string

// SharedView has the listeners at the machines' own addresses.
const SharedView ViewID = "shared"

// PoolView has the listeners that the VIPs of a pool lead to.
func PoolView(pool string) ViewID { return ViewID("pool:" + pool) }

// View lists its listeners, in order. What else the machines of a view see follows
// from it: the virtual hosts of those listeners, the groups that these name, and the
// sets of those groups.
type View struct {
	ID        ViewID       `json:"id"`
	Listeners []ListenerID `json:"listeners"`
}

// Machine is what one machine must know about itself.
type Machine struct {
	Name string `json:"name"`
	// HostsOnly says that it has backends only, and takes in nothing.
	HostsOnly bool `json:"hostsOnly,omitempty"`
	// Views are what it may see, sorted.
	Views    []ViewID `json:"views,omitempty"`
	Cordoned bool     `json:"cordoned"`
	// DrainSeconds is how long connections may finish.
	DrainSeconds uint32 `json:"drainSeconds"`
	// RouterID of its BGP speaker; zero lets the machine choose.
	RouterID netip.Addr `json:"routerID,omitzero"`
	// Contested are addresses that it claims and does not have, since others do, too, sorted.
	Contested []AddressContest `json:"contested,omitempty"`
}

// AddressContest is an address that several machines claim.
type AddressContest struct {
	Address netip.Addr `json:"address"`
	With    []string   `json:"with"` // the others, sorted
	// Holder has it, by its spec; empty: nobody does.
	Holder string `json:"holder,omitempty"`
}

// VIPKey identifies a VIP at a machine.
type VIPKey struct {
	Machine string     `json:"machine"`
	Address netip.Addr `json:"address"`
}

// Compare orders keys by machine and address.
func (k VIPKey) Compare(l VIPKey) int {
	return cmp.Or(cmp.Compare(k.Machine, l.Machine), k.Address.Compare(l.Address))
}

// PeerKey identifies a peer at a machine.
type PeerKey struct {
	Machine string `json:"machine"`
	Peer    string `json:"peer"`
}

// Compare orders keys by machine and peer.
func (k PeerKey) Compare(l PeerKey) int {
	return cmp.Or(cmp.Compare(k.Machine, l.Machine), cmp.Compare(k.Peer, l.Peer))
}
