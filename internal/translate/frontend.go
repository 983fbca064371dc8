package translate

import (
	"cmp"
	"slices"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// frontendFact is how a Gateway verifies clients that speak TLS, at one port or by default.
type frontendFact struct {
	port     int32  // 0 is the default
	path     string // of the field
	resolved listenerVerdict
	accepted listenerVerdict
	insecure bool
	// validation is nil when clients are not asked.
	validation *model.ClientValidation
}

// frontend is what holds at a port; nil when nothing is said.
func (f *gatewayFact) frontend(port int32) *frontendFact {
	var found *frontendFact
	for i := range f.frontends {
		if p := f.frontends[i].port; p == port || p == 0 && found == nil {
			found = &f.frontends[i]
		}
	}
	return found
}

// validation is how clients are verified at a port; nil when they are not asked.
func (f *gatewayFact) validation(port int32) *model.ClientValidation {
	if of := f.frontend(port); of != nil {
		return of.validation
	}
	return nil
}

// insecure says where clients are let in that could not be verified; empty when nowhere.
func (f *gatewayFact) insecure() string {
	var paths []string
	for i := range f.frontends {
		if f.frontends[i].insecure {
			paths = append(paths, f.frontends[i].path+".mode")
		}
	}
	if len(paths) == 0 {
		return ""
	}
	return strings.Join(paths, ", ") + ": clients are let in without a certificate, or with one that cannot be verified"
}

func (t *gatewayTables) makeFrontends(c *memo.Context, f *gatewayFact, n snapshot.Name, o *gatewayv1.FrontendTLSConfig) {
	if o == nil {
		return
	}
	const path = "spec.tls.frontend"
	f.frontends = append(f.frontends, t.makeFrontend(c, n, 0, o.Default.Validation, path+".default.validation"))
	for i := range o.PerPort {
		p := &o.PerPort[i]
		f.frontends = append(f.frontends, t.makeFrontend(c, n, int32(p.Port), p.TLS.Validation, at(path+".perPort", i)+".tls.validation"))
	}
}

func (t *gatewayTables) makeFrontend(c *memo.Context, n snapshot.Name, port int32, o *gatewayv1.FrontendTLSValidation, path string) frontendFact {
	f := frontendFact{port: port, path: path}
	if o == nil {
		return f
	}
	v := &model.ClientValidation{}
	switch o.Mode {
	case "", gatewayv1.AllowValidOnly:
	case gatewayv1.AllowInsecureFallback:
		v.Optional, f.insecure = true, true
	default:
		f.accepted.fail(gatewayv1.ListenerReasonUnsupportedValue, path+".mode: "+quote(string(o.Mode))+" is unknown")
	}
	for i := range o.CACertificateRefs {
		if id := t.clientCA(c, &f, n, &o.CACertificateRefs[i], at(path+".caCertificateRefs", i)); id != "" {
			v.Authorities = append(v.Authorities, id)
		}
	}
	slices.Sort(v.Authorities)
	v.Authorities = slices.Compact(v.Authorities)
	if len(v.Authorities) == 0 {
		problem := f.resolved.message
		if len(o.CACertificateRefs) == 0 {
			problem = "at least one reference is needed"
		}
		f.accepted.fail(gatewayv1.ListenerReasonNoValidCACertificate, path+".caCertificateRefs: no reference leads to a CA certificate: "+problem)
	}
	f.validation = v
	return f
}

// clientCA resolves one reference to CA certificates; empty when it is broken.
func (t *gatewayTables) clientCA(c *memo.Context, f *frontendFact, n snapshot.Name, ref *gatewayv1.ObjectReference, path string) model.AuthorityID {
	kind := snapshot.Kind(ref.Kind)
	if ref.Group != "" || kind != snapshot.KindConfigMap && kind != snapshot.KindSecret {
		f.resolved.fail(gatewayv1.ListenerReasonInvalidCACertificateKind,
			path+".kind: "+kindText(string(ref.Group), string(ref.Kind))+" holds no CA certificates: only ConfigMap and Secret do")
		return ""
	}
	name := snapshot.Name{Namespace: cmp.Or(string(deref(ref.Namespace)), n.Namespace), Name: string(ref.Name)}
	if name.Namespace != n.Namespace && !t.in.granted(c, gatewayv1.GroupName, snapshot.KindGateway, n.Namespace, kind, name) {
		f.resolved.fail(gatewayv1.ListenerReasonRefNotPermitted, path+": "+noGrant(snapshot.KindGateway, n.Namespace, kind, name))
		return ""
	}
	a := t.tls.authorities.Get(c, authorityKey{kind, name})
	if a.problem != "" {
		f.resolved.fail(gatewayv1.ListenerReasonInvalidCACertificateRef, path+": "+string(kind)+" "+name.String()+" "+a.problem)
		return ""
	}
	return a.authority.ID
}

// validate tells listeners that end TLS what is wrong with how clients are verified at
// their ports. The prefix says whose field it is, where that is another resource.
func (f *gatewayFact) validate(prefix string, ls []gatewayListener) {
	for i := range ls {
		l := &ls[i]
		of := f.frontend(l.port)
		if !l.secure() || l.passthrough || of == nil {
			continue
		}
		if of.resolved.failed {
			l.resolved.fail(of.resolved.reason, prefix+of.resolved.message)
		}
		if of.accepted.failed {
			l.accepted.fail(of.accepted.reason, prefix+of.accepted.message)
		}
	}
}
