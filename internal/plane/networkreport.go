package plane

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"fairlead.dev/internal/model"
)

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
	for address, a := range l.network.assigned() {
		s := model.VIPStatus{Assignment: *a, Frontends: frontends[address], At: []model.VIPAt{}}
		announced := 0
		var why []string
		hasty := l.newcomers.hasty(address)
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
			o.HandsOver = l.handover.isCordoned(o.Machine)
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

// sessionStatuses are the BGP sessions for people, sorted by machine and peer. A machine
// that is not connected has none.
func (l *loop) sessionStatuses() []model.SessionStatus {
	sessions := []model.SessionStatus{}
	for _, name := range l.sortedMachines() {
		if state, known := l.plane.server.Machine(name); seen(state, known) {
			for _, s := range state.Sessions {
				if l.network.hasPeer(name, s.Peer) {
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
