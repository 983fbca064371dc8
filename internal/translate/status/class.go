package status

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/condition"
)

func (t *Tables) classStatus(c *memo.Context, n snapshot.Name) (*Status, bool) {
	class := t.from.Gateway.Classes.Get(c, n.Name)
	if class == nil {
		return nil, false
	}
	o := t.in.GatewayClasses.Get(c, n)
	reason, message := gatewayv1.GatewayClassReasonAccepted, "the class is served by "+string(t.in.Config.ControllerName)
	if class.Accepted.Failed {
		reason, message = class.Accepted.Reason, class.Accepted.Message
	}
	status := &Status{
		Generation: o.Generation,
		GatewayClass: &gatewayv1.GatewayClassStatus{
			Conditions: []metav1.Condition{
				condition.New(gatewayv1.GatewayClassConditionStatusAccepted, !class.Accepted.Failed, reason, message, o.Generation),
			},
			SupportedFeatures: supportedFeatures(),
		},
	}
	if version := t.in.Config.GatewayAPIVersion; version != "" {
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
	return condition.New(gatewayv1.GatewayClassConditionStatusSupportedVersion, ok, reason, message, gen)
}
