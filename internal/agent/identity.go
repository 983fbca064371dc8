package agent

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"fairlead.dev/internal/record"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// identity is the machine's key, its certificate and the authorities that it trusts. It
// is a value; renewal makes a new one.
type identity struct {
	Machine     string
	Certificate tls.Certificate // with Leaf
	authorities []*x509.Certificate
	trust       *agentv1.Trust // who has signed the certificate, and the authorities
	record      identityRecord
}

// identityRecord is an identity as it is on disk.
type identityRecord struct {
	Key         string `json:"key"` // all three PEM
	Chain       string `json:"chain"`
	Authorities string `json:"authorities"`
}

// loadIdentity reads an identity. fs.ErrNotExist says that there is none.
func loadIdentity(path string) (*identity, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read identity: %w", err)
	}
	var record identityRecord
	if err := json.Unmarshal(data, &record); err != nil {
		return nil, fmt.Errorf("read identity %s: %w", path, err)
	}
	id, err := newIdentity(record)
	if err != nil {
		return nil, fmt.Errorf("read identity %s: %w", path, err)
	}
	return id, nil
}

func newIdentity(record identityRecord) (*identity, error) {
	certificate, err := tls.X509KeyPair([]byte(record.Chain), []byte(record.Key))
	if err != nil {
		return nil, err
	}
	if certificate.Leaf == nil {
		if certificate.Leaf, err = x509.ParseCertificate(certificate.Certificate[0]); err != nil {
			return nil, err
		}
	}
	name, ok := strings.CutPrefix(certificate.Leaf.Subject.CommonName, agentv1.MachinePrefix)
	if !ok || name == "" {
		return nil, fmt.Errorf("its certificate is for %q, which is not a machine", certificate.Leaf.Subject.CommonName)
	}
	authorities, err := parseCertificates([]byte(record.Authorities))
	if err != nil {
		return nil, fmt.Errorf("authorities: %w", err)
	}
	return &identity{Machine: name, Certificate: certificate, authorities: authorities, trust: trustOf(certificate.Leaf, authorities), record: record}, nil
}

// save writes the identity atomically, readable by our user only.
func (id *identity) save(path string) error {
	data, err := json.MarshalIndent(id.record, "", "  ")
	if err != nil {
		return fmt.Errorf("encode identity: %w", err)
	}
	if err := record.WriteFile(path, append(data, '\n')); err != nil {
		return fmt.Errorf("save identity: %w", err)
	}
	return nil
}

// NotAfter is when the certificate expires.
func (id *identity) NotAfter() time.Time { return id.Certificate.Leaf.NotAfter }

// renewAt is when two thirds of the certificate's life are over.
func (id *identity) renewAt() time.Time {
	leaf := id.Certificate.Leaf
	return leaf.NotBefore.Add(leaf.NotAfter.Sub(leaf.NotBefore) / 3 * 2)
}

// expired wraps errExpired with what to do, once the certificate's time is over.
func (id *identity) expired(now time.Time) error {
	if !now.After(id.NotAfter()) {
		return nil
	}
	return fmt.Errorf("%w on %s: run `fairlead token create --machine %s` at the plane (with --role backend for a machine with backends only), and start this agent with the new token",
		errExpired, id.NotAfter().UTC().Format(time.RFC3339), id.Machine)
}

func (id *identity) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	for _, c := range id.authorities {
		pool.AddCert(c)
	}
	return pool
}

// tlsConfig is for a connection to a plane.
func (id *identity) tlsConfig(now func() time.Time) *tls.Config {
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		ServerName:   agentv1.ServerName,
		RootCAs:      id.pool(),
		Certificates: []tls.Certificate{id.Certificate},
		Time:         now,
	}
}

// newKey makes a key, PEM.
func newKey() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode the key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// requestFor makes a certificate signing request for a key.
func requestFor(keyPEM []byte) ([]byte, error) {
	block, _ := pem.Decode(keyPEM)
	if block == nil {
		return nil, errors.New("read the key: it is not PEM")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read the key: %w", err)
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "machine"}}, key)
	if err != nil {
		return nil, fmt.Errorf("make a certificate request: %w", err)
	}
	return csr, nil
}

func identityOf(keyPEM []byte, c *agentv1.Certificate) (*identity, error) {
	id, err := newIdentity(identityRecord{Key: string(keyPEM), Chain: string(c.GetChain()), Authorities: string(c.GetAuthorities())})
	if err != nil {
		return nil, fmt.Errorf("read the plane's certificate: %w", err)
	}
	return id, nil
}

