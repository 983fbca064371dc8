package policy

import (
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/backend"
	"fairlead.dev/internal/translate/field"
	"fairlead.dev/internal/translate/input"
)

// Reasons of a policy's ResolvedRefs, as routes have them.
const (
	PolicyReasonResolvedRefs        gatewayv1.PolicyConditionReason = "ResolvedRefs"
	policyReasonInvalidKind         gatewayv1.PolicyConditionReason = "InvalidKind"
	policyReasonRefNotPermitted     gatewayv1.PolicyConditionReason = "RefNotPermitted"
	policyReasonBackendNotFound     gatewayv1.PolicyConditionReason = "BackendNotFound"
	policyReasonUnsupportedProtocol gatewayv1.PolicyConditionReason = "UnsupportedProtocol"
	policyReasonBackendTLS          gatewayv1.PolicyConditionReason = "InvalidBackendTLSPolicy"
)

// policyCompiler collects what is found in one policy that may name Services.
type policyCompiler struct {
	field.Policy
	t        *Tables
	ctx      *memo.Context
	key      snapshot.Key
	resolved field.PolicyResult
}

// service resolves a reference to a Service that a policy asks. One that is broken is
// noted.
func (c *policyCompiler) service(ref *gatewayv1.BackendObjectReference, protocol model.BackendProtocol, path string) (group model.BackendGroup, ok bool) {
	if ref.Group != nil && *ref.Group != "" || ref.Kind != nil && *ref.Kind != gatewayv1.Kind(snapshot.KindService) {
		c.resolved.Fail(policyReasonInvalidKind, path+".kind: "+field.KindText(string(field.Deref(ref.Group)), string(field.Deref(ref.Kind)))+" cannot be asked: only a Service can")
		return group, false
	}
	service := snapshot.Name{Namespace: c.key.Name.Namespace, Name: string(ref.Name)}
	if ref.Namespace != nil && *ref.Namespace != "" {
		service.Namespace = string(*ref.Namespace)
	}
	if service.Namespace != c.key.Name.Namespace && !c.t.in.Granted(c.ctx, v1alpha1.GroupVersion.Group, c.key.Kind, c.key.Name.Namespace, snapshot.KindService, service) {
		c.resolved.Fail(policyReasonRefNotPermitted, path+": "+input.NoGrant(c.key.Kind, c.key.Name.Namespace, snapshot.KindService, service))
		return group, false
	}
	if ref.Port == nil {
		c.resolved.Fail(policyReasonBackendNotFound, path+".port: must be set")
		return group, false
	}
	port, fault, problem := c.t.from.Backend.FindPort(c.ctx, service, int32(*ref.Port))
	if fault == backend.Fine {
		group, fault, problem = c.t.from.Backend.MakeGroup(c.ctx, service, port, backend.GroupOptions{Protocol: protocol})
	}
	switch fault {
	case backend.Fine:
		return group, true
	case backend.ServiceMissing:
		c.resolved.Fail(policyReasonBackendNotFound, path+".name: "+problem)
	case backend.PortMissing:
		c.resolved.Fail(policyReasonBackendNotFound, path+".port: "+problem)
	case backend.ServiceExternal:
		c.resolved.Fail(policyReasonInvalidKind, path+": "+problem)
	case backend.PortProtocol:
		c.resolved.Fail(policyReasonUnsupportedProtocol, path+".port: "+problem)
	case backend.PolicyInvalid:
		c.resolved.Fail(policyReasonBackendTLS, path+": "+problem)
	}
	return group, false
}
