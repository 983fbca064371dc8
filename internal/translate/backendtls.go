package translate

import (
	"cmp"
	"net/url"
	"slices"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

type policyVerdict = verdict[gatewayv1.PolicyConditionReason]

// backendTLSFact is a BackendTLSPolicy judged for itself.
type backendTLSFact struct {
	name     snapshot.Name
	targets  []tlsTarget
	accepted policyVerdict
	resolved policyVerdict
	// tls is how backends are verified; nil when the policy is invalid. Then nothing may be
	// sent to them.
	tls *model.BackendTLS
}

// tlsTarget is a Service, or the port of it that section names.
type tlsTarget struct {
	service snapshot.Name
	section string
}

func (f *backendTLSFact) problem() string {
	if f.accepted.failed {
		return f.accepted.message
	}
	return f.resolved.message
}

func backendTLSObject(n snapshot.Name) model.Object {
	return model.Object{Kind: string(snapshot.KindBackendTLSPolicy), Namespace: n.Namespace, Name: n.Name}
}

// targetsOf are the Services that a policy speaks of, in its order.
func targetsOf(o *gatewayv1.BackendTLSPolicy) []tlsTarget {
	var targets []tlsTarget
	for _, ref := range o.Spec.TargetRefs {
		if ref.Group == "" && ref.Kind == gatewayv1.Kind(snapshot.KindService) {
			targets = append(targets, tlsTarget{snapshot.Name{Namespace: o.Namespace, Name: string(ref.Name)}, string(deref(ref.SectionName))})
		}
	}
	return targets
}

// policyOf returns the policy that holds for a Service's port: of those that name the
// port the oldest, else of those that name the whole Service. It has precedence also when
// it is invalid. Nil when there is none.
func (t *backendTables) policyOf(c *memo.Context, service snapshot.Name, port string) *backendTLSFact {
	if port != "" {
		if holder := t.anchor.tlsHolder(c, tlsTarget{service, port}); holder.Name != "" {
			return t.backendTLS.Get(c, holder)
		}
	}
	if holder := t.anchor.tlsHolder(c, tlsTarget{service, ""}); holder.Name != "" {
		return t.backendTLS.Get(c, holder)
	}
	return nil
}

func (t *backendTables) makeBackendTLS(c *memo.Context, n snapshot.Name) (*backendTLSFact, bool) {
	o := t.in.backendTLSPolicies.Get(c, n)
	if o == nil {
		return nil, false
	}
	f := &backendTLSFact{name: n, targets: targetsOf(o)}
	for i, ref := range o.Spec.TargetRefs {
		if ref.Group != "" || ref.Kind != gatewayv1.Kind(snapshot.KindService) {
			f.accepted.fail(gatewayv1.PolicyReasonInvalid, at("spec.targetRefs", i)+".kind: "+kindText(string(ref.Group), string(ref.Kind))+" cannot be the target: only Service can")
		}
	}
	tls := &model.BackendTLS{}
	const path = "spec.validation"
	invalid := func(field, problem string) {
		f.accepted.fail(gatewayv1.PolicyReasonInvalid, path+field+": "+problem)
	}
	v := &o.Spec.Validation
	tls.ServerName = strings.ToLower(string(v.Hostname))
	if problem := hostProblem(tls.ServerName, false); problem != "" {
		invalid(".hostname", problem)
	}
	for i, name := range v.SubjectAltNames {
		field := at(".subjectAltNames", i)
		switch name.Type {
		case gatewayv1.HostnameSubjectAltNameType:
			host := strings.ToLower(string(name.Hostname))
			if problem := hostProblem(host, true); problem != "" {
				invalid(field+".hostname", problem)
			}
			tls.Names = append(tls.Names, model.AltName{DNS: host})
		case gatewayv1.URISubjectAltNameType:
			u, err := url.Parse(string(name.URI))
			if err != nil || u.Scheme == "" || !printable(string(name.URI)) || u.Host == "" && u.Path == "" && u.Opaque == "" {
				invalid(field+".uri", quote(string(name.URI))+` is no absolute URI, like "spiffe://example.com/app"`)
			}
			tls.Names = append(tls.Names, model.AltName{URI: string(name.URI)})
		default:
			invalid(field+".type", quote(string(name.Type))+" is unknown")
		}
	}
	wellKnown := deref(v.WellKnownCACertificates)
	switch {
	case len(v.CACertificateRefs) > 0 && wellKnown != "":
		invalid("", "only one of caCertificateRefs and wellKnownCACertificates can be specified")
	case len(v.CACertificateRefs) == 0 && wellKnown == "":
		invalid("", "one of caCertificateRefs and wellKnownCACertificates must be specified")
	case wellKnown != "" && wellKnown != gatewayv1.WellKnownCACertificatesSystem:
		invalid(".wellKnownCACertificates", quote(string(wellKnown))+" is unknown: only System is")
	}
	for i, ref := range v.CACertificateRefs {
		if id := t.caOf(c, f, ref, n.Namespace, at(path+".caCertificateRefs", i)); id != "" {
			tls.Authorities = append(tls.Authorities, id)
		}
	}
	if len(v.CACertificateRefs) > 0 && len(tls.Authorities) == 0 {
		f.accepted.fail(gatewayv1.BackendTLSPolicyReasonNoValidCACertificate, "no reference leads to a CA certificate: "+f.resolved.message)
	}
	for _, key := range sortedKeys(o.Spec.Options) {
		if strings.HasPrefix(string(key), "fairlead.dev/") || !strings.Contains(string(key), "/") {
			f.accepted.fail(gatewayv1.PolicyReasonInvalid, "spec.options: "+quote(string(key))+" is unknown")
		}
	}
	if !f.accepted.failed {
		slices.Sort(tls.Authorities)
		tls.Authorities = slices.Compact(tls.Authorities)
		f.tls = tls
	}
	return f, true
}

// caOf resolves one reference to CA certificates; empty when it is broken.
func (t *backendTables) caOf(c *memo.Context, f *backendTLSFact, ref gatewayv1.LocalObjectReference, namespace, path string) model.AuthorityID {
	kind := snapshot.Kind(ref.Kind)
	if ref.Group != "" || kind != snapshot.KindConfigMap && kind != snapshot.KindSecret {
		f.resolved.fail(gatewayv1.BackendTLSPolicyReasonInvalidKind,
			path+".kind: "+kindText(string(ref.Group), string(ref.Kind))+" holds no CA certificates: only ConfigMap and Secret do")
		return ""
	}
	a := t.tls.authorities.Get(c, authorityKey{kind, snapshot.Name{Namespace: namespace, Name: string(ref.Name)}})
	if a.problem != "" {
		f.resolved.fail(gatewayv1.BackendTLSPolicyReasonInvalidCACertificateRef, path+": "+string(kind)+" "+namespace+"/"+string(ref.Name)+" "+a.problem)
		return ""
	}
	return a.authority.ID
}

// kindText names a kind of a group.
func kindText(group, kind string) string {
	if group != "" {
		kind += "." + group
	}
	return quote(kind)
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// String is "Service a/b", or "port web of Service a/b".
func (t tlsTarget) String() string {
	text := "Service " + t.service.String()
	if t.section != "" {
		text = "port " + t.section + " of " + text
	}
	return text
}
