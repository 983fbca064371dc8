package status

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/condition"
	"fairlead.dev/internal/translate/field"
)

func (t *Tables) peerStatus(c *memo.Context, n snapshot.Name) (*Status, bool) {
	o, peer, sessions := t.in.BGPPeers.Get(c, n), t.from.Fleet.PeerSpecs.Get(c, n.Name), t.from.Fleet.Sessions.Get(c, n.Name)
	accepted := peer.Accepted
	if len(sessions.Conflicts) > 0 {
		path := "address"
		if peer.Peer.Interface != "" {
			path = "interface"
		}
		accepted.Fail(v1alpha1.ReasonConflict, "spec."+path+": "+field.ListTexts(sessions.Conflicts)+": one peer for each "+path)
	}
	switch {
	case !peer.Accepted.Failed:
	case peer.Invalid.Failed:
		accepted.Message += "; no machine has a session"
	case peer.Peer.NeedsPassword && peer.Peer.Password == "":
		accepted.Message += ": machines that know the password go on with it, others have no session"
	default:
		accepted.Message += "; machines keep the former settings (status.inForce)"
	}
	status := peerConditions(o.Generation, accepted, sessions.Doubles)
	if peer.Former || !peer.Accepted.Failed {
		status.BGPPeer.InForce = peer.Spec
	}
	return status, true
}

func peerConditions(generation int64, accepted condition.Result[string], doubles []string) *Status {
	reason, message := v1alpha1.ReasonAccepted, "the peer is accepted"
	if accepted.Failed {
		reason, message = accepted.Reason, accepted.Message
	}
	conditions := []metav1.Condition{condition.New(v1alpha1.ConditionAccepted, !accepted.Failed, reason, message, generation)}
	if len(doubles) > 0 {
		conditions = append(conditions, condition.New(v1alpha1.ConditionRouterIDConflict, true, v1alpha1.ReasonDuplicate,
			field.ListTexts(doubles)+": give each Machine a spec.routerID of its own", generation))
	}
	return &Status{Generation: generation, BGPPeer: &v1alpha1.BGPPeerStatus{Conditions: conditions}}
}
