package southbound

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	agentv1 "fairlead.dev/proto/agent/v1"
)

const (
	// renewRate is how many machines renew their certificates in a second when all are to.
	renewRate = 50
	// showTime is how long an agent that does not report what it keeps has to store what it got.
	showTime = 30 * time.Second
)

// Ends of streams whose certificate is of another authority than what the machine may have by now:
// it comes back, and shows what it keeps.
var (
	errRetired = status.Error(codes.Aborted, "the authority of this certificate is no longer trusted: reconnect with a newer certificate")
	errRenewed = status.Error(codes.Aborted, "this certificate was renewed: reconnect with the newer one")
)

// Trust is the list of authorities that is sent with a certificate, at one moment. Nobody
// may change it.
type Trust struct {
	Roots []byte         // certificates of the authorities to trust, PEM
	Pool  *x509.CertPool // the same

	issuer      []byte // pin of the authority that signs
	authorities [][]byte
}

func trustOf(signs *CA, all ...*CA) Trust {
	t := Trust{Pool: x509.NewCertPool(), issuer: pinOf(signs.cert)}
	for _, ca := range all {
		t.Roots = append(t.Roots, ca.Roots()...)
		t.Pool.AddCert(ca.cert)
		t.authorities = append(t.authorities, pinOf(ca.cert))
	}
	slices.SortFunc(t.authorities, bytes.Compare)
	return t
}

// has says whether an authority is trusted.
func (t Trust) has(pin []byte) bool {
	return slices.ContainsFunc(t.authorities, func(a []byte) bool { return bytes.Equal(a, pin) })
}

func (t Trust) message(within time.Duration) *agentv1.Trust {
	return &agentv1.Trust{Issuer: t.issuer, Authorities: t.authorities, Within: durationpb.New(within)}
}

// Authorities are the agents' authorities that are trusted now. Planes show a certificate of one.
// While a rotation is under way there is a next one, which signs what machines get: they are
// told of both with it, so a machine that keeps a certificate of the next one knows a plane
// by either. It is safe for concurrent use.
type Authorities struct {
	mu    sync.RWMutex
	shown *CA
	next  *CA // nil: no rotation is under way
	trust Trust
}

var _ Authority = (*Authorities)(nil)

// NewAuthorities returns the authorities of which planes show the first; next is nil unless a
// rotation is under way.
func NewAuthorities(shown, next *CA) *Authorities {
	a := &Authorities{}
	a.Set(shown, next)
	return a
}

// Set replaces the authorities, and says whether they are others than before.
func (a *Authorities) Set(shown, next *CA) (changed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	shown, next = a.held(shown), a.held(next)
	if shown == a.shown && next == a.next {
		return false
	}
	a.shown, a.next, a.trust = shown, next, trustOf(shown, shown)
	if next != nil {
		a.trust = trustOf(next, shown, next)
	}
	return true
}

// held is the authority as it is known already, with the serving certificate that it has made.
func (a *Authorities) held(ca *CA) *CA {
	for _, known := range []*CA{a.shown, a.next} {
		if ca != nil && known != nil && known.cert.Equal(ca.cert) {
			return known
		}
	}
	return ca
}

// Sign implements Authority.
func (a *Authorities) Sign(csr []byte, id Identity) ([]byte, Trust, error) {
	a.mu.RLock()
	signs, trust := a.next, a.trust
	if signs == nil {
		signs = a.shown
	}
	a.mu.RUnlock()
	chain, _, err := signs.Sign(csr, id)
	return chain, trust, err
}

// Trust implements Authority.
func (a *Authorities) Trust() Trust {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.trust
}

// Serving implements Authority.
func (a *Authorities) Serving() (*tls.Certificate, error) { return a.present().Serving() }

// Roots are the certificates of all authorities that are trusted, PEM.
func (a *Authorities) Roots() []byte { return a.Trust().Roots }

// Pin names the authority by which planes are known. A printed token carries it.
func (a *Authorities) Pin() string { return a.present().Pin() }

// Next is the pin of the authority that is to replace it; empty while no rotation is under
// way.
func (a *Authorities) Next() string {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if a.next == nil {
		return ""
	}
	return a.next.Pin()
}

// RotatingSince is when the next authority was made, by the clock of whoever made it; zero while no
// rotation is under way.
func (a *Authorities) RotatingSince() time.Time {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if a.next == nil {
		return time.Time{}
	}
	return a.next.Since()
}

// Bytes are the authorities as their owner stores them, private keys included; next is nil while no
// rotation is under way.
func (a *Authorities) Bytes() (shown, next []byte, err error) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if shown, err = a.shown.Bytes(); err != nil || a.next == nil {
		return shown, nil, err
	}
	next, err = a.next.Bytes()
	return shown, next, err
}

func (a *Authorities) present() *CA {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.shown
}

// TrustChanged is called when the authority's Trust has changed. Streams whose certificate is no
// longer valid end, and machines receive the new Trust.
func (s *Server) TrustChanged() {
	trust := s.config.Authority.Trust()
	s.mu.Lock()
	defer s.mu.Unlock()
	for session := range s.sessions {
		if !trust.has(session.issuer) {
			session.end(errRetired)
			continue
		}
		select {
		case session.ask <- struct{}{}:
		default: // it is about to be told
		}
	}
}

// shows says whether a stream ends, so that its machine shows the certificate that it got meanwhile: it
// is of another authority, and the agent is too old to report it. s.mu is held.
func (s *Server) shows(who *session, now time.Time) bool {
	m := s.machines[who.Machine]
	return m != nil && m.issuer == nil && m.got != nil && now.Sub(m.renewed) > showTime && !bytes.Equal(who.issuer, m.got)
}

// renewWithin spreads the renewals of all machines.
func (s *Server) renewWithin() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(time.Second, time.Duration(len(s.machines))*time.Second/renewRate)
}

// Issuers are the pins of the authorities that have signed the certificates which machines with a
// stream keep, by machine.
func (s *Server) Issuers() map[string]string {
	trust := s.config.Authority.Trust()
	s.mu.Lock()
	defer s.mu.Unlock()
	issuers := make(map[string]string, len(s.machines))
	for name, m := range s.machines {
		if issuer := m.keeps(trust); issuer != nil {
			issuers[name] = pinText(issuer)
		}
	}
	return issuers
}

// keeps is the authority of the certificate that a machine keeps; nil where it has no stream. What
// it has shown is proof, so a certificate of the authority that signs counts before any report. A
// report counts only if it names an authority that is trusted.
func (m *machine) keeps(trust Trust) []byte {
	var shown []byte
	for _, session := range m.sessions {
		switch {
		case session == nil:
		case bytes.Equal(session.issuer, trust.issuer):
			return session.issuer
		case shown == nil:
			shown = session.issuer
		}
	}
	if trust.has(m.issuer) {
		return m.issuer
	}
	return shown
}
