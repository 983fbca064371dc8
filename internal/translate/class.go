package translate

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/snapshot"
)

// classFact is a GatewayClass that names our controller.
type classFact struct {
	verdict verdict[gatewayv1.GatewayClassConditionReason]
}

func (t *gatewayTables) makeClass(c *memo.Context, name string) (*classFact, bool) {
	o := t.in.gatewayClasses.Get(c, snapshot.Name{Name: name})
	if o == nil || o.Spec.ControllerName != t.in.config.ControllerName {
		return nil, false
	}
	f := &classFact{}
	if p := o.Spec.ParametersRef; p != nil {
		policy := snapshot.Name{Namespace: string(deref(p.Namespace)), Name: p.Name}
		if problem := t.parametersProblem(c, string(p.Group), string(p.Kind), policy); problem != "" {
			f.verdict.fail(gatewayv1.GatewayClassReasonInvalidParameters, "spec.parametersRef: "+problem)
		}
	}
	return f, true
}

func (t *statusTables) classStatus(c *memo.Context, n snapshot.Name) (*Status, bool) {
	f := t.gateway.classes.Get(c, n.Name)
	if f == nil {
		return nil, false
	}
	o := t.in.gatewayClasses.Get(c, n)
	reason, message := gatewayv1.GatewayClassReasonAccepted, "the class is served by "+string(t.in.config.ControllerName)
	if f.verdict.failed {
		reason, message = f.verdict.reason, f.verdict.message
	}
	status := &Status{
		Generation: o.Generation,
		GatewayClass: &gatewayv1.GatewayClassStatus{
			Conditions: []metav1.Condition{
				condition(gatewayv1.GatewayClassConditionStatusAccepted, !f.verdict.failed, reason, message, o.Generation),
			},
			SupportedFeatures: supportedFeatures(),
		},
	}
	if version := t.in.config.GatewayAPIVersion; version != "" {
		status.GatewayClass.Conditions = append(status.GatewayClass.Conditions, supportedVersion(version, o.Generation))
	}
	return status, true
}

// gatewayAPI is the release of the Gateway API that this was written for. CRDs of others
// are served as far as they agree.
const gatewayAPI = "v1.6"

// supportedVersion judges the version that the API's CRDs say they are of.
func supportedVersion(version string, gen int64) metav1.Condition {
	ok := version == gatewayAPI || strings.HasPrefix(version, gatewayAPI+".") || strings.HasPrefix(version, gatewayAPI+"-")
	reason, message := gatewayv1.GatewayClassReasonSupportedVersion, "the CRDs are of Gateway API "+version
	if !ok {
		reason = gatewayv1.GatewayClassReasonUnsupportedVersion
		message += ": install those of " + gatewayAPI + "; fields that they do not have are not served"
	}
	return condition(gatewayv1.GatewayClassConditionStatusSupportedVersion, ok, reason, message, gen)
}

// parametersProblem says why a parametersRef of a GatewayClass or a Gateway leads nowhere,
// or nothing. Parameters are a ClientPolicy.
func (t *gatewayTables) parametersProblem(c *memo.Context, group, kind string, n snapshot.Name) string {
	if group != v1alpha1.GroupVersion.Group || kind != string(snapshot.KindClientPolicy) {
		return kindText(group, kind) + " holds no parameters: only " + kindText(v1alpha1.GroupVersion.Group, string(snapshot.KindClientPolicy)) + " does"
	}
	if t.in.clientPolicies.Get(c, n) == nil {
		return string(snapshot.KindClientPolicy) + " " + n.String() + " not found"
	}
	return ""
}