// joiner asks planes for an identity.
type joiner struct {
	Now func() time.Time
	// Timeout bounds the wait for each plane.
	Timeout time.Duration
	// Account is used instead of a token, when it is not nil.
	Account *Account
	// Token is where the token comes from; it is used only when there is no valid identity.
	Token TokenSource
	// Role that the machine is to have; empty for the token's role.
	Role  string
	tries *tries // nil: nothing is said of how it goes
}

// create is the command that makes a token for a machine of that name.
func (j joiner) create(name string) string {
	command := "fairlead token create --machine " + name
	if j.Role != "" && j.Role != agentv1.RoleEdge {
		command += " --role " + j.Role
	}
	return command
}

// join shows a credential to the first plane that takes it. name is what the machine
// believes to be called; a token for another name is refused unspent. The key
// should be kept until the identity is: with it a token can be spent once more.
func (j joiner) join(ctx context.Context, planes []string, by credential, name string, keyPEM []byte) (*identity, error) {
	csr, err := requestFor(keyPEM)
	if err != nil {
		return nil, err
	}
	var errs []error
	tried := map[string]bool{}
	for queue := append([]string(nil), planes...); len(queue) > 0; {
		address := queue[0]
		queue = queue[1:]
		if tried[address] {
			continue
		}
		tried[address] = true
		c, err := j.ask(ctx, address, by, csr, name)
		if err == nil {
			j.tries.answered()
			if c.GetMachine() != name {
				return nil, fmt.Errorf("%w: the token was for machine %q, but this machine's name is %q: start the agent with --name %s, or run `%s` (the first token is spent)",
					errName, c.GetMachine(), name, c.GetMachine(), j.create(name))
			}
			return identityOf(keyPEM, c)
		}
		if hint := leaderOf(err); hint != "" {
			queue = append([]string{hint}, queue...)
		}
		final, wrapped := explainJoin(address, by.again(name, j.create(name), err), err)
		if final {
			return nil, wrapped
		}
		errs = append(errs, wrapped)
	}
	return nil, errors.Join(errs...)
}

func (j joiner) ask(ctx context.Context, address string, by credential, csr []byte, name string) (*agentv1.Certificate, error) {
	ctx, cancel := context.WithTimeout(ctx, j.Timeout)
	defer cancel()
	pinFailed := false
	config := trusting(by, j.Now)
	verify := config.VerifyConnection
	config.VerifyConnection = func(c tls.ConnectionState) error {
		err := verify(c)
		if errors.Is(err, errPin) {
			pinFailed = true
			cancel() // asking again will not help
		}
		return err
	}
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	req := &agentv1.JoinRequest{Csr: csr, Machine: name, Role: j.Role}
	by.fill(req)
	defer j.tries.follow(ctx, conn, address)()
	c, err := agentv1.NewEnrollmentClient(conn).Join(ctx, req, grpc.WaitForReady(true))
	if err != nil && conn.Close() == nil && pinFailed {
		return nil, errPin
	}
	return c, err
}

// explainJoin says whether another plane cannot help, and what went wrong.
func explainJoin(address, again string, err error) (final bool, wrapped error) {
	if errors.Is(err, errPin) {
		return false, fmt.Errorf("join at %s: %w: check the address; if the plane was set up anew, or its authority was retired, %s", address, errPin, again)
	}
	message := strings.TrimPrefix(explainConnection(err), "token refused: ") // errToken says the same
	switch status.Code(err) {
	case codes.Unauthenticated, codes.InvalidArgument, codes.PermissionDenied:
		return true, fmt.Errorf("join at %s: %w: %s: %s", address, errToken, message, again)
	case codes.FailedPrecondition: // it says what to do
		return true, fmt.Errorf("join at %s: %w: %s", address, errToken, message)
	case codes.AlreadyExists:
		return true, fmt.Errorf("join at %s: %w: %s", address, errNameTaken, message)
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return false, fmt.Errorf("join at %s: %w: %s", address, errUnreachable, message)
	default:
		return false, fmt.Errorf("join at %s: %w", address, explained{err})
	}
}

// leaderOf is the address that a standby's refusal names, empty for none.
func leaderOf(err error) string {
	for _, d := range status.Convert(err).Details() {
		if hint, ok := d.(*agentv1.LeaderHint); ok {
			return hint.GetAddress()
		}
	}
	return ""
}

