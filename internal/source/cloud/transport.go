package cloud

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"fairlead.dev/api/v1alpha1"
)

// The defaults of a TransportConfig, and limits that are always the same.
const (
	DefaultRequestsPerSecond = 20
	DefaultAnswerBytes       = 256 << 20
	DefaultHeaderTimeout     = 30 * time.Second
	DefaultIdleTimeout       = 30 * time.Second
	DefaultAnswerTimeout     = 5 * time.Minute
	DefaultStreamTimeout     = 3 * time.Minute

	// MaxRetryAfter bounds how long an API can make us wait.
	MaxRetryAfter = 5 * time.Minute
	// errorBytes is what is read of an answer with an error status; the rest is cut off.
	errorBytes = 1 << 20
)

// TransportConfig bounds the requests to one upstream.
type TransportConfig struct {
	// RequestsPerSecond, on average; as many may be sent at once. Default: DefaultRequestsPerSecond.
	RequestsPerSecond int
	// AnswerBytes bounds an answer, after decompression. Default: DefaultAnswerBytes.
	AnswerBytes int64
	// HeaderTimeout bounds the time until the headers of an answer. Default: DefaultHeaderTimeout.
	HeaderTimeout time.Duration
	// IdleTimeout bounds the time without a byte of an answer. Default: DefaultIdleTimeout.
	IdleTimeout time.Duration
	// AnswerTimeout bounds the time from the headers of an answer to its end. Default: DefaultAnswerTimeout.
	AnswerTimeout time.Duration
	// StreamTimeout is the IdleTimeout of streams. Default: DefaultStreamTimeout.
	StreamTimeout time.Duration
	// Stream says of a request whether its answer has no end, such as a watch: AnswerBytes and AnswerTimeout do not
	// bound it. Default: none is.
	Stream func(*http.Request) bool
	// Counters count the requests; they may be shared by several transports. Default: counters of its own.
	Counters *Counters
}

// Transport sends the requests to one upstream, within limits. It may be used by several goroutines.
//
// Its errors, and those of reading an answer, are of type *Error:
//   - no headers, no byte of an answer, or no end of an answer in time: Timeout
//   - an answer that is too large, or ends early: BadAnswer
//   - a redirect to another scheme or host: BadAnswer; the request is not sent, since it may have credentials
//   - the class that Classify has for the errors of the base
//
// Requests wait for their turn. An answer with status 429 or 503 that has a Retry-After delays all requests of the
// transport for that time, at most MaxRetryAfter. A request whose context ends while it waits fails with Throttled.
//
// Only the cancellation of the caller's own context is no *Error.
type Transport struct {
	base     http.RoundTripper
	config   TransportConfig
	turns    *rate.Limiter
	counters *Counters

	mu   sync.Mutex
	hold time.Time // until when no request is sent
}

// NewTransport makes a Transport that sends requests with base. See NewBase.
func NewTransport(base http.RoundTripper, c TransportConfig) *Transport {
	orDefault(&c.RequestsPerSecond, DefaultRequestsPerSecond)
	orDefault(&c.AnswerBytes, DefaultAnswerBytes)
	orDefault(&c.HeaderTimeout, DefaultHeaderTimeout)
	orDefault(&c.IdleTimeout, DefaultIdleTimeout)
	orDefault(&c.AnswerTimeout, DefaultAnswerTimeout)
	orDefault(&c.StreamTimeout, DefaultStreamTimeout)
	if c.Counters == nil {
		c.Counters = &Counters{}
	}
	return &Transport{
		base: base, config: c, counters: c.Counters,
		turns: rate.NewLimiter(rate.Limit(c.RequestsPerSecond), c.RequestsPerSecond),
	}
}

func orDefault[T int | int64 | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

// NewBase makes the base of a Transport. It uses no proxy, whatever the environment says. It notices dead connections
// also while nothing is sent: by pings with HTTP/2, and by keepalive with HTTP/1. See Dialer for what allow allows.
func NewBase(c *tls.Config, allow Allow) *http.Transport {
	return &http.Transport{
		DialContext:            Dialer(10*time.Second, allow).DialContext,
		TLSClientConfig:        c,
		TLSHandshakeTimeout:    10 * time.Second,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 10 * time.Second},
		MaxIdleConnsPerHost:    8,
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: 1 << 20,
	}
}

