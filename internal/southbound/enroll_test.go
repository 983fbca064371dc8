package southbound

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	agentv1 "fairlead.dev/proto/agent/v1"
)

func TestJoinRefusals(t *testing.T) {
	r := newRig(t)
	join := func(token string, csr []byte) error {
		_, err := agentv1.NewEnrollmentClient(r.dial(nil)).Join(r.ctx(), &agentv1.JoinRequest{Token: token, Csr: csr})
		return err
	}
	key := newKey(t)
	csr := request(t, key)
	good := r.token("edge-1")
	wrong, err := NewToken(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	small, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	broken := bytes.Clone(csr)
	broken[len(broken)-1] ^= 1
	for name, c := range map[string]struct {
		token string
		csr   []byte
		code  codes.Code
		text  string
	}{
		"unknown token": {wrong.Reveal(), csr, codes.Unauthenticated, "unknown"},
		"wrong secret":  {strings.SplitN(good, ".", 2)[0] + "." + strings.SplitN(wrong.Reveal(), ".", 2)[1], csr, codes.Unauthenticated, "unknown"},
		"cut token":     {good[:len(good)-3], csr, codes.Unauthenticated, "was it cut"},
		"no token":      {"", csr, codes.Unauthenticated, "want fl1."},
		"no request":    {good, nil, codes.InvalidArgument, "invalid certificate request"},
		"broken":        {good, broken, codes.InvalidArgument, "invalid certificate request"},
		"small key":     {good, request(t, small), codes.InvalidArgument, "fewer than 256 bits"},
		"bad name":      {r.token("Not A Name"), csr, codes.InvalidArgument, "invalid name"},
		"long name":     {r.token(strings.Repeat("a", 60)), csr, codes.InvalidArgument, "at most 56"},
	} {
		t.Run(name, func(t *testing.T) { wantStatus(t, join(c.token, c.csr), c.code, c.text) })
	}

	// Whether the token is spent by now is not said: the same key may spend it again.
	mistaken := func() {
		t.Helper()
		_, err := agentv1.NewEnrollmentClient(r.dial(nil)).Join(r.ctx(), &agentv1.JoinRequest{Token: good, Csr: csr, Machine: "edge-9"})
		wantStatus(t, err, codes.Unauthenticated, `it is for machine edge-1, not for "edge-9"`)
		_, other := agentv1.NewEnrollmentClient(r.dial(nil)).Join(r.ctx(), &agentv1.JoinRequest{Token: good, Csr: csr, Machine: "edge-1", Role: agentv1.RoleBackend})
		wantStatus(t, other, codes.FailedPrecondition, "this agent was started with --role backend")
		for _, err := range []error{err, other} {
			if strings.Contains(err.Error(), "spent") {
				t.Errorf("it says what it does not know: %v", err)
			}
		}
	}
	mistaken()

	if err := join("fl1."+good+".pin", csr); err != nil {
		t.Fatal(err)
	}
	if err := join(good, csr); err != nil {
		t.Fatalf("the same key may spend its token again: %v", err)
	}
	mistaken()
	wantStatus(t, join(good, request(t, newKey(t))), codes.Unauthenticated, "used")
	late := r.token("edge-2")
	r.clock.advance(2 * time.Hour)
	wantStatus(t, join(late, csr), codes.Unauthenticated, "expired")
}

// TestJoinForAnotherRole holds that a token of another role than the agent's is refused and not spent, and that agents
// that say no role join with any.
func TestJoinForAnotherRole(t *testing.T) {
	r := newRig(t)
	join := func(token, role string) error {
		_, err := agentv1.NewEnrollmentClient(r.dial(nil)).Join(r.ctx(), &agentv1.JoinRequest{Token: token, Csr: request(t, newKey(t)), Role: role})
		return err
	}
	for _, c := range []struct{ machine, of, role, others string }{
		{"edge-1", "edge", "edge", "backend"}, {"edge-2", "", "edge", "backend"}, {"node-7", "backend", "backend", "edge"}, {"node-8", "backend", "", "edge"},
	} {
		token := r.token(c.machine)
		id, _, _ := strings.Cut(token, ".")
		r.tokens.tokens[id].id.Role = c.of
		err := join(token, c.others)
		wantStatus(t, err, codes.FailedPrecondition, "the token is for a machine of role "+cmp.Or(c.of, "edge")+", and this agent was started with --role ")
		wantStatus(t, err, codes.FailedPrecondition, "start it with --role "+cmp.Or(c.of, "edge")+", or with a token of `fairlead token create --machine "+c.machine+" --role ")
		wantStatus(t, join(token, "a\nb"), codes.InvalidArgument, `role "a\nb": invalid name`)
		if err := join(token, c.role); err != nil {
			t.Errorf("%s, role %q with a token of role %q: %v", c.machine, c.role, c.of, err)
		}
	}
}

func TestLiveNameCannotBeTaken(t *testing.T) {
	r := newRig(t)
	o := r.join("edge-1").observe()
	token := r.token("edge-1")
	join := func() error {
		_, err := agentv1.NewEnrollmentClient(r.dial(nil)).Join(r.ctx(), &agentv1.JoinRequest{Token: token, Csr: request(t, newKey(t))})
		return err
	}
	wantStatus(t, join(), codes.AlreadyExists, "edge-1 is alive")
	o.cancel()
	r.wait("the end of the stream", "edge-1", func(MachineState) bool {
		r.server.mu.Lock()
		defer r.server.mu.Unlock()
		return !r.server.machines["edge-1"].open()
	})
	wantStatus(t, join(), codes.AlreadyExists, "edge-1 is alive") // it may be about to come back
	r.clock.advance(time.Minute)
	if err := join(); err != nil {
		t.Fatalf("the refusals did not spend the token, and the machine is gone: %v", err)
	}
}

// TestNameOfAMachineThatMayComeBack holds that a plane which has just begun to lead gives no name away whose
// machine has had no time to come back.
func TestNameOfAMachineThatMayComeBack(t *testing.T) {
	joined := map[string]bool{"edge-1": true, "edge-2": true} // as the API says
	var own KeyID                                             // a key that counts for each
	r := newRig(t, func(c *Config) { c.Joined = func(name string, key KeyID) bool { return joined[name] && key != own } })
	token, gone := r.token("edge-1"), r.token("edge-2")
	join := func(token string) error {
		_, err := agentv1.NewEnrollmentClient(r.dial(nil)).Join(r.ctx(), &agentv1.JoinRequest{Token: token, Csr: request(t, newKey(t))})
		return err
	}
	r.server.Sweep()
	wantStatus(t, join(token), codes.Unavailable, "may still reconnect within 30s")
	if err := join(r.token("edge-3")); err != nil {
		t.Errorf("a machine that has never joined: %v", err)
	}
	key := newKey(t)
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	own = keyID(der) // its agent died before it stored the certificate
	if _, err := agentv1.NewEnrollmentClient(r.dial(nil)).Join(r.ctx(), &agentv1.JoinRequest{Token: r.token("edge-4"), Csr: request(t, key)}); err != nil {
		t.Errorf("a machine that joins again with its key: %v", err)
	}
	own = ""
	r.impostor("edge-1").observe().report(&agentv1.Report{}) // it is back
	r.wait("the stream", "edge-1", func(m MachineState) bool { return !m.LastReport.IsZero() })
	r.clock.advance(time.Minute)
	r.server.Sweep()
	wantStatus(t, join(token), codes.AlreadyExists, "edge-1 is alive")
	if err := join(gone); err != nil {
		t.Errorf("a machine that did not come back: %v", err)
	}
	// The next leadership begins anew.
	r.leader.set(2, false, "")
	r.server.StepDown()
	r.server.Sweep()
	r.clock.advance(time.Minute)
	r.leader.set(3, true, "")
	wantStatus(t, join(r.token("edge-2")), codes.Unavailable, "may still reconnect within 30s")
}

func TestOnlyJoinNeedsNoCertificate(t *testing.T) {
	r := newRig(t)
	a := r.agent(newKey(t), nil)
	a.conn = r.dial(nil)
	s := a.discover()
	s.follow("", nil, typeA)
	s.fails(codes.Unauthenticated, "join first")
	o, err := agentv1.NewObserverClient(a.conn).Observe(r.ctx())
	if err != nil {
		t.Fatal(err)
	}
	_, err = o.Recv()
	wantStatus(t, err, codes.Unauthenticated, "join first")
	_, err = agentv1.NewEnrollmentClient(a.conn).Renew(r.ctx(), &agentv1.RenewRequest{Csr: request(t, a.key)})
	wantStatus(t, err, codes.Unauthenticated, "join first")
}

// Certificates that did not come from Join.
func TestForgedCertificates(t *testing.T) {
	r := newRig(t)
	foreign, err := NewCA(r.clock.Now)
	if err != nil {
		t.Fatal(err)
	}
	issue := func(ca *CA, cn string, usage x509.ExtKeyUsage) *tls.Certificate {
		key := newKey(t)
		der, err := ca.issue(&x509.Certificate{
			Subject: pkix.Name{CommonName: cn}, NotAfter: r.clock.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{usage},
		}, key.Public())
		if err != nil {
			t.Fatal(err)
		}
		return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	}
	serving, err := r.ca.Serving()
	if err != nil {
		t.Fatal(err)
	}
	joined := r.join("edge-1")
	stolen := &tls.Certificate{Certificate: joined.cert.Certificate, PrivateKey: newKey(t)}
	for name, c := range map[string]struct {
		cert *tls.Certificate
		code codes.Code
		text string
	}{
		"another authority":      {issue(foreign, "machine:edge-1", x509.ExtKeyUsageClientAuth), codes.Unauthenticated, "unknown authority"},
		"not a machine":          {issue(r.ca, "edge-1", x509.ExtKeyUsageClientAuth), codes.Unauthenticated, "not a machine certificate"},
		"bad name":               {issue(r.ca, "machine:Edge/1", x509.ExtKeyUsageClientAuth), codes.Unauthenticated, "invalid name"},
		"a server's certificate": {serving, codes.Unauthenticated, "incompatible key usage"},
		"without its key":        {stolen, codes.Unavailable, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := agentv1.NewEnrollmentClient(r.dial(c.cert)).Renew(r.ctx(), &agentv1.RenewRequest{Csr: request(t, newKey(t))})
			wantStatus(t, err, c.code, c.text)
		})
	}
	// A request that asks for another name gets the certificate's own.
	answer, err := agentv1.NewEnrollmentClient(joined.conn).Renew(r.ctx(), &agentv1.RenewRequest{Csr: request(t, joined.key)})
	if err != nil {
		t.Fatal(err)
	}
	renewed := r.agent(joined.key, answer.GetChain())
	leaf, err := x509.ParseCertificate(renewed.cert.Certificate[0])
	if err != nil || leaf.Subject.CommonName != "machine:edge-1" || len(leaf.DNSNames) != 0 || leaf.Subject.OrganizationalUnit[0] != "edge" {
		t.Fatalf("renewed certificate is for %v %v, %v", leaf.Subject, leaf.DNSNames, err)
	}
}