// renew asks for a new certificate with the present one, over an open connection. The
// key stays; only joining makes a new one. A plane takes the keys that it has written
// down, and one that was restored from a backup of before the renewal would not know
// a new key: the machine would have to join again.
func renew(ctx context.Context, conn grpc.ClientConnInterface, old *identity) (*identity, error) {
	keyPEM := []byte(old.record.Key)
	csr, err := requestFor(keyPEM)
	if err != nil {
		return nil, err
	}
	c, err := agentv1.NewEnrollmentClient(conn).Renew(ctx, &agentv1.RenewRequest{Csr: csr})
	if err != nil {
		return nil, fmt.Errorf("renew certificate: %w", explained{err})
	}
	id, err := identityOf(keyPEM, c)
	if err != nil {
		return nil, err
	}
	if id.Machine != old.Machine {
		return nil, fmt.Errorf("renew certificate: %w: the plane's certificate is for %q, but this machine is %q", errName, id.Machine, old.Machine)
	}
	return id, nil
}

// rejoin returns a function that joins again with the credential that there is now, for
// a machine whose identity a plane does not take. It returns nil and no error when there
// is none that is worth a try: each token of ours is tried once, and an account's now
// and then.
func (j joiner) rejoin(path string, planes []string, name string) func(context.Context) (*identity, error) {
	var tried string
	var last time.Time
	return func(ctx context.Context) (*identity, error) {
		if j.Account != nil {
			if now := j.Now(); !last.IsZero() && now.Sub(last) < accountPause && !now.Before(last) {
				return nil, nil
			}
			last = j.Now()
			by, err := j.Account.read()
			if err != nil {
				return nil, err
			}
			return j.enroll(ctx, path, planes, by, name)
		}
		token, err := j.Token.read(ctx)
		switch {
		case errors.Is(err, ErrNoToken), errors.Is(err, fs.ErrNotExist), err == nil && token == tried:
			return nil, nil // a file that is away is one that was used
		case err != nil:
			return nil, err
		}
		var id *identity
		by, err := parseToken(token)
		if err == nil {
			id, err = j.enroll(ctx, path, planes, by, name)
		}
		// The plane may come, and a name is free once its machine was silent for a while.
		if !errors.Is(err, errUnreachable) && !errors.Is(err, errNameTaken) {
			tried = token
		}
		return id, err
	}
}

// accountPause is between two tries to join again with an account's token: it may be
// taken, and the machine be refused after all.
const accountPause = 5 * time.Second

// identify returns the machine's identity: the one on disk, or a new one for the
// account or the token, which are asked for only if they are needed.
func (j joiner) identify(ctx context.Context, path string, planes []string, name string) (*identity, error) {
	id, err := loadIdentity(path)
	switch {
	case err == nil && id.Machine != name:
		return nil, fmt.Errorf("%w: the identity in %s is for machine %q, but this machine's name is %q: start the agent with --name %s, or with another data directory",
			errName, path, id.Machine, name, id.Machine)
	case err == nil && id.expired(j.Now()) == nil:
		return id, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist) && j.Token == nil && j.Account == nil:
		return nil, fmt.Errorf("%w: remove it and join again with a token from `%s`", err, j.create(name))
	}
	lacks := fmt.Errorf("%w: run `%s` at the plane and start this agent with --token-file", errNoIdentity, j.create(name))
	if id != nil {
		lacks = id.expired(j.Now())
	}
	by, err := j.present(ctx)
	switch {
	case errors.Is(err, ErrNoToken):
		return id, lacks
	case errors.Is(err, errToken), errors.Is(err, errNoIdentity):
		return id, err
	case err != nil:
		return id, fmt.Errorf("%w: %w", lacks, err)
	}
	fresh, err := j.enroll(ctx, path, planes, by, name)
	if err != nil && fresh == nil {
		return id, err
	}
	return fresh, err
}

// enroll joins and puts the identity where the one before it was. It may return an
// identity and an error: the identity is good then.
func (j joiner) enroll(ctx context.Context, path string, planes []string, by credential, name string) (*identity, error) {
	keyFile := path + ".key" // of a join that is under way
	keyPEM, err := os.ReadFile(keyFile)
	if err != nil {
		if keyPEM, err = newKey(); err != nil {
			return nil, err
		}
		if err := record.WriteFile(keyFile, keyPEM); err != nil {
			return nil, fmt.Errorf("save the key of the join: %w", err)
		}
	}
	fresh, err := j.join(ctx, planes, by, name, keyPEM)
	if err != nil {
		return nil, err
	}
	if err := fresh.save(path); err != nil {
		return nil, err
	}
	if err := os.Remove(keyFile); err != nil {
		return fresh, fmt.Errorf("remove the key of the join: %w", err)
	}
	return fresh, nil
}
