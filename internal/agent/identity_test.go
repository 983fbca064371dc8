package agent

import (
	"bytes"
	"context"
	"crypto"
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
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	agentv1 "fairlead.dev/proto/agent/v1"
)

// patience bounds waits that are expected to succeed, on a loaded machine too.
const patience = 60 * time.Second

const machineLife = 7 * 24 * time.Hour

// clock is a time that only tests move.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) set(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = t
}

// authority signs for the planes of a test, and holds what they have in common.
type authority struct {
	t     *testing.T
	clock *clock
	cert  *x509.Certificate
	key   *ecdsa.PrivateKey

	mu   sync.Mutex
	keys map[string][]string // machine -> keys whose certificates are taken
}

func (a *authority) list(machine string, keys ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.keys[machine] = keys
}

func (a *authority) listed(machine string) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.keys[machine]
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, clock: &clock{now: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)}, keys: map[string][]string{}}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "machines"},
		NotBefore: a.clock.Now().Add(-time.Hour), NotAfter: a.clock.Now().Add(1000 * machineLife),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *authority) issue(name string, public crypto.PublicKey, use x509.ExtKeyUsage) ([]byte, error) {
	return x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{agentv1.ServerName},
		NotBefore: a.clock.Now(), NotAfter: a.clock.Now().Add(machineLife), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{use},
	}, a.cert, public, a.key)
}

func (a *authority) roots() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

func (a *authority) pin() string {
	sum := sha256.Sum256(a.cert.RawSubjectPublicKeyInfo)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// plane speaks the agent protocol over TLS on the loopback, as agent.proto states it.
type plane struct {
	agentv1.UnimplementedEnrollmentServer
	agentv1.UnimplementedObserverServer
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer

	t         *testing.T
	authority *authority
	address   string
	stop      func()
	calls     chan *call    // discovery streams as they come
	notice    chan struct{} // what others notice of a machine that leaves is said once it is closed; nil: at once

	mu      sync.Mutex
	leader  string // not empty: this is a standby
	tokens  map[string]*planeToken
	pods    map[string]string // service account token -> node
	old     bool              // it does not know that a Join names the machine
	loses   bool              // the answer to the next Join
	next    *authority        // a rotation is under way: it signs, and both are trusted
	mute    bool              // renewals are refused
	deleted bool              // who joined before is not known, until somebody joins
	taken   int               // so many joins find the name taken
	joins   int
	renewed int
	// instruct is what is told to a machine that begins to report; reports counts what it says.
	instruct *agentv1.Instruction
	reports  int
}

type planeToken struct {
	machine string
	role    string // empty: any
	expires time.Time
	spentBy string // key
}

func newPlane(t *testing.T, a *authority) *plane {
	t.Helper()
	p := &plane{t: t, authority: a, tokens: map[string]*planeToken{}, calls: make(chan *call, 16)}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.address = l.Addr().String()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, ClientAuth: tls.RequestClientCert, Time: a.clock.Now,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			der, err := a.issue(agentv1.ServerName, key.Public(), x509.ExtKeyUsageServerAuth)
			return &tls.Certificate{Certificate: [][]byte{der, a.cert.Raw}, PrivateKey: key}, err
		},
	})))
	agentv1.RegisterEnrollmentServer(server, p)
	agentv1.RegisterObserverServer(server, p)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, p)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	p.stop = sync.OnceFunc(func() {
		server.Stop()
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	})
	t.Cleanup(p.stop)
	return p
}

