package xds_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"github.com/gorilla/websocket"
	"github.com/quic-go/quic-go/http3"
	"golang.org/x/net/http2"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
)

// echoes is a WebSocket server of a library, behind TLS where there is a config. It answers 400
// to handshakes that are not RFC 6455's, as backends do, and to other requests 426.
func (w *world) echoes(config *tls.Config, protocols func(*http.Protocols)) netip.AddrPort {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(w.t, err)
	s := &http.Server{
		Handler: http.HandlerFunc(echoWebSocket), ReadHeaderTimeout: 10 * time.Second, TLSConfig: config, Protocols: new(http.Protocols),
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	protocols(s.Protocols)
	if config != nil {
		go func() { _ = s.ServeTLS(l, "", "") }()
	} else {
		go func() { _ = s.Serve(l) }()
	}
	w.t.Cleanup(func() { s.Close() })
	return netip.MustParseAddrPort(l.Addr().String())
}

func echoWebSocket(rw http.ResponseWriter, q *http.Request) {
	if !websocket.IsWebSocketUpgrade(q) {
		rw.WriteHeader(http.StatusUpgradeRequired)
		return
	}
	upgrader := websocket.Upgrader{CheckOrigin: func(*http.Request) bool { return true }}
	c, err := upgrader.Upgrade(rw, q, nil)
	if err != nil {
		return
	}
	defer c.Close() // after the close frame of the client was answered with one
	for {
		kind, message, err := c.ReadMessage()
		if err != nil {
			return
		}
		if err := c.WriteMessage(kind, append([]byte("echo "), message...)); err != nil {
			return
		}
	}
}

// tunnel is a stream as bytes of a connection.
type tunnel struct {
	io.Reader
	io.WriteCloser
}

// wave sends a masked text frame with "hi" and wants "echo hi" back (RFC 6455, 5.7).
func wave(c io.ReadWriter) error {
	if _, err := c.Write([]byte{0x81, 0x82, 0, 0, 0, 0, 'h', 'i'}); err != nil {
		return err
	}
	got := make([]byte, 9)
	if _, err := io.ReadFull(c, got); err != nil {
		return err
	}
	if want := "\x81\x07echo hi"; string(got) != want {
		return fmt.Errorf("%q, want %q", got, want)
	}
	return nil
}

// TestWebSocketVersions: WebSockets work over every version of HTTP that says so, with backends
// that speak HTTP/1.1 and want its handshake.
func TestWebSocketVersions(t *testing.T) {
	w, c := newWorld(t), newCA(t)
	l := model.Listener{ID: "https-1", Port: freePort(t), Protocol: model.ProtocolHTTPS, Clients: &model.ClientSettings{HTTP3: true}}
	hosts := []xds.TLSHost{tlsHost(l.ID, "a.test", "t/a")}
	cert := c.issue("t/a", false, "a.test")
	w.set(xds.Secret(xds.SecretName(cert.ID), cert), xds.Secret(xds.HostSecretName("a.test"), cert))
	const authority = "ConfigMap/ns/ca"
	w.set(xds.AuthoritySecret(xds.AuthorityName(authority), model.Authority{ID: authority, PEM: c.pem}))
	server := &tls.Config{Certificates: []tls.Certificate{pair(t, c.issue("server", false, "b.test"))}, MinVersion: tls.VersionTLS12}
	verified := &model.BackendTLS{ServerName: "b.test", Authorities: []model.AuthorityID{authority}}
	w.group("ns/ws/1", w.echoes(nil, only1))
	w.serveGroup(model.BackendGroup{ID: "ns/tls/1", TLS: verified}, w.echoes(server.Clone(), both))
	w.serveGroup(model.BackendGroup{ID: "ns/auto/1", TLS: verified, Protocol: model.BackendAuto}, w.echoes(server.Clone(), only1))
	served := host(l.ID, "a.test", forward("auto", "/auto", "ns/auto/1", 1), forward("tls", "/tls", "ns/tls/1", 1), forward("ws", "/", "ns/ws/1", 1))
	served.Policy = model.ContourEncoding() // which leaves them alone
	w.tlsListen(l, xds.Options{}, hosts, section("a.test", served))
	w.set(xds.QUICListener(l, hosts, xds.Options{}))
	must(t, w.ads.Acked(w.ctx, ldsURL, xds.QUICListenerName(l.ID)))

	client := func() *tls.Config {
		return &tls.Config{RootCAs: c.pool, ServerName: "a.test", MinVersion: tls.VersionTLS12}
	}
	address := fmt.Sprintf("127.0.0.1:%d", l.Port)
	over1 := func(path string) error {
		config := client()
		config.NextProtos = []string{"http/1.1"}
		d := websocket.Dialer{TLSClientConfig: config, NetDial: func(string, string) (net.Conn, error) { return net.Dial("tcp", address) }}
		s, r, err := d.DialContext(w.ctx, "wss://a.test"+path, nil)
		if err != nil {
			if r != nil {
				err = fmt.Errorf("%w: %s", err, r.Status)
			}
			return err
		}
		defer s.Close()
		if err := s.WriteMessage(websocket.TextMessage, []byte("hi")); err != nil {
			return err
		}
		_, got, err := s.ReadMessage()
		if err == nil && string(got) != "echo hi" {
			err = fmt.Errorf("got %q", got)
		}
		return err
	}
	extended := func(transport http.RoundTripper, change func(*http.Request)) error {
		in, out := io.Pipe()
		defer out.Close()
		q, err := http.NewRequestWithContext(w.ctx, http.MethodConnect, "https://"+address, in)
		if err != nil {
			return err
		}
		q.Host = "a.test"
		q.Header.Set("Sec-WebSocket-Version", "13")
		change(q)
		r, err := transport.RoundTrip(q)
		if err != nil {
			return err
		}
		defer r.Body.Close()
		if r.StatusCode != http.StatusOK {
			body, err := io.ReadAll(r.Body)
			return errors.Join(fmt.Errorf("%s: %s", r.Status, body), err)
		}
		return wave(tunnel{r.Body, out})
	}
	over2 := func(path string) error {
		transport := &http2.Transport{TLSClientConfig: client()} //nolint:staticcheck // net/http sends no :protocol
		defer transport.CloseIdleConnections()                   //nolint:staticcheck // the same
		return extended(transport, func(q *http.Request) {
			q.URL.Path = path
			q.Header[":protocol"] = []string{"websocket"}
		})
	}
	over3 := func(path string) error {
		transport := &http3.Transport{TLSClientConfig: client()}
		defer transport.Close()
		return extended(transport, func(q *http.Request) {
			q.URL.Path, q.Proto = path, "websocket"
		})
	}
	w.eventually("HTTP/3", func() error {
		transport := &http3.Transport{TLSClientConfig: client()}
		defer transport.Close()
		_, err := fetchWith(transport, "https://"+address+"/", "a.test", nil)
		return err
	})
	for _, path := range []string{"/", "/tls", "/auto"} {
		for version, try := range map[string]func(string) error{"1.1": over1, "2": over2, "3": over3} {
			if err := try(path); err != nil {
				t.Errorf("HTTP/%s at %s: %v", version, path, err)
			}
		}
	}
}

// page opens a WebSocket, has a text echoed and closes it, and tells the world how that went.
const page = `<!doctype html><script>
const s = new WebSocket(location.href.replace(/^http/, "ws") + "ws")
const tell = (text) => fetch("/done?" + encodeURIComponent(text))
s.onopen = () => s.send("hi")
s.onerror = () => tell("error")
s.onmessage = (e) => {
  s.onclose = (c) => tell(e.data + ", closed with " + c.code)
  s.close(1000)
}
</script>`

// TestBrowserWebSocket: a browser's WebSocket works over HTTP/1.1 and, where it has a connection of
// HTTP/2 to the host, over that.
func TestBrowserWebSocket(t *testing.T) {
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("no chromium: ", err)
	}
	w, c := newWorld(t), newCA(t)
	clear := model.Listener{ID: "http-1", Port: freePort(t), Protocol: model.ProtocolHTTP}
	secure := model.Listener{ID: "https-1", Port: freePort(t), Protocol: model.ProtocolHTTPS}
	cert := c.issue("t/a", false, "a.test")
	w.set(xds.Secret(xds.SecretName(cert.ID), cert), xds.Secret(xds.HostSecretName("a.test"), cert))
	told := make(chan string, 10)
	w.group("ns/app/1", w.serve(func(rw http.ResponseWriter, q *http.Request) {
		switch q.URL.Path {
		case "/":
			rw.Header().Set("Content-Type", "text/html")
			fmt.Fprint(rw, page)
		case "/done":
			text, err := url.QueryUnescape(q.URL.RawQuery)
			if err != nil {
				text = err.Error()
			}
			told <- text
		case "/ws":
			echoWebSocket(rw, q)
		default:
			rw.WriteHeader(http.StatusNotFound)
		}
	}))
	route := forward("r", "/", "ns/app/1", 1)
	w.listen(clear, xds.Options{}, host(clear.ID, "a.test", route))
	w.tlsListen(secure, xds.Options{}, []xds.TLSHost{tlsHost(secure.ID, "a.test", cert.ID)}, section("a.test", host(secure.ID, "a.test", route)))
	for _, at := range []string{fmt.Sprintf("http://a.test:%d/", clear.Port), fmt.Sprintf("https://a.test:%d/", secure.Port)} {
		browse(w.ctx, t, browser, at, func(ctx context.Context, said fmt.Stringer) {
			select {
			case text := <-told:
				if want := "echo hi, closed with 1000"; text != want {
					t.Errorf("%s: %q, want %q", at, text, want)
				}
			case <-ctx.Done():
				t.Errorf("%s: nothing came of it: %s", at, said)
			}
		})
	}
	for stat, want := range map[string]int{
		"http.http-1.downstream_cx_upgrades_total": 1, "http.https-1.downstream_cx_upgrades_total": 1, "http.https-1.downstream_cx_http1_total": 0,
	} {
		if got := w.envoy.Stat(w.ctx, stat); int(got) != want {
			t.Errorf("%s is %d, want %d", stat, got, want)
		}
	}
}

