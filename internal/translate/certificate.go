package translate

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// certificateFact is a Secret of type kubernetes.io/tls, or why it is of no use. It is
// made when first asked for: most Secrets of a cluster are nobody's business here.
type certificateFact struct {
	// problem says what is wrong, as a clause that follows the Secret's name: "not found".
	// With one there is no certificate.
	problem     string
	certificate *model.Certificate
	// keyType is "RSA" or the name of the curve: a listener shows one certificate of each.
	keyType string
}

// certificate judges the TLS Secret of a name. It is never nil. Whether the certificate is
// valid at this time is another question: see validityNotes.
func (r reader) certificate(n snapshot.Name) *certificateFact {
	r.t.graph.read(r.by, named(nodeCertificate, n))
	return r.t.certificateFact(r.s, n)
}

func (t *Translator) certificateFact(s *snapshot.Snapshot, n snapshot.Name) *certificateFact {
	if f := t.certificates[n]; f != nil {
		return f
	}
	f := makeCertificateFact(s.Secrets[n], n)
	if s.Secrets[n] != nil {
		t.certificates[n] = f
	}
	return f
}

// computeCertificate judges a Secret anew that changed, if anybody asked for it.
func (t *Translator) computeCertificate(r reader, n node) {
	name := n.name()
	before, known := t.certificates[name]
	o := r.s.Secrets[name]
	switch {
	case t.graph.readers[n].len() == 0 && t.certificateUses[certificateID(name)] == 0: // what is pinned has no readers
		delete(t.certificates, name)
		return
	case known && before.of(o):
		return
	case o == nil:
		update(t, n, t.certificates, name, nil)
	default:
		update(t, n, t.certificates, name, makeCertificateFact(o, name))
	}
	t.touchCertificate(certificateID(name))
}

// of reports whether the fact is that of an object, as far as can be told without work.
func (f *certificateFact) of(o *corev1.Secret) bool {
	return o != nil && f.certificate != nil && o.Type == corev1.SecretTypeTLS &&
		string(o.Data[snapshot.CertificateKey]) == f.certificate.Chain && string(o.Data[snapshot.PrivateKeyKey]) == string(f.certificate.Key)
}

func certificateID(n snapshot.Name) model.CertificateID {
	return model.CertificateID(n.Namespace + "/" + n.Name)
}

// chainLimit bounds the certificates of one chain or bundle, and their text.
const (
	chainLimit  = 1000
	bundleLimit = 1 << 20
)

func makeCertificateFact(o *corev1.Secret, n snapshot.Name) *certificateFact {
	bad := func(problem string) *certificateFact { return &certificateFact{problem: problem} }
	if o == nil {
		return bad("not found")
	}
	if o.Type != corev1.SecretTypeTLS {
		return bad("is of type " + quote(string(o.Type)) + ", not " + quote(string(corev1.SecretTypeTLS)))
	}
	chain, key := o.Data[snapshot.CertificateKey], o.Data[snapshot.PrivateKeyKey]
	switch {
	case len(chain) == 0:
		return bad("has no " + snapshot.CertificateKey)
	case len(key) == 0:
		return bad("has no " + snapshot.PrivateKeyKey)
	}
	certificates, problem := parseCertificates(chain)
	if problem != "" {
		return bad("has a " + snapshot.CertificateKey + " that " + problem)
	}
	public, block, problem := parseKey(key)
	if problem != "" {
		return bad("has a " + snapshot.PrivateKeyKey + " that " + problem)
	}
	leaf := certificates[0]
	if !public.Equal(leaf.PublicKey) {
		return bad("has a " + snapshot.PrivateKeyKey + " that is not the key of the first certificate in " + snapshot.CertificateKey)
	}
	keyType, problem := keyTypeOf(leaf)
	if problem != "" {
		return bad(problem)
	}
	return &certificateFact{keyType: keyType, certificate: &model.Certificate{
		ID: certificateID(n), Chain: encodeCertificates(certificates), Key: model.Redacted(pem.EncodeToMemory(block)), Names: certificateNames(leaf), NotBefore: leaf.NotBefore.UTC(), NotAfter: leaf.NotAfter.UTC(),
		MustStaple: mustStaple(leaf),
	}}
}

