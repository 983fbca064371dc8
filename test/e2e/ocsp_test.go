package e2e

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ocsp"

	v1 "fairlead.dev/internal/console/v1"
)

const responderPort = 8888

// responder answers for an authority's certificates by OCSP, on machine os1.
type responder struct {
	authority *authority
	url       string

	mu     sync.Mutex
	broken bool
	status map[string]int // by serial; else good
}

func (s *site) startResponder(t *testing.T, a *authority) *responder {
	t.Helper()
	m := s.Lab.Machine(os1.Name)
	at := netip.AddrPortFrom(m.Addr4(), responderPort).String()
	r := &responder{authority: a, url: "http://" + at + "/ocsp", status: map[string]int{}}
	l, err := m.Listen(t.Context(), "tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: r, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return r
}

func (r *responder) set(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

func (r *responder) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	body, err := io.ReadAll(q.Body)
	if err != nil || r.broken {
		http.Error(w, "not today", http.StatusInternalServerError)
		return
	}
	question, err := ocsp.ParseRequest(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	now := time.Now()
	raw, err := ocsp.CreateResponse(r.authority.cert, r.authority.cert, ocsp.Response{
		Status: r.status[question.SerialNumber.String()], SerialNumber: question.SerialNumber,
		ThisUpdate: now.Add(-time.Minute), NextUpdate: now.Add(time.Hour), RevokedAt: now.Add(-time.Minute),
	}, r.authority.key)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write(raw)
}

// issue makes a certificate that names the responder, with its authority's behind it.
func (r *responder) issue(t *testing.T, host string, mustStaple bool) (chain, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return r.issueTo(t, private, host, mustStaple)
}

// issueTo is issue with a key that there is.
func (r *responder) issueTo(t *testing.T, private crypto.Signer, host string, mustStaple bool) (chain, key []byte) {
	t.Helper()
	serial := randomSerial(t)
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: host}, DNSNames: []string{host}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, OCSPServer: []string{r.url}, NotBefore: r.authority.cert.NotBefore, NotAfter: r.authority.cert.NotAfter,
	}
	if mustStaple { // RFC 7633: a list of the one feature status_request
		template.ExtraExtensions = []pkix.Extension{{Id: []int{1, 3, 6, 1, 5, 5, 7, 1, 24}, Value: []byte{0x30, 3, 2, 1, 5}}}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, r.authority.cert, private.Public(), r.authority.key)
	if err != nil {
		t.Fatal(err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	chain = append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), r.authority.pem...)
	return chain, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text})
}

// awaitStaple waits until every edge shows a certificate with a good response, or without.
func (s *site) awaitStaple(t *testing.T, r *responder, host, serial string, stapled bool) {
	t.Helper()
	for _, edge := range s.edges() {
		s.await(t, fmt.Sprintf("%s to show %s of %s, stapled: %v", edge, serial, host, stapled), func(ctx context.Context) error {
			state, err := s.shake(ctx, edge, &tls.Config{ServerName: host, RootCAs: r.authority.pool})
			if err != nil {
				return err
			}
			leaf := state.PeerCertificates[0]
			if got := leaf.SerialNumber.String(); got != serial {
				return fmt.Errorf("it shows %s", got)
			}
			if len(state.OCSPResponse) == 0 {
				if stapled {
					return errors.New("nothing is stapled")
				}
				return nil
			}
			response, err := ocsp.ParseResponseForCert(state.OCSPResponse, leaf, r.authority.cert)
			if err == nil && (response.Status != ocsp.Good || !stapled) {
				err = fmt.Errorf("the response is %d", response.Status)
			}
			return err
		})
	}
}

// stapled is nil if the first edge shows a response for a host.
func (s *site) stapled(ctx context.Context, r *responder, host string) error {
	state, err := s.shake(ctx, edge1.Name, &tls.Config{ServerName: host, RootCAs: r.authority.pool})
	if err == nil && len(state.OCSPResponse) == 0 {
		err = errors.New("nothing is stapled")
	}
	return err
}

// shake makes a TLS connection from the client to an edge and says what was agreed.
func (s *site) shake(ctx context.Context, edge string, config *tls.Config) (tls.ConnectionState, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	raw, err := s.Lab.Machine(client.Name).Dial(ctx, "tcp", netip.AddrPortFrom(s.Lab.Machine(edge).Addr4(), 443).String())
	if err != nil {
		return tls.ConnectionState{}, err
	}
	defer func() { _ = raw.Close() }()
	conn := tls.Client(raw, config)
	err = conn.HandshakeContext(ctx)
	return conn.ConnectionState(), err
}

// TestOCSPStapling shows responses of a real responder with certificates; one that has to be
// shown with a response is not shown without, and renewing it while the responder is away
// leaves the old one.
func TestOCSPStapling(t *testing.T) {
	s := shared(t)
	s.namespace(t, "stapling")
	r := s.startResponder(t, newAuthority(t, "stapling"))
	const plain, must = "plain.stapling.test", "must.stapling.test"
	for _, host := range []string{plain, must} {
		s.apply(t, secureRoot("stapling", host, host, "secretName: "+host, "routes: [{match: /, services: [{name: app, port: 80}]}]"))
	}
	s.apply(t, service("stapling", "app", s.backends["os1-a"]))
	set := func(host string, mustStaple bool) string {
		chain, key := r.issue(t, host, mustStaple)
		return s.setCertificate(t, "stapling", host, chain, key)
	}
	first := set(plain, false)
	s.awaitStaple(t, r, plain, first, true)
	old := set(must, true)
	s.awaitStaple(t, r, must, old, true)
	s.awaitIngress(t, ref("IngressRoute stapling/"+must), "valid", "valid IngressRoute")

	// The authority takes a certificate back, and another one comes.
	chain, key := r.issue(t, plain, false)
	r.set(func() { r.status[leafOf(t, chain).SerialNumber.String()] = ocsp.Revoked })
	revoked := s.setCertificate(t, "stapling", plain, chain, key)
	s.awaitProblem(t, v1.Problem{Severity: v1.SeverityError, Subject: "Secret stapling/" + plain, Reason: "CertificateRevoked", Message: "the authority revoked the certificate at …"})
	s.awaitStaple(t, r, plain, revoked, false)
	s.awaitStaple(t, r, plain, set(plain, false), true)

	// The responder is away while certificates are renewed.
	r.set(func() { r.broken = true })
	s.awaitStaple(t, r, plain, set(plain, false), false)
	renewed := set(must, true)
	s.awaitProblem(t, v1.Problem{
		Severity: v1.SeverityError, Subject: "Secret stapling/" + must, Reason: "CertificateNotStapled",
		Message: "its certificate requires a stapled OCSP response (must-staple), and there is none: the responder … answers 500…",
	})
	s.awaitStaple(t, r, must, old, true)
	r.set(func() { r.broken = false })
	s.awaitStaple(t, r, must, renewed, true)
	s.awaitNoProblem(t)
	metrics, err := s.plane.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer metrics.Close()
	text, err := io.ReadAll(metrics)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("fairlead_plane_certificate_expiry_timestamp_seconds{name=%q,namespace=\"stapling\"} %v\n", plain, float64(r.authority.cert.NotAfter.Unix()))
	if !bytes.Contains(text, []byte(want)) {
		t.Errorf("the metrics lack %s", want)
	}
}