// Client makes a client that sends requests with the transport.
func (t *Transport) Client() *http.Client { return &http.Client{Transport: t} }

// Counters of the transport.
func (t *Transport) Counters() *Counters { return t.counters }

// CloseIdleConnections closes the connections that no request uses.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// RoundTrip sends a request.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	err := refuseRedirect(req)
	if err == nil {
		err = t.wait(req.Context())
	}
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, t.fail(req.Context(), err)
	}
	stream := t.config.Stream != nil && t.config.Stream(req)
	ctx, cancel := context.WithCancelCause(req.Context())
	late := time.AfterFunc(t.config.HeaderTimeout, func() {
		cancel(Timeout("no answer within %s", t.config.HeaderTimeout))
	})
	begin := time.Now()
	resp, err := t.base.RoundTrip(req.WithContext(ctx))
	late.Stop()
	t.counters.Nanoseconds.Add(uint64(time.Since(begin)))
	if err != nil {
		t.counters.Requests[0].Add(1)
		err = because(ctx, err)
		cancel(nil)
		return nil, t.fail(req.Context(), err)
	}
	if class := resp.StatusCode / 100; class < len(t.counters.Requests) {
		t.counters.Requests[class].Add(1)
	}
	t.heed(resp)
	if err := t.guard(req.Context(), ctx, cancel, resp, stream); err != nil {
		return nil, err
	}
	return resp, nil
}

// fail gives the error of a request its class and notes it. The cancellation of the caller's own context is left as it is.
func (t *Transport) fail(ctx context.Context, err error) error {
	var e *Error
	if !errors.As(err, &e) && ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return err
	}
	e = Classify(err, 0)
	recordOf(ctx).last.Store(e)
	return e
}

// because is the reason for which ctx was ended, if it was, else err.
func because(ctx context.Context, err error) error {
	var e *Error
	if errors.As(context.Cause(ctx), &e) {
		return e
	}
	return err
}

// refuseRedirect refuses a request that follows a redirect to another scheme or host. http.Client would send it
// without the header Authorization; but round trippers above this one add credentials to every request.
func refuseRedirect(req *http.Request) error {
	if req.Response == nil || req.Response.Request == nil {
		return nil
	}
	from, to := req.Response.Request.URL, req.URL
	if from.Scheme == to.Scheme && from.Host == to.Host {
		return nil
	}
	return BadAnswer("%s://%s redirects to %s://%s: redirects to another host are not followed", from.Scheme, from.Host, to.Scheme, to.Host)
}

// wait waits for the turn of a request.
func (t *Transport) wait(ctx context.Context) error {
	if err := t.waitHold(ctx); err != nil {
		return err
	}
	if err := t.turns.Wait(ctx); err != nil {
		if errors.Is(ctx.Err(), context.Canceled) {
			return ctx.Err()
		}
		return &Error{Reason: v1alpha1.ReasonThrottled, Err: errors.New("no request was free in time (spec.requestsPerSecond)")}
	}
	return t.waitHold(ctx)
}

func (t *Transport) waitHold(ctx context.Context) error {
	for first := true; ; first = false {
		t.mu.Lock()
		d := time.Until(t.hold)
		t.mu.Unlock()
		if d <= 0 {
			return nil
		}
		if first {
			t.counters.Throttled.Add(1)
		}
		timer := time.NewTimer(d)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			if errors.Is(ctx.Err(), context.Canceled) {
				return ctx.Err()
			}
			return &Error{
				Reason: v1alpha1.ReasonThrottled, RetryAfter: d,
				Err: fmt.Errorf("the API has asked for no request within %s (Retry-After)", d.Round(time.Second)),
			}
		}
	}
}

// heed delays the next requests if an answer asks for it.
func (t *Transport) heed(resp *http.Response) {
	if resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode != http.StatusServiceUnavailable {
		return
	}
	now := time.Now()
	d := RetryAfter(resp.Header, now)
	if d == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if until := now.Add(d); until.After(t.hold) {
		t.hold = until
	}
}

// RetryAfter is how long an answer asks to wait, at most MaxRetryAfter; 0: it does not say.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	text := h.Get("Retry-After")
	if text == "" {
		return 0
	}
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return min(time.Duration(seconds)*time.Second, MaxRetryAfter)
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), MaxRetryAfter)
}
