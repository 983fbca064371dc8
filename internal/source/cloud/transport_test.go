package cloud

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.dev/api/v1alpha1"
)

// serve runs a server in memory, for tests inside a bubble, and gives a base that reaches it.
func serve(t *testing.T, h http.HandlerFunc) *http.Transport {
	l := &listener{conns: make(chan net.Conn), closed: make(chan struct{})}
	s := &http.Server{Handler: h}
	go func() { _ = s.Serve(l) }()
	base := NewBase(nil, Allow{})
	base.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		select {
		case l.conns <- theirs:
			return ours, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	t.Cleanup(func() {
		base.CloseIdleConnections()
		_ = s.Close()
		synctest.Wait()
	})
	return base
}

type listener struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error   { close(l.closed); return nil }
func (l *listener) Addr() net.Addr { return &net.TCPAddr{} }

// ask reads one answer and says how long that took.
func ask(ctx context.Context, t *testing.T, tr http.RoundTripper, url string) (status int, body string, took time.Duration, err error) {
	t.Helper()
	begin := time.Now()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Client{Transport: tr}).Do(req)
	if err != nil {
		return 0, "", time.Since(begin), err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), time.Since(begin), err
}

func hold(r *http.Request) { <-r.Context().Done() }

func drip(w http.ResponseWriter, r *http.Request, every time.Duration) {
	for r.Context().Err() == nil {
		fmt.Fprint(w, ".")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-time.After(every):
		case <-r.Context().Done():
		}
	}
}

// Every kind of answer that an API should not give ends in time, with its class.
func TestBadAnswers(t *testing.T) {
	stream := func(r *http.Request) bool { return r.URL.Query().Has("watch") }
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		path    string
		reason  string // empty: no error
		message string
		after   time.Duration
	}{
		"no headers": {
			handler: func(_ http.ResponseWriter, r *http.Request) { hold(r) },
			reason:  v1alpha1.ReasonTimeout, message: "no answer within 30s", after: 30 * time.Second,
		},
		"no headers of a stream": {
			handler: func(_ http.ResponseWriter, r *http.Request) { hold(r) }, path: "?watch",
			reason: v1alpha1.ReasonTimeout, message: "no answer within 30s", after: 30 * time.Second,
		},
		"hanging in the middle": {
			handler: func(w http.ResponseWriter, r *http.Request) {
				time.Sleep(7 * time.Second)
				fmt.Fprint(w, "half")
				_ = http.NewResponseController(w).Flush()
				hold(r)
			},
			reason: v1alpha1.ReasonTimeout, message: "no byte of the answer within 30s", after: 37 * time.Second,
		},
		"slow-dripping": {
			handler: func(w http.ResponseWriter, r *http.Request) { drip(w, r, 7*time.Second) },
			reason:  v1alpha1.ReasonTimeout, message: "the answer takes longer than 5m0s", after: 5 * time.Minute,
		},
		"slow-dripping error": {
			handler: func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(http.StatusForbidden)
				drip(w, r, 7*time.Second)
			},
			path: "?watch", reason: v1alpha1.ReasonTimeout, message: "the answer takes longer than 5m0s", after: 5 * time.Minute,
		},
		"a stream that goes silent": {
			handler: func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprint(w, strings.Repeat("event", 1000))
				_ = http.NewResponseController(w).Flush()
				hold(r)
			},
			path: "?watch", reason: v1alpha1.ReasonTimeout, message: "no byte of the stream within 3m0s", after: 3 * time.Minute,
		},
		"half an answer": {
			handler: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", "100")
				fmt.Fprint(w, "half")
			},
			reason: v1alpha1.ReasonBadAnswer, message: "unexpected EOF",
		},
		"half a stream": {
			handler: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, path: "?watch",
			reason: v1alpha1.ReasonUnreachable, message: "EOF",
		},
		"too large, and says so": {
			handler: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", fmt.Sprint(1<<30))
				_ = http.NewResponseController(w).Flush()
			},
			reason: v1alpha1.ReasonBadAnswer, message: "the answer is larger than 1 MiB (spec.limits.answerMiB)",
		},
		"too large, and does not say so": {
			handler: func(w http.ResponseWriter, _ *http.Request) {
				for range 1025 {
					fmt.Fprint(w, strings.Repeat("x", 1024))
				}
			},
			reason: v1alpha1.ReasonBadAnswer, message: "the answer is larger than 1 MiB (spec.limits.answerMiB)",
		},
		"just as large as allowed": {
			handler: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, strings.Repeat("x", 1<<20)) },
		},
		"a stream larger than an answer": {
			handler: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, strings.Repeat("x", 3<<20)) },
			path:    "?watch",
		},
		"a redirect to another host": {
			handler: func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "http://elsewhere/", http.StatusFound)
			},
			reason: v1alpha1.ReasonBadAnswer, message: "http://api redirects to http://elsewhere: redirects to another host are not followed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := NewTransport(serve(t, c.handler), TransportConfig{AnswerBytes: 1 << 20, Stream: stream})
				ctx, recorded := WithRecord(t.Context())
				_, _, took, err := ask(ctx, t, tr, "http://api/"+c.path)
				if c.reason == "" {
					if err != nil || recorded.Err() != nil {
						t.Fatalf("error %v, recorded %v", err, recorded.Err())
					}
					return
				}
				if err == nil || ReasonOf(err) != c.reason || !strings.Contains(err.Error(), c.message) || took != c.after {
					t.Errorf("after %s: %s: %v\nwant after %s: %s: %s", took, ReasonOf(err), err, c.after, c.reason, c.message)
				}
				if r := recorded.Err(); r == nil || r.Reason != c.reason {
					t.Errorf("recorded %v", r)
				}
			})
		})
	}
}

