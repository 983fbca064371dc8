package fleet

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	agentv1 "fairlead.dev/proto/agent/v1"
)

// joiners is how many machines join at once: a plane takes 32 handshakes of an address at one time.
const joiners = 16

// Join gives each machine a certificate by way of a token of its own.
func (f *Fleet) Join(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var workers sync.WaitGroup
	for range joiners {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(f.machines) && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := f.machines[i].join(ctx); err != nil {
					cancel(fmt.Errorf("let machine %s join: %w", f.machines[i].name, err))
				}
			}
		})
	}
	workers.Wait()
	return context.Cause(ctx)
}

func (m *machine) join(ctx context.Context) error {
	token, err := m.fleet.o.Token(ctx, m.name)
	if err != nil {
		return err
	}
	// fl1.ID.SECRET.PIN, as `fairlead token create` prints it.
	parts := strings.Split(token, ".")
	if len(parts) != 4 {
		return errors.New("the token does not have four parts")
	}
	pin, err := base64.RawURLEncoding.DecodeString(parts[3])
	if err != nil {
		return fmt.Errorf("read the token's pin: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "machine"}}, key)
	if err != nil {
		return err
	}
	c, err := m.enroll(ctx, pin, &agentv1.JoinRequest{Token: parts[1] + "." + parts[2], Machine: m.name, Csr: csr})
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(c.GetAuthorities()) {
		return errors.New("the plane sent no authority")
	}
	m.tls = &tls.Config{
		MinVersion: tls.VersionTLS13, ServerName: agentv1.ServerName, RootCAs: roots,
		Certificates: []tls.Certificate{{Certificate: chain(c.GetChain()), PrivateKey: key}},
	}
	return nil
}

// enroll asks the planes until one of them leads and answers.
func (m *machine) enroll(ctx context.Context, pin []byte, request *agentv1.JoinRequest) (*agentv1.Certificate, error) {
	config := &tls.Config{
		MinVersion: tls.VersionTLS13, ServerName: agentv1.ServerName,
		InsecureSkipVerify: true, // the authority is known by its pin
		VerifyConnection: func(s tls.ConnectionState) error {
			roots := x509.NewCertPool()
			for _, c := range s.PeerCertificates[1:] {
				if sum := sha256.Sum256(c.RawSubjectPublicKeyInfo); c.IsCA && bytes.Equal(sum[:], pin) {
					roots.AddCert(c)
				}
			}
			_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{DNSName: agentv1.ServerName, Roots: roots})
			return err
		},
	}
	var errs error
	for _, address := range m.fleet.o.Planes {
		conn, err := m.dial(address, config)
		if err != nil {
			return nil, err
		}
		c, err := agentv1.NewEnrollmentClient(conn).Join(ctx, request)
		_ = conn.Close()
		if err == nil {
			return c, nil
		}
		errs = errors.Join(errs, err)
	}
	return nil, errs
}

// chain decodes certificates, leaf first.
func chain(text []byte) (der [][]byte) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		der = append(der, block.Bytes)
	}
	return der
}
