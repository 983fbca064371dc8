package southbound

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	agentv1 "fairlead.dev/proto/agent/v1"
)

// Identity is the identity of a machine in its certificate.
type Identity struct {
	Machine string
	Role    string // what its token was made for; may be empty
}

// KeyID names a public key: a hash of its DER form.
type KeyID string

func keyID(spki []byte) KeyID {
	sum := sha256.Sum256(spki)
	return KeyID(hex.EncodeToString(sum[:]))
}

// ErrName is the class of invalid machine names and roles.
var ErrName = errors.New("invalid name")

// A machine's name is a DNS label or several, as Kubernetes names are; a role is one.
var (
	machineName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`)
	roleName    = regexp.MustCompile(`^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)?$`)
)

// Validate reports whether a certificate can contain the identity. X.509 leaves 56 bytes
// of a common name after the prefix.
func (id Identity) Validate() error {
	if !machineName.MatchString(id.Machine) || len(agentv1.MachinePrefix)+len(id.Machine) > 64 {
		return fmt.Errorf("machine %q: %w: want at most 56 lower-case letters, digits, dots and dashes", id.Machine, ErrName)
	}
	if !roleName.MatchString(id.Role) {
		return fmt.Errorf("role %q: %w: want at most 63 lower-case letters, digits and dashes", id.Role, ErrName)
	}
	return nil
}

// caller is the machine at the other end of a connection.
type caller struct {
	Identity
	key      KeyID
	issuer   []byte // pin of the authority
	notAfter time.Time
}

// identify reads the identity out of a verified certificate.
func identify(cert *x509.Certificate) (caller, error) {
	name, ok := strings.CutPrefix(cert.Subject.CommonName, agentv1.MachinePrefix)
	if !ok {
		return caller{}, fmt.Errorf("the certificate of %q is not a machine certificate", cert.Subject.CommonName)
	}
	c := caller{Identity: Identity{Machine: name}, key: keyID(cert.RawSubjectPublicKeyInfo), notAfter: cert.NotAfter}
	c.Role = RoleOf(cert)
	return c, c.Validate()
}

// RoleOf is the role of the token with which a machine joined; empty if the token had none.
func RoleOf(cert *x509.Certificate) string {
	if units := cert.Subject.OrganizationalUnit; len(units) > 0 {
		return units[0]
	}
	return ""
}

// verifier checks clients' certificates. The handshake proves that a client has its
// certificate's key; whether that counts is decided here and at every call, so that a
// client is told in words what is wrong.
type verifier struct {
	trust func() Trust
	now   func() time.Time
}

// verify reads the caller out of what a client showed.
func (v verifier) verify(shown []*x509.Certificate) (caller, error) {
	if len(shown) == 0 {
		return caller{}, errors.New("no client certificate: join first, with a token")
	}
	leaf, now := shown[0], v.now()
	options := x509.VerifyOptions{
		Roots: v.trust().Pool, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	chains, err := leaf.Verify(options)
	if err != nil {
		if now.After(leaf.NotAfter) {
			options.CurrentTime = leaf.NotAfter
			if _, still := leaf.Verify(options); still == nil {
				return caller{}, fmt.Errorf("the certificate of %s expired at %s: join again, with a new token (it is %s here)",
					leaf.Subject.CommonName, leaf.NotAfter.Format(time.RFC3339), now.Format(time.RFC3339))
			}
		}
		return caller{}, fmt.Errorf("the client certificate is not valid here: %w", err)
	}
	c, err := identify(leaf)
	c.issuer = pinOf(chains[0][len(chains[0])-1])
	return c, err
}

// caller returns who makes a call, or an UNAUTHENTICATED status.
func (v verifier) caller(ctx context.Context) (caller, error) {
	var shown []*x509.Certificate
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			shown = info.State.PeerCertificates
		}
	}
	c, err := v.verify(shown)
	if err != nil {
		return caller{}, status.Error(codes.Unauthenticated, err.Error())
	}
	return c, nil
}
