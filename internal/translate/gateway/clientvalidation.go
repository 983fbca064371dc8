package gateway

import (
	"cmp"
	"slices"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/certificate"
	"fairlead.dev/internal/translate/field"
	"fairlead.dev/internal/translate/input"
)

// clientValidation is how a Gateway verifies clients that speak TLS, at one port or by default.
type clientValidation struct {
	port     int32  // 0 is the default
	path     string // of the field
	resolved ListenerResult
	accepted ListenerResult
	insecure bool
	// validation is nil when clients are not asked.
	validation *model.ClientValidation
}

// frontend is what holds at a port; nil when nothing is said.
func (f *Gateway) frontend(port int32) *clientValidation {
	var found *clientValidation
	for i := range f.frontends {
		if p := f.frontends[i].port; p == port || p == 0 && found == nil {
			found = &f.frontends[i]
		}
	}
	return found
}

// Validation is how clients are verified at a port; nil when they are not asked.
func (f *Gateway) Validation(port int32) *model.ClientValidation {
	if of := f.frontend(port); of != nil {
		return of.validation
	}
	return nil
}

// Insecure says where clients are let in that could not be verified; empty when nowhere.
func (f *Gateway) Insecure() string {
	var paths []string
	for i := range f.frontends {
		if f.frontends[i].insecure {
			paths = append(paths, f.frontends[i].path+".mode")
		}
	}
	if len(paths) == 0 {
		return ""
	}
	return strings.Join(paths, ", ") + ": clients are admitted without a certificate, or with one that cannot be verified"
}

func (t *Tables) makeFrontends(c *memo.Context, f *Gateway, n snapshot.Name, o *gatewayv1.FrontendTLSConfig) {
	if o == nil {
		return
	}
	const path = "spec.tls.frontend"
	f.frontends = append(f.frontends, t.makeFrontend(c, n, 0, o.Default.Validation, path+".default.validation"))
	for i := range o.PerPort {
		p := &o.PerPort[i]
		f.frontends = append(f.frontends, t.makeFrontend(c, n, int32(p.Port), p.TLS.Validation, field.At(path+".perPort", i)+".tls.validation"))
	}
}

func (t *Tables) makeFrontend(c *memo.Context, n snapshot.Name, port int32, o *gatewayv1.FrontendTLSValidation, path string) clientValidation {
	f := clientValidation{port: port, path: path}
	if o == nil {
		return f
	}
	v := &model.ClientValidation{}
	switch o.Mode {
	case "", gatewayv1.AllowValidOnly:
	case gatewayv1.AllowInsecureFallback:
		v.Optional, f.insecure = true, true
	default:
		f.accepted.Fail(gatewayv1.ListenerReasonUnsupportedValue, path+".mode: "+field.Quote(string(o.Mode))+" is unknown")
	}
	for i := range o.CACertificateRefs {
		if id := t.clientCA(c, &f, n, &o.CACertificateRefs[i], field.At(path+".caCertificateRefs", i)); id != "" {
			v.Authorities = append(v.Authorities, id)
		}
	}
	slices.Sort(v.Authorities)
	v.Authorities = slices.Compact(v.Authorities)
	if len(v.Authorities) == 0 {
		problem := f.resolved.Message
		if len(o.CACertificateRefs) == 0 {
			problem = "at least one reference is needed"
		}
		f.accepted.Fail(gatewayv1.ListenerReasonNoValidCACertificate, path+".caCertificateRefs: no reference leads to a CA certificate: "+problem)
	}
	f.validation = v
	return f
}

// clientCA resolves one reference to CA certificates; empty when it is broken.
func (t *Tables) clientCA(c *memo.Context, f *clientValidation, n snapshot.Name, ref *gatewayv1.ObjectReference, path string) model.AuthorityID {
	kind := snapshot.Kind(ref.Kind)
	if ref.Group != "" || kind != snapshot.KindConfigMap && kind != snapshot.KindSecret {
		f.resolved.Fail(gatewayv1.ListenerReasonInvalidCACertificateKind,
			path+".kind: "+field.KindText(string(ref.Group), string(ref.Kind))+" holds no CA certificates: only ConfigMap and Secret do")
		return ""
	}
	name := snapshot.Name{Namespace: cmp.Or(string(field.Deref(ref.Namespace)), n.Namespace), Name: string(ref.Name)}
	if name.Namespace != n.Namespace && !t.in.Granted(c, gatewayv1.GroupName, snapshot.KindGateway, n.Namespace, kind, name) {
		f.resolved.Fail(gatewayv1.ListenerReasonRefNotPermitted, path+": "+input.NoGrant(snapshot.KindGateway, n.Namespace, kind, name))
		return ""
	}
	a := t.from.Certificates.Authorities.Get(c, certificate.AuthorityKey{Kind: kind, Name: name})
	if a.Problem != "" {
		f.resolved.Fail(gatewayv1.ListenerReasonInvalidCACertificateRef, path+": "+string(kind)+" "+name.String()+" "+a.Problem)
		return ""
	}
	return a.Authority.ID
}

// validate tells listeners that end TLS what is wrong with how clients are verified at
// their ports. The prefix says whose field it is, where that is another resource.
func (f *Gateway) validate(prefix string, ls []Listener) {
	for i := range ls {
		l := &ls[i]
		of := f.frontend(l.Port)
		if !l.Secure() || l.Passthrough || of == nil {
			continue
		}
		if of.resolved.Failed {
			l.Resolved.Fail(of.resolved.Reason, prefix+of.resolved.Message)
		}
		if of.accepted.Failed {
			l.Accepted.Fail(of.accepted.Reason, prefix+of.accepted.Message)
		}
	}
}
