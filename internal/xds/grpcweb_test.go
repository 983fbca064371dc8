package xds_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
)

// grpcFrame is a message as gRPC and gRPC-Web send it: flags, length, bytes.
func grpcFrame(t *testing.T, m proto.Message) []byte {
	t.Helper()
	body, err := proto.Marshal(m)
	must(t, err)
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body))), body...)
}

// nextFrame reads one. Trailers have the flag 0x80 in gRPC-Web.
func nextFrame(r io.Reader) (flags byte, body []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	body = make([]byte, binary.BigEndian.Uint32(head[1:]))
	_, err = io.ReadFull(r, body)
	return head[0], body, err
}

// unpadded reads base64 that was written piece by piece, each with padding of its own.
type unpadded struct {
	r    io.Reader
	rest []byte
}

func (u *unpadded) Read(p []byte) (int, error) {
	for len(u.rest) == 0 {
		var four [4]byte
		if _, err := io.ReadFull(u.r, four[:]); err != nil {
			return 0, err
		}
		three, err := base64.StdEncoding.DecodeString(string(four[:]))
		if err != nil {
			return 0, err
		}
		u.rest = three
	}
	n := copy(p, u.rest)
	u.rest = u.rest[n:]
	return n, nil
}

// browser asks by gRPC-Web, over HTTP/1.1 as scripts do in clear text.
type browser struct {
	w    *world
	port uint16
	host string
}

func (b browser) ask(method, path, kind string, body []byte, headers ...string) *http.Response {
	b.w.t.Helper()
	if strings.Contains(kind, "-text") {
		body = []byte(base64.StdEncoding.EncodeToString(body))
	}
	q, err := http.NewRequestWithContext(b.w.ctx, method, fmt.Sprintf("http://127.0.0.1:%d%s", b.port, path), bytes.NewReader(body))
	must(b.w.t, err)
	q.Host = b.host
	if kind != "" {
		q.Header.Set("Content-Type", kind)
		q.Header.Set("Accept", kind)
		q.Header.Set("X-Grpc-Web", "1")
	}
	q.Header.Set("Accept-Encoding", "gzip, deflate, br, zstd")
	q.Header.Set("Origin", "https://www.page.test")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		q.Header.Set(name, value)
	}
	a, err := http.DefaultTransport.RoundTrip(q)
	must(b.w.t, err)
	b.w.t.Cleanup(func() { a.Body.Close() })
	return a
}

// frames is what reads an answer.
func frames(a *http.Response) io.Reader {
	if strings.Contains(a.Header.Get("Content-Type"), "-text") {
		return &unpadded{r: a.Body}
	}
	return a.Body
}

// status is grpc-status, of the headers or of the trailers, which are the last frame.
func grpcStatus(a *http.Response) string {
	if s := a.Header.Get("Grpc-Status"); s != "" {
		return s
	}
	for r := frames(a); ; {
		flags, body, err := nextFrame(r)
		if err != nil {
			return "none: " + err.Error()
		}
		if flags&0x80 == 0 {
			continue
		}
		_, after, _ := strings.Cut(string(body), "grpc-status:")
		s, _, _ := strings.Cut(after, "\r\n")
		return s
	}
}

// judged serves a judge and health over gRPC.
func (w *world) judged(h *health.Server) netip.AddrPort {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(w.t, err)
	s := grpc.NewServer()
	authv3.RegisterAuthorizationServer(s, &judge{})
	healthv1.RegisterHealthServer(s, h)
	go func() { _ = s.Serve(l) }()
	w.t.Cleanup(s.Stop)
	return netip.MustParseAddrPort(l.Addr().String())
}

const (
	checkMethod = "/envoy.service.auth.v3.Authorization/Check"
	watchMethod = "/grpc.health.v1.Health/Watch"
)

