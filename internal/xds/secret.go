package xds

import (
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"fairlead.dev/internal/model"
)

// SecretName names the Secret of a certificate that a listener or a cluster names itself:
// "certificate/namespace/name".
func SecretName(id model.CertificateID) string { return "certificate/" + string(id) }

// AuthorityName names the Secret of all the authorities that may have signed, in any
// order: "authority/ConfigMap/ns/a+Secret/ns/b". Envoy takes one for a validation, so each
// set in use has its own.
func AuthorityName(ids ...model.AuthorityID) string {
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = string(id)
	}
	slices.Sort(names)
	return "authority/" + strings.Join(slices.Compact(names), "+")
}

// HostSecretName names the Secret of a plain TLS host, for which Envoy asks with the
// server name of a client (see Plain). No host has a "/", so it is no other Secret's name.
func HostSecretName(host string) string { return host }

// Secret is a certificate with its key and, where there is one, an OCSP response to staple.
func Secret(name string, c model.Certificate) *tlsv3.Secret {
	t := &tlsv3.TlsCertificate{CertificateChain: inlineBytes([]byte(c.Chain)), PrivateKey: inlineBytes([]byte(c.Key))}
	if len(c.OCSP) > 0 {
		t.OcspStaple = inlineBytes(c.OCSP)
	}
	return &tlsv3.Secret{Name: name, Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: t}}
}

// AuthoritySecret is the certificates of authorities by which peers are verified.
func AuthoritySecret(name string, authorities ...model.Authority) *tlsv3.Secret {
	sorted := slices.SortedFunc(slices.Values(authorities), func(a, b model.Authority) int { return strings.Compare(string(a.ID), string(b.ID)) })
	var pem strings.Builder
	for _, a := range sorted {
		pem.WriteString(strings.TrimSuffix(a.PEM, "\n") + "\n")
	}
	return &tlsv3.Secret{Name: name, Type: &tlsv3.Secret_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{
		TrustedCa: inlineBytes([]byte(pem.String())),
	}}}
}

// sds is "the Secret of that name, by the stream to the agent".
func sds(name string) *tlsv3.SdsSecretConfig {
	return &tlsv3.SdsSecretConfig{Name: name, SdsConfig: ads(secretFetch)}
}

func inlineBytes(b []byte) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: b}}
}
