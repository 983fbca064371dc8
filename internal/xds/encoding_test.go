package xds_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/klauspost/compress/zstd"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
)

// longPage is a text that becomes short by every algorithm.
var longPage = strings.Repeat("The quick brown fox jumps over the lazy dog.\n", 500)

const firstEvent, secondEvent = "data: first\n\n", "data: second\n\n"

// pages is a backend of answers that are compressed, or must not be. What it streams ends when end
// is closed.
func pages(end <-chan struct{}) http.HandlerFunc {
	return func(rw http.ResponseWriter, q *http.Request) {
		h := rw.Header()
		h.Set("Content-Type", "text/html; charset=utf-8")
		say := func(body string) {
			h.Set("Content-Length", strconv.Itoa(len(body)))
			_, _ = io.WriteString(rw, body) // a client may be gone
		}
		stream := func() {
			fmt.Fprint(rw, firstEvent)
			_ = http.NewResponseController(rw).Flush()
			<-end
			fmt.Fprint(rw, secondEvent)
		}
		switch q.URL.Path {
		case "/page":
			h.Set("Etag", `"v1"`)
			h.Set("Vary", "Cookie")
			say(longPage)
		case "/asked":
			say(strings.Repeat("x", 100) + q.Header.Get("Accept-Encoding"))
		case "/json":
			h.Set("Content-Type", "application/json")
			say(longPage)
		case "/chunked":
			h.Set("Etag", `W/"v1"`)
			fmt.Fprint(rw, longPage[:1000])
			_ = http.NewResponseController(rw).Flush()
			fmt.Fprint(rw, longPage[1000:])
		case "/encoded":
			h.Set("Content-Encoding", "gzip")
			h.Set("Etag", `"v1"`)
			say(string(gzipped(longPage)))
		case "/no-transform":
			h.Set("Cache-Control", "public, no-transform")
			say(longPage)
		case "/image":
			h.Set("Content-Type", "image/png")
			say(longPage)
		case "/small":
			say("29 bytes are not compressed..")
		case "/range":
			h.Set("Etag", `"v1"`)
			http.ServeContent(rw, q, "page.html", time.Time{}, strings.NewReader(longPage))
		case "/stream":
			stream()
		case "/events":
			h.Set("Content-Type", "text/event-stream")
			stream()
		default:
			http.NotFound(rw, q)
		}
	}
}

func gzipped(text string) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = io.WriteString(z, text) // to memory
	_ = z.Close()
	return b.Bytes()
}

// decoded reads a body by its Content-Encoding. There is no decoder for br in Go's library: curl
// has one.
func decoded(coding, body string) (string, error) {
	switch coding {
	case "gzip":
		z, err := gzip.NewReader(strings.NewReader(body))
		if err != nil {
			return "", err
		}
		all, err := io.ReadAll(z)
		return string(all), err
	case "zstd":
		z, err := zstd.NewReader(strings.NewReader(body))
		if err != nil {
			return "", err
		}
		defer z.Close()
		all, err := io.ReadAll(z)
		return string(all), err
	}
	return body, nil
}

func compression(types []string, algorithms ...model.CompressionAlgorithm) *model.RoutePolicy {
	return &model.RoutePolicy{Compression: &model.Compression{Algorithms: algorithms, MinBytes: 30, ContentTypes: types}}
}

// newPages is a world of hosts whose answers are compressed: all.test by three algorithms, of
// which /off is left out, contour.test as an IngressRoute.
func newPages(t *testing.T, end <-chan struct{}) (*world, uint16) {
	w := newWorld(t)
	l := model.Listener{ID: "http-1", Port: freePort(t), Protocol: model.ProtocolHTTP}
	w.group("ns/pages/80", w.serve(pages(end)))
	under := func(name string, p *model.RoutePolicy, routes ...model.Route) model.VirtualHost {
		h := host(l.ID, name, append(routes, forward("pages", "/", "ns/pages/80", 1))...)
		h.Policy = p
		return h
	}
	off := forward("off", "/json", "ns/pages/80", 1)
	off.Policy = compression(nil)
	moved := forward("moved", "/page", "ns/pages/80", 1)
	moved.Policy = &model.RoutePolicy{MaxRequestBytes: 10}
	contour := compression(nil, model.CompressionGzip)
	is := true
	contour.GRPCWeb = &is
	w.group("ns/ws/80", w.echoes(nil, func(p *http.Protocols) { p.SetHTTP1(true) }))
	w.listen(l, xds.Options{},
		under("all.test", compression(nil, model.CompressionZstd, model.CompressionBrotli, model.CompressionGzip), off, moved, forward("sockets", "/ws", "ns/ws/80", 1)),
		under("brotli.test", compression(nil, model.CompressionBrotli, model.CompressionGzip)),
		under("contour.test", contour),
		under("events.test", compression([]string{"text/event-stream"}, model.CompressionGzip, model.CompressionZstd, model.CompressionBrotli)),
		under("plain.test", nil),
	)
	return w, l.Port
}

