package cloud

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.dev/api/v1alpha1"
)

// deaf is a connection over which nothing arrives any more, in both directions, once it is frozen.
type deaf struct {
	net.Conn
	frozen *atomic.Bool
}

func (c deaf) Write(b []byte) (int, error) {
	if c.frozen.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// A stream on a connection that has died without a sign ends by an unanswered ping.
func TestDeadConnection(t *testing.T) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"api"}}
		der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
		if err != nil {
			t.Fatal(err)
		}
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		pool := x509.NewCertPool()
		pool.AddCert(cert)
		l := &listener{conns: make(chan net.Conn), closed: make(chan struct{})}
		server := &http.Server{
			TLSConfig: &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: private}}},
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, r.Proto)
				_ = http.NewResponseController(w).Flush()
				hold(r)
			}),
		}
		go func() { _ = server.ServeTLS(l, "", "") }()
		var frozen atomic.Bool
		base := NewBase(&tls.Config{RootCAs: pool}, Allow{})
		base.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			select {
			case l.conns <- deaf{theirs, &frozen}:
				return deaf{ours, &frozen}, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		tr := NewTransport(base, TransportConfig{Stream: func(*http.Request) bool { return true }})
		resp, err := tr.Client().Get("https://api/")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b := make([]byte, 8)
		if n, err := io.ReadFull(resp.Body, b); err != nil || string(b) != "HTTP/2.0" {
			t.Fatalf("%q, %v", b[:n], err)
		}
		time.Sleep(time.Minute) // pings are answered
		frozen.Store(true)
		begin := time.Now()
		_, err = io.ReadAll(resp.Body)
		took := time.Since(begin)
		var e *Error
		if !errors.As(err, &e) || e.Reason != v1alpha1.ReasonUnreachable || took > 25*time.Second {
			t.Errorf("after %s: %v", took, err)
		}
		_ = server.Close()
		tr.CloseIdleConnections()
	})
}
