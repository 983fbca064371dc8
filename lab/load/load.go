// Package load sends HTTP requests and counts truthfully what came of each.
//
// It refuses to hide anything: it never retries, follows no redirect, and a
// request whose connection breaks is a failed request even if a browser would have
// sent it again. Invariant: every request that was started and not aborted by the
// caller is counted exactly once, as answered well or as failed with one Kind.
package load

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Kind says how a request failed. The zero Kind means that it did not.
type Kind string

// The kinds of failure.
const (
	// KindConnect: no connection could be made.
	KindConnect Kind = "connect"
	// KindTimeout: connecting or answering took longer than Config.Timeout.
	KindTimeout Kind = "timeout"
	// KindReset: the connection ended before the answer was complete.
	KindReset Kind = "reset"
	// Kind5xx: the answer had a status of 500 or more.
	Kind5xx Kind = "5xx"
	// KindUnexpected: the answer had another status that is no success, or was not HTTP.
	KindUnexpected Kind = "unexpected"
)

const (
	defaultTimeout = 5 * time.Second
	maxBody        = 1 << 20
)

// Config says what to send. Address and one of Requests, Duration and a later
// Stop are required.
type Config struct {
	// Address is "ip:port" of the server.
	Address string
	// Dial makes connections; default: from this process's own network namespace.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Method (default GET), Host (default Address), Path (default /) and Header of
	// every request.
	Method, Host, Path string
	Header             http.Header
	// Requests is how many to send, Duration for how long; zero means no such
	// limit. The first limit that is reached ends the run.
	Requests int
	Duration time.Duration
	// Concurrency is how many requests may be under way at once; default 1.
	Concurrency int
	// Rate, in requests a second, makes the load an open loop: requests are due at
	// even intervals whatever the server does, and latency counts from when a
	// request was due. Zero makes it a closed loop: each of Concurrency clients
	// sends its next request when it has its answer.
	Rate float64
	// NewConnections makes every request use a connection of its own.
	NewConnections bool
	// Timeout bounds one request, connecting included; default 5 s.
	Timeout time.Duration
	// Now is the clock; default time.Now. It must advance with real time: it
	// bounds reads and writes on real connections.
	Now func() time.Time
	// OnResult, if set, is called for each result by the client that made it:
	// concurrently, and before that client's next request.
	OnResult func(Result)
}

// Result is what came of one request.
type Result struct {
	// Start is when the request was sent or, in an open loop, was due.
	Start   time.Time
	Latency time.Duration
	// Status of the answer; 0 without one.
	Status int
	// Name of the backend that answered: the X-Backend header, else the first word
	// of a text body.
	Name string
	// Peer is who asked the backend, by its word: the X-Peer header, if there is one.
	Peer netip.Addr
	// Local is the client's end of the connection; invalid if there was none.
	Local netip.AddrPort
	// Kind and Err are set when the request failed.
	Kind Kind
	Err  error
}

// Run is a load that is under way.
type Run struct {
	config  Config
	request []byte
	method  *http.Request // what http.ReadResponse needs to know of the request

	stop     chan struct{}
	stopOnce sync.Once
	done     chan struct{}

	started time.Time
	left    atomic.Int64
	report  Report // valid when done is closed
}

// Do sends the load and returns its report when it is complete. If ctx ends
// first, the requests under way are aborted and not counted, and the report of the
// others comes with ctx's error.
func Do(ctx context.Context, c Config) (Report, error) {
	r, err := Start(ctx, c)
	if err != nil {
		return Report{}, err
	}
	<-r.done
	if ctx.Err() != nil {
		return r.report, fmt.Errorf("send requests to %s: %w", c.Address, ctx.Err())
	}
	return r.report, nil
}

