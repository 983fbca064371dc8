package embedded

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"time"
)

// backdate keeps a leaf valid for peers whose clocks are behind ours.
const backdate = time.Hour

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

func newSerial() (*big.Int, error) {
	// RFC 5280 4.1.2.2: positive, at most 20 octets.
	return rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
}

func newAuthority(name string, now time.Time) (*authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	notBefore, made := caNotBefore, caMadeAfter
	if now.Before(notBefore) {
		notBefore = now.Add(-backdate)
	}
	if now.After(made) {
		made = now
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: notBefore, NotAfter: made.Add(caLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &authority{cert: cert, key: key, pem: encodeCert(der)}, nil
}

func (a *authority) save(dir, name string) error {
	if err := saveKey(filepath.Join(dir, name+".key"), a.key); err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, name+".crt"), a.pem)
}

func loadAuthority(dir, name string) (*authority, error) {
	certPath, keyPath := filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	cert, err := loadBlocks(certPath, certType)
	if err != nil {
		return nil, err
	}
	key, err := loadBlocks(keyPath, keyType)
	if err != nil {
		return nil, err
	}
	c, k, err := parsePair(certPath, cert[0], keyPath, key[0])
	if err != nil {
		return nil, err
	}
	if !c.IsCA {
		return nil, fmt.Errorf("%s is not a certificate authority", certPath)
	}
	return &authority{cert: c, key: k, pem: encodeCert(c.Raw)}, nil
}

// issue writes a new certificate and key for spec. Both are in one file, so that nobody who reads it
// again while it runs ever sees a pair that does not match.
func (a *authority) issue(dir string, spec leafSpec, now time.Time) error {
	key, err := newKey()
	if err != nil {
		return err
	}
	serial, err := newSerial()
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: spec.subject,
		NotBefore: now.Add(-backdate), NotAfter: now.Add(leafLife),
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{spec.usage},
		DNSNames:              spec.dns,
	}
	for _, ip := range spec.ips {
		template.IPAddresses = append(template.IPAddresses, ip.AsSlice())
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return err
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, spec.name+".pem"), append(encodeCert(der), keyPEM...))
}

func encodeCert(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: certType, Bytes: der})
}

const (
	certType = "CERTIFICATE"
	// keyType is the only form of a private key that kube-apiserver takes a public key from as well.
	keyType = "EC PRIVATE KEY"
)

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: keyType, Bytes: der}), nil
}

func saveKey(path string, key *ecdsa.PrivateKey) error {
	b, err := encodeKey(key)
	if err != nil {
		return err
	}
	return writeFile(path, b)
}

// loadBlocks returns the blocks that a whole file consists of, which must be of these types.
func loadBlocks(path string, types ...string) ([]*pem.Block, error) {
	rest, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if len(rest) == 0 {
		return nil, fmt.Errorf("%s is empty", path)
	}
	var blocks []*pem.Block
	for _, wanted := range types {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		switch {
		case block == nil:
			return nil, fmt.Errorf("%s is not PEM or is cut short", path)
		case block.Type != wanted:
			return nil, fmt.Errorf("%s holds a %s in the place of a %s", path, block.Type, wanted)
		}
		blocks = append(blocks, block)
	}
	if len(rest) != 0 {
		return nil, fmt.Errorf("%s has %d bytes after its %s", path, len(rest), types[len(types)-1])
	}
	return blocks, nil
}

func loadKey(path string) (*ecdsa.PrivateKey, error) {
	blocks, err := loadBlocks(path, keyType)
	if err != nil {
		return nil, err
	}
	return parseKey(path, blocks[0])
}

func parseKey(path string, block *pem.Block) (*ecdsa.PrivateKey, error) {
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parse key %s: %w", path, err)
	}
	return key, nil
}

// parsePair returns the certificate if the key belongs to it.
func parsePair(certPath string, cert *pem.Block, keyPath string, key *pem.Block) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	c, err := x509.ParseCertificate(cert.Bytes)
	if err != nil {
		return nil, nil, fmt.Errorf("parse certificate %s: %w", certPath, err)
	}
	k, err := parseKey(keyPath, key)
	if err != nil {
		return nil, nil, err
	}
	if !k.PublicKey.Equal(c.PublicKey) {
		return nil, nil, fmt.Errorf("the key in %s does not belong to the certificate in %s", keyPath, certPath)
	}
	return c, k, nil
}

// leafBlocks returns the certificate and the key in dir/name.pem.
func leafBlocks(dir, name string) (cert, key *pem.Block, err error) {
	blocks, err := loadBlocks(filepath.Join(dir, name+".pem"), certType, keyType)
	if err != nil {
		return nil, nil, err
	}
	return blocks[0], blocks[1], nil
}

// loadLeaf returns the certificate in dir/name.pem if its key belongs to it.
func loadLeaf(dir, name string) (*x509.Certificate, error) {
	path := filepath.Join(dir, name+".pem")
	cert, key, err := leafBlocks(dir, name)
	if err != nil {
		return nil, err
	}
	c, _, err := parsePair(path, cert, path, key)
	return c, err
}
