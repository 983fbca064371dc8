package health

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"fairlead.dev/internal/model"
)

const (
	// userAgent is how probes introduce themselves.
	userAgent = "fairlead-health"
	// maxWords bounds a failure, bytes.
	maxWords = 200
)

// proxyHeader is a PROXY protocol header, version 2, command LOCAL: a connection of the
// sender's own, as health checks are (section 2.2).
const proxyHeader = "\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00"

// probe asks once; nil is a good answer. It ends when ctx does.
func (p *Prober) probe(ctx context.Context, c model.Check) error {
	if c.Kind == model.CheckUDP {
		return p.datagram(ctx, c)
	}
	conn, err := p.config.Dial(ctx, "tcp", c.Target.String())
	if err != nil {
		return unconnected{err}
	}
	defer conn.Close()
	// The connection is closed for what does not heed a deadline.
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if deadline, has := ctx.Deadline(); has {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	if c.SendProxyProtocol {
		if _, err := io.WriteString(conn, proxyHeader); err != nil {
			return ofContext(ctx, err)
		}
	}
	switch c.Kind {
	case model.CheckTCP:
		if c.SendProxyProtocol {
			return nil
		}
		hangUp(conn)
		return nil
	case model.CheckTLS:
		_, err = shake(ctx, conn, c)
	case model.CheckHTTP:
		err = askHTTP1(conn, c)
	case model.CheckHTTP2:
		err = askHTTP2(ctx, conn, "http", c)
	case model.CheckHTTPS:
		var over *tls.Conn
		if over, err = shake(ctx, conn, c, "h2", "http/1.1"); err != nil {
			break
		}
		if over.ConnectionState().NegotiatedProtocol == "h2" {
			err = askHTTP2(ctx, over, "https", c)
		} else {
			err = askHTTP1(over, c)
		}
	case model.CheckGRPC:
		err = askGRPC(ctx, conn, "http", c)
	case model.CheckGRPCS:
		var over *tls.Conn
		if over, err = shake(ctx, conn, c, "h2"); err != nil {
			break
		}
		if over.ConnectionState().NegotiatedProtocol != "h2" {
			err = fmt.Errorf("%w: the server does not speak HTTP/2 (ALPN h2)", errTLS)
			break
		}
		err = askGRPC(ctx, over, "https", c)
	default:
		err = fmt.Errorf("this agent cannot check over %q: upgrade it", c.Kind)
	}
	return ofContext(ctx, err)
}

// ofContext is the context's error where that is why there is another.
func ofContext(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// quiet has the kernel hold back the acknowledgement that ends the handshake (tcp(7),
// TCP_QUICKACK): it goes with the first data.
func quiet(network, _ string, raw syscall.RawConn) error {
	if !strings.HasPrefix(network, "tcp") {
		return nil
	}
	// Without it a connection is as good; more of it is seen.
	return raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_QUICKACK, 0) })
}

// hangUp ends a connection by a reset. With the acknowledgement held back the backend's kernel
// has taken the connection and its program has not seen it: there is no line in its log, and no
// connection without a greeting for which it might lock the machine out.
func hangUp(conn net.Conn) {
	if c, is := conn.(*net.TCPConn); is {
		_ = c.SetLinger(0)
	}
}

// errTLS is the class of failures of TLS.
var errTLS = errors.New("TLS handshake")

// hostOf is the Host of a request: the backend's address where the check names none.
func hostOf(c model.Check) string { return cmp.Or(c.Host, c.Target.String()) }

// shake makes a TLS connection. Who answers is not verified: that it answers is asked.
func shake(ctx context.Context, conn net.Conn, c model.Check, protocols ...string) (*tls.Conn, error) {
	over := tls.Client(conn, &tls.Config{
		ServerName: serverName(c), InsecureSkipVerify: true, MinVersion: tls.VersionTLS12, NextProtos: protocols,
	})
	if err := over.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("%w: %w", errTLS, err)
	}
	return over, nil
}

// serverName is what a handshake asks for: a host without its port; none where the check
// names no host.
func serverName(c model.Check) string {
	name := cmp.Or(c.ServerName, c.Host)
	if host, _, err := net.SplitHostPort(name); err == nil {
		return host
	}
	return name
}

// datagram sends a payload and waits for an answer that begins as expected.
func (p *Prober) datagram(ctx context.Context, c model.Check) error {
	conn, err := p.config.Dial(ctx, "udp", c.Target.String())
	if err != nil {
		return unconnected{err}
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if deadline, has := ctx.Deadline(); has {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	if _, err := conn.Write(c.Send); err != nil {
		return ofContext(ctx, err)
	}
	answer := make([]byte, max(len(c.Expect), 1)+1)
	n, err := conn.Read(answer)
	if err != nil {
		return ofContext(ctx, err)
	}
	if !bytes.HasPrefix(answer[:n], c.Expect) {
		// What it answered is its own: whoever may write a check could read with it otherwise.
		return wrong("its answer does not begin with %s", quote(c.Expect))
	}
	return nil
}

// quote is a payload in a message.
func quote(b []byte) string { return strconv.Quote(string(b[:min(len(b), 32)])) }

// unconnected is why there is no connection.
type unconnected struct{ error }

func (u unconnected) Unwrap() error { return u.error }

// wrong is a failure to answer as a check wants.
func wrong(format string, args ...any) error { return wrongAnswer{fmt.Errorf(format, args...)} }

type wrongAnswer struct{ error }

func (w wrongAnswer) Unwrap() error { return w.error }

// words are a failure in one line, and its kind; empty for none.
func words(err error, timeout time.Duration) (text, kind string) {
	var down unconnected
	var answered wrongAnswer
	unreached := errors.As(err, &down)
	late := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) || isTimeout(err)
	switch {
	case err == nil:
		return "", ""
	case unreached && late:
		text, kind = "no connection within "+timeout.String(), FailTimeout
	case late:
		text, kind = "no answer within "+timeout.String(), FailTimeout
	case errors.Is(err, syscall.ECONNREFUSED):
		text, kind = "connection refused", FailRefused
	case errors.Is(err, syscall.ECONNRESET):
		text, kind = "connection reset", FailReset
	case errors.Is(err, syscall.EHOSTUNREACH):
		text, kind = "no route to the host", FailUnreachable
	case errors.Is(err, syscall.ENETUNREACH):
		text, kind = "no route to its network", FailUnreachable
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		text, kind = "this machine has no file descriptors left: "+err.Error(), FailOther
	case errors.Is(err, io.EOF) && !errors.Is(err, errTLS), errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, errTLS), errors.Is(err, syscall.EPIPE):
		text, kind = "connection closed without an answer", FailClosed
	case errors.Is(err, errTLS) && errors.Is(err, io.EOF):
		text, kind = errTLS.Error()+": the server closed the connection", FailTLS
	case errors.Is(err, errTLS):
		text, kind = err.Error(), FailTLS
	case errors.As(err, &answered):
		text, kind = err.Error(), FailAnswer
	default:
		text, kind = err.Error(), FailOther
	}
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return -1
	}, strings.ToValidUTF8(text, "?"))
	for len(text) > maxWords {
		text = strings.ToValidUTF8(text[:maxWords], "")
	}
	return cmp.Or(text, "failed for an unknown reason"), kind
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}
