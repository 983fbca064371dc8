package translate

import (
	"strings"
	"testing"

	contourv1beta1 "fairlead.dev/api/contour/v1beta1"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/input"
)

// secure gives a root TLS, and any IngressRoute a tcpproxy.
func (g generator) secure(o *contourv1beta1.IngressRoute) {
	if v := o.Spec.VirtualHost; v != nil && g.chance(50) {
		v.TLS = &contourv1beta1.TLS{SecretName: g.name()}
		if g.chance(50) {
			v.TLS.SecretName = g.namespace() + "/" + g.name()
		}
		if g.chance(20) {
			v.TLS.SecretName, v.TLS.MinimumProtocolVersion = g.word("one", ""), g.word("1.1", "1.2", "1.3", "1.0")
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
		s := contourv1beta1.Service{Name: pick(g, "one", "two"), Port: 80, UpstreamValidation: g.validation(10)}
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
	for range 1 + g.IntN(4) {
		d := contourv1beta1.CertificateDelegation{SecretName: g.name(), TargetNamespaces: []string{g.word("a", "b", "c", "*"), g.namespace()}}
		if g.chance(20) {
			d.TargetNamespaces = []string{"*"}
		}
		o.Spec.Delegations = append(o.Spec.Delegations, d)
	}
}

// TestWorldsSecureIngressRoutes holds that generated worlds have what IngressRoutes can say of
// TLS and connections.
func TestWorldsSecureIngressRoutes(t *testing.T) {
	found := map[string]int{}
	count := func(what string, is bool) {
		if is {
			found[what]++
		}
	}
	for seed := range uint64(100) {
		w := newWorld(t, seed, "")
		for range 60 {
			w.change(5)
			result := w.tr.result()
			for _, h := range result.TLSHosts {
				root := h.Owner.Kind == string(snapshot.KindIngressRoute)
				count("certificate", root && len(h.Certificates) > 0)
				count("delegated certificate", root && len(h.Certificates) > 0 && !strings.HasPrefix(string(h.Certificates[0]), h.Owner.Namespace+"/"))
				count("connections", root && len(h.TCP) > 0 && len(h.Certificates) > 0)
				count("passthrough", root && len(h.TCP) > 0 && len(h.Certificates) == 0)
				count("closed", root && len(h.TCP)+len(h.Certificates) == 0)
			}
			for k, h := range result.VirtualHosts {
				for _, r := range h.Routes {
					root := r.Owner.Kind == string(snapshot.KindIngressRoute)
					count("redirect", root && r.Redirect != nil)
					count("secure route", root && input.IsTLS(k.Listener) && r.Forward != nil)
				}
			}
			for _, g := range result.Groups {
				count("verified backends", g.TLS != nil && !g.TLS.Unverified)
				count("unverified backends", g.TLS != nil && g.TLS.Unverified)
			}
			for _, tree := range w.tr.contour.Trees.All() {
				count("delegated connections", len(tree.Proxied) > 1)
			}
		}
	}
	haveAll(t, found,
		"certificate", "delegated certificate", "connections", "passthrough", "closed", "redirect", "secure route",
		"verified backends", "unverified backends", "delegated connections",
	)
}
