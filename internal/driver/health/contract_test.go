package health

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	grpchealth "google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"fairlead.dev/internal/model"
)

// listen serves connections with f until the test ends.
func listen(t *testing.T, f func(net.Conn)) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				f(c)
			}()
		}
	}()
	return netip.MustParseAddrPort(l.Addr().String())
}

// serve is an HTTP server, over TLS where config is given.
func serve(t *testing.T, config *tls.Config, protocols func(*http.Protocols), h http.HandlerFunc) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{
		Handler: h, ReadHeaderTimeout: time.Minute, TLSConfig: config, Protocols: new(http.Protocols),
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	protocols(s.Protocols)
	go func() {
		if config != nil {
			_ = s.ServeTLS(l, "", "")
		} else {
			_ = s.Serve(l)
		}
	}()
	t.Cleanup(func() { _ = s.Close() })
	return netip.MustParseAddrPort(l.Addr().String())
}

func http1(p *http.Protocols)  { p.SetHTTP1(true) }
func http2s(p *http.Protocols) { p.SetHTTP2(true) }
func h2c(p *http.Protocols)    { p.SetUnencryptedHTTP2(true) }

func certificate(t *testing.T) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, of, of, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}

// silent holds a connection and says nothing until the other end closes.
func silent(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

// deaf is an address at which nothing listens.
func deaf(t *testing.T) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return netip.MustParseAddrPort(l.Addr().String())
}

func udp(t *testing.T, answer string) netip.AddrPort {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	go func() {
		b := make([]byte, 100)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			if answer != "" {
				_, _ = c.WriteTo([]byte(answer+string(b[:n])), from)
			}
		}
	}()
	return netip.MustParseAddrPort(c.LocalAddr().String())
}

func grpcServer(t *testing.T, with bool, options ...grpc.ServerOption) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(options...)
	if with {
		h := grpchealth.NewServer()
		h.SetServingStatus("up", grpc_health_v1.HealthCheckResponse_SERVING)
		h.SetServingStatus("down", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
		grpc_health_v1.RegisterHealthServer(s, h)
	}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return netip.MustParseAddrPort(l.Addr().String())
}