// A stream that has something to say may last.
func TestStreamLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := serve(t, func(w http.ResponseWriter, r *http.Request) { drip(w, r, time.Minute) })
		tr := NewTransport(base, TransportConfig{Stream: func(*http.Request) bool { return true }})
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Hour, nil)
		defer cancel()
		_, text, took, err := ask(ctx, t, tr, "http://api/")
		if len(text) < 60 || took != time.Hour || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%d bytes in %s: %v", len(text), took, err)
		}
	})
}

// An answer that asks for a pause delays the next requests, of all goroutines, and no longer than five minutes.
func TestRetryAfter(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		header func() string
		want   time.Duration
	}{
		"429 in seconds":          {http.StatusTooManyRequests, func() string { return "7" }, 7 * time.Second},
		"503 until a time":        {http.StatusServiceUnavailable, func() string { return time.Now().Add(9 * time.Second).UTC().Format(http.TimeFormat) }, 9 * time.Second},
		"a day":                   {http.StatusTooManyRequests, func() string { return "86400" }, MaxRetryAfter},
		"a time that is over":     {http.StatusTooManyRequests, func() string { return "Mon, 02 Jan 1999 15:04:05 GMT" }, 0},
		"no number and no time":   {http.StatusTooManyRequests, func() string { return "soon" }, 0},
		"an error of other kinds": {http.StatusInternalServerError, func() string { return "7" }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked := 0
				base := serve(t, func(w http.ResponseWriter, _ *http.Request) {
					if asked++; asked == 1 {
						w.Header().Set("Retry-After", c.header())
						w.WriteHeader(c.status)
					}
				})
				tr := NewTransport(base, TransportConfig{})
				if status, _, took, err := ask(t.Context(), t, tr, "http://api/"); status != c.status || err != nil || took != 0 {
					t.Fatalf("%d after %s: %v", status, took, err)
				}
				short, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if c.want > 0 {
					_, _, took, err := ask(short, t, tr, "http://api/")
					if ReasonOf(err) != v1alpha1.ReasonThrottled || took != time.Second {
						t.Errorf("a caller without patience: after %s: %v", took, err)
					}
					c.want -= time.Second
				}
				if status, _, took, err := ask(t.Context(), t, tr, "http://api/"); status != http.StatusOK || err != nil || took != c.want {
					t.Errorf("%d after %s: %v, want %s", status, took, err, c.want)
				}
			})
		})
	}
}

func TestRequestsPerSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := NewTransport(serve(t, func(http.ResponseWriter, *http.Request) {}), TransportConfig{RequestsPerSecond: 4})
		begin := time.Now()
		for range 12 {
			if _, _, _, err := ask(t.Context(), t, tr, "http://api/"); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begin); took != 2*time.Second { // four at once, and eight more
			t.Errorf("12 requests took %s", took)
		}
		if n := tr.Counters().Requests[2].Load(); n != 12 {
			t.Errorf("counted %d", n)
		}
	})
}

