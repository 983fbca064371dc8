package agent

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	agentv1 "fairlead.dev/proto/agent/v1"
)

// Whatever stands between a machine and its plane is said in the words of people, with what
// to do, and without gRPC's.
func TestHindrancesAreSaidInWords(t *testing.T) {
	dial := func(err error) string {
		return fmt.Sprintf("connection error: desc = \"transport: Error while dialing: %v\"", &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 7443}, Err: err})
	}
	call := func(errno syscall.Errno) error { return os.NewSyscallError("connect", errno) }
	shake := func(err error) string {
		return fmt.Sprintf("connection error: desc = \"transport: authentication handshake failed: %v\"", err)
	}
	for text, want := range map[string]string{
		dial(call(syscall.ECONNREFUSED)):                                                         "connection refused: ",
		dial(call(syscall.EHOSTUNREACH)):                                                         "no route: ",
		dial(call(syscall.ENETUNREACH)):                                                          "no route: ",
		dial(call(syscall.ETIMEDOUT)):                                                            "no answer: ",
		dial(&net.DNSError{Err: "no such host", Name: "plane", IsNotFound: true}):                "name not found: ",
		dial(&net.DNSError{Err: "server misbehaving", Name: "plane", Server: "192.0.2.53"}):      "name not resolved: ",
		dial(&net.DNSError{Err: "i/o timeout", Name: "plane", IsTimeout: true}):                  "name not resolved: ",
		shake(fmt.Errorf("tls: failed to verify certificate: %w", x509.UnknownAuthorityError{})): "certificate of another plane: ",
		shake(errPin): "certificate of another plane: ",
		shake(x509.CertificateInvalidError{Cert: &x509.Certificate{}, Reason: x509.Expired}): "certificate out of date: ",
		shake(io.EOF): "connection closed: ",
		"context deadline exceeded while waiting for connections to become ready": "no answer: ",
		shake(errors.New("a new trouble")):                                        "a new trouble",
	} {
		got := explainConnection(status.Error(codes.Unavailable, text))
		if !strings.HasPrefix(got, want) || strings.ContainsAny(got, `"`) || strings.Contains(got, "desc") {
			t.Errorf("%s\n\tis %q, want %q", text, got, want)
		}
	}
	// What a plane says itself is its own, whatever words it needs.
	const own = "token refused: EOF is no token"
	if got := explainConnection(status.Error(codes.Unauthenticated, own)); got != own {
		t.Errorf("it says %q, want %q", got, own)
	}
}

// A connection that ends says what a machine has to know, and what a program needs remains.
func TestTheEndOfAStreamIsSaidInWords(t *testing.T) {
	standby, err := status.New(codes.Unavailable, "this plane stands by").WithDetails(&agentv1.LeaderHint{Address: "192.0.2.2:7443"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		err  error
		says string
		code codes.Code
		is   error
	}{
		{standby.Err(), "this plane stands by", codes.Unavailable, nil},
		{status.Error(codes.Unauthenticated, "certificate of a key that is not listed"), "the plane refuses this machine's certificate (certificate of a key that is not listed); was the Machine deleted? To join again, run `fairlead token create", codes.Unauthenticated, errStranger},
		{status.Error(codes.AlreadyExists, "edge-1 is connected from 192.0.2.9"), "another machine is connected under this machine's name: edge-1 is connected from 192.0.2.9", codes.AlreadyExists, nil},
		{
			status.Error(codes.Unavailable, `connection error: desc = "transport: authentication handshake failed: tls: failed to verify certificate: x509: certificate signed by unknown authority"`),
			"certificate of another plane: ", codes.Unavailable, errStranger,
		},
		{status.FromContextError(context.DeadlineExceeded).Err(), "no answer: ", codes.DeadlineExceeded, nil},
	} {
		got := explain(c.err, "edge-1")
		if !strings.Contains(got.Error(), c.says) || strings.Contains(got.Error(), "desc") {
			t.Errorf("it says %q, want %q", got, c.says)
		}
		if status.Code(got) != c.code || c.is != nil && !errors.Is(got, c.is) {
			t.Errorf("%v is of code %s, want %s", got, status.Code(got), c.code)
		}
	}
	if to := leaderOf(explain(standby.Err(), "edge-1")); to != "192.0.2.2:7443" {
		t.Errorf("the leader is %q", to)
	}
}

// TestSaysWhichPlaneItTries: a machine that waits for its plane says so before it has given
// up on it, why, and only once.
func TestSaysWhichPlaneItTries(t *testing.T) {
	t.Parallel()
	p := newPlane(t, newAuthority(t))
	mute, err := net.Listen("tcp", "127.0.0.1:0") // it takes connections and says nothing
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mute.Close() })
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ address, says string }{
		"nobody listens":  {closed.Addr().String(), "connection refused: nothing listens"},
		"no such name":    {"plane.invalid:7443", "name not "},
		"nobody answers":  {mute.Addr().String(), "no answer for 1ms"},
		"no port at all":  {"127.0.0.1:0", "127.0.0.1:0"},
		"not of TLS port": {plainPort(t), "no plane: the server at this address is not the agents' endpoint of a plane"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lines := &lineLog{told: make(chan string, 100)}
			j := p.joiningBy(p.token("t", "edge-1"))
			j.tries = newTries(slog.New(slog.NewTextHandler(lines, nil)))
			if name == "nobody answers" {
				j.tries.quiet = time.Millisecond
			} else {
				j.tries.quiet = patience // only what went wrong counts
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			path := filepath.Join(t.TempDir(), "identity.json")
			go func() {
				_, err := j.identify(ctx, path, []string{c.address}, "edge-1")
				ended <- err
			}()
			select {
			case line := <-lines.told:
				for _, want := range []string{"level=WARN", "retrying", "plane=" + c.address, c.says} {
					if !strings.Contains(line, want) {
						t.Errorf("it says %q, want %q", line, want)
					}
				}
			case err := <-ended:
				t.Fatalf("it gave up without having said a word: %v", err)
			}
			cancel()
			if err := <-ended; err == nil {
				t.Error("it joined")
			}
		})
	}
}

// lineLog tells each line that is written to it.
type lineLog struct{ told chan string }

func (l *lineLog) Write(line []byte) (int, error) {
	select {
	case l.told <- string(line):
	default:
	}
	return len(line), nil
}

// plainPort is one at which somebody speaks without TLS.
func plainPort(t *testing.T) string {
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
			_, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
			_ = c.Close()
		}
	}()
	return l.Addr().String()
}