// browse lets a browser without a window look at a page while meanwhile runs.
func browse(ctx context.Context, t *testing.T, browser, page string, meanwhile func(ctx context.Context, said fmt.Stringer)) {
	t.Helper()
	run := exec.CommandContext(ctx, browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-proxy-server", "--disable-background-networking",
		"--user-data-dir="+t.TempDir(), "--host-resolver-rules=MAP a.test 127.0.0.1", "--ignore-certificate-errors", page)
	run.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // it has children
	var said strings.Builder
	run.Stderr = &said
	must(t, run.Start())
	meanwhile(ctx, &said)
	must(t, syscall.Kill(-run.Process.Pid, syscall.SIGKILL))
	_ = run.Wait() // killed
}

// TestLingering: what a browser waits for after close() over HTTP/1.1 is much less than Envoy's
// default of a second, and not nothing: early answers to large requests would be lost.
func TestLingering(t *testing.T) {
	l := xds.Listener(model.Listener{ID: "http-1", Port: 80, Protocol: model.ProtocolHTTP}, nil, xds.Options{})
	chain := l.FilterChains[0]
	var m hcmv3.HttpConnectionManager
	must(t, chain.Filters[len(chain.Filters)-1].GetTypedConfig().UnmarshalTo(&m))
	if got := m.GetDelayedCloseTimeout(); got == nil || got.AsDuration() <= 0 || got.AsDuration() > 250*time.Millisecond {
		t.Errorf("%v", got)
	}
}
