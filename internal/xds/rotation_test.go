package xds_test

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ocsp"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
)

// TestCertificateRotation renews the certificates of a name on demand and of a wildcard
// again and again while clients ask over kept and over new connections: no request fails,
// and no connection is closed.
func TestCertificateRotation(t *testing.T) {
	w := newWorld(t)
	c := newCA(t)
	l := model.Listener{ID: "https-1", Port: freePort(t), Protocol: model.ProtocolHTTPS}
	names := map[string]string{"a.test": xds.HostSecretName("a.test"), "x.wild.test": xds.SecretName("t/wild")}
	renew := func(round int) {
		for name, secret := range names {
			w.set(xds.Secret(secret, c.issue(fmt.Sprint(round), false, name)))
		}
	}
	renew(0)
	w.tlsListen(l, xds.Options{}, []xds.TLSHost{tlsHost(l.ID, "*.wild.test", "t/wild")},
		section("a.test", host(l.ID, "a.test", says("a", prefix("/")))),
		section("*.wild.test", host(l.ID, "*.wild.test", says("w", prefix("/")))),
	)
	stop := make(chan struct{})
	var clients sync.WaitGroup
	var mu sync.Mutex
	var failures []string
	asked, newest := map[string]int{}, map[string]string{}
	fail := func(text string) {
		mu.Lock()
		defer mu.Unlock()
		failures = append(failures, text)
	}
	for name := range names {
		for _, kept := range []bool{true, false} {
			clients.Go(func() {
				dials := 0
				transport := &http.Transport{
					TLSClientConfig:   &tls.Config{RootCAs: c.pool, ServerName: name, VerifyConnection: func(tls.ConnectionState) error { dials++; return nil }},
					DisableKeepAlives: !kept, ForceAttemptHTTP2: true,
				}
				defer transport.CloseIdleConnections()
				for {
					select {
					case <-stop:
						if kept && dials != 1 {
							fail(fmt.Sprintf("%s: the kept connection was made %d times", name, dials))
						}
						return
					default:
					}
					q, err := http.NewRequest(http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d/", l.Port), nil)
					if err != nil {
						fail(err.Error())
						return
					}
					q.Host = name
					r, err := transport.RoundTrip(q)
					if err != nil {
						fail(name + ": " + err.Error())
						return
					}
					_, _ = io.Copy(io.Discard, r.Body)
					r.Body.Close()
					mu.Lock()
					asked[name]++
					if !kept {
						newest[name] = r.TLS.PeerCertificates[0].Subject.CommonName
					}
					mu.Unlock()
					if r.StatusCode != 200 {
						fail(fmt.Sprintf("%s: %d", name, r.StatusCode))
						return
					}
				}
			})
		}
	}
	const rounds = 20
	for round := 1; round <= rounds; round++ {
		renew(round)
		w.eventually(fmt.Sprintf("round %d", round), func() error {
			mu.Lock()
			defer mu.Unlock()
			if len(failures) > 0 {
				return nil
			}
			for name := range names {
				if newest[name] != fmt.Sprint(round) {
					return fmt.Errorf("%s is served with %s", name, newest[name])
				}
			}
			return nil
		})
	}
	close(stop)
	clients.Wait()
	for _, f := range failures {
		t.Error(f)
	}
	t.Logf("asked: %v", asked)
}

// TestOCSP: a response that came with the certificate is stapled, on demand and else.
func TestOCSP(t *testing.T) {
	w := newWorld(t)
	c := newCA(t)
	l := model.Listener{ID: "https-1", Port: freePort(t), Protocol: model.ProtocolHTTPS}
	for name, secret := range map[string]string{"a.test": xds.HostSecretName("a.test"), "*.wild.test": xds.SecretName("t/wild")} {
		cert := c.issue(name, false, name)
		block, _ := pem.Decode([]byte(cert.Chain))
		leaf, err := x509.ParseCertificate(block.Bytes)
		must(t, err)
		cert.OCSP, err = ocsp.CreateResponse(c.cert, c.cert, ocsp.Response{
			Status: ocsp.Good, SerialNumber: leaf.SerialNumber, ThisUpdate: time.Now().Add(-time.Minute), NextUpdate: time.Now().Add(time.Hour),
		}, (*ecdsa.PrivateKey)(c.key))
		must(t, err)
		w.set(xds.Secret(secret, cert))
	}
	w.tlsListen(l, xds.Options{}, []xds.TLSHost{tlsHost(l.ID, "*.wild.test", "t/wild")})
	for _, name := range []string{"a.test", "x.wild.test"} {
		s, err := shake(l.Port, &tls.Config{RootCAs: c.pool, ServerName: name})
		must(t, err)
		if len(s.OCSPResponse) == 0 {
			t.Errorf("%s: nothing is stapled", name)
		} else if r, err := ocsp.ParseResponseForCert(s.OCSPResponse, s.PeerCertificates[0], c.cert); err != nil || r.Status != ocsp.Good {
			t.Errorf("%s: %+v %v", name, r, err)
		}
	}
}