// mustStaple reports whether the certificate has the TLS feature status_request (RFC 7633, 4).
func mustStaple(leaf *x509.Certificate) bool {
	for _, e := range leaf.Extensions {
		var features []int
		if !e.Id.Equal(asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 1, 24}) {
			continue
		}
		if _, err := asn1.Unmarshal(e.Value, &features); err == nil && slices.Contains(features, 5) {
			return true
		}
	}
	return false
}

// covers reports whether the certificate is for a host: a name, or a wildcard.
func (f *certificateFact) covers(host string) bool {
	return slices.ContainsFunc(f.certificate.Names, func(name string) bool {
		if suffix, is := strings.CutPrefix(name, "*."); is { // for one label (RFC 9525, 6.3)
			first, rest, _ := strings.Cut(host, ".")
			return first != "" && rest == suffix
		}
		return name == host
	})
}

// validity says why a certificate is not valid at a time; nothing at the zero time, which
// nobody said.
func (f *certificateFact) validity(now time.Time) string {
	switch {
	case now.IsZero() || f.certificate == nil:
	case now.After(f.certificate.NotAfter):
		return "the certificate of Secret " + string(f.certificate.ID) + " expired at " + f.certificate.NotAfter.Format(time.RFC3339)
	case now.Before(f.certificate.NotBefore):
		return "the certificate of Secret " + string(f.certificate.ID) + " is not valid before " + f.certificate.NotBefore.Format(time.RFC3339)
	}
	return ""
}

// validityNotes says which certificates are not valid now. They are shown all the same:
// clients decide, and some may look away.
func (r reader) validityNotes(ids []model.CertificateID) string {
	text := ""
	for _, id := range ids {
		namespace, name, _ := strings.Cut(string(id), "/")
		n := snapshot.Name{Namespace: namespace, Name: name}
		r.t.graph.read(r.by, named(nodeValidity, n))
		if note := r.certificate(n).validity(r.s.Now); note != "" {
			text += "; " + note
		}
	}
	return text
}

// inputTime looks at the certificates that became valid or expired since it was last told the
// time: there may be thousands, and time is told every minute.
func (t *Translator) inputTime(s *snapshot.Snapshot) {
	for n, f := range t.certificates {
		if f.validity(t.index.now) != f.validity(s.Now) {
			t.graph.changed(named(nodeValidity, n))
		}
	}
	t.index.now = s.Now
}

// encodeCertificates writes certificates as PEM. Machines get that, and not what was read: readers of
// PEM differ in what they pass over, and what Envoy cannot read takes everything along that names it.
func encodeCertificates(list []*x509.Certificate) string {
	var text []byte
	for _, c := range list {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
	}
	return string(text)
}

// unreadable says that PEM has blocks that cannot be read, which pem.Decode passes over.
func unreadable(text []byte) string {
	blocks := 0
	for rest := text; ; blocks++ {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
	}
	if bytes.Count(text, []byte("-----BEGIN ")) != blocks {
		return "has a block of PEM that cannot be read"
	}
	return ""
}

// parseCertificates reads PEM; without certificates there is a problem.
func parseCertificates(text []byte) ([]*x509.Certificate, string) {
	var list []*x509.Certificate
	if len(text) > bundleLimit {
		return nil, "is longer than " + strconv.Itoa(bundleLimit) + " bytes"
	}
	if problem := unreadable(text); problem != "" {
		return nil, problem
	}
	for rest := text; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, "has a certificate that cannot be read: " + strings.ToValidUTF8(err.Error(), "?")
		}
		if list = append(list, c); len(list) > chainLimit {
			return nil, "has more than " + strconv.Itoa(chainLimit) + " certificates"
		}
	}
	if len(list) == 0 {
		return nil, "has no certificate in PEM"
	}
	return list, ""
}

type publicKey interface{ Equal(x crypto.PublicKey) bool }

