package translate

import (
	"net/netip"
	"strconv"
	"time"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// Reasons of a policy's ResolvedRefs, as routes have them.
const (
	policyReasonResolvedRefs        gatewayv1.PolicyConditionReason = "ResolvedRefs"
	policyReasonInvalidKind         gatewayv1.PolicyConditionReason = "InvalidKind"
	policyReasonRefNotPermitted     gatewayv1.PolicyConditionReason = "RefNotPermitted"
	policyReasonBackendNotFound     gatewayv1.PolicyConditionReason = "BackendNotFound"
	policyReasonUnsupportedProtocol gatewayv1.PolicyConditionReason = "UnsupportedProtocol"
	policyReasonBackendTLS          gatewayv1.PolicyConditionReason = "InvalidBackendTLSPolicy"
)

// policyFields collects what is wrong with the fields of one policy.
type policyFields struct{ invalid policyVerdict }

func (c *policyFields) fail(path, problem string) {
	c.invalid.fail(gatewayv1.PolicyReasonInvalid, path+": "+problem)
}

// policyCompiler collects what is found in one policy that may name Services.
type policyCompiler struct {
	policyFields
	t        *policyTables
	ctx      *memo.Context
	key      snapshot.Key
	resolved policyVerdict
}

// duration reads one of the Gateway API; what is empty or wrong is the default.
func (c *policyFields) duration(text gatewayv1.Duration, least, most, otherwise time.Duration, path string) time.Duration {
	if text == "" {
		return otherwise
	}
	d, err := time.ParseDuration(string(text))
	switch {
	case err != nil:
		c.fail(path, quote(string(text))+` is no duration like "10s" or "500ms"`)
	case d < least || d > most:
		c.fail(path, quote(string(text))+" must be from "+least.String()+" to "+most.String())
	default:
		return d
	}
	return otherwise
}

// number reads one in a range; what is wrong is left out.
func number[T int32 | int64](c *policyFields, n *T, least, most T, path string) T {
	if n == nil {
		return 0
	}
	if *n < least || *n > most {
		c.fail(path, strconv.FormatInt(int64(*n), 10)+" must be in the range "+strconv.FormatInt(int64(least), 10)+"-"+strconv.FormatInt(int64(most), 10))
		return 0
	}
	return *n
}

// service resolves a reference to a Service that a policy asks. One that is broken is
// noted.
func (c *policyCompiler) service(ref *gatewayv1.BackendObjectReference, protocol model.BackendProtocol, path string) (group model.BackendGroup, ok bool) {
	if ref.Group != nil && *ref.Group != "" || ref.Kind != nil && *ref.Kind != gatewayv1.Kind(snapshot.KindService) {
		c.resolved.fail(policyReasonInvalidKind, path+".kind: "+kindText(string(deref(ref.Group)), string(deref(ref.Kind)))+" cannot be asked: only a Service can")
		return group, false
	}
	service := snapshot.Name{Namespace: c.key.Name.Namespace, Name: string(ref.Name)}
	if ref.Namespace != nil && *ref.Namespace != "" {
		service.Namespace = string(*ref.Namespace)
	}
	if service.Namespace != c.key.Name.Namespace && !c.t.in.granted(c.ctx, v1alpha1.GroupVersion.Group, c.key.Kind, c.key.Name.Namespace, snapshot.KindService, service) {
		c.resolved.fail(policyReasonRefNotPermitted, path+": no ReferenceGrant in namespace "+service.Namespace+" lets "+
			string(c.key.Kind)+" of namespace "+c.key.Name.Namespace+" use Service "+service.Name)
		return group, false
	}
	if ref.Port == nil {
		c.resolved.fail(policyReasonBackendNotFound, path+".port: must be set")
		return group, false
	}
	port, fault, problem := c.t.backend.findPort(c.ctx, service, int32(*ref.Port))
	if fault == serviceFine {
		group, fault, problem = c.t.backend.makeGroup(c.ctx, service, port, groupOptions{protocol: protocol})
	}
	switch fault {
	case serviceFine:
		return group, true
	case serviceMissing:
		c.resolved.fail(policyReasonBackendNotFound, path+".name: "+problem)
	case portMissing:
		c.resolved.fail(policyReasonBackendNotFound, path+".port: "+problem)
	case serviceExternal:
		c.resolved.fail(policyReasonInvalidKind, path+": "+problem)
	case portProtocol:
		c.resolved.fail(policyReasonUnsupportedProtocol, path+".port: "+problem)
	case policyInvalid:
		c.resolved.fail(policyReasonBackendTLS, path+": "+problem)
	}
	return group, false
}

// parsePrefix reads an address or a CIDR.
func parsePrefix(text string) (netip.Prefix, bool) {
	if p, err := netip.ParsePrefix(text); err == nil {
		if p.Addr().Is4In6() {
			if p.Bits() < 96 {
				return netip.Prefix{}, false
			}
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		return p.Masked(), true
	}
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), true
	}
	return netip.Prefix{}, false
}
