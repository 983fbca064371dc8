package cluster

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

// pki is the cluster's authority, with a directory that holds what it signed: NAME.crt
// and NAME.key.
type pki struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

// newPKI makes an authority. It is as short-lived as a test.
func newPKI(dir string) (*pki, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make certificates: %w", err)
	}
	p := &pki{dir: dir}
	var err error
	if p.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, fmt.Errorf("make certificates: %w", err)
	}
	p.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "cluster"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(48 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, p.cert, p.cert, p.key.Public(), p.key)
	if err != nil {
		return nil, fmt.Errorf("make certificates: %w", err)
	}
	p.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := os.WriteFile(p.path("ca.crt"), p.pem, 0o600); err != nil {
		return nil, fmt.Errorf("make certificates: %w", err)
	}
	_, err = p.writeKey("ca.key", p.key)
	return p, err
}

func (p *pki) path(file string) string { return filepath.Join(p.dir, file) }

// issue signs a certificate for server and client, and writes it and its key.
func (p *pki) issue(name string, subject pkix.Name, ips []net.IP, dns ...string) (crt, key []byte, err error) {
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
	if err := os.WriteFile(p.path(name+".crt"), crt, 0o600); err != nil {
		return nil, nil, fmt.Errorf("make certificate %s: %w", name, err)
	}
	key, err = p.writeKey(name+".key", private)
	return crt, key, err
}

// newKey makes a key without a certificate.
func (p *pki) newKey(file string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make key %s: %w", file, err)
	}
	_, err = p.writeKey(file, key)
	return err
}

func (p *pki) writeKey(file string, key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("make key %s: %w", file, err)
	}
	out := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
	if err := os.WriteFile(p.path(file), out, 0o600); err != nil {
		return nil, fmt.Errorf("make key %s: %w", file, err)
	}
	return out, nil
}

// kubeconfig writes a kubeconfig for a user and the groups that the user is in.
func (p *pki) kubeconfig(path, server, user string, groups ...string) error {
	crt, key, err := p.issue(filepath.Base(path), pkix.Name{CommonName: user, Organization: groups}, nil)
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
