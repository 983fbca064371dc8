package route

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/backend"
	"fairlead.dev/internal/translate/condition"
	"fairlead.dev/internal/translate/field"
	"fairlead.dev/internal/translate/input"
)

// backend resolves one reference. A broken one is noted in resolved.
func (c *compiler) backend(ref *gatewayv1.BackendObjectReference, path string) (group model.BackendGroup, port backend.Port, ok bool) {
	service, port, ok := c.servicePort(ref, corev1.ProtocolTCP, path)
	if !ok {
		return group, port, false
	}
	options := backend.GroupOptions{Certificate: c.certificate}
	if c.grpc {
		options.Protocol = model.BackendHTTP2
	}
	group, ok = c.group(service, port, options, path)
	return group, port, ok
}

// group is Tables.MakeGroup of room backend for a reference that servicePort resolved.
func (c *compiler) group(service snapshot.Name, port backend.Port, o backend.GroupOptions, path string) (model.BackendGroup, bool) {
	group, fault, problem := c.t.from.Backend.MakeGroup(c.ctx, service, port, o)
	if fault != backend.Fine {
		c.fault(fault, problem, path)
		return model.BackendGroup{}, false
	}
	return group, true
}

// servicePort finds the port of a Service that a reference means. A broken reference is
// noted in resolved.
func (c *compiler) servicePort(ref *gatewayv1.BackendObjectReference, protocol corev1.Protocol, path string) (service snapshot.Name, port backend.Port, ok bool) {
	if ref.Group != nil && *ref.Group != "" || ref.Kind != nil && *ref.Kind != gatewayv1.Kind(snapshot.KindService) {
		c.resolved.Fail(gatewayv1.RouteReasonInvalidKind, path+".kind: "+field.KindText(string(field.Deref(ref.Group)), string(field.Deref(ref.Kind)))+" is not a kind of backend: only Service is")
		return service, port, false
	}
	service = snapshot.Name{Namespace: c.owner.Namespace, Name: string(ref.Name)}
	if ref.Namespace != nil && *ref.Namespace != "" {
		service.Namespace = string(*ref.Namespace)
	}
	if service.Namespace != c.owner.Namespace && !c.t.in.Granted(c.ctx, gatewayv1.GroupName, snapshot.Kind(c.owner.Kind), c.owner.Namespace, snapshot.KindService, service) {
		c.resolved.Fail(gatewayv1.RouteReasonRefNotPermitted, path+": "+input.NoGrant(snapshot.Kind(c.owner.Kind), c.owner.Namespace, snapshot.KindService, service))
		return service, port, false
	}
	if ref.Port == nil {
		c.resolved.Fail(gatewayv1.RouteReasonBackendNotFound, path+".port: must be set")
		return service, port, false
	}
	port, fault, problem := c.t.from.Backend.FindPortOf(c.ctx, service, int32(*ref.Port), protocol)
	if fault != backend.Fine {
		c.fault(fault, problem, path)
		return service, port, false
	}
	if (port.Refusal != "" || port.Misread != "" || port.MetricsNote != "") && !slices.Contains(c.services, service) {
		for _, note := range field.NonEmpty(port.Refusal, port.Misread, port.MetricsNote) {
			c.notes = append(c.notes, path+": Service "+service.String()+": "+note)
		}
	}
	c.services = append(c.services, service)
	return service, port, true
}

// fault notes why a Service's port cannot be a backend.
func (c *compiler) fault(fault backend.Fault, problem, path string) {
	switch fault {
	case backend.Fine:
	case backend.ServiceExternal:
		c.resolved.Fail(gatewayv1.RouteReasonInvalidKind, path+": "+problem)
	case backend.PortProtocol:
		c.resolved.Fail(gatewayv1.RouteReasonUnsupportedProtocol, path+".port: "+problem)
	case backend.PolicyInvalid:
		c.resolved.Fail(condition.ReasonBackendTLS, path+".port: "+problem)
	case backend.PortMissing:
		c.resolved.Fail(gatewayv1.RouteReasonBackendNotFound, path+".port: "+problem)
	case backend.ServiceMissing:
		c.resolved.Fail(gatewayv1.RouteReasonBackendNotFound, path+".name: "+problem)
	}
}
