package plane

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/plane/status"
	"fairlead.dev/internal/progress"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/southbound"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// progressOf is how far a machine is now; nil when there is no Machine.
func (l *loop) progressOf(name string) *progress.Machine {
	m := l.machines[name]
	if m == nil {
		return nil
	}
	s := &progress.Machine{Name: name, Views: fmt.Sprint(m.Views), Cordoned: m.Cordoned}
	state, known := l.plane.server.Machine(name)
	s.Unheard, s.Silent, s.Lost = l.hearing(name, state)
	if !known {
		return s
	}
	s.Applied, s.Wanted, s.Unproxied = state.Applied, state.Wanted, unproxied(state.Proxy)
	for _, p := range state.Problems {
		s.Note(p.Type, p.Name, progress.Fault{Refused: p.Kind != agentv1.Problem_KIND_WAITING, Message: p.Message})
	}
	return s
}

// hearing says how a machine is heard of: at most one of the three holds. state is its zero
// value for a machine that is not known.
func (l *loop) hearing(name string, state southbound.MachineState) (unheard, silent, lost bool) {
	unheard = l.unheard(state)
	reported := !state.LastReport.IsZero()
	silent = !unheard && !reported && !l.reportedBefore(name)
	lost = !unheard && !silent && (!reported || state.Lost)
	return unheard, silent, lost
}

// reportedBefore says whether a machine has reported to any plane, ever.
func (l *loop) reportedBefore(name string) bool {
	live := l.snapshot.Machines[snapshot.Name{Name: name}]
	return live != nil && live.Status.AgentVersion != ""
}

// decapsBefore says whether a machine takes packets out of tunnels, as another plane wrote
// it down.
func (l *loop) decapsBefore(name string) bool {
	live := l.snapshot.Machines[snapshot.Name{Name: name}]
	return live != nil && live.Status.Decaps
}

// unheard says that a machine may still report to this plane for the first time
// since it leads. To a standby none reports.
func (l *loop) unheard(state southbound.MachineState) bool {
	return l.plane.serving.Load() == 0 || l.inGrace && !state.LastReport.After(l.leadSince)
}

// machineReady is the Ready condition that a machine should show, if that is known.
func (l *loop) machineReady(live *v1alpha1.Machine) (metav1.Condition, southbound.MachineState, bool) {
	state, known := l.plane.server.Machine(live.Name)
	if l.unheard(state) {
		return metav1.Condition{}, state, false
	}
	c := metav1.Condition{Type: v1alpha1.MachineReady, Status: metav1.ConditionFalse, ObservedGeneration: live.Generation}
	proxy := state.Proxy
	switch {
	case (!known || state.LastReport.IsZero()) && !l.reportedBefore(live.Name):
		c.Reason, c.Message = v1alpha1.MachineReasonNeverSeen, "its agent has not reported yet"
	case !known || state.LastReport.IsZero():
		c.Reason, c.Message = v1alpha1.MachineReasonLost, "its agent has not reported to this plane"
	case state.Lost:
		c.Reason = v1alpha1.MachineReasonLost
		c.Message = fmt.Sprintf("no report for %s, the last at %s", l.plane.config.TTL, state.LastReport.UTC().Format(time.RFC3339))
	case live.Spec.Role == v1alpha1.RoleBackend:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.MachineReasonReady, "the agent reports; the machine has backends only"
		if s := proxy.GetState(); s != agentv1.Proxy_STATE_OFF && s != agentv1.Proxy_STATE_UNSPECIFIED {
			c.Message += ", but its agent was started as an edge: start it with --role backend, or set spec.role to Edge"
		}
	case proxy.GetState() == agentv1.Proxy_STATE_OFF:
		c.Reason = v1alpha1.MachineReasonProxyNotReady
		c.Message = "its agent runs no proxy (--role backend): set spec.role to Backend, or start the agent without the flag"
	case unproxied(proxy):
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.MachineReasonReady, "the agent reports; the machine runs no proxy (--envoy none) and serves no listener of HTTP or TLS"
	case !serves(proxy):
		c.Reason = v1alpha1.MachineReasonProxyNotReady
		c.Message = "the state of its proxy is " + strings.ToLower(strings.TrimPrefix(proxy.GetState().String(), "STATE_"))
		if m := proxy.GetMessage(); m != "" {
			c.Message += ": " + m
		}
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.MachineReasonReady, "the agent reports and its proxy is ready"
	}
	return c, state, true
}

// hostsOnly says that a machine has backends only, and no proxy.
func (l *loop) hostsOnly(name string) bool {
	m := l.machines[name]
	return m != nil && m.HostsOnly
}

// serves says that a proxy takes requests. One that drains does, but closes each
// connection after the answer.
func serves(p *agentv1.Proxy) bool {
	return p.GetState() == agentv1.Proxy_STATE_READY || p.GetState() == agentv1.Proxy_STATE_DRAINING
}

// unproxied says that a machine is to run no proxy, though it may announce VIPs.
func unproxied(p *agentv1.Proxy) bool { return p.GetState() == agentv1.Proxy_STATE_NONE }

// offerMachine hands what a machine should show to the status writer.
func (l *loop) offerMachine(name string) {
	if l.endTerm == nil {
		return
	}
	live := l.snapshot.Machines[snapshot.Name{Name: name}]
	if live == nil {
		return
	}
	ready, state, known := l.machineReady(live)
	if !known {
		return
	}
	holding := l.holding(live, state)
	// A report that came while this plane led before says nothing now: others have led since.
	reported, decaps := !state.LastReport.IsZero() && !state.LastReport.Before(l.leadSince), l.decaps(name)
	conditions := []metav1.Condition{ready}
	if reported {
		conditions = append(conditions, l.addressesHeld(live, holding))
	}
	apply := func(o client.Object, now metav1.Time) client.Object {
		m, ok := o.(*v1alpha1.Machine)
		if !ok {
			return nil
		}
		next := m.Status
		if reported {
			next.Addresses, next.AgentVersion, next.Decaps = holding.held, state.AgentVersion, decaps
		}
		next.Conditions = status.MergeConditions(m.Status.Conditions, conditions, func(t string) bool { return t == v1alpha1.MachineReady }, now)
		if equality.Semantic.DeepEqual(next, m.Status) {
			return nil
		}
		n := *m
		n.Status = next
		return n.DeepCopy()
	}
	w := status.Write{Object: model.Object{Kind: string(snapshot.KindMachine), Name: name}, Generation: live.Generation, Live: live, Apply: apply}
	if ready.Status != metav1.ConditionTrue && meta.IsStatusConditionTrue(live.Status.Conditions, v1alpha1.MachineReady) {
		w.Delay = status.PendingDelay
	}
	l.plane.writer.Offer(w)
}

// servingMachines names the machines with a proxy whose views have a listener, sorted.
func (l *loop) servingMachines(id model.ListenerID) []string {
	names := []string{}
	for name := range l.machines {
		state, _ := l.plane.server.Machine(name)
		if serves, _ := l.placement.serves(name, id); serves && !unproxied(state.Proxy) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
