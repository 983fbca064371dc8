package plane

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/southbound"
	agentv1 "fairlead.dev/proto/agent/v1"
)

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

// servingMachines names the machines with a proxy whose views have a listener, sorted.
func (l *loop) servingMachines(id model.ListenerID) []string {
	names := []string{}
	for name := range l.machines {
		state, _ := l.plane.server.Machine(name)
		if serves, _ := l.placement.Serves(name, id); serves && !unproxied(state.Proxy) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