// TestProbesSayWhatBackendsDo asks real servers, good and bad, in every way. Those that
// never answer have a short time, all others a long one: a slow machine changes nothing.
func TestProbesSayWhatBackendsDo(t *testing.T) {
	config := certificate(t)
	paths := func(w http.ResponseWriter, q *http.Request) {
		switch q.URL.Path {
		case "/ok":
		case "/host":
			if q.Host != "shop.example.com" || q.Header.Get("User-Agent") != userAgent {
				w.WriteHeader(http.StatusTeapot)
			}
		case "/name":
			if q.TLS.ServerName != "backend.example.com" {
				w.WriteHeader(http.StatusTeapot)
			}
		case "/204":
			w.WriteHeader(http.StatusNoContent)
		case "/early":
			w.WriteHeader(http.StatusEarlyHints)
		case "/endless":
			for q.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 1<<16)); err != nil {
					return
				}
			}
		case "/hang":
			<-q.Context().Done()
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}
	plain, secure, old := serve(t, nil, http1, paths), serve(t, config, http2s, paths), serve(t, config, http1, paths)
	clear2 := serve(t, nil, h2c, paths)
	hanging := listen(t, silent)
	resetting := listen(t, func(c net.Conn) {
		_, _ = c.Read(make([]byte, 1))
		_ = c.(*net.TCPConn).SetLinger(0)
	})
	hasty := listen(t, func(net.Conn) {})
	closing := listen(t, func(c net.Conn) { _, _ = bufio.NewReader(c).ReadString('\n') })
	// The end that answers has closed its half before it was asked.
	halfOpen := listen(t, func(c net.Conn) {
		_ = c.(*net.TCPConn).CloseWrite()
		silent(c)
	})
	babbling := listen(t, func(c net.Conn) { _, _ = io.WriteString(c, "SSH-2.0-OpenSSH\r\n\r\n"); silent(c) })
	trickling := listen(t, func(c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.1 200")
		silent(c)
	})
	proxied := listen(t, func(c net.Conn) {
		head := make([]byte, 16)
		if _, err := io.ReadFull(c, head); err != nil || string(head) != proxyHeader {
			return
		}
		_, _ = bufio.NewReader(c).ReadString('\n')
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
	})
	echo, quiet := udp(t, "pong "), udp(t, "")
	servers, bare := grpcServer(t, true), grpcServer(t, false)
	named := config.Clone()
	named.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if hello.ServerName != "" && hello.ServerName != "backend.example.com" {
			return nil, errors.New("nobody of that name is here")
		}
		return nil, nil
	}
	secureServers := grpcServer(t, true, grpc.Creds(credentials.NewTLS(named)))
	nameless := listen(t, func(c net.Conn) {
		s := tls.Server(c, &tls.Config{Certificates: config.Certificates, GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			if hello.ServerName != "" {
				return nil, errors.New("a name was asked for")
			}
			return nil, nil
		}})
		if s.Handshake() == nil {
			silent(s)
		}
	})
	old10 := listen(t, func(c net.Conn) {
		_, _ = bufio.NewReader(c).ReadString('\n')
		_, _ = io.WriteString(c, "HTTP/1.0 200 OK\r\n\r\nhello")
	})
	moved := listen(t, func(c net.Conn) {
		_, _ = bufio.NewReader(c).ReadString('\n')
		_, _ = io.WriteString(c, "HTTP/1.1 301 Moved Permanently\r\nLocation: http://elsewhere.example.com/\r\nContent-Length: 0\r\n\r\n")
	})
	// They never end what they began, a byte after the other.
	drip := func(head string) netip.AddrPort {
		return listen(t, func(c net.Conn) {
			_, err := io.WriteString(c, head)
			for tick := time.NewTicker(10 * time.Millisecond); err == nil; <-tick.C {
				_, err = io.WriteString(c, "x")
			}
		})
	}
	dripping, drippingHead := drip(""), drip("HTTP/1.1 200 OK\r\nX-Header: ")
	flood := func(head string) netip.AddrPort {
		return listen(t, func(c net.Conn) {
			_, err := io.WriteString(c, head)
			for junk := []byte(strings.Repeat("X-Junk: "+strings.Repeat("y", 1000)+"\r\n", 100)); err == nil; {
				_, err = c.Write(junk)
			}
		})
	}
	flooding := flood("HTTP/1.1 200 OK\r\n")
	endless := serve(t, nil, h2c, func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		for q.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 1<<16)); err != nil {
				return
			}
		}
	})

	get := func(kind model.CheckKind, path string) model.HealthCheck {
		return model.HealthCheck{Kind: kind, Path: path}
	}
	with := func(h model.HealthCheck, change func(*model.HealthCheck)) model.HealthCheck { change(&h); return h }
	const short = 200 * time.Millisecond
	for _, c := range []struct {
		name   string
		target netip.AddrPort
		how    model.HealthCheck
		want   string // empty: healthy; else what the failure contains
	}{
		{"TCP", plain, get(model.CheckTCP, ""), ""},
		{"TCP, nobody", deaf(t), get(model.CheckTCP, ""), "connection refused"},
		{"TCP, hanging", hanging, get(model.CheckTCP, ""), ""},
		{"TLS", secure, get(model.CheckTLS, ""), ""},
		{"TLS, plain server", plain, get(model.CheckTLS, ""), "TLS handshake"},
		{"TLS, hanging", hanging, with(get(model.CheckTLS, ""), func(h *model.HealthCheck) { h.Timeout = short }), "no answer within 200ms"},
		{"HTTP", plain, get(model.CheckHTTP, "/ok"), ""},
		{"HTTP, no path", plain, get(model.CheckHTTP, ""), "answered 503, want 200"},
		{"HTTP, host", plain, with(get(model.CheckHTTP, "/host"), func(h *model.HealthCheck) { h.Host = "shop.example.com" }), ""},
		{"HTTP, wrong code", plain, get(model.CheckHTTP, "/204"), "answered 204, want 200"},
		{"HTTP, codes", plain, with(get(model.CheckHTTP, "/204"), func(h *model.HealthCheck) { h.Codes = [][2]uint16{{200, 299}} }), ""},
		{"HTTP, other codes", plain, with(get(model.CheckHTTP, "/204"), func(h *model.HealthCheck) { h.Codes = [][2]uint16{{200, 203}, {404, 404}} }), "answered 204, want 200-203, 404"},
		{"HTTP, informational first", plain, get(model.CheckHTTP, "/early"), ""},
		{"HTTP, endless body", plain, get(model.CheckHTTP, "/endless"), ""},
		{"HTTP, hanging", plain, with(get(model.CheckHTTP, "/hang"), func(h *model.HealthCheck) { h.Timeout = short }), "no answer within 200ms"},
		{"HTTP, half an answer", trickling, with(get(model.CheckHTTP, "/"), func(h *model.HealthCheck) { h.Timeout = short }), "no answer within 200ms"},
		{"HTTP, resetting", resetting, get(model.CheckHTTP, "/"), "connection reset"},
		{"HTTP, closing", closing, get(model.CheckHTTP, "/"), "connection"},
		{"HTTP, half open", halfOpen, get(model.CheckHTTP, "/"), "connection closed without an answer"},
		{"HTTP, not HTTP", babbling, get(model.CheckHTTP, "/"), "malformed HTTP"},
		{"HTTP, injection", plain, get(model.CheckHTTP, "/ok HTTP/1.1\r\nX: y"), "control characters"},
		{"HTTP, after a PROXY header", proxied, with(get(model.CheckHTTP, "/"), func(h *model.HealthCheck) { h.SendProxyProtocol = true }), ""},
		{"HTTPS in HTTP/2", secure, get(model.CheckHTTPS, "/ok"), ""},
		{"HTTPS in HTTP/1.1", old, get(model.CheckHTTPS, "/ok"), ""},
		{"HTTPS, wrong code", secure, get(model.CheckHTTPS, "/no"), "answered 503"},
		{"HTTPS, server name", old, with(get(model.CheckHTTPS, "/name"), func(h *model.HealthCheck) { h.ServerName, h.Host = "backend.example.com", "x" }), ""},
		{"HTTPS, server name of the host", old, with(get(model.CheckHTTPS, "/name"), func(h *model.HealthCheck) { h.Host = "backend.example.com:443" }), ""},
		{"HTTPS, plain server", plain, get(model.CheckHTTPS, "/ok"), "TLS handshake"},
		{"HTTP/2", clear2, get(model.CheckHTTP2, "/ok"), ""},
		{"HTTP/2, wrong code", clear2, get(model.CheckHTTP2, "/no"), "answered 503"},
		{"HTTP/2, hanging", clear2, with(get(model.CheckHTTP2, "/hang"), func(h *model.HealthCheck) { h.Timeout = short }), "no answer within 200ms"},
		{"gRPC", servers, get(model.CheckGRPC, ""), ""},
		{"gRPC, a service", servers, with(get(model.CheckGRPC, ""), func(h *model.HealthCheck) { h.Service = "up" }), ""},
		{"gRPC, not serving", servers, with(get(model.CheckGRPC, ""), func(h *model.HealthCheck) { h.Service = "down" }), "NOT_SERVING"},
		{"gRPC, unknown", servers, with(get(model.CheckGRPC, ""), func(h *model.HealthCheck) { h.Service = "who" }), `"who" is not known`},
		{"gRPC, without", bare, get(model.CheckGRPC, ""), "no grpc.health.v1.Health"},
		{"gRPC over TLS", secureServers, get(model.CheckGRPCS, ""), ""},
		{"gRPC over TLS, a service", secureServers, with(get(model.CheckGRPCS, ""), func(h *model.HealthCheck) { h.Service, h.Host = "up", "backend.example.com" }), ""},
		{"gRPC over TLS, not serving", secureServers, with(get(model.CheckGRPCS, ""), func(h *model.HealthCheck) { h.Service = "down" }), "NOT_SERVING"},
		{"gRPC over TLS, another name", secureServers, with(get(model.CheckGRPCS, ""), func(h *model.HealthCheck) { h.Host = "other.example.com" }), "TLS handshake"},
		{"gRPC over TLS, without TLS", servers, get(model.CheckGRPCS, ""), "TLS handshake"},
		{"gRPC over TLS, without HTTP/2", old, get(model.CheckGRPCS, ""), "TLS handshake: "},
		{"gRPC, with TLS", secureServers, get(model.CheckGRPC, ""), "connection"},
		{"gRPC, endless answer", endless, get(model.CheckGRPC, ""), "answered with more than 64 KiB"},
		{"TLS, no name asked for", nameless, get(model.CheckTLS, ""), ""},
		{"TLS, server name", nameless, with(get(model.CheckTLS, ""), func(h *model.HealthCheck) { h.Host = "backend.example.com" }), "TLS handshake"},
		{"HTTP/1.0", old10, get(model.CheckHTTP, "/"), ""},
		{"HTTP, redirect", moved, get(model.CheckHTTP, "/"), "answered 301, want 200"},
		{"HTTP, a byte at a time", dripping, with(get(model.CheckHTTP, "/"), func(h *model.HealthCheck) { h.Timeout = short }), "no answer within 200ms"},
		{"HTTP, a head a byte at a time", drippingHead, with(get(model.CheckHTTP, "/"), func(h *model.HealthCheck) { h.Timeout = short }), "no answer within 200ms"},
		{"HTTP, endless head", flooding, get(model.CheckHTTP, "/"), "more than 64 KiB"},
		{"TLS, a byte at a time", dripping, with(get(model.CheckTLS, ""), func(h *model.HealthCheck) { h.Timeout = short }), "TLS handshake"},
		{"gRPC, a byte at a time", dripping, get(model.CheckGRPC, ""), "frame too large"},
		{"gRPC, hanging", hanging, with(get(model.CheckGRPC, ""), func(h *model.HealthCheck) { h.Timeout = short }), "no answer within 200ms"},
		{"gRPC, closing", closing, get(model.CheckGRPC, ""), "connection"},
		{"gRPC, closing at once", hasty, get(model.CheckGRPC, ""), "connection"},
		{"HTTP/2, closing at once", hasty, get(model.CheckHTTP2, "/"), "connection"},
		{"UDP", echo, with(get(model.CheckUDP, ""), func(h *model.HealthCheck) { h.Send, h.Expect = []byte("ping"), []byte("pong ping") }), ""},
		{"UDP, any answer", echo, with(get(model.CheckUDP, ""), func(h *model.HealthCheck) { h.Send = []byte("ping") }), ""},
		{"UDP, wrong answer", echo, with(get(model.CheckUDP, ""), func(h *model.HealthCheck) { h.Send, h.Expect = []byte("ping"), []byte("PONG") }), `its answer does not begin with "PONG"`},
		{"UDP, quiet", quiet, with(get(model.CheckUDP, ""), func(h *model.HealthCheck) { h.Timeout = short }), "no answer within 200ms"},
		{"UDP, nobody", deaf(t), with(get(model.CheckUDP, ""), func(h *model.HealthCheck) { h.Send = []byte("ping") }), "connection refused"},
		{"unknown kind", plain, get("SCTP", ""), `cannot check over "SCTP"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.how.Timeout == 0 {
				c.how.Timeout = time.Minute
			}
			of := model.NewCheck(c.target, c.how)
			ctx, cancel := context.WithTimeout(t.Context(), of.Timeout)
			defer cancel()
			got, kind := words(New(Config{}).probe(ctx, of), of.Timeout)
			if (got == "") != (kind == "") {
				t.Errorf("%q is of kind %q", got, kind)
			}
			if c.want == "" && got != "" || !strings.Contains(got, c.want) || c.want != "" && got == "" {
				t.Errorf("it says %q, want %q", got, c.want)
			}
		})
	}
}