func TestAuthorityIsKept(t *testing.T) {
	c := &clock{now: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}
	ca, err := NewCA(c.Now)
	if err != nil {
		t.Fatal(err)
	}
	data, err := ca.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	again, err := ParseCA(data, c.Now)
	if err != nil || again.Pin() != ca.Pin() || !bytes.Equal(again.Roots(), ca.Roots()) {
		t.Fatalf("read back: %v", err)
	}
	key := newKey(t)
	chain, _, err := again.Sign(request(t, key), Identity{Machine: "edge-1"})
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.Roots())
	rig := &rig{t: t, ca: ca, clock: c}
	leaf, err := x509.ParseCertificate(rig.agent(key, chain).cert.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	for at, ok := range map[time.Duration]bool{-2 * time.Hour: false, 0: true, MachineLife - time.Second: true, MachineLife + time.Second: false} {
		_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: c.Now().Add(at), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		if (err == nil) != ok {
			t.Errorf("after %v: %v", at, err)
		}
	}
	other, err := NewCA(c.Now)
	if err != nil {
		t.Fatal(err)
	}
	otherData, _ := other.Bytes()
	_, otherKey, _ := bytes.Cut(otherData, []byte("-----END CERTIFICATE-----\n"))
	for name, bad := range map[string][]byte{
		"empty":       nil,
		"cut":         data[:len(data)/2],
		"no key":      ca.Roots(),
		"other's key": append(bytes.Clone(ca.Roots()), otherKey...),
		"garbled":     bytes.Replace(data, []byte("\nM"), []byte("\nN"), 1),
	} {
		if _, err := ParseCA(bad, c.Now); err == nil {
			t.Errorf("%s: read without an error", name)
		}
	}
}

