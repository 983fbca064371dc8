package staple

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/ocsp"

	"fairlead.dev/internal/model"
)

// authority issues certificates and answers for them, without a network.
type authority struct {
	t        *testing.T
	key      *ecdsa.PrivateKey
	cert     *x509.Certificate
	serial   int64
	asked    int
	answer   ocsp.Response // status and times of the next answers, if raw is nil
	raw      []byte
	failWith error
}

const life = 4 * 24 * time.Hour

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(100 * 24 * time.Hour),
	}
	a.cert = a.sign(template, template, a.key)
	return a
}

func (a *authority) sign(template, parent *x509.Certificate, key *ecdsa.PrivateKey) *x509.Certificate {
	a.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return c
}

// issue makes a chain of a leaf and, if it is to be had, the authority.
func (a *authority) issue(responder string, issuer bool) (chain string, leaf *x509.Certificate) {
	a.t.Helper()
	a.serial++
	template := &x509.Certificate{SerialNumber: big.NewInt(a.serial + 1), DNSNames: []string{"www.example.com"}, NotBefore: a.cert.NotBefore, NotAfter: a.cert.NotAfter}
	if responder != "" {
		template.OCSPServer = []string{responder}
	}
	leaf = a.sign(template, a.cert, a.key)
	chain = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Raw}))
	if issuer {
		chain += string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}))
	}
	return chain, leaf
}

// RoundTrip is the responder.
func (a *authority) RoundTrip(q *http.Request) (*http.Response, error) {
	a.asked++
	if a.failWith != nil {
		return nil, a.failWith
	}
	body, err := io.ReadAll(q.Body)
	if err != nil {
		return nil, err
	}
	raw := a.raw
	if raw == nil {
		question, err := ocsp.ParseRequest(body)
		if err != nil {
			return nil, err
		}
		r := a.answer
		r.SerialNumber = question.SerialNumber
		if r.ThisUpdate.IsZero() {
			r.ThisUpdate = time.Now()
		}
		if r.NextUpdate.IsZero() {
			r.NextUpdate = r.ThisUpdate.Add(life)
		}
		if raw, err = ocsp.CreateResponse(a.cert, a.cert, r, a.key); err != nil {
			return nil, err
		}
	}
	return &http.Response{StatusCode: http.StatusOK, Status: "200 OK", Body: io.NopCloser(bytes.NewReader(raw))}, nil
}

const id = model.CertificateID("team/www")

// keep runs a keeper that asks the authority until the test ends.
func (a *authority) keep(t *testing.T) (k *Keeper, changes *int) {
	t.Helper()
	changes = new(int)
	k = New(Config{HTTP: &http.Client{Transport: a}, Log: slog.New(slog.DiscardHandler), Changed: func(model.CertificateID) { *changes++ }})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); k.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return k, changes
}

func TestKeepsFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAuthority(t)
		k, changes := a.keep(t)
		chain, leaf := a.issue("http://ocsp.example.com", true)
		if k.Set(id, chain); k.About(id).Asked || k.Of(id, chain) != nil {
			t.Error("there is a response before anybody was asked")
		}
		synctest.Wait()
		r, err := ocsp.ParseResponseForCert(k.Of(id, chain), leaf, a.cert)
		if err != nil || r.Status != ocsp.Good || *changes != 1 {
			t.Fatalf("%+v %v after %d changes", r, err, *changes)
		}
		if k.Set(id, chain); k.Of(id, chain) == nil {
			t.Error("the same certificate again lost its response")
		}
		// Half of its life later, less the spread, comes the next one.
		time.Sleep(life * 9 / 20)
		if synctest.Wait(); a.asked != 1 && a.asked != 2 {
			t.Errorf("asked %d times before half of the life", a.asked)
		}
		time.Sleep(life / 10)
		if synctest.Wait(); a.asked != 2 || *changes != 2 {
			t.Errorf("asked %d times after half of the life, %d changes", a.asked, *changes)
		}
		// Nobody answers: the response is kept until its end, and a few questions a day are sent.
		a.failWith = context.DeadlineExceeded
		time.Sleep(life * 9 / 10)
		synctest.Wait()
		if k.Of(id, chain) == nil || k.About(id).Problem == "" || k.About(id).Until.IsZero() {
			t.Errorf("the response is gone too early: %+v", k.About(id))
		}
		if a.asked < 10 || a.asked > 150 {
			t.Errorf("asked %d times within days", a.asked)
		}
		time.Sleep(life / 5)
		if k.Of(id, chain) != nil || !k.About(id).Until.IsZero() {
			t.Errorf("the response outlived its end: %+v", k.About(id))
		}
		a.failWith = nil
		time.Sleep(retryLast)
		if synctest.Wait(); k.Of(id, chain) == nil || k.About(id).Problem != "" {
			t.Errorf("it did not come back: %+v", k.About(id))
		}
		// Renewed: the old response is not the new certificate's.
		next, _ := a.issue("http://ocsp.example.com", true)
		if k.Set(id, next); k.Of(id, next) != nil || k.Of(id, chain) != nil {
			t.Error("a response is shown with another certificate")
		}
		if synctest.Wait(); k.Of(id, next) == nil {
			t.Error("the new certificate has no response")
		}
		if k.Forget(id); k.Of(id, next) != nil || len(k.queue) != 0 {
			t.Error("it is not forgotten")
		}
	})
}

func TestRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		responder string // other than the usual one
		alone     bool   // without the issuer
		prepare   func(a *authority)
		problem   string
		revoked   bool
	}{
		"revoked": {prepare: func(a *authority) {
			a.answer = ocsp.Response{Status: ocsp.Revoked, RevokedAt: time.Now().Add(-time.Hour)}
		}, problem: "revoked the certificate at", revoked: true},
		"unknown": {prepare: func(a *authority) { a.answer = ocsp.Response{Status: ocsp.Unknown} }, problem: "does not know the certificate"},
		"old": {prepare: func(a *authority) {
			a.answer = ocsp.Response{ThisUpdate: time.Now().Add(-2 * life), NextUpdate: time.Now().Add(-life)}
		}, problem: "which is not now"},
		"of tomorrow": {prepare: func(a *authority) { a.answer = ocsp.Response{ThisUpdate: time.Now().Add(life)} }, problem: "which is not now"},
		"no OCSP":     {prepare: func(a *authority) { a.raw = []byte("<html>") }, problem: "does not hold"},
		"too long":    {prepare: func(a *authority) { a.raw = make([]byte, answerLimit+1) }, problem: "longer than"},
		"of another certificate": {prepare: func(a *authority) {
			var err error
			if a.raw, err = ocsp.CreateResponse(a.cert, a.cert, ocsp.Response{SerialNumber: big.NewInt(99), ThisUpdate: time.Now(), NextUpdate: time.Now().Add(life)}, a.key); err != nil {
				a.t.Fatal(err)
			}
		}, problem: "does not hold"},
		"of another authority": {prepare: func(a *authority) {
			b := newAuthority(a.t)
			a.key, a.cert = b.key, b.cert
		}, problem: "does not hold"},
		"without the issuer": {alone: true, problem: "lacks the issuer's certificate"},
		"no web address":     {responder: "ldap://directory", problem: "is no HTTP URL"},
		"password":           {responder: "http://user:secret@ocsp.example.com", problem: "is no HTTP URL"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAuthority(t)
				k, _ := a.keep(t)
				responder := c.responder
				if responder == "" {
					responder = "http://ocsp.example.com"
				}
				chain, _ := a.issue(responder, !c.alone)
				if c.prepare != nil {
					c.prepare(a)
				}
				k.Set(id, chain)
				synctest.Wait()
				r := k.About(id)
				if !r.Asked || !strings.Contains(r.Problem, c.problem) || r.Revoked != c.revoked || !r.Until.IsZero() || k.Of(id, chain) != nil {
					t.Errorf("%+v, want a problem %q", r, c.problem)
				}
			})
		})
	}
}

// TestNobodyToAsk: most certificates of today name no responder, and nothing is wrong with that.
func TestNobodyToAsk(t *testing.T) {
	a := newAuthority(t)
	chain, _ := a.issue("", true)
	k := New(Config{Log: slog.New(slog.DiscardHandler)})
	if k.Set(id, chain); k.About(id) != (Report{Asked: true}) || len(k.queue) != 0 {
		t.Errorf("%+v", k.About(id))
	}
}

func TestClient(t *testing.T) {
	for address, want := range map[string]bool{
		"192.0.2.1": true, "10.0.0.1": true, "2001:db8::1": true,
		"127.0.0.1": false, "::1": false, "169.254.169.254": false, "fe80::1": false, "0.0.0.0": false, "224.0.0.1": false,
		"168.63.129.16": false, "fd00:ec2::254": false, "64:ff9b::a9fe:a9fe": false,
	} {
		if got := allowed(netip.MustParseAddr(address)) == nil; got != want {
			t.Errorf("%s is allowed: %v, want %v", address, got, want)
		}
	}
	server := httptest.NewServer(http.RedirectHandler("http://192.0.2.1/", http.StatusFound))
	defer server.Close()
	if _, err := Client().Get(server.URL); err == nil || !strings.Contains(err.Error(), errPlace.Error()) {
		t.Errorf("a responder at loopback: %v", err)
	}
	redirected := Client()
	redirected.Transport = http.DefaultTransport
	answer, err := redirected.Get(server.URL)
	if err != nil || answer.StatusCode != http.StatusFound {
		t.Errorf("a redirect: %v %v", answer, err)
	}
	if err == nil {
		_ = answer.Body.Close()
	}
}