// TestCompressionChosen: a client gets the algorithm that it likes best, of those that it likes
// equally the one that the policy prefers.
func TestCompressionChosen(t *testing.T) {
	w, port := newPages(t, nil)
	for _, c := range []struct{ host, accept, want string }{
		{"all.test", "gzip, deflate, br, zstd", "zstd"},
		{"all.test", "zstd, br, gzip", "zstd"},
		{"all.test", "gzip, deflate, br", "br"},
		{"all.test", "br, gzip", "br"},
		{"all.test", "br;q=1.0 , gzip", "br"},
		{"all.test", "gzip", "gzip"},
		{"all.test", "gzip;q=1.0, br;q=0.5, zstd;q=0.1", "gzip"},
		{"all.test", "zstd;q=0, gzip;q=0.4, br;q=0.5", "br"},
		{"all.test", "gzip;q=0", ""},
		{"all.test", "identity", ""},
		{"all.test", "identity, gzip;q=0.5", ""},
		{"all.test", "deflate, compress", ""},
		{"all.test", "*", "br"}, // no name is preferred to others
		{"all.test", "", ""},
		{"brotli.test", "gzip, deflate, br, zstd", "br"},
		{"brotli.test", "gzip, zstd", "gzip"},
		{"brotli.test", "zstd", ""},
		{"contour.test", "gzip, deflate, br, zstd", "gzip"},
		{"contour.test", "br", ""},
		{"plain.test", "gzip, br, zstd", ""},
	} {
		var headers []string
		if c.accept != "" {
			headers = append(headers, "Accept-Encoding: "+c.accept)
		}
		a := w.get(port, c.host, "/page", headers...)
		coding := a.headers.Get("Content-Encoding")
		text, err := decoded(coding, a.body)
		if coding != c.want || err != nil || coding != "br" && text != longPage || coding != "" && len(a.body) > len(longPage)/10 {
			t.Errorf("%s, accepted %q: %q, want %q; %d bytes, %v", c.host, c.accept, coding, c.want, len(a.body), err)
		}
		vary, etag := "Cookie, Accept-Encoding", `"v1"`
		if c.host == "plain.test" {
			vary = "Cookie"
		}
		if c.want != "" {
			etag = `W/"v1"`
		}
		if a.headers.Get("Vary") != vary || a.headers.Get("Etag") != etag {
			t.Errorf("%s, accepted %q: Vary %q, want %q; ETag %s, want %s", c.host, c.accept, a.headers.Get("Vary"), vary, a.headers.Get("Etag"), etag)
		}
	}
}

// TestCompressionLeavesAlone: what has another encoding, is a part, forbids it, is short, or is of
// another kind passes as it came.
func TestCompressionLeavesAlone(t *testing.T) {
	w, port := newPages(t, nil)
	for _, c := range []struct{ host, path, headers, coding, etag string }{
		{"all.test", "/chunked", "", "zstd", `W/"v1"`},
		{"all.test", "/json", "", "", ""}, // the route's policy says off
		{"brotli.test", "/json", "", "br", ""},
		{"all.test", "/encoded", "", "gzip", `"v1"`},
		{"all.test", "/no-transform", "", "", ""},
		{"all.test", "/image", "", "", ""},
		{"all.test", "/small", "", "", ""},
		{"all.test", "/range", "", "zstd", `W/"v1"`},
		{"all.test", "/range", "Range: bytes=10-2000", "", `"v1"`},
		{"events.test", "/page", "", "", `"v1"`},
	} {
		headers := []string{"Accept-Encoding: gzip, br, zstd"}
		if c.headers != "" {
			headers = append(headers, c.headers)
		}
		a := w.get(port, c.host, c.path, headers...)
		coding, etag := a.headers.Get("Content-Encoding"), a.headers.Get("Etag")
		if coding != c.coding || etag != c.etag {
			t.Errorf("%s%s %s: coding %q, want %q; ETag %q, want %q", c.host, c.path, c.headers, coding, c.coding, etag, c.etag)
		}
		if c.headers != "" && (a.status != 206 || a.body != longPage[10:2001]) {
			t.Errorf("a part: %d, %d bytes", a.status, len(a.body))
		}
	}
	if a := w.raw(port, "HEAD /page HTTP/1.1\r\nHost: all.test\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n"); a.status != 200 || a.body != "" || !strings.Contains(a.headers.Get("Vary"), "Accept-Encoding") {
		t.Errorf("HEAD: %d %v %q", a.status, a.headers, a.body)
	}
	s, _, err := websocket.DefaultDialer.DialContext(w.ctx, fmt.Sprintf("ws://127.0.0.1:%d/ws", port), http.Header{"Host": {"all.test"}, "Accept-Encoding": {"gzip"}})
	must(t, err)
	defer s.Close()
	must(t, s.WriteMessage(websocket.TextMessage, []byte(longPage)))
	if _, message, err := s.ReadMessage(); err != nil || string(message) != "echo "+longPage {
		t.Errorf("a WebSocket: %d bytes, %v", len(message), err)
	}
	if a := w.get(port, "all.test", "/asked", "Accept-Encoding: x, y"); !strings.HasSuffix(a.body, "xx, y") {
		t.Errorf("the backend was asked for %q", a.body)
	}
}