func TestServingCertificateIsRenewed(t *testing.T) {
	c := &clock{now: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}
	ca, err := NewCA(c.Now)
	if err != nil {
		t.Fatal(err)
	}
	serial := func() *big.Int {
		cert, err := ca.Serving()
		if err != nil {
			t.Fatal(err)
		}
		if !c.Now().Before(cert.Leaf.NotAfter) || !c.Now().After(cert.Leaf.NotBefore) {
			t.Fatalf("serving with a certificate for %v to %v at %v", cert.Leaf.NotBefore, cert.Leaf.NotAfter, c.Now())
		}
		return cert.Leaf.SerialNumber
	}
	first := serial()
	c.advance(ServingLife / 2)
	if serial().Cmp(first) != 0 {
		t.Error("renewed after half its life")
	}
	c.advance(ServingLife / 4)
	second := serial()
	if second.Cmp(first) == 0 {
		t.Error("not renewed after three quarters of its life")
	}
	c.advance(-ServingLife) // the clock steps back
	if serial().Cmp(second) == 0 {
		t.Error("a certificate of the future is served")
	}
}

func TestRequestKeys(t *testing.T) {
	ca, err := NewCA(time.Now)
	if err != nil {
		t.Fatal(err)
	}
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Skipf("this Go makes no 1,024-bit key to refuse: %v", err)
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, weak)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := ca.Sign(csr, Identity{Machine: "edge-1"}); !errors.Is(err, ErrRequest) {
		t.Fatalf("signed a weak key: %v", err)
	}
}

