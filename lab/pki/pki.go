// Package pki makes the certificates of a lab: an authority and what it signs, as files.
//
// It refuses to last: everything it signs ends with the second day. Invariant: a file that it
// wrote holds a whole key or certificate, readable by its owner alone.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Authority is a lab's own, with a directory that holds what it signed: NAME.crt
// and NAME.key.
type Authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

// New makes an authority. It is as short-lived as a test.
func New(dir string) (*Authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make certificates: %w", err)
	}
	p := &Authority{dir: dir}
	var err error
	if p.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, fmt.Errorf("make certificates: %w", err)
	}
	p.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "lab"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(48 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, p.cert, p.cert, p.key.Public(), p.key)
	if err != nil {
		return nil, fmt.Errorf("make certificates: %w", err)
	}
	p.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := os.WriteFile(p.Path("ca.crt"), p.pem, 0o600); err != nil {
		return nil, fmt.Errorf("make certificates: %w", err)
	}
	_, err = p.writeKey("ca.key", p.key)
	return p, err
}

// Path of one of its files.
func (p *Authority) Path(file string) string { return filepath.Join(p.dir, file) }

// Issue signs a certificate for server and client, and writes it and its key.
func (p *Authority) Issue(name string, subject pkix.Name, ips []net.IP, dns ...string) (crt, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make certificate %s: %w", name, err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return nil, nil, fmt.Errorf("make certificate %s: %w", name, err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: subject, NotBefore: p.cert.NotBefore, NotAfter: p.cert.NotAfter,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		IPAddresses: ips, DNSNames: dns,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, p.cert, private.Public(), p.key)
	if err != nil {
		return nil, nil, fmt.Errorf("make certificate %s: %w", name, err)
	}
	crt = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := os.WriteFile(p.Path(name+".crt"), crt, 0o600); err != nil {
		return nil, nil, fmt.Errorf("make certificate %s: %w", name, err)
	}
	key, err = p.writeKey(name+".key", private)
	return crt, key, err
}

// NewKey makes a key without a certificate.
func (p *Authority) NewKey(file string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make key %s: %w", file, err)
	}
	_, err = p.writeKey(file, key)
	return err
}

func (p *Authority) writeKey(file string, key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("make key %s: %w", file, err)
	}
	out := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
	if err := os.WriteFile(p.Path(file), out, 0o600); err != nil {
		return nil, fmt.Errorf("make key %s: %w", file, err)
	}
	return out, nil
}

// Kubeconfig writes a kubeconfig for a user and the groups that the user is in.
func (p *Authority) Kubeconfig(path, server, user string, groups ...string) error {
	crt, key, err := p.Issue(filepath.Base(path), pkix.Name{CommonName: user, Organization: groups}, nil)
	if err != nil {
		return err
	}
	b64 := base64.StdEncoding.EncodeToString
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: cluster, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: user, user: {client-certificate-data: %s, client-key-data: %s}}]
contexts: [{name: context, context: {cluster: cluster, user: user}}]
current-context: context
`, server, b64(p.pem), b64(crt), b64(key))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return fmt.Errorf("write kubeconfig of %s: %w", user, err)
	}
	return nil
}
