package translate

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

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
			fact.verdict.fail(gatewayv1.GatewayClassReasonInvalidParameters,
				"spec.parametersRef: "+string(p.Kind)+" "+p.Name+": a class takes no parameters")
		}
		reason, message := gatewayv1.GatewayClassReasonAccepted, "the class is served by "+string(t.config.ControllerName)
		if fact.verdict.failed {
			reason, message = fact.verdict.reason, fact.verdict.message
		}
		status = &Status{
			Generation: o.Generation,
			GatewayClass: &gatewayv1.GatewayClassStatus{Conditions: []metav1.Condition{
				condition(gatewayv1.GatewayClassConditionStatusAccepted, !fact.verdict.failed, reason, message, o.Generation),
			}},
		}
	}
	update(t, n, t.classes, n.a, fact)
	publish(t.result.Statuses, t.out.Statuses, model.Object{Kind: string(snapshot.KindGatewayClass), Name: n.a}, status)
}