func TestToken(t *testing.T) {
	token, err := NewToken(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	printed := token.Print("pin-_9")
	for _, form := range []string{token.Reveal(), "fl1." + token.Reveal(), printed, " " + printed + "\n"} {
		again, err := ParseToken(form)
		if err != nil || again != token || !again.Matches(token.Hash()) {
			t.Errorf("%q: %v, %v", form, again, err)
		}
	}
	for _, bad := range []string{"", ".", "fl1", printed + ".x", "fl2." + token.Reveal(), token.Reveal() + ".pin", token.ID + "."} {
		if again, err := ParseToken(bad); !errors.Is(err, ErrToken) {
			t.Errorf("%q: %v, %v", bad, again, err)
		}
	}
	other, err := NewToken(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if other.Matches(token.Hash()) || other.ID == token.ID {
		t.Error("two tokens are the same")
	}
	shown := fmt.Sprintf("%v %+v %#v %s", token, token, &token, token.LogValue())
	if strings.Contains(shown, token.secret) || !strings.Contains(shown, token.ID) {
		t.Errorf("shown as %s", shown)
	}
	if _, err := NewToken(io.LimitReader(rand.Reader, 10)); err == nil {
		t.Error("a token without enough randomness")
	}
}

// Connections without a certificate are few, short and small.
func TestStrangers(t *testing.T) {
	r := newRig(t, func(c *Config) { c.MaxStrangers, c.StrangerTime = 2, patience })
	client := func() *tls.Conn {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(r.ca.Roots())
		raw, err := r.listener.DialContext(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		conn := tls.Client(raw, &tls.Config{RootCAs: roots, ServerName: agentv1.ServerName, Time: r.clock.Now, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS13})
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	greeted := func(c *tls.Conn) error {
		if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
		if _, err := c.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")); err != nil {
			return err
		}
		_, err := io.ReadFull(c, make([]byte, 9)) // the server's settings
		return err
	}
	first, second := client(), client()
	for _, c := range []*tls.Conn{first, second} {
		if err := greeted(c); err != nil {
			t.Fatal(err)
		}
	}
	if err := greeted(client()); err == nil {
		t.Fatal("a third stranger came in")
	}
	// Too much data closes the connection, which makes room for another. HTTP/2 pings
	// are data that nothing else limits.
	ping := []byte("\x00\x00\x08\x06\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00")
	var sent int
	for sent < 4*strangerBytes {
		n, err := first.Write(bytes.Repeat(ping, 100))
		sent += n
		if err != nil {
			break
		}
	}
	if sent >= 4*strangerBytes {
		t.Fatalf("a stranger sent %d bytes", sent)
	}
	deadline := time.Now().Add(patience)
	for {
		err := greeted(client())
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("no room after a stranger was closed: %v", err)
		}
	}
	// Machines are let in meanwhile.
	if _, err := agentv1.NewEnrollmentClient(r.impostor("edge-1").conn).Renew(r.ctx(), &agentv1.RenewRequest{Csr: request(t, newKey(t))}); err != nil {
		t.Fatal(err)
	}
}

func TestStrangersAreShort(t *testing.T) {
	r := newRig(t, func(c *Config) { c.StrangerTime = time.Millisecond })
	conn, err := r.listener.DialContext(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(r.ca.Roots())
	c := tls.Client(conn, &tls.Config{RootCAs: roots, ServerName: agentv1.ServerName, Time: r.clock.Now, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS13})
	// Before gRPC itself gives up on a client that does not speak.
	if err := c.SetDeadline(time.Now().Add(handshakeTime / 2)); err != nil {
		t.Fatal(err)
	}
	var timeout net.Error
	if _, err := io.Copy(io.Discard, c); errors.As(err, &timeout) && timeout.Timeout() {
		t.Fatal("a stranger who says nothing was not closed")
	}
}

func TestGarbageDoesNotHurt(t *testing.T) {
	r := newRig(t)
	for _, garbage := range []string{"", "GET / HTTP/1.1\r\n\r\n", strings.Repeat("\x16\x03\x01\xff", 5000), "\x00\x00\x00"} {
		conn, err := r.listener.DialContext(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, garbage)
		_ = conn.Close()
	}
	s := r.join("edge-1").discover()
	s.follow("", nil, typeA)
	r.wait("the machine", "edge-1", func(m MachineState) bool { return m.Connected })
}

// TestRefusedJoinsArePaced holds that tokens which somebody makes up cost few questions, and keep out nobody
// who calls from elsewhere, however many networks they come from.
func TestRefusedJoinsArePaced(t *testing.T) {
	r := newRig(t)
	ask := func(from, token string) error {
		at, err := netip.ParseAddr(from)
		if err != nil {
			t.Fatal(err)
		}
		ctx := peer.NewContext(r.ctx(), &peer.Peer{Addr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(at, 1000))})
		_, err = r.server.Join(ctx, &agentv1.JoinRequest{Token: token, Csr: request(t, newKey(t))})
		return err
	}
	wrong, err := NewToken(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 * badJoinsBurst {
		want := codes.Unauthenticated
		if i >= badJoinsBurst {
			want = codes.Unavailable
		}
		if err := ask(fmt.Sprintf("2001:db8::%x", i), wrong.Reveal()); status.Code(err) != want {
			t.Fatalf("made-up token %d: %v", i, err)
		}
	}
	if got := r.tokens.checks.Load(); got != badJoinsBurst {
		t.Errorf("%d made-up tokens of one network cost %d questions", 3*badJoinsBurst, got)
	}
	for i := range 2 * badJoinsBurst { // those that succeed are not counted
		if err := ask("192.0.2.1", r.token(fmt.Sprintf("edge-%d", i))); err != nil {
			t.Fatalf("a good token from elsewhere: %v", err)
		}
	}
	if err := ask("2001:db8::1", r.token("edge-x")); status.Code(err) != codes.Unavailable {
		t.Errorf("a good token from there: %v", err)
	}
	r.clock.advance(time.Minute)
	if err := ask("2001:db8::1", r.token("edge-x")); err != nil {
		t.Errorf("a good token from there, a minute later: %v", err)
	}
	// From many networks, each with less than its part.
	r.tokens.checks.Store(0)
	for i := range 2 * allBadBurst {
		_ = ask(fmt.Sprintf("198.51.100.%d", 1+i%16), wrong.Reveal())
	}
	if got := r.tokens.checks.Load(); got > allBadBurst {
		t.Errorf("made-up tokens of many networks cost %d questions", got)
	}
	// Who has had none refused waits for a turn.
	turn := make(chan error)
	go func() { turn <- ask("192.0.2.2", r.token("edge-y")) }()
	r.clock.advance(time.Second)
	if err := <-turn; err != nil {
		t.Errorf("a good token from a network that had none refused: %v", err)
	}
	r.clock.advance(time.Hour)
	if err := ask("192.0.2.3", r.token("edge-z")); err != nil {
		t.Error(err)
	}
	for i := range joinsKeptApart {
		if done, _, err := r.server.joins.try(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 32)); err == nil {
			done(false)
		}
	}
	if got := len(r.server.joins.networks); got > 17 {
		t.Errorf("%d networks are remembered", got)
	}
}
