package plane

import (
	"cmp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
)

// established is the condition of a peer: true while every connected machine that is
// selected has a session. known is false when it cannot be told yet.
func (l *loop) established(peer string, generation int64) (c metav1.Condition, known bool) {
	c = metav1.Condition{Type: v1alpha1.ConditionEstablished, Status: metav1.ConditionFalse, ObservedGeneration: generation}
	var up, down, unheard []string
	reason := ""
	for _, name := range l.sortedMachines() {
		if !l.network.hasPeer(name, peer) {
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
