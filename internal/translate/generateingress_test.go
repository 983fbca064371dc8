package translate

import (
	contourv1beta1 "fairlead.dev/api/contour/v1beta1"
)

// secure gives a root TLS, and any IngressRoute a tcpproxy.
func (g generator) secure(o *contourv1beta1.IngressRoute) {
	if v := o.Spec.VirtualHost; v != nil && g.chance(50) {
		v.TLS = &contourv1beta1.TLS{
			SecretName:             g.word("one", "two", "a/one", "b/two", "c/three", ""),
			MinimumProtocolVersion: g.word("", "", "", "1.1", "1.2", "1.3", "1.0"),
		}
		if g.chance(30) {
			v.TLS = &contourv1beta1.TLS{Passthrough: true}
			o.Spec.TCPProxy = &contourv1beta1.TCPProxy{}
		}
	}
	if o.Spec.TCPProxy == nil && !g.chance(25) {
		return
	}
	o.Spec.TCPProxy = &contourv1beta1.TCPProxy{}
	if g.chance(40) {
		o.Spec.TCPProxy.Delegate = &contourv1beta1.Delegate{Name: g.name(), Namespace: pick(g, "", g.namespace())}
	}
	if o.Spec.TCPProxy.Delegate != nil && !g.chance(5) {
		return
	}
	for range 1 + g.IntN(2) {
		s := contourv1beta1.Service{Name: g.name(), Port: 80, UpstreamValidation: g.validation(10)}
		if g.chance(30) {
			s.Weight = some(g, int32(g.IntN(4)))
		}
		o.Spec.TCPProxy.Services = append(o.Spec.TCPProxy.Services, s)
	}
}

func (g generator) validation(percent int) *contourv1beta1.UpstreamValidation {
	if !g.chance(percent) {
		return nil
	}
	return &contourv1beta1.UpstreamValidation{CACertificate: g.name(), SubjectName: g.word("web.internal", "spiffe://x/y", "")}
}

func (g generator) delegations(o *contourv1beta1.TLSCertificateDelegation) {
	for range g.IntN(3) {
		o.Spec.Delegations = append(o.Spec.Delegations, contourv1beta1.CertificateDelegation{
			SecretName: g.name(), TargetNamespaces: []string{g.word("a", "b", "c", "*"), g.namespace()},
		})
	}
}