// Start begins to send and returns at once. When ctx ends, the requests under way
// are aborted and not counted.
func Start(ctx context.Context, c Config) (*Run, error) {
	c, err := c.complete()
	if err != nil {
		return nil, fmt.Errorf("send requests to %s: %w", c.Address, err)
	}
	r := &Run{config: c, stop: make(chan struct{}), done: make(chan struct{}), started: c.Now()}
	r.left.Store(int64(c.Requests))
	var raw strings.Builder
	_, _ = fmt.Fprintf(&raw, "%s %s HTTP/1.1\r\nHost: %s\r\n", c.Method, c.Path, c.Host)
	_ = c.Header.Write(&raw)
	if c.NewConnections {
		raw.WriteString("Connection: close\r\n")
	}
	raw.WriteString("\r\n")
	r.request = []byte(raw.String())
	r.method = &http.Request{Method: c.Method}

	due := r.schedule(ctx)
	collected := make([]*collector, c.Concurrency)
	var clients sync.WaitGroup
	for i := range collected {
		collected[i] = newCollector()
		clients.Go(func() { r.client(ctx, due, collected[i]) })
	}
	go func() {
		clients.Wait()
		r.report = summarise(r.started, c.Now(), collected)
		close(r.done)
	}()
	return r, nil
}

