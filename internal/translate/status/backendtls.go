package status

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/backend"
	"fairlead.dev/internal/translate/field"
	"fairlead.dev/internal/translate/target"
)

// ancestorLimit is how many ancestors a policy's status may have.
const ancestorLimit = 16

// backendTLSStatus writes a policy's status, for each Gateway whose routes use the
// Service. Where only IngressRoutes do, the Service itself is what the status speaks of.
func (t *Tables) backendTLSStatus(c *memo.Context, name snapshot.Name) (*Status, bool) {
	o, policy := t.in.BackendTLSPolicies.Get(c, name), t.from.Backend.BackendTLS.Get(c, name)
	accepted := policy.Accepted
	users := map[model.Object]bool{}
	var holds []string
	for _, target := range policy.Targets {
		if problem := t.targetProblem(c, target); problem != "" {
			accepted.Fail(gatewayv1.PolicyReasonTargetNotFound, problem)
		} else if first := t.from.Targets.TLSHolder(c, target); first != name {
			accepted.Fail(gatewayv1.PolicyReasonConflicted, "the older BackendTLSPolicy "+first.String()+" applies to "+target.String())
		} else {
			holds = append(holds, target.String())
		}
		for _, user := range t.users.Get(c, target.Service) {
			users[user] = true
		}
	}
	if accepted.Failed && !policy.Accepted.Failed && len(holds) > 0 {
		accepted.Message += "; it holds for " + strings.Join(holds, ", ")
	}
	conditions := []metav1.Condition{
		field.PolicyCondition(gatewayv1.PolicyConditionAccepted, accepted, gatewayv1.PolicyReasonAccepted, "the policy is accepted", o.Generation),
		field.PolicyCondition(gatewayv1.BackendTLSPolicyConditionResolvedRefs, policy.Resolved, gatewayv1.BackendTLSPolicyReasonResolvedRefs, "all references are resolved", o.Generation),
	}
	status := &gatewayv1.PolicyStatus{Ancestors: []gatewayv1.PolicyAncestorStatus{}}
	var ancestors []model.Object
	for user := range users {
		ancestors = append(ancestors, user)
	}
	slices.SortFunc(ancestors, model.Object.Compare)
	for _, user := range ancestors[:min(len(ancestors), ancestorLimit)] {
		status.Ancestors = append(status.Ancestors, gatewayv1.PolicyAncestorStatus{
			AncestorRef: parentReference(user), ControllerName: t.in.Config.ControllerName, Conditions: slices.Clone(conditions),
		})
	}
	return &Status{Generation: o.Generation, BackendTLSPolicy: status}, true
}

// targetProblem says why there is nothing that a policy could hold for, or nothing.
func (t *Tables) targetProblem(c *memo.Context, target target.ServicePort) string {
	service := t.from.Backend.Services.Get(c, target.Service)
	switch {
	case service == nil:
		return target.String() + " not found"
	case target.Section != "" && !slices.ContainsFunc(service.Ports, func(p backend.Port) bool { return p.Name == target.Section }):
		return target.String() + " not found"
	}
	return ""
}

func parentReference(o model.Object) gatewayv1.ParentReference {
	group, kind, namespace := gatewayv1.Group(gatewayv1.GroupName), gatewayv1.Kind(o.Kind), gatewayv1.Namespace(o.Namespace)
	if o.Kind == string(snapshot.KindService) {
		group = ""
	}
	return gatewayv1.ParentReference{Group: &group, Kind: &kind, Namespace: &namespace, Name: gatewayv1.ObjectName(o.Name)}
}