// TestCompressionStreams: what a backend sends is with the client before more comes.
func TestCompressionStreams(t *testing.T) {
	end := make(chan struct{})
	w, port := newPages(t, end)
	streams := map[string]io.Reader{}
	for _, c := range []struct{ host, path, accept, coding string }{
		{"all.test", "/events", "gzip, br, zstd", ""},
		{"all.test", "/stream", "gzip", "gzip"},
		{"events.test", "/events", "gzip", "gzip"},
		{"events.test", "/events", "zstd", ""}, // which would keep events back
	} {
		what := strings.Join([]string{c.host, c.path, c.accept}, " ")
		q, err := http.NewRequestWithContext(w.ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d%s", port, c.path), http.NoBody)
		must(t, err)
		q.Host = c.host
		q.Header.Set("Accept-Encoding", c.accept)
		a, err := http.DefaultTransport.RoundTrip(q)
		must(t, err)
		defer a.Body.Close()
		if coding := a.Header.Get("Content-Encoding"); coding != c.coding {
			t.Fatalf("%s: coding %q, want %q", what, coding, c.coding)
		}
		streams[what] = a.Body
		if c.coding == "gzip" {
			streams[what], err = gzip.NewReader(a.Body)
			must(t, err)
		}
		first := make([]byte, len(firstEvent))
		if _, err := io.ReadFull(streams[what], first); err != nil || string(first) != firstEvent {
			t.Errorf("%s: %q %v", what, first, err)
		}
	}
	close(end)
	for what, r := range streams {
		if rest, err := io.ReadAll(r); err != nil || string(rest) != secondEvent {
			t.Errorf("%s: then %q %v", what, rest, err)
		}
	}
}

// TestCompressionWithTrailers: what ends by trailers ends well.
func TestCompressionWithTrailers(t *testing.T) {
	w := newWorld(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	s := &http.Server{ReadHeaderTimeout: 10 * time.Second, Protocols: new(http.Protocols), Handler: http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "text/plain")
		rw.Header().Set("Trailer", "Checksum")
		fmt.Fprint(rw, longPage)
		rw.Header().Set("Checksum", "1")
	})}
	s.Protocols.SetUnencryptedHTTP2(true)
	go func() { _ = s.Serve(listener) }()
	t.Cleanup(func() { s.Close() })
	w.serveGroup(model.BackendGroup{ID: "ns/h2/80", Protocol: model.BackendHTTP2}, netip.MustParseAddrPort(listener.Addr().String()))
	l := model.Listener{ID: "http-1", Port: freePort(t), Protocol: model.ProtocolHTTP}
	h := host(l.ID, "a.test", forward("r", "/", "ns/h2/80", 1))
	h.Policy = compression(nil, model.CompressionGzip, model.CompressionZstd, model.CompressionBrotli)
	is := true
	h.Policy.GRPCWeb = &is
	w.listen(l, xds.Options{}, h)
	for _, coding := range []string{"gzip", "zstd"} {
		a := w.get(l.Port, "a.test", "/", "Accept-Encoding: "+coding)
		if text, err := decoded(coding, a.body); err != nil || text != longPage || a.headers.Get("Content-Encoding") != coding {
			t.Errorf("%s: %v, %d bytes, %v", coding, err, len(text), a.headers)
		}
	}
}

// TestCompressionByCurl: another client reads what the algorithms make, br among them, and reads
// it at once.
func TestCompressionByCurl(t *testing.T) {
	version, err := exec.CommandContext(t.Context(), "curl", "--version").CombinedOutput()
	if err != nil || !bytes.Contains(version, []byte("brotli")) {
		t.Skip("needs curl that decodes br")
	}
	end := make(chan struct{})
	w, port := newPages(t, end)
	curl := func(path, coding string) *exec.Cmd {
		return exec.CommandContext(w.ctx, "curl", "-sSN", "--noproxy", "*", "--compressed", "-H", "Host: all.test", "-H", "Accept-Encoding: "+coding,
			"-w", "%header{content-encoding}", fmt.Sprintf("http://127.0.0.1:%d%s", port, path))
	}
	for _, path := range []string{"/page", "/chunked"} {
		for _, coding := range []string{"br", "gzip"} {
			out, err := curl(path, coding).CombinedOutput()
			if err != nil || string(out) != longPage+coding {
				t.Errorf("%s by %s: %v, %d bytes, want %d", path, coding, err, len(out), len(longPage)+len(coding))
			}
		}
	}
	streams := curl("/stream", "br")
	out, err := streams.StdoutPipe()
	must(t, err)
	must(t, streams.Start())
	first := make([]byte, len(firstEvent))
	if _, err := io.ReadFull(out, first); err != nil || string(first) != firstEvent {
		t.Errorf("a stream: %q %v", first, err)
	}
	close(end)
	if rest, err := io.ReadAll(out); err != nil || string(rest) != secondEvent+"br" {
		t.Errorf("a stream: then %q %v", rest, err)
	}
	must(t, streams.Wait())
}
