package plane

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/southbound"
	"fairlead.dev/internal/translate"
	"fairlead.dev/internal/wire"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// network is what the machines should do in the network, as last published.
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

// apply takes in what a translation changed, and adds it to what is published: but for VIPs,
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

// tellVIPs adds to an update what machines are told anew of VIPs.
func (l *loop) tellVIPs(update *southbound.Update) error {
	maps.Copy(l.network.stale, l.coming.changed)
	clear(l.coming.changed)
	var errs []error
	for k := range l.network.stale {
		delete(l.network.stale, k)
		var m proto.Message
		if v := l.network.vips[k]; v != nil {
			told := *v
			told.Awaited = l.coming.awaited(k.Machine, v)
			m = wire.VIP(told, func(id model.ListenerID) string { return string(id) })
		}
		errs = append(errs, addTo(update, k.Machine, agentv1.VipType, wire.VIPName(k.Address), m))
	}
	return errors.Join(errs...)
}

// addTo adds to an update what a machine is told anew; nil: it has something no longer.
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

// merge brings what stands up to date; a nil value is gone.
func merge[K comparable, V any](stands, changed map[K]*V) {
	for k, v := range changed {
		if v == nil {
			delete(stands, k)
		} else {
			stands[k] = v
		}
	}
}

// seen says that a machine reports to this plane now.
func seen(s southbound.MachineState, known bool) bool {
	return known && !s.LastReport.IsZero() && !s.Lost
}

// vipStatuses are the VIPs for people, sorted by address.
func (l *loop) vipStatuses() []model.VIPStatus {
	at := map[netip.Addr][]model.VIPAt{}
	for _, name := range l.sortedMachines() {
		if state, known := l.plane.server.Machine(name); seen(state, known) {
			for _, v := range state.VIPs {
				at[v.Address] = append(at[v.Address], model.VIPAt{Machine: name, VIPObserved: v})
			}
		}
	}
	frontends := l.frontends.byVIP()
	statuses := []model.VIPStatus{}
	for _, address := range slices.SortedFunc(maps.Keys(l.network.assignments), netip.Addr.Compare) {
		s := model.VIPStatus{Assignment: *l.network.assignments[address], Frontends: frontends[address], At: []model.VIPAt{}}
		announced := 0
		var why []string
		hasty := l.coming.hasty(address)
		for _, o := range at[address] {
			if _, is := slices.BinarySearch(s.Machines, o.Machine); !is {
				if l.handover.keeps(model.VIPKey{Machine: o.Machine, Address: address}) {
					o.HandsOver = true
					if o.State == model.VIPAnnounced {
						announced++
						o.Message = "until a machine that is to have the VIP announces it"
					} else {
						why = append(why, o.Machine+": "+cmp.Or(o.Message, "withheld"))
					}
					s.At = append(s.At, o)
				}
				continue // of a pool that the machine is about to leave
			}
			if o.State == model.VIPAnnounced && hasty[o.Machine] != "" {
				o.Message = strings.TrimPrefix(o.Message+"; "+hasty[o.Machine], "; ")
			}
			o.HandsOver = l.handover.cordons[o.Machine] != nil
			if o.HandsOver && o.State == model.VIPAnnounced {
				o.Message = strings.TrimPrefix(o.Message+"; it is cordoned, and goes on until another machine announces the VIPs that it alone announces", "; ")
			}
			s.At = append(s.At, o)
			switch o.State {
			case model.VIPAnnounced:
				announced++
				if o.Message != "" && !o.HandsOver {
					why = append(why, o.Machine+": "+o.Message)
				}
			case model.VIPWithheld:
				why = append(why, o.Machine+": "+cmp.Or(o.Message, "withheld"))
			}
		}
		s.State, s.Message = vipAnnounced, model.List(why, "; ")
		switch {
		case len(s.Listeners)+len(s.Frontends) == 0:
			s.State, s.Message = vipUnserved, "its owner has no port that can be served"
		case announced == 0:
			s.State = vipWithheld
			switch {
			case len(s.Machines) == 0:
				s.Message = "its pool selects no Machine of role Edge"
			case len(s.At) == 0:
				s.Message = "no machine that the pool selects is connected"
			}
		}
		statuses = append(statuses, s)
	}
	return statuses
}

// States of a VIP, for people.
const (
	vipAnnounced = "announced"
	vipWithheld  = "withheld"
	vipUnserved  = "unserved"
)

