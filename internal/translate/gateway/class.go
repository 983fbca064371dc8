package gateway

import (
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/condition"
	"fairlead.dev/internal/translate/field"
)

// Class is a GatewayClass that names our controller.
type Class struct {
	Accepted condition.Result[gatewayv1.GatewayClassConditionReason]
}

func (t *Tables) makeClass(c *memo.Context, name string) (*Class, bool) {
	o := t.in.GatewayClasses.Get(c, snapshot.Name{Name: name})
	if o == nil || o.Spec.ControllerName != t.in.Config.ControllerName {
		return nil, false
	}
	f := &Class{}
	if p := o.Spec.ParametersRef; p != nil {
		policy := snapshot.Name{Namespace: string(field.Deref(p.Namespace)), Name: p.Name}
		if problem := t.parametersProblem(c, string(p.Group), string(p.Kind), policy); problem != "" {
			f.Accepted.Fail(gatewayv1.GatewayClassReasonInvalidParameters, "spec.parametersRef: "+problem)
		}
	}
	return f, true
}

// parametersProblem says why a parametersRef of a GatewayClass or a Gateway leads nowhere,
// or nothing. Parameters are a ClientPolicy.
func (t *Tables) parametersProblem(c *memo.Context, group, kind string, n snapshot.Name) string {
	if group != v1alpha1.GroupVersion.Group || kind != string(snapshot.KindClientPolicy) {
		return field.KindText(group, kind) + " holds no parameters: only " + field.KindText(v1alpha1.GroupVersion.Group, string(snapshot.KindClientPolicy)) + " does"
	}
	if t.in.ClientPolicies.Get(c, n) == nil {
		return string(snapshot.KindClientPolicy) + " " + n.String() + " not found"
	}
	return ""
}