// with changes what the plane is while it serves.
func (p *plane) with(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

// token is one as it is printed, in a file.
func (p *plane) token(id, machine string) string {
	p.t.Helper()
	p.with(func() {
		p.tokens[id+".secret"] = &planeToken{machine: machine, expires: p.authority.clock.Now().Add(time.Hour)}
	})
	return tokenFile(p.t, fmt.Sprintf("fl1.%s.secret.%s\n", id, p.authority.pin()))
}

func tokenFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func (p *plane) standby() error {
	st, err := status.New(codes.Unavailable, "this plane does not lead; the leader is at "+p.leader).
		WithDetails(&agentv1.LeaderHint{Address: p.leader})
	if err != nil {
		return err
	}
	return st.Err()
}

func (p *plane) Join(_ context.Context, req *agentv1.JoinRequest) (*agentv1.Certificate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.joins++
	if p.leader != "" {
		return nil, p.standby()
	}
	csr, err := x509.ParseCertificateRequest(req.GetCsr())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	key, token := string(csr.RawSubjectPublicKeyInfo), p.tokens[req.GetToken()]
	if node := p.pods[req.GetServiceAccountToken()]; node != "" {
		token = &planeToken{machine: node, expires: p.authority.clock.Now()}
	}
	switch {
	case token == nil:
		return nil, status.Error(codes.Unauthenticated, "token refused: it is unknown")
	case p.authority.clock.Now().After(token.expires):
		return nil, status.Error(codes.Unauthenticated, "token refused: it has expired")
	case token.spentBy != "" && token.spentBy != key:
		return nil, status.Error(codes.Unauthenticated, "token refused: it was used")
	case !p.old && token.role != "" && req.GetRole() != token.role:
		return nil, status.Errorf(codes.FailedPrecondition, "the token is for a machine of role %s, not %q", token.role, req.GetRole())
	case !p.old && req.GetMachine() != token.machine:
		return nil, status.Errorf(codes.Unauthenticated, "token refused: it is for machine %s, not for %q", token.machine, req.GetMachine())
	}
	if p.taken > 0 {
		p.taken--
		return nil, status.Error(codes.AlreadyExists, "the machine is alive")
	}
	token.spentBy, p.deleted = key, false
	if p.loses {
		p.loses = false
		return nil, status.Error(codes.Unavailable, "the plane died")
	}
	p.authority.list(token.machine, key)
	return p.certificate(token.machine, csr)
}

// certificate signs. The caller holds the lock.
func (p *plane) certificate(machine string, csr *x509.CertificateRequest) (*agentv1.Certificate, error) {
	signs, roots := p.authority, p.authority.roots()
	if p.next != nil {
		signs, roots = p.next, append(roots, p.next.roots()...)
	}
	der, err := signs.issue(agentv1.MachinePrefix+machine, csr.PublicKey, x509.ExtKeyUsageClientAuth)
	if err != nil {
		return nil, err
	}
	return &agentv1.Certificate{
		Chain:       append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), signs.roots()...),
		Authorities: roots, Machine: machine,
	}, nil
}

// caller is the machine that the client's certificate names.
func (p *plane) caller(ctx context.Context) (string, error) {
	from, _ := peer.FromContext(ctx)
	info, ok := from.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.PeerCertificates) == 0 {
		return "", status.Error(codes.Unauthenticated, "no client certificate")
	}
	roots := x509.NewCertPool()
	roots.AddCert(p.authority.cert)
	leaf := info.State.PeerCertificates[0]
	machine := strings.TrimPrefix(leaf.Subject.CommonName, agentv1.MachinePrefix)
	p.mu.Lock()
	deleted := p.deleted
	if p.next != nil {
		roots.AddCert(p.next.cert)
	}
	p.mu.Unlock()
	known := slices.Contains(p.authority.listed(machine), string(leaf.RawSubjectPublicKeyInfo))
	if _, err := leaf.Verify(x509.VerifyOptions{
		Roots: roots, CurrentTime: p.authority.clock.Now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}); err != nil {
		return "", status.Error(codes.Unauthenticated, err.Error())
	}
	if deleted || !known {
		return "", status.Error(codes.Unauthenticated, "the machine is not known here")
	}
	return machine, nil
}