// parseKey returns the public half of a private key, and the key in a block of the type that it has: proxies believe
// the type, and read no headers.
func parseKey(text []byte) (publicKey, *pem.Block, string) {
	bad := func(problem string) (publicKey, *pem.Block, string) { return nil, nil, problem }
	if problem := unreadable(text); problem != "" {
		return bad(problem)
	}
	for rest := text; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return bad("has no private key in PEM")
		}
		if block.Type != "PRIVATE KEY" && !strings.HasSuffix(block.Type, " PRIVATE KEY") {
			continue
		}
		if block.Type == "ENCRYPTED PRIVATE KEY" || block.Headers["DEK-Info"] != "" || strings.Contains(block.Headers["Proc-Type"], "ENCRYPTED") {
			return bad("is encrypted: nobody is there to say the password")
		}
		if key, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
			return &key.PublicKey, &pem.Block{Type: "RSA PRIVATE KEY", Bytes: block.Bytes}, ""
		}
		if key, err := x509.ParseECPrivateKey(block.Bytes); err == nil {
			return &key.PublicKey, &pem.Block{Type: "EC PRIVATE KEY", Bytes: block.Bytes}, ""
		}
		key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		if err != nil {
			return bad("has a private key that cannot be read")
		}
		block = &pem.Block{Type: "PRIVATE KEY", Bytes: block.Bytes}
		switch key := key.(type) {
		case *rsa.PrivateKey:
			return &key.PublicKey, block, ""
		case *ecdsa.PrivateKey:
			return &key.PublicKey, block, ""
		}
		return bad("is neither an RSA nor an ECDSA key: others are not served")
	}
}

// keyTypeOf says what kind of key a certificate has; those that Envoy refuses have a problem.
func keyTypeOf(c *x509.Certificate) (string, string) {
	switch key := c.PublicKey.(type) {
	case *rsa.PublicKey:
		if key.N.BitLen() < 2048 {
			return "", "has a certificate with an RSA key of " + strconv.Itoa(key.N.BitLen()) + " bits: at least 2048 are needed"
		}
		return "RSA", ""
	case *ecdsa.PublicKey:
		if c.KeyUsage != 0 && c.KeyUsage&x509.KeyUsageDigitalSignature == 0 { // as BoringSSL has it
			return "", "has a certificate with an ECDSA key whose key usage has no digital signature: it cannot be used for TLS"
		}
		switch key.Curve {
		case elliptic.P256(), elliptic.P384(), elliptic.P521():
			return key.Curve.Params().Name, ""
		}
	}
	return "", "has a certificate with a key that is neither RSA nor ECDSA on P-256, P-384 or P-521: others are not served"
}

