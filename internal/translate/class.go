package translate

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// classFact is a GatewayClass that names our controller.
type classFact struct {
	verdict verdict[gatewayv1.GatewayClassConditionReason]
}

func (t *Translator) computeClass(r reader, n node) {
	o := r.s.GatewayClasses[snapshot.Name{Name: n.a}]
	var fact *classFact
	var status *Status
	if o != nil && o.Spec.ControllerName == t.config.ControllerName {
		fact = &classFact{}
		if p := o.Spec.ParametersRef; p != nil {
			policy := snapshot.Name{Namespace: string(deref(p.Namespace)), Name: p.Name}
			if problem := r.parametersProblem(string(p.Group), string(p.Kind), policy); problem != "" {
				fact.verdict.fail(gatewayv1.GatewayClassReasonInvalidParameters, "spec.parametersRef: "+problem)
			}
		}
		reason, message := gatewayv1.GatewayClassReasonAccepted, "the class is served by "+string(t.config.ControllerName)
		if fact.verdict.failed {
			reason, message = fact.verdict.reason, fact.verdict.message
		}
		status = &Status{
			Generation: o.Generation,
			GatewayClass: &gatewayv1.GatewayClassStatus{
				Conditions: []metav1.Condition{
					condition(gatewayv1.GatewayClassConditionStatusAccepted, !fact.verdict.failed, reason, message, o.Generation),
				},
				SupportedFeatures: supportedFeatures(),
			},
		}
		if version := t.config.GatewayAPIVersion; version != "" {
			status.GatewayClass.Conditions = append(status.GatewayClass.Conditions, supportedVersion(version, o.Generation))
		}
	}
	update(t, n, t.classes, n.a, fact)
	publish(t.result.Statuses, t.out.Statuses, model.Object{Kind: string(snapshot.KindGatewayClass), Name: n.a}, status)
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

// parametersNode stands for whether there is a policy of a name.
func parametersNode(n snapshot.Name) node { return named(nodeParameters, n) }

// parametersProblem says why a parametersRef of a GatewayClass or a Gateway leads nowhere,
// or nothing. Parameters are a ClientPolicy.
func (r reader) parametersProblem(group, kind string, n snapshot.Name) string {
	if group != v1alpha1.GroupVersion.Group || kind != string(snapshot.KindClientPolicy) {
		return kindText(group, kind) + " holds no parameters: only " + kindText(v1alpha1.GroupVersion.Group, string(snapshot.KindClientPolicy)) + " does"
	}
	r.t.graph.read(r.by, parametersNode(n))
	if r.s.ClientPolicies[n] == nil {
		return string(snapshot.KindClientPolicy) + " " + n.String() + " not found"
	}
	return ""
}