func (p *plane) Renew(ctx context.Context, req *agentv1.RenewRequest) (*agentv1.Certificate, error) {
	machine, err := p.caller(ctx)
	if err != nil {
		return nil, err
	}
	csr, err := x509.ParseCertificateRequest(req.GetCsr())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mute {
		return nil, status.Error(codes.Internal, "the plane could not sign")
	}
	p.renewed++
	// As the plane's registry: the new key, and the one that was used to ask.
	from, _ := peer.FromContext(ctx)
	old := string(from.AuthInfo.(credentials.TLSInfo).State.PeerCertificates[0].RawSubjectPublicKeyInfo)
	p.authority.list(machine, string(csr.RawSubjectPublicKeyInfo), old)
	return p.certificate(machine, csr)
}

// joining is a joiner with the plane's clock.
func (p *plane) joining() joiner { return joiner{Now: p.authority.clock.Now, Timeout: patience} }

// joiningBy is joining with the token of that file.
func (p *plane) joiningBy(file string) joiner {
	j := p.joining()
	j.Token = TokenFile(file)
	return j
}

func wantError(t *testing.T, err, class error, parts ...string) {
	t.Helper()
	if !errors.Is(err, class) {
		t.Fatalf("got %v, want %v", err, class)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
}

const joinAgain = "`fairlead token create --machine edge-1`"

func TestJoin(t *testing.T) {
	t.Parallel()
	p := newPlane(t, newAuthority(t))
	path := filepath.Join(t.TempDir(), "identity.json")
	token := p.token("t1", "edge-1")
	id, err := p.joiningBy(token).identify(t.Context(), path, []string{p.address}, "edge-1")
	if err != nil {
		t.Fatal(err)
	}
	if id.Machine != "edge-1" || !id.NotAfter().Equal(p.authority.clock.Now().Add(machineLife)) {
		t.Errorf("joined as %s until %s", id.Machine, id.NotAfter())
	}
	if want := p.authority.clock.Now().Add(machineLife / 3 * 2); !id.renewAt().Equal(want) {
		t.Errorf("it is renewed at %s, want %s", id.renewAt(), want)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("others may read the key: %v", err)
	}
	if _, err := os.Stat(path + ".key"); !os.IsNotExist(err) {
		t.Errorf("the key of the join is left: %v", err)
	}
	// From then on neither plane nor token is needed.
	p.stop()
	if err := os.Remove(token); err != nil {
		t.Fatal(err)
	}
	again, err := p.joiningBy(token).identify(t.Context(), path, []string{p.address}, "edge-1")
	if err != nil || !bytes.Equal(again.Certificate.Certificate[0], id.Certificate.Certificate[0]) {
		t.Errorf("the identity was not kept: %v", err)
	}
	_, err = p.joiningBy(token).identify(t.Context(), path, []string{p.address}, "edge-2")
	wantError(t, err, errName, path, `for machine "edge-1"`, `name is "edge-2"`, "--name edge-1")
}

func TestJoinRefused(t *testing.T) {
	t.Parallel()
	p := newPlane(t, newAuthority(t))
	elsewhere := newAuthority(t)
	used := p.token("used", "edge-1")
	if _, err := p.joiningBy(used).identify(t.Context(), filepath.Join(t.TempDir(), "id"), []string{p.address}, "edge-1"); err != nil {
		t.Fatal(err)
	}
	expired := p.token("expired", "edge-1")
	p.with(func() { p.tokens["expired.secret"].expires = p.authority.clock.Now().Add(-time.Second) })
	for name, tt := range map[string]struct {
		file  string
		class error
		says  []string
		asks  int // how often the plane sees a token
	}{
		"wrong":        {tokenFile(t, "fl1.t1.guess."+p.authority.pin()), errToken, []string{p.address, "unknown", joinAgain}, 1},
		"used":         {used, errToken, []string{p.address, "it was used", joinAgain}, 1},
		"expired":      {expired, errToken, []string{p.address, "it has expired", joinAgain}, 1},
		"wrong pin":    {tokenFile(t, "fl1.t1.secret."+elsewhere.pin()), errPin, []string{p.address, "check the address", joinAgain}, 0},
		"another name": {p.token("other", "edge-2"), errToken, []string{`: join token refused: it is for machine edge-2, not for "edge-1"`, joinAgain}, 1},
		"empty":        {tokenFile(t, ""), errToken, []string{"copy it whole"}, 0},
		"a word":       {tokenFile(t, "hello"), errToken, []string{"fl1.<id>.<secret>.<pin>"}, 0},
		"cut":          {tokenFile(t, "fl1.t1.secret."+p.authority.pin()[:20]), errToken, []string{"cut short"}, 0},
		"no base64":    {tokenFile(t, "fl1.t1.secret.!!!"), errToken, []string{"cut short or changed"}, 0},
		"garbage":      {tokenFile(t, strings.Repeat("\x00\xff.\n", 1<<18)), errToken, []string{"copy it whole"}, 0},
		"not there":    {filepath.Join(t.TempDir(), "none"), errNoIdentity, []string{"none", joinAgain, "--token-file"}, 0},
		"not given":    {"", errNoIdentity, []string{joinAgain, "--token-file"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			before := 0
			p.with(func() { before = p.joins })
			path := filepath.Join(t.TempDir(), "identity.json")
			id, err := p.joiningBy(tt.file).identify(t.Context(), path, []string{p.address}, "edge-1")
			wantError(t, err, tt.class, tt.says...)
			if len(err.Error()) > 1000 {
				t.Errorf("it says %d bytes", len(err.Error()))
			}
			if id != nil {
				t.Errorf("an identity all the same: %s", id.Machine)
			}
			if _, err := os.Stat(path); !os.IsNotExist(err) {
				t.Errorf("an identity was saved: %v", err)
			}
			p.with(func() {
				if asks := p.joins - before; asks != tt.asks {
					t.Errorf("the plane saw %d tokens, want %d", asks, tt.asks)
				}
			})
		})
	}
}

// TestJoinForARole: the agent says its role, and what to do about a token of another one is the plane's to say.
func TestJoinForARole(t *testing.T) {
	t.Parallel()
	p := newPlane(t, newAuthority(t))
	path, token := filepath.Join(t.TempDir(), "identity.json"), p.token("t1", "edge-1")
	p.with(func() { p.tokens["t1.secret"].role = "backend" })
	j := p.joiningBy(token)
	j.Role = "edge"
	_, err := j.identify(t.Context(), path, []string{p.address}, "edge-1")
	wantError(t, err, errToken, p.address, `the token is for a machine of role backend, not "edge"`)
	if strings.Contains(err.Error(), joinAgain) {
		t.Errorf("it wants a token of the same role: %v", err)
	}
	j.Role = "backend"
	if _, err := j.identify(t.Context(), path, []string{p.address}, "edge-1"); err != nil {
		t.Error(err)
	}
	j.Token = TokenFile(tokenFile(t, "fl1.t2.guess."+p.authority.pin()))
	_, err = j.identify(t.Context(), filepath.Join(t.TempDir(), "id"), []string{p.address}, "edge-1")
	wantError(t, err, errToken, "`fairlead token create --machine edge-1 --role backend`")
}

// TestJoinUnderAnotherName: a plane that does not compare the names gives a certificate
// that is not used.
func TestJoinUnderAnotherName(t *testing.T) {
	t.Parallel()
	p := newPlane(t, newAuthority(t))
	p.with(func() { p.old = true })
	path := filepath.Join(t.TempDir(), "identity.json")
	_, err := p.joiningBy(p.token("other", "edge-2")).identify(t.Context(), path, []string{p.address}, "edge-1")
	wantError(t, err, errName, `for machine "edge-2"`, `name is "edge-1"`, "--name edge-2", joinAgain)
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("an identity was saved: %v", err)
	}
}