func (c Config) complete() (Config, error) {
	if _, _, err := net.SplitHostPort(c.Address); err != nil {
		return c, err
	}
	if c.Requests < 0 || c.Duration < 0 || c.Concurrency < 0 || c.Rate < 0 || c.Timeout < 0 {
		return c, errors.New("requests, duration, concurrency, rate and timeout cannot be negative")
	}
	if c.Dial == nil {
		c.Dial = new(net.Dialer).DialContext
	}
	if c.Method == "" {
		c.Method = http.MethodGet
	}
	if c.Host == "" {
		c.Host = c.Address
	}
	if c.Path == "" {
		c.Path = "/"
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	c.Concurrency = max(c.Concurrency, 1)
	return c, nil
}

// Stop sends no further requests, waits for those under way and returns the report.
func (r *Run) Stop() Report {
	r.stopOnce.Do(func() { close(r.stop) })
	<-r.done
	return r.report
}

// Done is closed when the load is complete.
func (r *Run) Done() <-chan struct{} { return r.done }

// schedule gives out when requests are due: nil for a closed loop.
func (r *Run) schedule(ctx context.Context) <-chan time.Time {
	if r.config.Rate == 0 {
		return nil
	}
	due := make(chan time.Time)
	go func() {
		defer close(due)
		timer := time.NewTimer(time.Hour)
		defer timer.Stop()
		for i := 0; ; i++ {
			at := r.started.Add(time.Duration(float64(i) / r.config.Rate * float64(time.Second)))
			if r.config.Duration > 0 && at.Sub(r.started) >= r.config.Duration {
				return
			}
			// The runtime's timers come up to a millisecond late while nothing else
			// happens: the last bit is the kernel's to sleep.
			if wait := at.Sub(r.config.Now()); wait > time.Millisecond {
				timer.Reset(wait - time.Millisecond)
				select {
				case <-timer.C:
				case <-r.stop:
					return
				case <-ctx.Done():
					return
				}
			}
			if wait := at.Sub(r.config.Now()); wait > 0 {
				rest := unix.NsecToTimespec(wait.Nanoseconds())
				_ = unix.Nanosleep(&rest, nil)
			}
			select {
			case due <- at:
			case <-r.stop:
				return
			case <-ctx.Done():
				return
			}
		}
	}()
	return due
}

// next returns when the client's next request is due, or false when it has none.
func (r *Run) next(ctx context.Context, due <-chan time.Time) (time.Time, bool) {
	select {
	case <-r.stop:
		return time.Time{}, false
	case <-ctx.Done():
		return time.Time{}, false
	default:
	}
	if due != nil {
		at, ok := <-due
		if !ok {
			return at, false
		}
		return at, r.config.Requests == 0 || r.left.Add(-1) >= 0
	}
	now := r.config.Now()
	if r.config.Duration > 0 && now.Sub(r.started) >= r.config.Duration {
		return now, false
	}
	return now, r.config.Requests == 0 || r.left.Add(-1) >= 0
}

// client sends one request after the other.
func (r *Run) client(ctx context.Context, due <-chan time.Time, c *collector) {
	var conn *connection
	defer func() { conn.close() }()
	for {
		start, ok := r.next(ctx, due)
		if !ok {
			r.Finish()
			return
		}
		limit := r.config.Now().Add(r.config.Timeout)
		result := Result{Start: start}
		if conn == nil {
			conn, result.Err = r.dial(ctx, limit)
			if result.Err != nil {
				result.Kind = kindOf(result.Err, KindConnect)
			} else {
				c.connections++
			}
		}
		if conn != nil {
			result.Local = conn.local
			reuse := conn.exchange(r, limit, &result)
			if !reuse || r.config.NewConnections {
				conn.close()
				conn = nil
			}
		}
		result.Latency = r.config.Now().Sub(start)
		if result.Kind != "" && ctx.Err() != nil {
			return // aborted, not failed
		}
		c.add(r.started, result)
		if r.config.OnResult != nil {
			r.config.OnResult(result)
		}
	}
}

// Finish sends no further requests and does not wait for those under way.
func (r *Run) Finish() { r.stopOnce.Do(func() { close(r.stop) }) }

// connection is one client's connection.
type connection struct {
	net.Conn
	in      *bufio.Reader
	local   netip.AddrPort
	unwatch func() bool
}

func (r *Run) dial(ctx context.Context, limit time.Time) (*connection, error) {
	bounded, cancel := context.WithTimeout(ctx, limit.Sub(r.config.Now()))
	defer cancel()
	conn, err := r.config.Dial(bounded, "tcp", r.config.Address)
	if err != nil {
		return nil, err
	}
	c := &connection{Conn: conn, in: bufio.NewReader(conn)}
	if a, ok := conn.LocalAddr().(*net.TCPAddr); ok {
		c.local = netip.AddrPortFrom(a.AddrPort().Addr().Unmap(), a.AddrPort().Port())
	}
	c.unwatch = context.AfterFunc(ctx, func() { _ = conn.Close() })
	return c, nil
}

func (c *connection) close() {
	if c != nil {
		c.unwatch()
		_ = c.Close()
	}
}

// exchange sends one request, reads its answer and says whether the connection
// can carry another.
func (c *connection) exchange(r *Run, limit time.Time, result *Result) (reuse bool) {
	fail := func(err error, otherwise Kind) bool {
		result.Err, result.Kind = err, kindOf(err, otherwise)
		return false
	}
	if err := c.SetDeadline(limit); err != nil {
		return fail(err, KindReset)
	}
	if _, err := c.Write(r.request); err != nil {
		return fail(err, KindReset)
	}
	if _, err := c.in.Peek(1); err != nil {
		return fail(err, KindReset)
	}
	resp, err := http.ReadResponse(c.in, r.method)
	if err != nil {
		var broken *net.OpError
		if errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &broken) {
			return fail(err, KindReset)
		}
		return fail(err, KindUnexpected)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	if err != nil {
		return fail(fmt.Errorf("read the body: %w", err), KindReset)
	}
	if len(body) > maxBody {
		return fail(fmt.Errorf("the body has more than %d bytes", maxBody), KindUnexpected)
	}
	result.Status = resp.StatusCode
	result.Name = resp.Header.Get("X-Backend")
	result.Peer, _ = netip.ParseAddr(resp.Header.Get("X-Peer"))
	if words := strings.Fields(string(body)); result.Name == "" && resp.StatusCode == http.StatusOK && len(words) > 0 {
		result.Name = words[0]
	}
	switch {
	case resp.StatusCode >= 500:
		result.Kind = Kind5xx
	case resp.StatusCode < 200 || resp.StatusCode >= 400:
		result.Kind = KindUnexpected
	}
	if result.Kind != "" {
		result.Err = fmt.Errorf("%s: %.200s", resp.Status, strings.TrimSpace(string(body)))
	}
	return !resp.Close
}

func kindOf(err error, otherwise Kind) Kind {
	var n net.Error
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &n) && n.Timeout() {
		return KindTimeout
	}
	return otherwise
}
