package health

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"fairlead.dev/internal/model"
)

// maxHead bounds the head of an answer, and the body of one of gRPC, bytes.
const maxHead = 64 << 10

// askHTTP1 asks over a connection and looks at the status only.
func askHTTP1(conn net.Conn, c model.Check) error {
	path, host := cmp.Or(c.Path, "/"), hostOf(c)
	if strings.ContainsFunc(path+host, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return errors.New("the check's path or host has spaces or control characters")
	}
	var q bytes.Buffer
	fmt.Fprintf(&q, "GET %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: %s\r\nAccept: */*\r\nConnection: close\r\n\r\n", path, host, userAgent)
	if _, err := conn.Write(q.Bytes()); err != nil {
		return err
	}
	head := &headReader{from: conn, left: maxHead}
	in := bufio.NewReader(head)
	for {
		answer, err := http.ReadResponse(in, nil)
		switch {
		case err != nil && head.left == 0:
			return wrong("answered with a head of more than %d KiB", maxHead>>10)
		case err != nil && isTimeout(head.err):
			return head.err // and not that half a line is no HTTP
		case err != nil:
			return err
		}
		_ = answer.Body.Close()
		if answer.StatusCode/100 != 1 || answer.StatusCode == http.StatusSwitchingProtocols {
			return judge(c, answer.StatusCode)
		}
	}
}

// headReader reads so many bytes, and knows why no more came.
type headReader struct {
	from io.Reader
	left int
	err  error
}

// Read implements io.Reader.
func (h *headReader) Read(b []byte) (int, error) {
	if h.left == 0 {
		return 0, io.EOF
	}
	n, err := h.from.Read(b[:min(len(b), h.left)])
	h.left -= n
	h.err = err
	return n, err
}

// judge is nil for a status that is healthy.
func judge(c model.Check, status int) error {
	if len(c.Codes) == 0 && status == http.StatusOK || slices.ContainsFunc(c.Codes, func(r [2]uint16) bool {
		return status >= int(r[0]) && status <= int(r[1])
	}) {
		return nil
	}
	want := ""
	for i, r := range c.Codes {
		if i > 0 {
			want += ", "
		}
		if want += strconv.Itoa(int(r[0])); r[1] != r[0] {
			want += "-" + strconv.Itoa(int(r[1]))
		}
	}
	return wrong("answered %d, want %s", status, cmp.Or(want, "200"))
}

// askHTTP2 is askHTTP1 in HTTP/2.
func askHTTP2(ctx context.Context, conn net.Conn, scheme string, c model.Check) error {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+c.Target.String()+cmp.Or(c.Path, "/"), nil)
	if err != nil {
		return err
	}
	q.Host = hostOf(c)
	q.Header.Set("User-Agent", userAgent)
	answer, err := roundTrip(conn, q)
	if err != nil {
		return err
	}
	_ = answer.Body.Close()
	return judge(c, answer.StatusCode)
}

// endingConn remembers how its reading ended. HTTP/2's transport names that only where it
// had begun; else it says that the connection could not be established.
type endingConn struct {
	net.Conn
	ended atomic.Pointer[error]
}

// Read implements net.Conn.
func (c *endingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil && !errors.Is(err, net.ErrClosed) { // by ourselves
		c.ended.CompareAndSwap(nil, &err)
	}
	return n, err
}

// roundTrip asks in HTTP/2 over a connection, which the caller closes.
func roundTrip(through net.Conn, q *http.Request) (*http.Response, error) {
	conn := &endingConn{Conn: through}
	there := func(context.Context, string, string) (net.Conn, error) { return conn, nil }
	t := &http.Transport{
		DialContext: there, DialTLSContext: there, Protocols: new(http.Protocols),
		DisableCompression: true, DisableKeepAlives: true, MaxResponseHeaderBytes: maxHead,
		// A server that sends without end fills no more than this, however fast it is.
		HTTP2: &http.HTTP2Config{MaxReceiveBufferPerConnection: 2 * maxHead, MaxReceiveBufferPerStream: maxHead},
	}
	t.Protocols.SetHTTP2(true)
	t.Protocols.SetUnencryptedHTTP2(true)
	answer, err := t.RoundTrip(q)
	if ended := conn.ended.Load(); err != nil && ended != nil {
		err = fmt.Errorf("%w: %w", err, *ended)
	}
	return answer, err
}

// askGRPC asks grpc.health.v1.Health/Check, over HTTP/2 from the first byte. The two
// messages are small enough to be written here: field 1 is the service asked for, and of
// the answer the status, of which 1 is SERVING.
func askGRPC(ctx context.Context, conn net.Conn, scheme string, c model.Check) error {
	var message []byte
	if c.Service != "" {
		message = binary.AppendUvarint([]byte{1<<3 | 2}, uint64(len(c.Service)))
		message = append(message, c.Service...)
	}
	body := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message)))
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, scheme+"://"+c.Target.String()+"/grpc.health.v1.Health/Check",
		bytes.NewReader(append(body, message...)))
	if err != nil {
		return err
	}
	q.Host = hostOf(c)
	q.Header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}, "User-Agent": {userAgent}}
	answer, err := roundTrip(conn, q)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return wrong("answered %d, want gRPC's 200", answer.StatusCode)
	}
	said, err := io.ReadAll(io.LimitReader(answer.Body, maxHead)) // to its end: the trailers follow
	switch {
	case err != nil:
		return err
	case len(said) == maxHead:
		return wrong("answered with more than %d KiB", maxHead>>10)
	}
	status := cmp.Or(answer.Trailer.Get("Grpc-Status"), answer.Header.Get("Grpc-Status"))
	switch {
	case status == "5":
		return wrong("gRPC service %q is not known to the server", c.Service)
	case status == "12":
		return wrong("the server has no grpc.health.v1.Health")
	case status != "0":
		return wrong("answered gRPC status %q, want 0", status)
	case len(said) < 5 || said[0] != 0 || int(binary.BigEndian.Uint32(said[1:])) != len(said)-5:
		return wrong("the answer is not one message of gRPC")
	}
	switch serving := servingStatus(said[5:]); serving {
	case 1:
		return nil
	case 2:
		return wrong("answered NOT_SERVING")
	case 3:
		return wrong("answered SERVICE_UNKNOWN")
	default:
		return wrong("answered status %d, want SERVING", serving)
	}
}

// servingStatus is field 1 of a HealthCheckResponse, 0 where it is not said.
func servingStatus(message []byte) uint64 {
	if len(message) < 2 || message[0] != 1<<3 {
		return 0
	}
	status, n := binary.Uvarint(message[1:])
	if n <= 0 {
		return 0
	}
	return status
}