// TestGRPCWeb: a browser calls a gRPC backend where a policy says so, in both forms, and reads
// what came of it; other requests are as without.
func TestGRPCWeb(t *testing.T) {
	w := newWorld(t)
	l := model.Listener{ID: "http-1", Port: freePort(t), Protocol: model.ProtocolHTTP}
	server := health.NewServer()
	address := w.judged(server)
	w.serveGroup(model.BackendGroup{ID: "ns/grpc/80", Protocol: model.BackendHTTP2}, address)
	w.group("ns/echo/80", w.backend("echo"))
	is, no := true, false
	call := func(path string) model.Route {
		r := forward("call "+path, path, "ns/grpc/80", 1)
		r.Forward.Stream = true
		r.CORS = &model.CORS{
			Origins: []string{"https://www.page.test"}, Methods: []string{"POST"}, Headers: []string{"content-type", "x-grpc-web", "x-user-agent"},
			Expose: []string{"grpc-status", "grpc-message"}, MaxAge: time.Minute,
		}
		return r
	}
	web := host(l.ID, "web.test", call("/"))
	web.Policy = compression(nil, model.CompressionZstd, model.CompressionBrotli, model.CompressionGzip)
	web.Policy.GRPCWeb = &is
	off := host(l.ID, "off.test", under(forward("off", "/off", "ns/echo/80", 1), &model.RoutePolicy{GRPCWeb: &no}), forward("on", "/", "ns/echo/80", 1))
	off.Policy = &model.RoutePolicy{GRPCWeb: &is}
	closed := host(l.ID, "closed.test", call("/"))
	closed.Policy = &model.RoutePolicy{GRPCWeb: &is, Addresses: &model.AddressFilter{Deny: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}}
	w.serveGroup(model.BackendGroup{ID: "ns/none/80", Protocol: model.BackendHTTP2})
	broken := host(l.ID, "broken.test", forward("r", "/", "ns/none/80", 1))
	broken.Policy = &model.RoutePolicy{GRPCWeb: &is}
	w.listen(l, xds.Options{}, web, off, closed, broken)
	at := func(host string) browser { return browser{w: w, port: l.Port, host: host} }
	request := func(path string) []byte {
		return grpcFrame(t, &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
			Request: &authv3.AttributeContext_Request{Http: &authv3.AttributeContext_HttpRequest{Path: path}},
		}})
	}

	for _, kind := range []string{"application/grpc-web", "application/grpc-web+proto", "application/grpc-web-text", "application/grpc-web-text+proto"} {
		a := at("web.test").ask(http.MethodPost, checkMethod, kind, request("/good"))
		if a.StatusCode != 200 || a.Header.Get("Content-Encoding") != "" || a.Header.Get("Access-Control-Allow-Origin") != "https://www.page.test" ||
			!strings.Contains(a.Header.Get("Access-Control-Expose-Headers"), "grpc-status") || strings.Contains(kind, "-text") != strings.Contains(a.Header.Get("Content-Type"), "-text") {
			t.Errorf("%s: %d %v", kind, a.StatusCode, a.Header)
		}
		r := frames(a)
		flags, body, err := nextFrame(r)
		var answer authv3.CheckResponse
		if err != nil || flags != 0 || proto.Unmarshal(body, &answer) != nil || answer.GetOkResponse().GetHeaders()[0].GetHeader().GetValue() != "jo" {
			t.Errorf("%s: %x %q %v", kind, flags, body, err)
		}
		flags, body, err = nextFrame(r)
		if err != nil || flags != 0x80 || !strings.Contains(string(body), "grpc-status:0\r\n") {
			t.Errorf("%s: trailers %x %q %v", kind, flags, body, err)
		}
		if more, err := io.ReadAll(r); len(more) > 0 || err != nil {
			t.Errorf("%s: more than trailers: %q %v", kind, more, err)
		}
	}

	for what, c := range map[string]struct {
		host, path, kind string
		status           int
		want             string
	}{
		"an error":            {"web.test", "/broken", "application/grpc-web+proto", 200, "2"},
		"an error, in text":   {"web.test", "/broken", "application/grpc-web-text", 200, "2"},
		"refused by a policy": {"closed.test", "/good", "application/grpc-web+proto", 403, "7"},
		"refused, in text":    {"closed.test", "/good", "application/grpc-web-text", 403, "7"},
		"no backend":          {"broken.test", "/good", "application/grpc-web+proto", 503, "14"},
	} {
		a := at(c.host).ask(http.MethodPost, checkMethod, c.kind, request(c.path))
		if got := grpcStatus(a); a.StatusCode != c.status || got != c.want || !strings.HasPrefix(a.Header.Get("Content-Type"), c.kind) {
			t.Errorf("%s: %d, grpc-status %q, want %s: %v", what, a.StatusCode, got, c.want, a.Header)
		}
	}

	// Preflights are the CORS filter's.
	a := at("web.test").ask(http.MethodOptions, checkMethod, "", nil, "Access-Control-Request-Method: POST", "Access-Control-Request-Headers: content-type,x-grpc-web,x-user-agent")
	if a.StatusCode != 200 || a.Header.Get("Access-Control-Allow-Origin") != "https://www.page.test" || !strings.Contains(a.Header.Get("Access-Control-Allow-Headers"), "x-grpc-web") {
		t.Errorf("a preflight: %d %v", a.StatusCode, a.Header)
	}

	// What is no gRPC-Web is as without, and a route may have none where its host has some.
	for path, want := range map[string]string{"/": "Content-Type: application/grpc\r\n", "/off": "Content-Type: application/grpc-web-text\r\n"} {
		a := at("off.test").ask(http.MethodPost, path, "application/grpc-web-text", request("/good"))
		body, _ := io.ReadAll(a.Body) // ends early where it is translated: it is no gRPC
		if seen := string(body) + a.Header.Get("Grpc-Message"); path == "/off" && !strings.Contains(seen, want) || path == "/" && a.Header.Get("Grpc-Status") == "" {
			t.Errorf("%s: %d %v, the backend saw\n%s", path, a.StatusCode, a.Header, seen)
		}
	}
	client, err := grpc.NewClient(fmt.Sprintf("passthrough:127.0.0.1:%d", l.Port), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("web.test"))
	must(t, err)
	defer client.Close()
	if _, err := authv3.NewAuthorizationClient(client).Check(w.ctx, &authv3.CheckRequest{}); err != nil {
		t.Errorf("gRPC itself: %v", err)
	}

	// A stream: each message is there before the next one is made.
	for _, kind := range []string{"application/grpc-web+proto", "application/grpc-web-text"} {
		server.SetServingStatus("page", healthv1.HealthCheckResponse_SERVING)
		r := frames(at("web.test").ask(http.MethodPost, watchMethod, kind, grpcFrame(t, &healthv1.HealthCheckRequest{Service: "page"})))
		for _, want := range []healthv1.HealthCheckResponse_ServingStatus{healthv1.HealthCheckResponse_SERVING, healthv1.HealthCheckResponse_NOT_SERVING} {
			flags, body, err := nextFrame(r)
			var status healthv1.HealthCheckResponse
			if err != nil || flags != 0 || proto.Unmarshal(body, &status) != nil || status.GetStatus() != want {
				t.Errorf("%s: message %x %q %v, want %s", kind, flags, body, err, want)
			}
			server.SetServingStatus("page", healthv1.HealthCheckResponse_NOT_SERVING)
		}
	}
}
