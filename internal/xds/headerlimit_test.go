package xds_test

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"fairlead.dev/internal/model"
)

// long is a value that HPACK and QPACK make no shorter than 40 bytes.
func long(i int) string {
	return fmt.Sprintf("%[1]x%[1]x", sha256.Sum256([]byte{byte(i), byte(i >> 8)}))
}

// TestTooManyHeaders holds that clients of every version are told when a request has too many headers, or
// too large ones, and when it has just not.
func TestTooManyHeaders(t *testing.T) {
	for _, limit := range []struct {
		clients model.ClientSettings
		headers int
		bytes   int
	}{{model.ClientSettings{}, 100, 60 << 10}, {model.ClientSettings{MaxHeaders: 20, MaxHeaderBytes: 6000}, 20, 6 << 10}} {
		e := newEdge(t, limit.clients, forward("r", "/", "ns/app/1", 1))
		for _, version := range []string{"http", "HTTP/1.1", "HTTP/2.0", "h2c", "HTTP/3.0"} {
			client, end := e.client(version)
			try := func(what string, want int, path string, headers http.Header) {
				t.Helper()
				// Those of the clients themselves would count.
				headers["User-Agent"], headers["Accept-Encoding"] = nil, []string{"identity"}
				a, err := fetchWith(client, e.url(version, path), "a.test", headers)
				if err != nil || a.status != want {
					t.Errorf("limit %d, %s, %s: %d %v, want %d", limit.headers, version, what, a.status, err, want)
				}
				if want == 431 && a.body != "431 the request has too many headers, or too large ones\n" {
					t.Errorf("%s, %s: %q", version, what, a.body)
				}
				if line := e.line(what); line["status"] != float64(want) || line["path"] != path[:min(len(path), 1024)] {
					t.Errorf("%s, %s: line %.200v", version, what, line)
				}
			}
			repeated, different, small := http.Header{}, http.Header{}, http.Header{}
			for i := range limit.headers - 1 {
				repeated.Add("X", long(i))
				different.Set(fmt.Sprintf("X-%d", i), long(i))
			}
			for i := range 2 * limit.headers {
				small.Set(fmt.Sprintf("X-%d", i), "y")
			}
			try("as many of one name as may be", 200, "/", repeated)
			try("as many names as may be", 200, "/", different)
			repeated.Add("X", long(-1))
			different.Set("X-More", long(-1))
			try("one more of one name", 431, "/", repeated)
			try("one more name", 431, "/", different)
			try("many small ones", 200, "/", small)
			try("nearly too large", 200, "/", http.Header{"X": {strings.Repeat("y", limit.bytes-600)}})
			try("too large", 431, "/", http.Header{"X": {strings.Repeat("y", limit.bytes+600)}})
			try("a path that is too large", 431, "/"+strings.Repeat("y", limit.bytes+600), http.Header{})
			// Envoy has them joined; browsers send each by itself.
			cookies := http.Header{}
			for range limit.headers * 2 {
				cookies.Add("Cookie", "a=b")
			}
			if version != "http" && version != "HTTP/1.1" {
				try("many cookies", 200, "/", cookies)
			}
			end()
		}
	}
}

// TestFarTooManyHeaders holds what becomes of the others of a connection when a stream has more headers than Envoy
// reads.
func TestFarTooManyHeaders(t *testing.T) {
	e := newEdge(t, model.ClientSettings{}, forward("r", "/", "ns/app/1", 1))
	f := newFramer(t, e.clear.Port)
	for n, want := range map[int]string{96: "200", 400: "200", 500: http2.ErrCodeInternal.String()} {
		if got := f.ask(fields("/", times(n, "x", "y")...)...); got != want {
			t.Errorf("%d headers: %s, want %s", n, got, want)
		}
	}
	if got := f.ask(fields("/")...); got != "200" {
		t.Errorf("afterwards: %s", got)
	}
	for _, name := range []string{"Cookie", "X"} {
		for size, wants := range map[int]map[int]int{0: {101: 200, 400: 200, 500: 431}, 40: {100: 200, 101: 431, 500: 431}, 300: {100: 200, 101: 431}} {
			for n, want := range wants {
				a := e.raw(e.clear.Port, "GET / HTTP/1.1\r\nHost: a.test\r\n"+strings.Repeat(name+": "+strings.Repeat("y", size)+"\r\n", n)+"\r\n")
				if a.status != want {
					t.Errorf("%d %s of %d bytes: %d, want %d", n, name, size, a.status, want)
				}
			}
		}
	}
	// In pieces, and behind another request.
	c := dial(t, e.clear.Port)
	many := "GET / HTTP/1.1\r\nHost: a.test\r\n" + strings.Repeat("x: "+long(1)+"\r\n", 101) + "\r\n"
	c.ask(plainGet)
	for _, part := range []string{many[:40], many[40:300]} {
		_, err := io.WriteString(c.Conn, part)
		must(t, err)
	}
	if status, _, _ := c.ask(many[300:]); status != 431 {
		t.Errorf("in pieces: %d", status)
	}
	if status, _, _ := c.ask(plainGet); status != 200 {
		t.Errorf("behind: %d", status)
	}
}

// TestTooMuchMetadata holds that a client of gRPC gets a status when its metadata is too much.
func TestTooMuchMetadata(t *testing.T) {
	e := newEdge(t, model.ClientSettings{}, forward("grpc", "/test", "ns/grpc/1", 1), forward("r", "/", "ns/app/1", 1))
	e.serveGroup(model.BackendGroup{ID: "ns/grpc/1", Protocol: model.BackendHTTP2}, e.calls())
	conn := callsAt(t, e.clear.Port)
	for _, c := range []struct {
		headers, bytes int
		want           codes.Code
	}{{10, 10, codes.OK}, {200, 10, codes.ResourceExhausted}, {1, 70_000, codes.ResourceExhausted}} {
		ctx := e.ctx
		for i := range c.headers {
			ctx = metadata.AppendToOutgoingContext(ctx, "x", strings.Repeat(long(i), 1+c.bytes/128))
		}
		err := conn.Invoke(ctx, "/test/Works", &emptypb.Empty{}, &emptypb.Empty{})
		if status.Code(err) != c.want || c.want != codes.OK && status.Convert(err).Message() != "431 the request has too many headers, or too large ones" {
			t.Errorf("%d of %d bytes: %v, want %v", c.headers, c.bytes, err, c.want)
		}
	}
}
