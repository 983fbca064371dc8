package xds_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
)

// framer speaks HTTP/2 frame by frame, and lets a test send what no client would.
type framer struct {
	*http2.Framer
	t    *testing.T
	last uint32
}

func newFramer(t *testing.T, port uint16) *framer {
	t.Helper()
	c := dial(t, port)
	_, err := io.WriteString(c.Conn, http2.ClientPreface)
	must(t, err)
	f := &framer{Framer: http2.NewFramer(c.Conn, c.Conn), t: t}
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	must(t, f.WriteSettings())
	return f
}

// ask sends a request of these fields, and returns its status, or the error with which its stream was ended.
func (f *framer) ask(fields ...hpack.HeaderField) (answer string) {
	f.t.Helper()
	f.last += 2
	stream := f.last - 1
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	e.SetMaxDynamicTableSize(0) // a block may be refused half way
	for _, h := range fields {
		must(f.t, e.WriteField(h))
	}
	first := true
	for rest := block.Bytes(); first || len(rest) > 0; first = false {
		part := rest[:min(len(rest), 16<<10)]
		rest = rest[len(part):]
		if first {
			must(f.t, f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: part, EndStream: true, EndHeaders: len(rest) == 0}))
			continue
		}
		must(f.t, f.WriteContinuation(stream, len(rest) == 0, part))
	}
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return err.Error()
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				must(f.t, f.WriteSettingsAck())
			}
		case *http2.GoAwayFrame:
			return "the connection ends: " + frame.ErrCode.String()
		case *http2.RSTStreamFrame:
			if frame.StreamID == stream {
				return frame.ErrCode.String()
			}
		case *http2.MetaHeadersFrame:
			answer = frame.PseudoValue("status")
			if frame.StreamEnded() {
				return answer
			}
		case *http2.DataFrame:
			if frame.StreamEnded() {
				return answer
			}
		}
	}
}

// fields are those of a request for a.test, and more.
func fields(path string, more ...hpack.HeaderField) []hpack.HeaderField {
	return append([]hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "http"}, {Name: ":authority", Value: "a.test"}, {Name: ":path", Value: path}}, more...)
}

// without takes a field away.
func without(name string, of []hpack.HeaderField) (rest []hpack.HeaderField) {
	for _, h := range of {
		if h.Name != name {
			rest = append(rest, h)
		}
	}
	return rest
}

func times(n int, name, value string) (list []hpack.HeaderField) {
	for range n {
		list = append(list, hpack.HeaderField{Name: name, Value: value})
	}
	return list
}

// TestRejectionsAreLogged holds that what Envoy refuses before it is a request has a line that says why, in
// a log of errors alone, in every version of HTTP. Of its headers Envoy knows nothing then.
func TestRejectionsAreLogged(t *testing.T) {
	e := newEdge(t, model.ClientSettings{}, forward("r", "/", "ns/app/1", 1))
	errorsOnly := xds.Options{AccessLog: e.log}
	l := model.Listener{ID: "http-2", Port: freePort(t), Protocol: model.ProtocolHTTP, Clients: &model.ClientSettings{AccessLog: &model.AccessLog{Errors: true}}}
	e.listen(l, errorsOnly, host(l.ID, "a.test", forward("r", "/", "ns/app/1", 1)))
	e.routed(l.ID)
	long := strings.Repeat("y", 60_000)
	check := func(what, details, version string, status float64) {
		t.Helper()
		if line := e.line(what); line["details"] != details || line["protocol"] != version || line["status"] != status || line["client"] == nil || line["path"] != nil {
			t.Errorf("%s: %v %v %v path %v, want %v %s", what, line["protocol"], line["status"], line["details"], line["path"], status, details)
		}
	}
	f := newFramer(t, l.Port)
	for _, c := range []struct {
		name, details string
		sent          []hpack.HeaderField
		answer        http2.ErrCode
	}{
		{"a header of HTTP/1", "http2.invalid.header.field", fields("/", times(1, "connection", "close")...), http2.ErrCodeProtocol},
		{"upper case", "http2.invalid.header.field", fields("/", times(1, "Upper", "x")...), http2.ErrCodeProtocol},
		{"a space in the path", "http2.invalid.header.field", fields("/ x"), http2.ErrCodeProtocol},
		{"no path", "http2.violation.of.messaging.rule", without(":path", fields("/")), http2.ErrCodeProtocol},
		{"no method", "http2.violation.of.messaging.rule", without(":method", fields("/")), http2.ErrCodeProtocol},
		{"far too many headers", "http2.too_many_headers", fields("/", times(500, "x", "y")...), http2.ErrCodeInternal},
		{"far too large headers", "http2.header_list_size_too_large", fields("/", times(2, "x", long)...), http2.ErrCodeInternal},
	} {
		if got := f.ask(c.sent...); got != c.answer.String() {
			t.Errorf("%s: %s, want %s", c.name, got, c.answer)
		}
		check(c.name, c.details, "HTTP/2", 0)
		if got := f.ask(fields("/")...); got != "200" {
			t.Fatalf("the next request after %s: %s", c.name, got)
		}
	}
	for what, c := range map[string]struct{ sent, details string }{
		"space in a name": {"GET / HTTP/1.1\r\nHo st: a.test\r\n\r\n", "http1.codec_error"},
		"too many":        {"GET / HTTP/1.1\r\nHost: a.test\r\n" + strings.Repeat("x: y\r\n", 500) + "\r\n", "http1.too_many_headers"},
	} {
		a := e.raw(l.Port, c.sent)
		check(what, c.details, "HTTP/1.1", float64(a.status))
	}

	// Its client makes a new connection after every error: this one has none but this.
	conn, err := quic.DialAddr(e.ctx, fmt.Sprintf("127.0.0.1:%d", e.secure.Port), &tls.Config{RootCAs: e.ca.pool, ServerName: "a.test", NextProtos: []string{"h3"}}, nil)
	must(t, err)
	client := new(http3.Transport).NewClientConn(conn)
	many := http.Header{}
	for range 500 {
		many.Add("x", "y")
	}
	for _, c := range []struct {
		name, details string
		headers       http.Header
		ends          bool // the whole connection
	}{
		{"a header of HTTP/1", "http3.invalid_header_field", http.Header{"Te": {"gzip"}}, false},
		{"far too many headers", "http3.too_many_headers", many, false},
		{"far too large headers", "http3.headers_too_large", http.Header{"X": {long, long, long}}, true},
	} {
		if a, err := fetchWith(client, e.url("HTTP/3.0", "/"), "a.test", c.headers); err == nil {
			t.Errorf("HTTP/3, %s: %d", c.name, a.status)
		}
		check("HTTP/3, "+c.name, c.details, "HTTP/3", 0)
		if c.ends {
			break
		}
		if a, err := fetchWith(client, e.url("HTTP/3.0", "/"), "a.test", nil); err != nil || a.status != 200 {
			t.Fatalf("the next request after %s: %d %v", c.name, a.status, err)
		}
		e.line("the next request")
	}
}

