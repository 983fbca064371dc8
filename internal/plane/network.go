package plane

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"

	"google.golang.org/protobuf/proto"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/southbound"
	"fairlead.dev/internal/translate"
	"fairlead.dev/internal/wire"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// network has the VIPs and peers of machines, as last published.
type network struct {
	assignments map[netip.Addr]*model.Assignment
	vips        map[model.VIPKey]*model.VIP
	peers       map[model.PeerKey]*model.Peer
	stale       map[model.VIPKey]bool // not published as they are
}

func newNetwork() network {
	return network{
		assignments: map[netip.Addr]*model.Assignment{},
		vips:        map[model.VIPKey]*model.VIP{},
		peers:       map[model.PeerKey]*model.Peer{},
		stale:       map[model.VIPKey]bool{},
	}
}

// apply applies the changes of a translation, and adds them to the update: but for VIPs,
// which are stale afterwards. What cannot be encoded does not keep the rest from it.
func (n *network) apply(ch translate.Changes, update *southbound.Update) error {
	merge(n.assignments, ch.Assignments)
	merge(n.vips, ch.VIPs)
	merge(n.peers, ch.Peers)
	var errs []error
	for k := range ch.VIPs {
		n.stale[k] = true
	}
	for k, p := range ch.Peers {
		var peer, password proto.Message
		if p != nil {
			peer = wire.Peer(*p)
			if p.Password != "" {
				password = &agentv1.BgpPassword{Password: string(p.Password)}
			}
		}
		// The password first: a peer that needs one cannot be tried without.
		errs = append(errs, addTo(update, k.Machine, agentv1.BgpPasswordType, k.Peer, password), addTo(update, k.Machine, agentv1.BgpPeerType, k.Peer, peer))
	}
	return errors.Join(errs...)
}

// hasPeer says that a machine has a peer.
func (n *network) hasPeer(machine, peer string) bool {
	return n.peers[model.PeerKey{Machine: machine, Peer: peer}] != nil
}

// peersAt are the peers of a machine.
func (n *network) peersAt(machine string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for k := range n.peers {
			if k.Machine == machine && !yield(k.Peer) {
				return
			}
		}
	}
}

// vip is a VIP of a machine; nil where the machine does not have it.
func (n *network) vip(k model.VIPKey) *model.VIP { return n.vips[k] }

// vipsAt are the VIPs of a machine.
func (n *network) vipsAt(machine string) iter.Seq2[model.VIPKey, *model.VIP] {
	return func(yield func(model.VIPKey, *model.VIP) bool) {
		for k, v := range n.vips {
			if k.Machine == machine && !yield(k, v) {
				return
			}
		}
	}
}

// assignment is that of a VIP; nil: it has none.
func (n *network) assignment(vip netip.Addr) *model.Assignment { return n.assignments[vip] }

// assigned are the VIPs that are assigned, sorted.
func (n *network) assigned() iter.Seq2[netip.Addr, *model.Assignment] {
	return func(yield func(netip.Addr, *model.Assignment) bool) {
		for _, vip := range slices.SortedFunc(maps.Keys(n.assignments), netip.Addr.Compare) {
			if !yield(vip, n.assignments[vip]) {
				return
			}
		}
	}
}

// isStale says that some VIP is not published as it is.
func (n *network) isStale() bool { return len(n.stale) > 0 }

// receive returns the VIPs that are not published as they are, and these others, and takes them for published.
func (n *network) receive(others map[model.VIPKey]bool) map[model.VIPKey]bool {
	stale := maps.Clone(n.stale)
	maps.Copy(stale, others)
	clear(n.stale)
	return stale
}

// remove takes a VIP from a machine.
func (n *network) remove(k model.VIPKey) {
	delete(n.vips, k)
	n.stale[k] = true
}

// listeners are those of a machine's VIP; none where the machine does not have it.
func (n *network) listeners(k model.VIPKey) []model.ListenerID {
	if v := n.vips[k]; v != nil {
		return v.Listeners
	}
	return nil
}

// addTo adds a resource of a machine to an update; nil: the machine has it no longer.
func addTo(update *southbound.Update, machine, kind, name string, m proto.Message) error {
	change := delta.Change{Type: delta.Type(kind), Name: name}
	if m != nil {
		r, err := delta.NewResource(name, m)
		if err != nil {
			return fmt.Errorf("%s of machine %s: %w", name, machine, err)
		}
		change.Resource = &r
	}
	update.Machine[machine] = append(update.Machine[machine], change)
	return nil
}

// merge applies changes to a state; a nil value is gone.
func merge[K comparable, V any](state, changes map[K]*V) {
	for k, v := range changes {
		if v == nil {
			delete(state, k)
		} else {
			state[k] = v
		}
	}
}

// States of a VIP, for people.
const (
	vipAnnounced = "announced"
	vipWithheld  = "withheld"
	vipUnserved  = "unserved"
)

// releases says whether a pool's new status takes an address from somebody.
func releases(shown, next v1alpha1.AddressPoolStatus) bool {
	return slices.ContainsFunc(shown.Assignments, func(a v1alpha1.Assignment) bool { return !slices.Contains(next.Assignments, a) })
}

// blind says that some kind of owner cannot be followed at the moment: one that is missing
// may exist.
func (l *loop) blind() bool {
	trouble := l.plane.source.Trouble()
	for _, kind := range []snapshot.Kind{snapshot.KindGateway, snapshot.KindGatewayClass, snapshot.KindIngressRoute, snapshot.KindService, snapshot.KindNamespace} {
		if trouble[kind] != "" {
			return true
		}
	}
	return len(l.plane.source.Unreadable()) > 0
}