// certificateNames are the DNS names and addresses of a certificate, sorted.
func certificateNames(c *x509.Certificate) []string {
	var names []string
	for _, name := range c.DNSNames {
		names = append(names, strings.ToLower(strings.ToValidUTF8(name, "?")))
	}
	for _, a := range c.IPAddresses {
		names = append(names, a.String())
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// authorityFact is a bundle of CA certificates, or why there is none.
type authorityFact struct {
	problem   string // as certificateFact's
	authority *model.Authority
}

// authorityKey names a bundle: the kind is ConfigMap or Secret.
type authorityKey struct {
	kind snapshot.Kind
	name snapshot.Name
}

func (k authorityKey) node() node {
	return node{kind: nodeAuthority, a: string(k.kind), b: k.name.Namespace, c: k.name.Name}
}

func (k authorityKey) id() model.AuthorityID {
	return model.AuthorityID(string(k.kind) + "/" + k.name.Namespace + "/" + k.name.Name)
}

// authority judges the CA certificates in key ca.crt of a ConfigMap or Secret. It is never nil.
func (r reader) authority(kind snapshot.Kind, n snapshot.Name) *authorityFact {
	k := authorityKey{kind, n}
	r.t.graph.read(r.by, k.node())
	return r.t.authorityFact(r.s, k)
}

func (t *Translator) authorityFact(s *snapshot.Snapshot, k authorityKey) *authorityFact {
	if f := t.authorities[k]; f != nil {
		return f
	}
	f, found := makeAuthorityFact(s, k)
	if found {
		t.authorities[k] = f
	}
	return f
}

func (t *Translator) computeAuthority(r reader, n node) {
	k := authorityKey{snapshot.Kind(n.a), snapshot.Name{Namespace: n.b, Name: n.c}}
	if t.graph.readers[n].len() == 0 && t.authorityUses[k.id()] == 0 {
		delete(t.authorities, k)
		return
	}
	if f, found := makeAuthorityFact(r.s, k); found {
		update(t, n, t.authorities, k, f)
	} else {
		update(t, n, t.authorities, k, nil)
	}
	t.touchAuthority(k.id())
}

func makeAuthorityFact(s *snapshot.Snapshot, k authorityKey) (f *authorityFact, found bool) {
	var text []byte
	var said bool
	switch k.kind {
	case snapshot.KindConfigMap:
		o := s.ConfigMaps[k.name]
		if found = o != nil; found {
			var value string
			value, said = o.Data[snapshot.AuthorityKey]
			text = []byte(value)
		}
	case snapshot.KindSecret:
		o := s.Secrets[k.name]
		if found = o != nil; found {
			text, said = o.Data[snapshot.AuthorityKey]
		}
	}
	switch {
	case !found:
		return &authorityFact{problem: "not found"}, false
	case !said:
		return &authorityFact{problem: "has no key " + snapshot.AuthorityKey}, true
	}
	certificates, problem := parseCertificates(text)
	if problem != "" {
		return &authorityFact{problem: "has a " + snapshot.AuthorityKey + " that " + problem}, true
	}
	return &authorityFact{authority: &model.Authority{ID: k.id(), PEM: encodeCertificates(certificates)}}, true
}

// useCertificate and useAuthority count who uses one, so that exactly those are published
// that a TLSHost, a group or a listener names. TLSHosts, groups and listeners are counted
// where they are published; who makes them counts nothing.
func (t *Translator) useCertificate(id model.CertificateID, by int) {
	t.certificateUses[id] += by
	t.touchCertificate(id)
}

func (t *Translator) useAuthority(id model.AuthorityID, by int) {
	t.authorityUses[id] += by
	t.touchAuthority(id)
}

func (t *Translator) touchCertificate(id model.CertificateID) {
	t.touchedCertificates[id] = struct{}{}
}

func (t *Translator) touchAuthority(id model.AuthorityID) { t.touchedAuthorities[id] = struct{}{} }

// useTLS counts the certificate and the authorities by which backends are met.
func (t *Translator) useTLS(b *model.BackendTLS, by int) {
	if b == nil {
		return
	}
	if b.Certificate != "" {
		t.useCertificate(b.Certificate, by)
	}
	for _, id := range b.Authorities {
		t.useAuthority(id, by)
	}
}

// settleCertificates publishes what is used and takes back what is not any more. What is
// pinned may not have been looked at for long.
func (t *Translator) settleCertificates(s *snapshot.Snapshot) {
	for id := range t.touchedCertificates {
		var c *model.Certificate
		if t.certificateUses[id] > 0 {
			namespace, name, _ := strings.Cut(string(id), "/")
			c = t.certificateFact(s, snapshot.Name{Namespace: namespace, Name: name}).certificate
		} else {
			delete(t.certificateUses, id)
		}
		publish(t.result.Certificates, t.out.Certificates, id, c)
	}
	clear(t.touchedCertificates)
	for id := range t.touchedAuthorities {
		var a *model.Authority
		if t.authorityUses[id] > 0 {
			parts := strings.SplitN(string(id), "/", 3)
			a = t.authorityFact(s, authorityKey{snapshot.Kind(parts[0]), snapshot.Name{Namespace: parts[1], Name: parts[2]}}).authority
		} else {
			delete(t.authorityUses, id)
		}
		publish(t.result.Authorities, t.out.Authorities, id, a)
	}
	clear(t.touchedAuthorities)
}