// calls is a backend of gRPC that takes every call, with an empty message; "Fails" finds nothing.
func (w *world) calls() netip.AddrPort {
	w.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(w.t, err)
	s := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		if err := stream.RecvMsg(&emptypb.Empty{}); err != nil {
			return err
		}
		if method, _ := grpc.MethodFromServerStream(stream); method == "/test/Fails" {
			return status.Error(codes.NotFound, "no such thing")
		}
		return stream.SendMsg(&emptypb.Empty{})
	}))
	go func() { _ = s.Serve(listener) }()
	w.t.Cleanup(s.Stop)
	return netip.MustParseAddrPort(listener.Addr().String())
}

// callsAt is a client of gRPC for the host a.test.
func callsAt(t *testing.T, port uint16) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(fmt.Sprintf("passthrough:///127.0.0.1:%d", port), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("a.test"))
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// TestErrorsOnly holds which requests a log of errors has: those of a status from 400 on, those that
// were never answered, and calls of gRPC that failed, though HTTP calls them 200.
func TestErrorsOnly(t *testing.T) {
	w := newWorld(t)
	arrived := make(chan struct{})
	w.group("ns/app/1", w.serve(func(rw http.ResponseWriter, q *http.Request) {
		switch q.URL.Path {
		case "/hangs":
			close(arrived)
			<-q.Context().Done()
		case "/500":
			rw.WriteHeader(500)
		}
	}))
	w.serveGroup(model.BackendGroup{ID: "ns/grpc/1", Protocol: model.BackendHTTP2}, w.calls())
	l := model.Listener{ID: "http-1", Port: freePort(t), Protocol: model.ProtocolHTTP, Clients: &model.ClientSettings{AccessLog: &model.AccessLog{Errors: true}}}
	e := &edge{world: w, clear: l, log: filepath.Join(t.TempDir(), "access.log")}
	w.listen(l, xds.Options{AccessLog: e.log}, host(l.ID, "a.test", forward("grpc", "/test", "ns/grpc/1", 1), forward("r", "/", "ns/app/1", 1)))
	conn := callsAt(t, l.Port)
	call := func(method string, want codes.Code) {
		t.Helper()
		if err := conn.Invoke(w.ctx, method, &emptypb.Empty{}, &emptypb.Empty{}); status.Code(err) != want {
			t.Errorf("%s: %v, want %v", method, err, want)
		}
	}
	has := func(path string, httpStatus float64, grpcStatus any) {
		t.Helper()
		if line := e.line(path); line["path"] != path || line["status"] != httpStatus || line["grpc_status"] != grpcStatus {
			t.Errorf("%v %v, grpc %v, want %s %v, grpc %v", line["path"], line["status"], line["grpc_status"], path, httpStatus, grpcStatus)
		}
	}
	// What has no line is asked in between: the next line is not its own.
	call("/test/Works", codes.OK)
	call("/test/Fails", codes.NotFound)
	has("/test/Fails", 200, 5.0)
	if a := w.get(l.Port, "a.test", "/200"); a.status != 200 {
		t.Errorf("%d", a.status)
	}
	w.get(l.Port, "a.test", "/500")
	has("/500", 500, nil)
	call("/unknown/Works", codes.Unknown) // a backend that speaks no gRPC
	if line := e.line("no gRPC"); line["path"] != "/unknown/Works" {
		t.Errorf("a call to a backend without gRPC: %v", line)
	}
	ctx, leave := context.WithTimeout(w.ctx, 30*time.Second)
	defer leave()
	go func() {
		<-arrived
		leave()
	}()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/hangs", l.Port), nil)
	must(t, err)
	q.Host = "a.test"
	if _, err := http.DefaultClient.Do(q); !errors.Is(err, context.Canceled) {
		t.Errorf("the client that leaves: %v", err)
	}
	has("/hangs", 0, nil)
}
