// Package backend is the HTTP server that stands for an application in labs: it
// answers with its name, so that a client can count who answered.
//
// It refuses to be clever: no TLS, no state but its request counter and the
// status of its health page. Invariant: a response body or the X-Backend header
// names the backend that made it, whatever the path and status.
package backend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// The response headers that every answer has.
const (
	// NameHeader holds the backend's name.
	NameHeader = "X-Backend"
	// PeerHeader holds the IP address of whoever asked: a proxy's, if there is one.
	PeerHeader = "X-Peer"
)

// The paths that mean something. Every other path answers 200 with the name and
// a newline.
const (
	// PathEcho answers with an Echo as JSON.
	PathEcho = "/echo"
	// PathStatus is the health page: 200, or what was set at PathControlStatus.
	PathStatus = "/status.html"
	// PathControlStatus sets the health page's status: POST ?code=503.
	PathControlStatus = "/control/status"
	// PathControlCount answers how many requests were answered, control and health
	// requests not counted.
	PathControlCount = "/control/count"
)

// maxEcho bounds how much of a request's body is read back.
const maxEcho = 1 << 20

// Echo is what PathEcho says of a request as it arrived.
type Echo struct {
	Backend string      `json:"backend"`
	Method  string      `json:"method"`
	Host    string      `json:"host"`
	Path    string      `json:"path"` // with the query
	Proto   string      `json:"proto"`
	Remote  string      `json:"remote"`
	Headers http.Header `json:"headers"`
	Body    string      `json:"body,omitempty"`
}

// Backend answers requests under one name. It is an http.Handler and safe for
// concurrent use.
type Backend struct {
	name   string
	status atomic.Int64
	count  atomic.Int64
}

// New returns a backend of that name whose health page says 200.
func New(name string) *Backend {
	b := &Backend{name: name}
	b.status.Store(http.StatusOK)
	return b
}

// Count is how many requests were answered, control and health requests not counted.
func (b *Backend) Count() int64 { return b.count.Load() }

// SetStatus sets what the health page answers.
func (b *Backend) SetStatus(code int) { b.status.Store(int64(code)) }

// ServeHTTP answers one request.
func (b *Backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set(NameHeader, b.name)
	if peer, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		w.Header().Set(PeerHeader, peer)
	}
	switch r.URL.Path {
	case PathStatus:
		w.WriteHeader(int(b.status.Load()))
		_, _ = io.WriteString(w, b.name+"\n")
	case PathControlStatus:
		b.control(w, r)
	case PathControlCount:
		_, _ = fmt.Fprintln(w, b.count.Load())
	case PathEcho:
		b.count.Add(1)
		b.echo(w, r)
	default:
		b.count.Add(1)
		if strings.Contains(r.Header.Get("Accept"), "application/json") {
			writeJSON(w, map[string]string{"backend": b.name})
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, b.name+"\n")
	}
}

func (b *Backend) control(w http.ResponseWriter, r *http.Request) {
	code, err := strconv.Atoi(r.FormValue("code"))
	if r.Method != http.MethodPost || err != nil || code < 200 || code > 599 {
		http.Error(w, "want POST with ?code=200 to 599", http.StatusBadRequest)
		return
	}
	b.SetStatus(code)
}

func (b *Backend) echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxEcho))
	if err != nil {
		http.Error(w, "read the body: "+err.Error(), http.StatusBadRequest)
		return
	}
	writeJSON(w, Echo{
		Backend: b.name, Method: r.Method, Host: r.Host, Path: r.URL.RequestURI(), Proto: r.Proto,
		Remote: r.RemoteAddr, Headers: r.Header, Body: string(body),
	})
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

// Serve answers on the listeners until ctx ends, then lets requests that have
// begun finish within grace. It closes the listeners.
func Serve(ctx context.Context, h http.Handler, grace time.Duration, listeners ...net.Listener) error {
	unused := &unusedConns{open: map[net.Conn]bool{}}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, ConnState: unused.note}
	var serving sync.WaitGroup
	ended := make(chan error, len(listeners))
	for _, l := range listeners {
		serving.Go(func() { ended <- server.Serve(l) })
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-ended: // one is broken: end them all
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	unused.end()
	if server.Shutdown(stop) != nil {
		_ = server.Close()
	}
	serving.Wait()
	if err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve a backend: %w", err)
	}
	return nil
}

// unusedConns are connections on which no request has begun. Shutdown would wait
// five seconds for each: a proxy opens connections in advance.
type unusedConns struct {
	mu    sync.Mutex
	ended bool
	open  map[net.Conn]bool
}

func (u *unusedConns) note(c net.Conn, s http.ConnState) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if s != http.StateNew {
		delete(u.open, c)
		return
	}
	if u.open[c] = true; u.ended {
		_ = c.Close()
	}
}

func (u *unusedConns) end() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ended = true
	for c := range u.open {
		_ = c.Close()
	}
}