func TestJoinUnreachablePlane(t *testing.T) {
	t.Parallel()
	p, dead := newPlane(t, newAuthority(t)), newPlane(t, newAuthority(t))
	dead.stop()
	j := p.joiningBy(p.token("t1", "edge-1"))
	j.Timeout = 100 * time.Millisecond
	path := filepath.Join(t.TempDir(), "identity.json")
	_, err := j.identify(t.Context(), path, []string{dead.address}, "edge-1")
	wantError(t, err, errUnreachable, dead.address, "connection refused: nothing listens at that address and port; start the plane, or name its agent port")

	// Another plane that is there is enough, and the token is still good.
	j.Timeout = 3 * time.Second
	if _, err := j.identify(t.Context(), path, []string{dead.address, p.address}, "edge-1"); err != nil {
		t.Error(err)
	}
}

func TestJoinFollowsTheLeader(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	leader, standby := newPlane(t, a), newPlane(t, a)
	standby.with(func() { standby.leader = leader.address })
	token := leader.token("t1", "edge-1")
	id, err := leader.joiningBy(token).identify(t.Context(), filepath.Join(t.TempDir(), "id"), []string{standby.address}, "edge-1")
	if err != nil || id.Machine != "edge-1" {
		t.Fatal(err)
	}
}

// TestJoinAnswerLost: the plane spent the token and died, or this agent did. The same
// key may spend it again.
func TestJoinAnswerLost(t *testing.T) {
	t.Parallel()
	p := newPlane(t, newAuthority(t))
	token := p.token("t1", "edge-1")
	path := filepath.Join(t.TempDir(), "identity.json")
	p.with(func() { p.loses = true })
	_, err := p.joiningBy(token).identify(t.Context(), path, []string{p.address}, "edge-1")
	wantError(t, err, errUnreachable, "the plane died")
	if _, err := p.joiningBy(token).identify(t.Context(), path, []string{p.address}, "edge-1"); err != nil {
		t.Error(err)
	}
}

