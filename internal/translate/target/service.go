package target

import (
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/field"
)

// ServicePort is a Service, or the port of it that section names.
type ServicePort struct {
	Service snapshot.Name
	Section string
}

// TargetsOf are the Services that a policy speaks of, in its order.
func TargetsOf(o *gatewayv1.BackendTLSPolicy) []ServicePort {
	var targets []ServicePort
	for _, ref := range o.Spec.TargetRefs {
		if ref.Group == "" && ref.Kind == gatewayv1.Kind(snapshot.KindService) {
			targets = append(targets, ServicePort{snapshot.Name{Namespace: o.Namespace, Name: string(ref.Name)}, string(field.Deref(ref.SectionName))})
		}
	}
	return targets
}

// String is "Service a/b", or "port web of Service a/b".
func (t ServicePort) String() string {
	text := "Service " + t.Service.String()
	if t.Section != "" {
		text = "port " + t.Section + " of " + text
	}
	return text
}
