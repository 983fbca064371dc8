package status

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/translate/condition"
	"fairlead.dev/internal/translate/field"
	"fairlead.dev/internal/translate/fleet"
)

func peerStatus(o *v1alpha1.BGPPeer, f *fleet.Peer, s *fleet.Sessions) *Status {
	accepted := f.Accepted
	if len(s.Conflicts) > 0 {
		path := "address"
		if f.Peer.Interface != "" {
			path = "interface"
		}
		accepted.Fail(v1alpha1.ReasonConflict, "spec."+path+": "+field.ListTexts(s.Conflicts)+": one peer for each "+path)
	}
	switch {
	case !f.Accepted.Failed:
	case f.Invalid.Failed:
		accepted.Message += "; no machine has a session"
	case f.Peer.NeedsPassword && f.Peer.Password == "":
		accepted.Message += ": machines that know the password go on with it, others have no session"
	default:
		accepted.Message += "; machines keep the former settings (status.inForce)"
	}
	status := peerConditions(o.Generation, accepted, s.Doubles)
	if f.Former || !f.Accepted.Failed {
		status.BGPPeer.InForce = f.Spec
	}
	return status
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
