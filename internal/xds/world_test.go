package xds_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
	"fairlead.dev/internal/xds/envoytest"
)

const (
	cdsURL  = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	edsURL  = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
	rdsURL  = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
	srdsURL = "type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration"
	sdsURL  = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
	ldsURL  = "type.googleapis.com/envoy.config.listener.v3.Listener"
)

// world is a real Envoy and the server that configures it.
type world struct {
	t     *testing.T
	ctx   context.Context
	ads   *envoytest.ADS
	envoy *envoytest.Envoy
}

func newWorld(t *testing.T) *world { return newLimitedWorld(t, xds.BootstrapOptions{}) }

// newLimitedWorld is a world whose Envoy has limits, or further arguments.
func newLimitedWorld(t *testing.T, o xds.BootstrapOptions, arguments ...string) *world {
	t.Helper()
	if _, err := envoytest.Find(); err != nil {
		t.Skip(err)
	}
	// Paths of unix sockets are short; t.TempDir's may not be.
	dir, err := os.MkdirTemp("", "xds")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	t.Cleanup(cancel)
	w := &world{t: t, ctx: ctx, ads: envoytest.NewADS()}
	l, err := net.Listen("unix", filepath.Join(dir, "ads"))
	must(t, err)
	w.ads.Serve(l)
	t.Cleanup(w.ads.Close)
	o.NodeID, o.ADSSocket, o.AdminSocket = "edge-1", filepath.Join(dir, "ads"), filepath.Join(dir, "admin")
	w.envoy, err = envoytest.Start(ctx, xds.Bootstrap(o), o.AdminSocket, dir, append(arguments, "--concurrency", "1", "--file-flush-interval-msec", "200")...)
	must(t, err)
	t.Cleanup(func() {
		if err := w.envoy.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) set(ms ...proto.Message) {
	w.t.Helper()
	must(w.t, w.ads.Set(ms...))
}

// listen serves a listener with all of its shards, and waits until it accepts.
func (w *world) listen(l model.Listener, o xds.Options, hosts ...model.VirtualHost) {
	w.t.Helper()
	for _, rc := range shards(l.ID, hosts) {
		w.set(rc)
	}
	for _, s := range xds.Scopes(l.ID) {
		w.set(s)
	}
	w.set(xds.Listener(l, nil, o))
	must(w.t, w.ads.Acked(w.ctx, ldsURL, string(l.ID)))
	w.accepting(l)
}

func (w *world) accepting(l model.Listener) {
	w.t.Helper()
	must(w.t, w.envoy.Until(w.ctx, fmt.Sprintf("port %d to accept", l.Port), func() bool {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", l.Port))
		if err == nil {
			c.Close()
		}
		return err == nil
	}))
}

// route replaces one shard and waits for its acknowledgement.
func (w *world) route(rc *routev3.RouteConfiguration) {
	w.t.Helper()
	w.set(rc)
	must(w.t, w.ads.Acked(w.ctx, rdsURL, rc.Name))
}

// shards are all route configurations of a listener.
func shards(id model.ListenerID, hosts []model.VirtualHost) []*routev3.RouteConfiguration {
	in := map[int][]model.VirtualHost{}
	for _, h := range hosts {
		in[xds.Shard(id, h.Host)] = append(in[xds.Shard(id, h.Host)], h)
	}
	var out []*routev3.RouteConfiguration
	for _, s := range xds.AllShards(id) {
		out = append(out, xds.RouteConfiguration(id, s, in[s]))
	}
	return out
}

// backend is an HTTP server that answers with its name and the request it saw.
func (w *world) backend(name string) netip.AddrPort {
	return w.serve(func(rw http.ResponseWriter, q *http.Request) {
		rw.Header().Set("Backend", name)
		fmt.Fprintf(rw, "%s %s %s\n", name, q.Host, q.URL.RequestURI())
		_ = q.Header.Write(rw)
	})
}

func (w *world) serve(h http.HandlerFunc) netip.AddrPort {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(w.t, err)
	s := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = s.Serve(l) }()
	w.t.Cleanup(func() { s.Close() })
	return netip.MustParseAddrPort(l.Addr().String())
}

// freePort is a port that nobody listens at. It is below those that the system gives to
// connections, one of which could have it before Envoy does.
func freePort(t *testing.T) uint16 {
	t.Helper()
	for {
		port := 10_000 + rand.N(22_000)
		if l, err := net.Listen("tcp", fmt.Sprintf(":%d", port)); err == nil {
			must(t, l.Close())
			return uint16(port)
		}
	}
}

// answer is what came back for a request.
type answer struct {
	status  int
	headers http.Header
	body    string
}

// get asks over a connection of its own.
func (w *world) get(port uint16, host, path string, headers ...string) answer {
	w.t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "GET %s HTTP/1.1\r\nHost: %s\r\n", path, host)
	for _, h := range headers {
		b.WriteString(h + "\r\n")
	}
	b.WriteString("Connection: close\r\n\r\n")
	return w.raw(port, b.String())
}

// raw sends bytes and reads one response.
func (w *world) raw(port uint16, request string) answer {
	w.t.Helper()
	a, err := ask(port, request)
	must(w.t, err)
	return a
}

func ask(port uint16, request string) (a answer, err error) {
	c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return a, fmt.Errorf("connect: %w", err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return a, err
	}
	if _, err := io.WriteString(c, request); err != nil {
		return a, fmt.Errorf("send: %w", err)
	}
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return a, fmt.Errorf("read response: %w", err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return a, fmt.Errorf("read body: %w", err)
	}
	return answer{status: r.StatusCode, headers: r.Header, body: string(body)}, nil
}

// says is a route that answers with its name.
func says(name string, path model.PathMatch) model.Route {
	return model.Route{Name: name, Match: model.Match{Path: path}, Respond: &model.Respond{Status: 200, Body: name}}
}

func host(l model.ListenerID, name string, routes ...model.Route) model.VirtualHost {
	return model.VirtualHost{HostKey: model.HostKey{Listener: l, Host: name}, Routes: routes}
}

func prefix(p string) model.PathMatch { return model.PathMatch{Kind: model.PathSegments, Value: p} }
