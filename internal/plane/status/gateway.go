package status

import (
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/progress"
	"fairlead.dev/internal/translate"
)

// ConditionProgrammed has one name at Gateways, ListenerSets and their listeners.
const ConditionProgrammed = string(gatewayv1.GatewayConditionProgrammed)

// applyGateway shows the status of a Gateway and its listeners, and how far they are programmed.
func applyGateway(s *translate.Status, v progress.Result) Applier {
	return func(live client.Object, now metav1.Time) client.Object {
		o, ok := live.(*gatewayv1.Gateway)
		if !ok {
			return nil
		}
		status := mergeGateway(o.Status, programGateway(o, s, v), now)
		if equality.Semantic.DeepEqual(status, o.Status) {
			return nil
		}
		n := *o
		n.Status = status
		return n.DeepCopy()
	}
}

// applyListenerSet shows the status of a ListenerSet and its listeners, and how far they are programmed.
func applyListenerSet(s *translate.Status, v progress.Result) Applier {
	return func(live client.Object, now metav1.Time) client.Object {
		o, ok := live.(*gatewayv1.ListenerSet)
		if !ok {
			return nil
		}
		status := mergeListenerSet(o.Status, programListenerSet(o, s, v), now)
		if equality.Semantic.DeepEqual(status, o.Status) {
			return nil
		}
		n := *o
		n.Status = status
		return n.DeepCopy()
	}
}

// unprogrammed is the Programmed condition of what cannot be programmed.
func unprogrammed(generation int64, reason, message string) metav1.Condition {
	return metav1.Condition{Type: ConditionProgrammed, ObservedGeneration: generation, Status: metav1.ConditionFalse, Reason: reason, Message: message}
}

// gatewayProgrammed words a result as Gateway API does.
func gatewayProgrammed(v progress.Result, generation int64, live []metav1.Condition) metav1.Condition {
	c, ok := programmedCondition(ConditionProgrammed, v, generation, live)
	switch {
	case !ok:
		return unprogrammed(generation, string(gatewayv1.GatewayReasonInvalid), "none of its listeners can be served")
	case v.State == progress.Refused:
		c.Reason = string(gatewayv1.GatewayReasonInvalid)
		c.Message = refusedText(v)
	case v.State == progress.Pending && !v.Machines && v.Reason == "":
		c.Reason = string(gatewayv1.GatewayReasonNoResources)
	}
	return c
}

// programGateway adds the Programmed conditions.
func programGateway(o *gatewayv1.Gateway, s *translate.Status, v progress.Result) gatewayv1.GatewayStatus {
	out, live := *s.Gateway, o.Status
	own := gatewayProgrammed(v, s.Generation, live.Conditions)
	switch {
	case !accepted(out.Conditions):
		own = unprogrammed(s.Generation, string(gatewayv1.GatewayReasonInvalid), "it is not accepted")
	case v.State == progress.Programmed && len(out.Addresses) == 0:
		own = unprogrammed(s.Generation, string(gatewayv1.GatewayReasonAddressNotAssigned), "no edge that serves this at its own addresses has reported one: those that a pool has chosen for something else do not count")
	}
	out.Conditions = withProgrammed(out.Conditions, own)
	out.Listeners = make([]gatewayv1.ListenerStatus, len(s.Gateway.Listeners))
	for i, l := range s.Gateway.Listeners {
		var old []metav1.Condition
		for _, o := range live.Listeners {
			if o.Name == l.Name {
				old = o.Conditions
			}
		}
		l.Conditions = withProgrammed(l.Conditions, listenerProgrammed(s, v, l.Name, l.Conditions, old, accepted(s.Gateway.Conditions)))
		out.Listeners[i] = l
	}
	return out
}

// listenerProgrammed is the condition of one listener; ours says that its Gateway or
// ListenerSet is accepted.
func listenerProgrammed(s *translate.Status, v progress.Result, name gatewayv1.SectionName, want, live []metav1.Condition, ours bool) metav1.Condition {
	if !ours || !accepted(want) {
		return unprogrammed(s.Generation, string(gatewayv1.ListenerReasonInvalid), "it is not accepted")
	}
	if why, is := s.Unserved[name]; is {
		return unprogrammed(s.Generation, string(gatewayv1.ListenerReasonInvalid), why)
	}
	if own, known := v.Ports[s.Sections[name]]; known {
		v = own
	}
	if own, known := v.Sections[string(name)]; known {
		v = own
	}
	c := gatewayProgrammed(v, s.Generation, live)
	if c.Status != metav1.ConditionTrue && v.State != progress.Unknown && c.Reason == string(gatewayv1.GatewayReasonNoResources) {
		c.Reason = string(gatewayv1.ListenerReasonPending)
	}
	return c
}

// programListenerSet adds the Programmed conditions. What is not accepted has the reason of
// that here, too.
func programListenerSet(o *gatewayv1.ListenerSet, s *translate.Status, v progress.Result) gatewayv1.ListenerSetStatus {
	out, live := *s.ListenerSet, o.Status
	own := gatewayProgrammed(v, s.Generation, live.Conditions)
	if c := meta.FindStatusCondition(out.Conditions, string(gatewayv1.ListenerSetConditionAccepted)); c != nil && c.Status != metav1.ConditionTrue {
		own = unprogrammed(s.Generation, c.Reason, "it is not accepted")
	}
	out.Conditions = withProgrammed(out.Conditions, own)
	out.Listeners = make([]gatewayv1.ListenerEntryStatus, len(s.ListenerSet.Listeners))
	for i, l := range s.ListenerSet.Listeners {
		var old []metav1.Condition
		for _, o := range live.Listeners {
			if o.Name == l.Name {
				old = o.Conditions
			}
		}
		c := listenerProgrammed(s, v, l.Name, l.Conditions, old, accepted(s.ListenerSet.Conditions))
		if conflict := meta.FindStatusCondition(l.Conditions, string(gatewayv1.ListenerEntryConditionConflicted)); conflict != nil && conflict.Status == metav1.ConditionTrue {
			c.Reason = conflict.Reason
		}
		l.Conditions = withProgrammed(l.Conditions, c)
		out.Listeners[i] = l
	}
	return out
}
