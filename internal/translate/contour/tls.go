package contour

import (
	"slices"
	"strings"

	contourv1beta1 "fairlead.dev/api/contour/v1beta1"
	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/field"
)

// ingressTLS is how a root IngressRoute wants connections to its host secured. A root that
// is closed may have none of it: what it asked for cannot be had, so that nothing is served.
type ingressTLS struct {
	passthrough bool
	Certificate model.CertificateID // none with passthrough
	MinVersion  model.TLSVersion
	Note        string // what is worth knowing of the certificate
}

// tls reads spec.virtualhost.tls. Whatever is wrong with it closes the root: a host that
// somebody wants secured is served in no other way.
func (c *compiler) tls(o *contourv1beta1.TLS, proxies bool) {
	const path = "spec.virtualhost.tls"
	t := &ingressTLS{passthrough: o.Passthrough}
	c.route.TLS = t
	switch {
	case o.Passthrough && o.SecretName != "":
		c.close(path + ": only one of secretName or passthrough can be specified: with passthrough the backends have the certificate")
	case o.Passthrough && !proxies:
		c.close(path + ".passthrough: needs spec.tcpproxy: requests inside TLS connections cannot be routed")
	case o.Passthrough:
	case o.SecretName == "":
		c.close(path + ".secretName: must be specified, or passthrough")
	default:
		c.certificate(t, o.SecretName, path+".secretName")
	}
	switch o.MinimumProtocolVersion {
	case "":
	case "1.1", "1.2", "1.3":
		t.MinVersion = model.TLSVersion(o.MinimumProtocolVersion)
		if o.Passthrough {
			c.close(path + ".minimumProtocolVersion: with passthrough the backends choose the version")
		}
	default:
		c.close(path + ".minimumProtocolVersion: " + field.Quote(o.MinimumProtocolVersion) + " must be 1.1, 1.2 or 1.3")
	}
}

// certificate finds the Secret of a host's certificate: "name", or "namespace/name" where a
// TLSCertificateDelegation lets it be used. Of one that may not be used nothing is said, not
// even whether it is there.
func (c *compiler) certificate(t *ingressTLS, text, path string) {
	name, problem := secretName(text, c.name.Namespace)
	if problem != "" {
		c.close(path + ": " + problem)
		return
	}
	if name.Namespace != c.name.Namespace && !c.t.delegated(c.ctx, name, c.name.Namespace) {
		c.close(path + ": Secret " + name.String() + ": certificate delegation not permitted: no TLSCertificateDelegation in namespace " +
			name.Namespace + " delegates it to " + c.name.Namespace)
		return
	}
	secret := c.t.from.Certificates.Certificates.Get(c.ctx, name)
	if secret.Problem != "" {
		c.close(path + ": TLS Secret " + name.String() + " " + secret.Problem)
		return
	}
	t.Certificate = secret.Certificate.ID
	if c.route.Host != "" && !secret.Covers(c.route.Host) {
		t.Note = path + ": the certificate of Secret " + name.String() + " is for " + namesText(secret.Certificate.Names) + ", so clients refuse it for " + c.route.Host
	}
}

// namesText names the first few names of a certificate.
func namesText(names []string) string {
	const most = 8
	switch {
	case len(names) == 0:
		return "no name"
	case len(names) > most:
		return strings.Join(names[:most], ", ") + ", ..."
	}
	return strings.Join(names, ", ")
}

// secretName reads "name" or "namespace/name".
func secretName(text, namespace string) (snapshot.Name, string) {
	n := snapshot.Name{Namespace: namespace, Name: text}
	if before, after, has := strings.Cut(text, "/"); has {
		n = snapshot.Name{Namespace: before, Name: after}
	}
	if !field.IsLabel(n.Namespace) || field.HostProblem(n.Name, false) != "" {
		return n, field.Quote(text) + ` must be the name of a Secret, or "namespace/name"`
	}
	return n, ""
}

// delegated reports whether a namespace may use a Secret of another one. As in Contour 0.15, "*" is all namespaces where
// it stands alone, and none beside names.
func (t *Tables) delegated(c *memo.Context, secret snapshot.Name, namespace string) bool {
	for _, o := range t.in.Delegations.Get(c, secret).All() {
		for _, d := range o.Spec.Delegations {
			all := len(d.TargetNamespaces) == 1 && d.TargetNamespaces[0] == "*"
			if d.SecretName == secret.Name && (all || namespace != "*" && slices.Contains(d.TargetNamespaces, namespace)) {
				return true
			}
		}
	}
	return false
}
