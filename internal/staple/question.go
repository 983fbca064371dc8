package staple

import (
	"bytes"
	"context"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"syscall"
	"time"

	"golang.org/x/crypto/ocsp"

	"fairlead.dev/internal/model"
)

const (
	// askTime bounds one question, from connecting to the end of the answer.
	askTime = 10 * time.Second
	// answerLimit bounds an answer, bytes. Real ones have 500 to 3,000.
	answerLimit = 64 << 10
	// skew is by how much a responder's clock may be ahead of ours.
	skew = 5 * time.Minute
)

// question is what is asked about one certificate.
type question struct {
	leaf, issuer *x509.Certificate
	url          string
	body         []byte
}

// answer is what a responder says: a response to show, or why not to show it.
type answer struct {
	raw     []byte
	until   time.Time
	problem string
	revoked bool
}

// newQuestion reads the leaf and its issuer. Without a question there is a problem, unless
// the certificate names no responder, which is no problem at all.
func newQuestion(chain string) (q *question, problem string) {
	var certificates []*x509.Certificate
	for rest := []byte(chain); len(certificates) < 2; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, "the chain cannot be read"
		}
		certificates = append(certificates, c)
	}
	if len(certificates) == 0 || len(certificates[0].OCSPServer) == 0 {
		return nil, ""
	}
	leaf := certificates[0]
	if len(certificates) < 2 || leaf.CheckSignatureFrom(certificates[1]) != nil {
		return nil, "the chain lacks the issuer's certificate after the first one"
	}
	u, err := url.Parse(leaf.OCSPServer[0])
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Sprintf("the certificate's responder %q is no HTTP URL", leaf.OCSPServer[0])
	}
	// Responders of today still find certificates by SHA-1 alone (RFC 5019, 2.1.1).
	body, err := ocsp.CreateRequest(leaf, certificates[1], &ocsp.RequestOptions{Hash: crypto.SHA1})
	if err != nil {
		return nil, "no question can be made of the certificate: " + err.Error()
	}
	return &question{leaf: leaf, issuer: certificates[1], url: u.String(), body: body}, ""
}

// send asks the responder. An error is one that may go away by itself.
func (q *question) send(ctx context.Context, client *http.Client, now func() time.Time) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, q.url, bytes.NewReader(q.body))
	if err != nil {
		return answer{}, fmt.Errorf("ask the responder: %w", err)
	}
	request.Header.Set("Content-Type", "application/ocsp-request")
	request.Header.Set("Accept", "application/ocsp-response")
	response, err := client.Do(request)
	if err != nil {
		return answer{}, fmt.Errorf("ask the responder: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return answer{}, fmt.Errorf("the responder %s answers %s", q.url, response.Status)
	}
	raw, err := io.ReadAll(io.LimitReader(response.Body, answerLimit+1))
	switch {
	case err != nil:
		return answer{}, fmt.Errorf("read the answer of %s: %w", q.url, err)
	case len(raw) > answerLimit:
		return answer{}, fmt.Errorf("the answer of %s is longer than %d bytes", q.url, answerLimit)
	}
	return q.judge(raw, now())
}

// judge checks a response: that it is about the certificate, by its issuer, and of now.
func (q *question) judge(raw []byte, now time.Time) (answer, error) {
	r, err := ocsp.ParseResponseForCert(raw, q.leaf, q.issuer)
	if err != nil {
		return answer{}, fmt.Errorf("the answer of %s does not hold: %w", q.url, err)
	}
	switch {
	case r.Status == ocsp.Revoked:
		return answer{revoked: true, problem: "the authority revoked the certificate at " + r.RevokedAt.UTC().Format(time.RFC3339)}, nil
	case r.Status != ocsp.Good:
		return answer{problem: "the responder " + q.url + " does not know the certificate"}, nil
	case r.NextUpdate.IsZero():
		return answer{problem: "the responder " + q.url + " does not say how long its answer holds"}, nil
	case r.ThisUpdate.After(now.Add(skew)), !r.NextUpdate.After(now):
		return answer{}, fmt.Errorf("the answer of %s holds from %s until %s, which is not now", q.url, r.ThisUpdate.Format(time.RFC3339), r.NextUpdate.Format(time.RFC3339))
	}
	return answer{raw: raw, until: r.NextUpdate}, nil
}

// Client returns a client for responders: it follows no redirect, and reaches neither this
// machine nor addresses that are not routed.
func Client() *http.Client {
	dialer := &net.Dialer{Timeout: askTime, Control: func(_, address string, _ syscall.RawConn) error {
		a, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		return allowed(a.Addr().Unmap())
	}}
	return &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext,
			TLSHandshakeTimeout: askTime, MaxIdleConnsPerHost: parallel, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: answerLimit,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// errPlace: a certificate names a responder where no responder can be.
var errPlace = errors.New("no responder is asked at this address")

func allowed(a netip.Addr) error {
	if !model.Reachable(a) {
		return fmt.Errorf("%s: %w", a, errPlace)
	}
	return nil
}
