package backend

import (
	"net/url"
	"slices"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/certificate"
	"fairlead.dev/internal/translate/field"
	"fairlead.dev/internal/translate/target"
)

// TLSPolicy is a BackendTLSPolicy judged for itself.
type TLSPolicy struct {
	Name     snapshot.Name
	Targets  []target.ServicePort
	Accepted field.PolicyResult
	Resolved field.PolicyResult
	// tls is how backends are verified; nil when the policy is invalid. Then nothing may be
	// sent to them.
	tls *model.BackendTLS
}

func (f *TLSPolicy) problem() string {
	if f.Accepted.Failed {
		return f.Accepted.Message
	}
	return f.Resolved.Message
}

// PolicyOf returns the policy that holds for a Service's port: of those that name the
// port the oldest, else of those that name the whole Service. It has precedence also when
// it is invalid. Nil when there is none.
func (t *Tables) PolicyOf(c *memo.Context, service snapshot.Name, port string) *TLSPolicy {
	if port != "" {
		if holder := t.from.Targets.TLSHolder(c, target.ServicePort{Service: service, Section: port}); holder.Name != "" {
			return t.BackendTLS.Get(c, holder)
		}
	}
	if holder := t.from.Targets.TLSHolder(c, target.ServicePort{Service: service, Section: ""}); holder.Name != "" {
		return t.BackendTLS.Get(c, holder)
	}
	return nil
}

func (t *Tables) makeBackendTLS(c *memo.Context, n snapshot.Name) (*TLSPolicy, bool) {
	o := t.in.BackendTLSPolicies.Get(c, n)
	if o == nil {
		return nil, false
	}
	f := &TLSPolicy{Name: n, Targets: target.TargetsOf(o)}
	for i, ref := range o.Spec.TargetRefs {
		if ref.Group != "" || ref.Kind != gatewayv1.Kind(snapshot.KindService) {
			f.Accepted.Fail(gatewayv1.PolicyReasonInvalid, field.At("spec.targetRefs", i)+".kind: "+field.KindText(string(ref.Group), string(ref.Kind))+" cannot be the target: only Service can")
		}
	}
	tls := &model.BackendTLS{}
	const path = "spec.validation"
	invalid := func(field, problem string) {
		f.Accepted.Fail(gatewayv1.PolicyReasonInvalid, path+field+": "+problem)
	}
	v := &o.Spec.Validation
	tls.ServerName = strings.ToLower(string(v.Hostname))
	if problem := field.HostProblem(tls.ServerName, false); problem != "" {
		invalid(".hostname", problem)
	}
	for i, name := range v.SubjectAltNames {
		fieldName := field.At(".subjectAltNames", i)
		switch name.Type {
		case gatewayv1.HostnameSubjectAltNameType:
			host := strings.ToLower(string(name.Hostname))
			if problem := field.HostProblem(host, true); problem != "" {
				invalid(fieldName+".hostname", problem)
			}
			tls.Names = append(tls.Names, model.AltName{DNS: host})
		case gatewayv1.URISubjectAltNameType:
			u, err := url.Parse(string(name.URI))
			if err != nil || u.Scheme == "" || !field.Printable(string(name.URI)) || u.Host == "" && u.Path == "" && u.Opaque == "" {
				invalid(fieldName+".uri", field.Quote(string(name.URI))+` is not an absolute URI, like "spiffe://example.com/app"`)
			}
			tls.Names = append(tls.Names, model.AltName{URI: string(name.URI)})
		default:
			invalid(fieldName+".type", field.Quote(string(name.Type))+" is unknown")
		}
	}
	wellKnown := field.Deref(v.WellKnownCACertificates)
	switch {
	case len(v.CACertificateRefs) > 0 && wellKnown != "":
		invalid("", "only one of caCertificateRefs and wellKnownCACertificates can be specified")
	case len(v.CACertificateRefs) == 0 && wellKnown == "":
		invalid("", "one of caCertificateRefs and wellKnownCACertificates must be specified")
	case wellKnown != "" && wellKnown != gatewayv1.WellKnownCACertificatesSystem:
		invalid(".wellKnownCACertificates", field.Quote(string(wellKnown))+" is unknown: only System is")
	}
	for i, ref := range v.CACertificateRefs {
		if id := t.caOf(c, f, ref, n.Namespace, field.At(path+".caCertificateRefs", i)); id != "" {
			tls.Authorities = append(tls.Authorities, id)
		}
	}
	if len(v.CACertificateRefs) > 0 && len(tls.Authorities) == 0 {
		f.Accepted.Fail(gatewayv1.BackendTLSPolicyReasonNoValidCACertificate, "no reference leads to a CA certificate: "+f.Resolved.Message)
	}
	for _, key := range field.SortedKeys(o.Spec.Options) {
		if strings.HasPrefix(string(key), "fairlead.dev/") || !strings.Contains(string(key), "/") {
			f.Accepted.Fail(gatewayv1.PolicyReasonInvalid, "spec.options: "+field.Quote(string(key))+" is unknown")
		}
	}
	if !f.Accepted.Failed {
		slices.Sort(tls.Authorities)
		tls.Authorities = slices.Compact(tls.Authorities)
		f.tls = tls
	}
	return f, true
}

// caOf resolves one reference to CA certificates; empty when it is broken.
func (t *Tables) caOf(c *memo.Context, f *TLSPolicy, ref gatewayv1.LocalObjectReference, namespace, path string) model.AuthorityID {
	kind := snapshot.Kind(ref.Kind)
	if ref.Group != "" || kind != snapshot.KindConfigMap && kind != snapshot.KindSecret {
		f.Resolved.Fail(gatewayv1.BackendTLSPolicyReasonInvalidKind,
			path+".kind: "+field.KindText(string(ref.Group), string(ref.Kind))+" holds no CA certificates: only ConfigMap and Secret do")
		return ""
	}
	a := t.from.Certificates.Authorities.Get(c, certificate.AuthorityKey{Kind: kind, Name: snapshot.Name{Namespace: namespace, Name: string(ref.Name)}})
	if a.Problem != "" {
		f.Resolved.Fail(gatewayv1.BackendTLSPolicyReasonInvalidCACertificateRef, path+": "+string(kind)+" "+namespace+"/"+string(ref.Name)+" "+a.Problem)
		return ""
	}
	return a.Authority.ID
}
