package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// tlsLoad asks for a host over TLS until it is stopped: at every edge over one connection
// of HTTP/1.1 and one of HTTP/2 that are kept, and over new ones.
type tlsLoad struct {
	site  *site
	stop  context.CancelFunc
	ended sync.WaitGroup

	mu       sync.Mutex
	asked    int
	failures []string
	serials  map[string]string // edge -> the certificate of the last new connection
}

// tlsPace is the time between two requests of one client.
const tlsPace = 25 * time.Millisecond

// startTLSLoad begins to ask for https://host/path. It is stopped at the test's end at the
// latest.
func (s *site) startTLSLoad(t *testing.T, roots *x509.CertPool, host, path string) *tlsLoad {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l := &tlsLoad{site: s, stop: cancel, serials: map[string]string{}}
	t.Cleanup(func() { l.end() })
	for _, edge := range s.edges() {
		target := netip.AddrPortFrom(s.Lab.Machine(edge).Addr4(), 443)
		for _, protocol := range []string{"http/1.1", "h2"} {
			l.ended.Go(func() { l.run(ctx, edge, target, roots, host, path, protocol, true) })
		}
		l.ended.Go(func() { l.run(ctx, edge, target, roots, host, path, "h2", false) })
	}
	return l
}

func (l *tlsLoad) run(ctx context.Context, edge string, target netip.AddrPort, roots *x509.CertPool, host, path, protocol string, kept bool) {
	dials := 0
	var ended atomic.Bool // by the other side
	transport := &http.Transport{
		DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			raw, err := l.site.Lab.Machine(client.Name).Dial(ctx, "tcp", target.String())
			if err != nil {
				return nil, err
			}
			conn := tls.Client(raw, &tls.Config{ServerName: host, RootCAs: roots, NextProtos: []string{protocol}})
			if err := conn.HandshakeContext(ctx); err != nil {
				return nil, errors.Join(err, raw.Close())
			}
			dials++
			if !kept {
				l.mu.Lock()
				l.serials[edge] = conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
				l.mu.Unlock()
			}
			if protocol == "h2" {
				return conn, nil // a transport looks into it for what was agreed
			}
			return &watchedConn{Conn: conn, ended: &ended}, nil
		},
		ForceAttemptHTTP2: protocol == "h2", DisableKeepAlives: !kept,
	}
	defer transport.CloseIdleConnections()
	pace := time.NewTicker(tlsPace)
	defer pace.Stop()
	for {
		select {
		case <-ctx.Done():
			// A transport asks again over a new connection when an old one ended: that is seen here.
			// It lets go of one of HTTP/1.1 by itself where it is told of the answer 50 ms before
			// the end of its own request, which happens on a busy machine.
			if kept && dials != 1 && (protocol == "h2" || ended.Load()) {
				l.fail("%s: the connection of %s to %s was made %d times", edge, protocol, host, dials)
			}
			return
		case <-pace.C:
		}
		last, err := ask(transport, host, path)
		if err != nil {
			l.fail("%s: %s to %s: %v", edge, protocol, host, err)
			return
		}
		if last {
			ended.Store(true)
		}
		l.mu.Lock()
		l.asked++
		l.mu.Unlock()
	}
}

// watchedConn notes that the other side ended it.
type watchedConn struct {
	net.Conn
	closed atomic.Bool
	ended  *atomic.Bool
}

func (c *watchedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil && !c.closed.Load() {
		c.ended.Store(true)
	}
	return n, err
}

func (c *watchedConn) Close() error {
	c.closed.Store(true)
	return c.Conn.Close()
}

// ask makes a request, and says whether the answer ends its connection (Connection: close).
func ask(transport *http.Transport, host, path string) (last bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+host+path, nil)
	if err != nil {
		return false, err
	}
	resp, err := transport.RoundTrip(q)
	if err != nil {
		return false, err
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return false, err
	}
	if resp.StatusCode != http.StatusOK {
		return false, fmt.Errorf("the answer is %s", resp.Status)
	}
	return resp.Close, nil
}

func (l *tlsLoad) fail(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failures = append(l.failures, fmt.Sprintf(format, args...))
}

func (l *tlsLoad) end() {
	l.stop()
	l.ended.Wait()
}

// awaitSerial waits until new connections to every edge get the certificate.
func (l *tlsLoad) awaitSerial(t *testing.T, serial string) {
	t.Helper()
	l.site.await(t, "new connections to get certificate "+serial, func(context.Context) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(l.failures) > 0 {
			return nil // none says so
		}
		for _, edge := range l.site.edges() {
			if l.serials[edge] != serial {
				return fmt.Errorf("%s shows %s", edge, l.serials[edge])
			}
		}
		return nil
	})
}

// none ends the load and fails the test if a request failed, or a kept connection ended.
func (l *tlsLoad) none(t *testing.T) {
	t.Helper()
	l.end()
	for _, f := range l.failures {
		t.Error(f)
	}
	if l.asked == 0 {
		t.Error("nothing was asked")
	}
	t.Logf("%d requests over TLS, %d failed", l.asked, len(l.failures))
}
