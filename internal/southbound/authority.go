package southbound

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"sync"
	"time"

	agentv1 "fairlead.dev/proto/agent/v1"
)

// How long certificates live. Agents and planes renew theirs after two thirds.
const (
	AuthorityLife = 10 * 365 * 24 * time.Hour
	MachineLife   = 7 * 24 * time.Hour
	ServingLife   = 30 * 24 * time.Hour
	// backdate lets clocks differ.
	backdate          = time.Hour
	authorityBackdate = 24 * time.Hour
)

// ErrRequest is the class of certificate requests that are not signed.
var ErrRequest = errors.New("invalid certificate request")

// CA is a certificate authority of the agents. It signs machines' certificates and
// those of the planes that serve them. It is safe for concurrent use; its owner
// keeps its Bytes where only planes can read them.
type CA struct {
	cert *x509.Certificate
	key  crypto.Signer
	now  func() time.Time

	mu      sync.Mutex
	serving *tls.Certificate
}

// NewCA makes an authority with a key of its own.
func NewCA(now func() time.Time) (*CA, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the authority's key: %w", err)
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: "fairlead machines"},
		NotBefore:             now().Add(-authorityBackdate),
		NotAfter:              now().Add(AuthorityLife),
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign the authority's certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read the authority's certificate: %w", err)
	}
	return &CA{cert: cert, key: key, now: now}, nil
}

// ParseCA reads what Bytes gave.
func ParseCA(data []byte, now func() time.Time) (*CA, error) {
	ca := &CA{now: now}
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		var err error
		switch block.Type {
		case "CERTIFICATE":
			ca.cert, err = x509.ParseCertificate(block.Bytes)
		case "PRIVATE KEY":
			var key any
			if key, err = x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
				ca.key, _ = key.(crypto.Signer)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("read the authority's %s: %w", block.Type, err)
		}
	}
	if ca.cert == nil || ca.key == nil {
		return nil, errors.New("read the authority: want a certificate and a private key in PEM")
	}
	if public, ok := ca.key.Public().(*ecdsa.PublicKey); !ok || !public.Equal(ca.cert.PublicKey) {
		return nil, errors.New("read the authority: the key does not match the certificate")
	}
	if !ca.cert.IsCA {
		return nil, errors.New("read the authority: the certificate is not a CA certificate")
	}
	return ca, nil
}

// Bytes is the authority in PEM, its private key included.
func (ca *CA) Bytes() ([]byte, error) {
	key, err := x509.MarshalPKCS8PrivateKey(ca.key)
	if err != nil {
		return nil, fmt.Errorf("encode the authority's key: %w", err)
	}
	return append(ca.Roots(), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})...), nil
}

// Roots are the certificates that both ends must trust, PEM.
func (ca *CA) Roots() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.cert.Raw})
}

// Pin is the SHA-256 of the authority's public key (its SubjectPublicKeyInfo, as in
// RFC 7469), base64url without padding. A printed token carries it.
func (ca *CA) Pin() string { return pinText(pinOf(ca.cert)) }

// Since is when the authority was made, by the clock of whoever made it.
func (ca *CA) Since() time.Time { return ca.cert.NotBefore.Add(authorityBackdate) }

// Until is when nothing that it signed is good any more.
func (ca *CA) Until() time.Time { return ca.cert.NotAfter }

// Good says whether certificates that it signs can be good at a time. That it was made by a clock
// that is a day ahead does no harm.
func (ca *CA) Good(now time.Time) bool {
	return !now.Before(ca.cert.NotBefore) && now.Before(ca.cert.NotAfter)
}

// Trust is the trust of a single authority.
func (ca *CA) Trust() Trust { return trustOf(ca, ca) }

// pinOf names an authority in messages.
func pinOf(cert *x509.Certificate) []byte {
	sum := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
	return sum[:]
}

// pinText is how a pin is shown and printed.
func pinText(pin []byte) string { return base64.RawURLEncoding.EncodeToString(pin) }

// Sign issues a machine's certificate for the key of a certificate request (PKCS
// #10, DER). Everything else in the request is ignored: name and role are id's. The
// result is the chain in PEM, leaf first, and what its holder is told to trust.
func (ca *CA) Sign(csr []byte, id Identity) ([]byte, Trust, error) {
	if err := id.Validate(); err != nil {
		return nil, Trust{}, err
	}
	request, err := parseRequest(csr)
	if err != nil {
		return nil, Trust{}, err
	}
	subject := pkix.Name{CommonName: agentv1.MachinePrefix + id.Machine}
	if id.Role != "" {
		subject.OrganizationalUnit = []string{id.Role}
	}
	leaf, err := ca.issue(&x509.Certificate{
		Subject:     subject,
		NotAfter:    ca.now().Add(MachineLife),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, request.PublicKey)
	if err != nil {
		return nil, Trust{}, fmt.Errorf("sign the certificate of machine %s: %w", id.Machine, err)
	}
	return append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf}), ca.Roots()...), ca.Trust(), nil
}

// parseRequest checks a request: it must be signed by its own key, and the key be
// one that is worth signing.
func parseRequest(csr []byte) (*x509.CertificateRequest, error) {
	request, err := x509.ParseCertificateRequest(csr)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	if err := request.CheckSignature(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	switch key := request.PublicKey.(type) {
	case *ecdsa.PublicKey:
		if key.Curve.Params().BitSize < 256 {
			return nil, fmt.Errorf("%w: the curve has fewer than 256 bits", ErrRequest)
		}
	case ed25519.PublicKey:
	case *rsa.PublicKey:
		if bits := key.N.BitLen(); bits < 2048 || bits > 8192 {
			return nil, fmt.Errorf("%w: an RSA key of %d bits", ErrRequest, bits)
		}
	default:
		return nil, fmt.Errorf("%w: a key of type %T", ErrRequest, key)
	}
	return request, nil
}

// Serving is the certificate that a plane presents, also as a client of other planes. It is made at the first call,
// and again when two thirds of its lifetime are over or the clock is outside of it.
func (ca *CA) Serving() (*tls.Certificate, error) {
	ca.mu.Lock()
	defer ca.mu.Unlock()
	now := ca.now()
	if c := ca.serving; c != nil && now.After(c.Leaf.NotBefore) && now.Before(c.Leaf.NotAfter.Add(-ServingLife/3)) {
		return c, nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a serving key: %w", err)
	}
	der, err := ca.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: agentv1.ServerName},
		DNSNames:    []string{agentv1.ServerName},
		NotAfter:    now.Add(ServingLife),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, key.Public())
	if err != nil {
		return nil, fmt.Errorf("sign the serving certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read the serving certificate: %w", err)
	}
	// The authority travels along: a joining agent knows only its pin.
	ca.serving = &tls.Certificate{Certificate: [][]byte{der, ca.cert.Raw}, PrivateKey: key, Leaf: leaf}
	return ca.serving, nil
}

func (ca *CA) issue(template *x509.Certificate, public crypto.PublicKey) ([]byte, error) {
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	template.NotBefore = ca.now().Add(-backdate)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.BasicConstraintsValid = true
	return x509.CreateCertificate(rand.Reader, template, ca.cert, public, ca.key)
}

func newSerial() (*big.Int, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("choose a serial number: %w", err)
	}
	return serial.Add(serial, big.NewInt(1)), nil
}