// sessionStatuses are the BGP sessions for people, sorted by machine and peer. A machine
// that is not connected has none.
func (l *loop) sessionStatuses() []model.SessionStatus {
	sessions := []model.SessionStatus{}
	for _, name := range l.sortedMachines() {
		if state, known := l.plane.server.Machine(name); seen(state, known) {
			for _, s := range state.Sessions {
				if l.network.peers[model.PeerKey{Machine: name, Peer: s.Peer}] != nil {
					sessions = append(sessions, model.SessionStatus{Machine: name, Session: s})
				}
			}
		}
	}
	return sessions
}

// networkProblems is what is wrong with VIPs and sessions.
func networkProblems(vips []model.VIPStatus, sessions []model.SessionStatus) []model.Problem {
	var problems []model.Problem
	for _, v := range vips {
		p := model.Problem{Severity: model.SeverityWarning, Subject: "VIP " + v.Address.String(), Message: v.Message}
		switch {
		case v.State == vipWithheld:
			p.Severity, p.Reason = model.SeverityError, "NotAnnounced"
			p.Message = "no machine announces it: " + v.Message
		case v.State == vipAnnounced && v.Message != "":
			p.Reason = "NotEverywhere"
		default:
			continue
		}
		problems = append(problems, p)
	}
	for _, s := range sessions {
		if s.Reason == model.SessionOK || s.Reason == model.SessionStarting {
			continue
		}
		p := model.Problem{
			Severity: model.SeverityError, Subject: "BGPPeer " + s.Peer + " at " + s.Machine, Reason: string(s.Reason), Message: s.Message,
		}
		if s.State == model.SessionEstablished {
			p.Severity = model.SeverityWarning
		}
		problems = append(problems, p)
	}
	return problems
}

// established is the condition of a peer: true while every connected machine that is
// selected has a session. known is false when it cannot be told yet.
func (l *loop) established(peer string, generation int64) (c metav1.Condition, known bool) {
	c = metav1.Condition{Type: v1alpha1.ConditionEstablished, Status: metav1.ConditionFalse, ObservedGeneration: generation}
	var up, down, unheard []string
	reason := ""
	for _, name := range l.sortedMachines() {
		if l.network.peers[model.PeerKey{Machine: name, Peer: peer}] == nil {
			continue
		}
		state, there := l.plane.server.Machine(name)
		if l.unheard(state) {
			unheard = append(unheard, name)
			continue
		}
		if !seen(state, there) {
			continue
		}
		i := slices.IndexFunc(state.Sessions, func(s model.Session) bool { return s.Peer == peer })
		switch {
		case i < 0:
			down = append(down, name+": it has not begun")
			reason = cmp.Or(reason, string(model.SessionStarting))
		case state.Sessions[i].State == model.SessionEstablished:
			up = append(up, name)
		default:
			s := state.Sessions[i]
			down = append(down, name+": "+cmp.Or(s.Message, string(s.State)))
			if s.Reason != model.SessionOK && s.Reason != model.SessionStarting {
				reason = conditionReason(string(s.Reason))
			}
		}
	}
	switch {
	case len(down) > 0:
		c.Reason, c.Message = cmp.Or(reason, string(model.SessionStarting)), model.List(down, "; ")
	case len(unheard) > 0:
		return c, false
	case len(up) == 0:
		c.Reason, c.Message = v1alpha1.ReasonNoMachines, "no connected machine is selected"
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonEstablished, "sessions with "+model.List(up, ", ")
	}
	c.Message = strings.ToValidUTF8(c.Message[:min(len(c.Message), 4096)], "")
	return c, true
}

// conditionReason is what a machine reported in a form that the API takes for a
// condition's reason: one machine's slip must not keep the status from being written.
func conditionReason(text string) string {
	for i, r := range text {
		letter := r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return "Unknown"
		}
	}
	return cmp.Or(text, "Unknown")
}

// offerPeers has the peers of a machine judged again.
func (l *loop) offerPeers(machine string) {
	for k := range l.network.peers {
		if k.Machine == machine {
			l.due[model.Object{Kind: string(snapshot.KindBGPPeer), Name: k.Peer}] = true
		}
	}
}

// countNetwork brings the metrics of VIPs and sessions up to date.
func (l *loop) countNetwork() {
	vips := map[string]float64{vipAnnounced: 0, vipWithheld: 0, vipUnserved: 0}
	for _, v := range l.vipStatuses() {
		vips[v.State]++
	}
	for state, n := range vips {
		l.plane.metrics.vips.WithLabelValues(state).Set(n)
	}
	sessions := map[string]float64{"established": 0, "down": 0}
	for _, s := range l.sessionStatuses() {
		if s.State == model.SessionEstablished {
			sessions["established"]++
		} else {
			sessions["down"]++
		}
	}
	for state, n := range sessions {
		l.plane.metrics.sessions.WithLabelValues(state).Set(n)
	}
}

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
