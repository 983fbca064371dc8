package certificate

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

	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/field"
	"fairlead.dev/internal/translate/input"
)

// Tables are the certificates and CA certificates that somebody reads.
type Tables struct {
	in *input.Tables

	pairs        *memo.Table[snapshot.Name, *corev1.Secret] // what of Secrets is read as a certificate
	Certificates *memo.Table[snapshot.Name, *Certificate]
	Authorities  *memo.Table[AuthorityKey, *Authority]
	Validity     *memo.Table[snapshot.Name, string] // why a certificate is not valid now

	// Who uses which, so that exactly those reach machines which a TLSHost, a group or a listener names.
	CertificateUses *memo.Sum[model.CertificateID, User, struct{}, int]
	AuthorityUses   *memo.Sum[model.AuthorityID, User, struct{}, int]
	UsedCertificate *memo.Table[model.CertificateID, *model.Certificate]
	UsedAuthority   *memo.Table[model.AuthorityID, *model.Authority]
}

// User is what uses something: a kind of thing, and whatever names it.
type User struct {
	Kind   string
	Object model.Object
	Host   model.HostKey
}

// New adds the tables of certificates and authorities to a graph.
func New(g *memo.Graph, in *input.Tables) *Tables {
	t := &Tables{in: in}
	t.pairs = memo.NewTable(g, "TLS Secret", func(c *memo.Context, n snapshot.Name) (*corev1.Secret, bool) {
		o := in.Secrets.Get(c, n)
		return o, o != nil
	}, memo.Reads(in.Secrets)).Equal(samePair)
	t.Certificates = memo.NewTable(g, "certificate", func(c *memo.Context, n snapshot.Name) (*Certificate, bool) {
		return read(t.pairs.Get(c, n), n), true
	}, memo.Reads(t.pairs))
	t.Authorities = memo.NewTable(g, "CA certificates", t.makeAuthority, memo.Reads(in.Secrets, in.ConfigMaps))
	t.Validity = memo.NewTable(g, "validity of a certificate", func(c *memo.Context, n snapshot.Name) (string, bool) {
		problem := t.Certificates.Get(c, n).validity(in.Now.Get(c, memo.Unit{}))
		return problem, problem != ""
	}, memo.Reads(t.Certificates, in.Now))
	t.CertificateUses = memo.NewCount[model.CertificateID, User](g, "uses of a certificate")
	t.AuthorityUses = memo.NewCount[model.AuthorityID, User](g, "uses of CA certificates")
	t.UsedCertificate = memo.For(memo.NewTable(g, "certificate that is used", func(c *memo.Context, id model.CertificateID) (*model.Certificate, bool) {
		if t.CertificateUses.Get(c, id) == 0 {
			return nil, false
		}
		certificate := t.Certificates.Get(c, secretOf(id)).Certificate
		return certificate, certificate != nil
	}, memo.Reads(t.CertificateUses, t.Certificates)), t.CertificateUses).Watch()
	t.UsedAuthority = memo.For(memo.NewTable(g, "CA certificates that are used", func(c *memo.Context, id model.AuthorityID) (*model.Authority, bool) {
		if t.AuthorityUses.Get(c, id) == 0 {
			return nil, false
		}
		authority := t.Authorities.Get(c, authorityOf(id)).Authority
		return authority, authority != nil
	}, memo.Reads(t.AuthorityUses, t.Authorities)), t.AuthorityUses).Watch()
	return t
}

// Uses puts the certificate and the authorities by which backends are met.
func (t *Tables) Uses(c *memo.Context, b *model.BackendTLS, by User) {
	if b == nil {
		return
	}
	if b.Certificate != "" {
		t.CertificateUses.Put(c, b.Certificate, by, struct{}{})
	}
	for _, id := range b.Authorities {
		t.AuthorityUses.Put(c, id, by, struct{}{})
	}
}

// samePair says that two Secrets have the same certificate and key.
func samePair(a, b *corev1.Secret) bool {
	same := func(key string) bool {
		x, there := a.Data[key]
		y, too := b.Data[key]
		return there == too && bytes.Equal(x, y)
	}
	return a.Type == b.Type && same(snapshot.CertificateKey) && same(snapshot.PrivateKeyKey)
}

// Certificate is a Secret of type kubernetes.io/tls, or why it is of no use. Most Secrets of a cluster are
// nobody's business here, so that one is made for those alone that are read.
type Certificate struct {
	// Problem says what is wrong, as a clause that follows the Secret's name: "not found".
	// With one there is no certificate.
	Problem     string
	Certificate *model.Certificate
	// KeyType is "RSA" or the name of the curve: a listener shows one certificate of each.
	KeyType string
}

