package agent

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	agentv1 "fairlead.dev/proto/agent/v1"
)

// Account lets an agent in a pod join: with the token that its cluster gives to the pod's
// service account, at the plane whose authority the cluster has published.
type Account struct {
	TokenFile     string // read for each try: the cluster renews it
	AuthorityFile string // certificates, PEM
}

// credential lets a machine join.
type credential interface {
	// fill puts it into a request.
	fill(*agentv1.JoinRequest)
	// roots picks the authorities to trust from the certificates that follow a plane's
	// own; nil when there is none, which is somebody else's plane.
	roots(shown []*x509.Certificate) *x509.CertPool
	// again says how a machine gets in after it was refused with err. create is the command that makes
	// a token for it.
	again(name, create string, err error) string
}

// joinToken is a token as `fairlead token create` prints it.
type joinToken struct {
	wire string // "<id>.<secret>"
	pin  []byte // SHA-256 of the authority's SubjectPublicKeyInfo
}

const tokenForm = "fl1"

func parseToken(s string) (joinToken, error) {
	parts := strings.Split(strings.TrimSpace(s), ".")
	if len(parts) != 4 || parts[0] != tokenForm || parts[1] == "" || parts[2] == "" {
		return joinToken{}, fmt.Errorf("%w: it does not have the form %s.<id>.<secret>.<pin>: copy it whole, as `fairlead token create` printed it", errToken, tokenForm)
	}
	pin, err := base64.RawURLEncoding.DecodeString(parts[3])
	if err != nil || len(pin) != sha256.Size {
		return joinToken{}, fmt.Errorf("%w: its pin is cut short or changed: copy it whole, as `fairlead token create` printed it", errToken)
	}
	return joinToken{wire: parts[1] + "." + parts[2], pin: pin}, nil
}

func (t joinToken) fill(r *agentv1.JoinRequest) { r.Token = t.wire }

// roots are the authorities with the pin.
func (t joinToken) roots(shown []*x509.Certificate) *x509.CertPool {
	var pool *x509.CertPool
	for _, cert := range shown {
		if !cert.IsCA || subtle.ConstantTimeCompare(pinOf(cert), t.pin) != 1 {
			continue
		}
		if pool == nil {
			pool = x509.NewCertPool()
		}
		pool.AddCert(cert)
	}
	return pool
}

func (joinToken) again(_, create string, _ error) string {
	return fmt.Sprintf("run `%s` at the plane and start this agent with the new token", create)
}

// accountToken is a pod's.
type accountToken struct {
	token       string
	authorities []*x509.Certificate
}

// read gives the present token. Both files come from the cluster, which may be about to
// bring them: an error is worth another try.
func (a *Account) read() (accountToken, error) {
	token, err := os.ReadFile(a.TokenFile)
	if err != nil {
		return accountToken{}, fmt.Errorf("%w: read the service account's token: %w", errNoIdentity, err)
	}
	data, err := os.ReadFile(a.AuthorityFile)
	if err != nil {
		return accountToken{}, fmt.Errorf("%w: read the plane's authority: %w", errNoIdentity, err)
	}
	t := accountToken{token: strings.TrimSpace(string(token))}
	if t.authorities, err = parseCertificates(data); err != nil {
		return accountToken{}, fmt.Errorf("%w: read the plane's authority %s: %w", errNoIdentity, a.AuthorityFile, err)
	}
	return t, nil
}

func (t accountToken) fill(r *agentv1.JoinRequest) { r.ServiceAccountToken = t.token }

// roots are those that the cluster has published, whatever the plane shows.
func (t accountToken) roots([]*x509.Certificate) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, c := range t.authorities {
		pool.AddCert(c)
	}
	return pool
}

func (accountToken) again(name, _ string, err error) string {
	if errors.Is(err, errPin) {
		return "wait: its new authority reaches this pod within two minutes"
	}
	return fmt.Sprintf("let the plane accept this pod's service account (--agent-service-account), and give the machine the name of its node (--name, now %s)", name)
}

// trusting accepts a plane whose certificate an authority of the credential's signed.
func trusting(c credential, now func() time.Time) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		ServerName: agentv1.ServerName,
		// The chain is verified below, against the authorities that the credential names.
		InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			shown := s.PeerCertificates[1:]
			roots := c.roots(shown)
			if roots == nil {
				return errPin
			}
			between := x509.NewCertPool()
			for _, cert := range shown {
				between.AddCert(cert)
			}
			_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{
				DNSName: agentv1.ServerName, Roots: roots, Intermediates: between, CurrentTime: now(),
				KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
			})
			if err != nil {
				return fmt.Errorf("%w: %w", errPin, err)
			}
			return nil
		},
	}
}

// present reads the credential that there is now: the account's, or the token.
// ErrNoToken says that this machine has neither.
func (j joiner) present(ctx context.Context) (credential, error) {
	if j.Account != nil {
		return j.Account.read()
	}
	text, err := j.Token.read(ctx)
	if err != nil {
		return nil, err
	}
	return parseToken(text)
}

// TokenSource returns the token to join with, as printed, or ErrNoToken. It is called each
// time that a token is needed. nil: this machine has no token.
type TokenSource func(context.Context) (string, error)

// TokenFile returns the token that the file contains at the time of the call. A missing file
// is an fs.ErrNotExist.
func TokenFile(path string) TokenSource {
	return func(context.Context) (string, error) {
		text, err := os.ReadFile(path)
		if err != nil {
			return "", fmt.Errorf("read token: %w", err)
		}
		return string(text), nil
	}
}

func (s TokenSource) read(ctx context.Context) (string, error) {
	if s == nil {
		return "", ErrNoToken
	}
	return s(ctx)
}