func TestExpiredCertificate(t *testing.T) {
	t.Parallel()
	p := newPlane(t, newAuthority(t))
	path := filepath.Join(t.TempDir(), "identity.json")
	old, err := p.joiningBy(p.token("t1", "edge-1")).identify(t.Context(), path, []string{p.address}, "edge-1")
	if err != nil {
		t.Fatal(err)
	}
	p.authority.clock.set(old.NotAfter().Add(time.Second))
	id, err := p.joining().identify(t.Context(), path, []string{p.address}, "edge-1")
	wantError(t, err, errExpired, "2030-01-09T03:04:05Z", joinAgain)
	if id == nil || id.Machine != "edge-1" {
		t.Error("whose certificate it was is not told")
	}
	fresh, err := p.joiningBy(p.token("t2", "edge-1")).identify(t.Context(), path, []string{p.address}, "edge-1")
	if err != nil {
		t.Fatal(err)
	}
	if !fresh.NotAfter().After(p.authority.clock.Now()) {
		t.Errorf("the new one ends at %s", fresh.NotAfter())
	}
}

func TestDamagedIdentity(t *testing.T) {
	t.Parallel()
	p := newPlane(t, newAuthority(t))
	path := filepath.Join(t.TempDir(), "identity.json")
	if _, err := p.joiningBy(p.token("t1", "edge-1")).identify(t.Context(), path, []string{p.address}, "edge-1"); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; n < len(whole)-2; n += 97 { // the last two bytes are "}\n"
		if err := os.WriteFile(path, whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		id, err := p.joining().identify(t.Context(), path, []string{p.address}, "edge-1")
		if err == nil || id != nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "remove it and join again") ||
			!strings.Contains(err.Error(), joinAgain) {
			t.Fatalf("of %d bytes: %v", n, err)
		}
	}
	if _, err := p.joiningBy(p.token("t2", "edge-1")).identify(t.Context(), path, []string{p.address}, "edge-1"); err != nil {
		t.Errorf("with a token it joins anew: %v", err)
	}
}