// secretOf is the Secret that a certificate's ID names.
func secretOf(id model.CertificateID) snapshot.Name {
	namespace, name, _ := strings.Cut(string(id), "/")
	return snapshot.Name{Namespace: namespace, Name: name}
}

// idOf is the model's name for the certificate of a Secret.
func idOf(n snapshot.Name) model.CertificateID {
	return model.CertificateID(n.Namespace + "/" + n.Name)
}

// chainLimit bounds the certificates of one chain or bundle, and their text.
const (
	chainLimit  = 1000
	bundleLimit = 1 << 20
)

// read parses the TLS Secret n; o is nil where it does not exist. Problem says why it cannot be used.
func read(o *corev1.Secret, n snapshot.Name) *Certificate {
	bad := func(problem string) *Certificate { return &Certificate{Problem: problem} }
	if o == nil {
		return bad("not found")
	}
	if o.Type != corev1.SecretTypeTLS {
		return bad("is of type " + field.Quote(string(o.Type)) + ", not " + field.Quote(string(corev1.SecretTypeTLS)))
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
	return &Certificate{KeyType: keyType, Certificate: &model.Certificate{
		ID: idOf(n), Chain: encodeCertificates(certificates), Key: model.Redacted(pem.EncodeToMemory(block)), Names: certificateNames(leaf), NotBefore: leaf.NotBefore.UTC(), NotAfter: leaf.NotAfter.UTC(),
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

// Covers reports whether the certificate is for a host: a name, or a wildcard.
func (f *Certificate) Covers(host string) bool {
	return slices.ContainsFunc(f.Certificate.Names, func(name string) bool {
		if suffix, is := strings.CutPrefix(name, "*."); is { // for one label (RFC 9525, 6.3)
			first, rest, _ := strings.Cut(host, ".")
			return first != "" && rest == suffix
		}
		return name == host
	})
}

// validity says why a certificate is not valid at a time; nothing at the zero time, which
// nobody said.
func (f *Certificate) validity(now time.Time) string {
	switch {
	case now.IsZero() || f.Certificate == nil:
	case now.After(f.Certificate.NotAfter):
		return "the certificate of Secret " + string(f.Certificate.ID) + " expired at " + f.Certificate.NotAfter.Format(time.RFC3339)
	case now.Before(f.Certificate.NotBefore):
		return "the certificate of Secret " + string(f.Certificate.ID) + " is not valid before " + f.Certificate.NotBefore.Format(time.RFC3339)
	}
	return ""
}

// ValidityNotes says which certificates are not valid now. They are shown all the same:
// clients decide, and some may look away.
func (t *Tables) ValidityNotes(c *memo.Context, ids []model.CertificateID) string {
	text := ""
	for _, id := range ids {
		if note := t.Validity.Get(c, secretOf(id)); note != "" {
			text += "; " + note
		}
	}
	return text
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
			return bad("is encrypted: store it without a password")
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

// Authority is a bundle of CA certificates, or why there is none.
type Authority struct {
	Problem   string // as of a Certificate
	Authority *model.Authority
}

// AuthorityKey names a bundle: the kind is ConfigMap or Secret.
type AuthorityKey struct {
	Kind snapshot.Kind
	Name snapshot.Name
}

func (k AuthorityKey) id() model.AuthorityID {
	return model.AuthorityID(string(k.Kind) + "/" + k.Name.Namespace + "/" + k.Name.Name)
}

// authorityOf is the bundle that an ID names.
func authorityOf(id model.AuthorityID) AuthorityKey {
	kind, name, _ := strings.Cut(string(id), "/")
	return AuthorityKey{snapshot.Kind(kind), secretOf(model.CertificateID(name))}
}

// makeAuthority judges the CA certificates in key ca.crt of a ConfigMap or Secret.
func (t *Tables) makeAuthority(c *memo.Context, k AuthorityKey) (*Authority, bool) {
	var text []byte
	var found, said bool
	switch k.Kind {
	case snapshot.KindConfigMap:
		o := t.in.ConfigMaps.Get(c, k.Name)
		if found = o != nil; found {
			var value string
			value, said = o.Data[snapshot.AuthorityKey]
			text = []byte(value)
		}
	case snapshot.KindSecret:
		o := t.in.Secrets.Get(c, k.Name)
		if found = o != nil; found {
			text, said = o.Data[snapshot.AuthorityKey]
		}
	}
	switch {
	case !found:
		return &Authority{Problem: "not found"}, true
	case !said:
		return &Authority{Problem: "has no key " + snapshot.AuthorityKey}, true
	}
	certificates, problem := parseCertificates(text)
	if problem != "" {
		return &Authority{Problem: "has a " + snapshot.AuthorityKey + " that " + problem}, true
	}
	return &Authority{Authority: &model.Authority{ID: k.id(), PEM: encodeCertificates(certificates)}}, true
}