// The cancellation of the caller's context is no fault of the upstream.
func TestCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := NewTransport(serve(t, func(_ http.ResponseWriter, r *http.Request) { hold(r) }), TransportConfig{})
		ctx, cancel := context.WithCancel(t.Context())
		ctx, recorded := WithRecord(ctx)
		time.AfterFunc(time.Second, cancel)
		_, _, took, err := ask(ctx, t, tr, "http://api/")
		var e *Error
		if errors.As(err, &e) || !errors.Is(err, context.Canceled) || recorded.Err() != nil || took != time.Second {
			t.Errorf("after %s: %v, recorded %v", took, err, recorded.Err())
		}
	})
}

// An API is known by its certificate alone; and the environment's proxy is not asked.
func TestConnections(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	expired := func() time.Time { return s.Certificate().NotAfter.Add(time.Hour) }
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	for name, c := range map[string]struct {
		url    string
		tls    *tls.Config
		reason string
	}{
		"good":             {s.URL, &tls.Config{RootCAs: pool}, ""},
		"wrong authority":  {s.URL, &tls.Config{RootCAs: x509.NewCertPool()}, v1alpha1.ReasonCertificate},
		"expired":          {s.URL, &tls.Config{RootCAs: pool, Time: expired}, v1alpha1.ReasonCertificate},
		"wrong name":       {s.URL, &tls.Config{RootCAs: pool, ServerName: "other.example.org"}, v1alpha1.ReasonCertificate},
		"nobody listens":   {closed.URL, nil, v1alpha1.ReasonUnreachable},
		"name unknown":     {"https://nowhere.invalid", nil, v1alpha1.ReasonUnreachable},
		"no TLS is spoken": {strings.Replace(plain(t), "http:", "https:", 1), nil, v1alpha1.ReasonUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			tr := NewTransport(NewBase(c.tls, Allow{Loopback: true}), TransportConfig{})
			t.Cleanup(tr.CloseIdleConnections)
			_, _, _, err := ask(t.Context(), t, tr, c.url)
			if c.reason == "" && err != nil || c.reason != "" && (err == nil || ReasonOf(err) != c.reason) {
				t.Errorf("%s: %v, want %s", ReasonOf(err), err, c.reason)
			}
		})
	}
}

func plain(t *testing.T) string {
	s := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(s.Close)
	return s.URL
}

// A server that wants another certificate of ours refuses the credentials.
func TestRefusedIdentity(t *testing.T) {
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	s.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	s.StartTLS()
	t.Cleanup(s.Close)
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	_, _, _, err := ask(t.Context(), t, NewTransport(NewBase(&tls.Config{RootCAs: pool}, Allow{Loopback: true}), TransportConfig{}), s.URL)
	if ReasonOf(err) != v1alpha1.ReasonUnauthorized {
		t.Errorf("%s: %v", ReasonOf(err), err)
	}
}

func TestClassify(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
		want   string // empty: no error
	}{
		{nil, 0, ""},
		{nil, 204, ""},
		{nil, 302, v1alpha1.ReasonBadAnswer},
		{nil, 401, v1alpha1.ReasonUnauthorized},
		{nil, 403, v1alpha1.ReasonForbidden},
		{nil, 404, v1alpha1.ReasonBadAnswer},
		{nil, 408, v1alpha1.ReasonTimeout},
		{nil, 429, v1alpha1.ReasonThrottled},
		{nil, 500, v1alpha1.ReasonServerError},
		{nil, 503, v1alpha1.ReasonServerError},
		{errors.New("of the body"), 403, v1alpha1.ReasonForbidden},
		{context.DeadlineExceeded, 0, v1alpha1.ReasonTimeout},
		{&net.OpError{Op: "dial", Err: context.DeadlineExceeded}, 0, v1alpha1.ReasonUnreachable},
		{&net.OpError{Op: "read", Err: errors.New("connection reset by peer")}, 0, v1alpha1.ReasonUnreachable},
		{fmt.Errorf("read: %w", io.ErrUnexpectedEOF), 0, v1alpha1.ReasonBadAnswer},
		{fmt.Errorf("list: %w", BadAnswer("a page is missing")), 200, v1alpha1.ReasonBadAnswer},
		{errors.New("anything"), 0, v1alpha1.ReasonUnreachable},
	} {
		e := Classify(c.err, c.status)
		if c.want == "" && e != nil || c.want != "" && (e == nil || e.Reason != c.want) {
			t.Errorf("Classify(%v, %d) = %+v, want %s", c.err, c.status, e, c.want)
		}
	}
}
