package xds_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
)

// Types and flags of HTTP/2 frames (RFC 9113, 6).
const (
	frameData, frameHeaders, framePriority, frameReset, frameSettings = 0, 1, 2, 3, 4
	framePing, frameWindow, frameContinuation                         = 6, 8, 9
	endStream, endHeaders                                             = 1, 4
)

const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// frame is the bytes of one frame.
func frame(kind, flags byte, stream uint32, payload string) string {
	b := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags}
	return string(binary.BigEndian.AppendUint32(b, stream)) + payload
}

// asks is GET http://a.test/ in HPACK: three entries of the static table, and the host.
const asks = "\x82\x86\x84\x41\x06a.test"

// field is a header in HPACK that is not put into the table; name and value are below 127
// bytes.
func field(name, value string) string {
	return "\x00" + string(byte(len(name))) + name + string(byte(len(value))) + value
}

// good asks a.test over one connection again and again until it is stopped, and says how
// often, and what failed. Each attack must leave it alone.
func good(port uint16) (stop func() (int, error)) {
	end, done := make(chan struct{}), make(chan struct{})
	var asked int
	var failed error
	go func() {
		defer close(done)
		for {
			select {
			case <-end:
				return
			case <-time.After(5 * time.Millisecond):
			}
			a, err := ask(port, "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n")
			if err != nil || a.status != 200 {
				failed = errors.Join(failed, fmt.Errorf("request %d: status %d, %w", asked, a.status, err))
			}
			asked++
		}
	}()
	return func() (int, error) {
		close(end)
		<-done
		return asked, failed
	}
}

// ended waits until the other side ends a connection, whatever it says before.
func ended(c net.Conn) error {
	_, err := io.Copy(io.Discard, c)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errors.New("the connection is still open")
	}
	return nil
}

// counters are those of connections and requests, for a test that fails.
func (w *world) counters() string {
	body, _ := w.envoy.Admin(w.ctx, http.MethodGet, "/stats?filter=^http&usedonly")
	return body
}

// hostile is a listener whose slow clients are cut off soon, and its backend, which answers
// with a megabyte at /large.
func (w *world) hostile() model.Listener {
	w.t.Helper()
	large := strings.Repeat("x", 1<<20)
	w.group("ns/app/1", w.serve(func(rw http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/large" {
			for range 32 {
				if _, err := io.WriteString(rw, large); err != nil {
					return
				}
			}
			return
		}
		fmt.Fprint(rw, "ok")
	}))
	l := model.Listener{ID: "http-1_ns_gw", Port: freePort(w.t), Protocol: model.ProtocolHTTP, Clients: &model.ClientSettings{
		HeadersTimeout: time.Second, RequestTimeout: 2 * time.Second, IdleTimeout: 3 * time.Second,
	}}
	w.listen(l, xds.Options{}, host(l.ID, "a.test", forward("r", "/", "ns/app/1", 1)))
	return l
}

// TestSlowClients holds many connections that say or take little. Each is ended and
// counted, and others are served all the while.
func TestSlowClients(t *testing.T) {
	w := newWorld(t)
	l := w.hostile()
	const many = 40
	want := map[string]int{}
	stop := good(l.Port)
	request := func(s string) func(c net.Conn) { return func(c net.Conn) { _, _ = io.WriteString(c, s) } }
	drip := func(begin string) func(c net.Conn) {
		return func(c net.Conn) {
			for s := begin; ; s = "x" {
				if _, err := io.WriteString(c, s); err != nil {
					return
				}
				time.Sleep(100 * time.Millisecond) // what makes it slow
			}
		}
	}
	for _, c := range []struct {
		name, counter string // the name is what it does
		do            func(net.Conn)
		unread        bool // nothing is read of what comes
	}{
		{"idle", "downstream_cx_idle_timeout", func(net.Conn) {}, false},
		{"idle after a request", "downstream_cx_idle_timeout", request(plainGet), false},
		{"half a header", "downstream_rq_header_timeout", request("GET / HTTP/1.1\r\nHost: a"), false},
		{"headers byte by byte", "downstream_rq_header_timeout", drip("GET / HTTP/1.1\r\nHost: a.test\r\nX: "), false},
		{"half a body", "downstream_rq_timeout", request("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 9\r\n\r\nx"), false},
		{"body byte by byte", "downstream_rq_timeout", drip("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 9999\r\n\r\nx"), false},
		{"answer that is not read", "downstream_rq_idle_timeout", request("GET /large HTTP/1.1\r\nHost: a.test\r\n\r\n"), true},
		{"idle HTTP/2", "downstream_cx_idle_timeout", request(preface + frame(frameSettings, 0, 0, "")), false},
		{"headers that go on, HTTP/2", "downstream_rq_header_timeout", request(preface + frame(frameSettings, 0, 0, "") + frame(frameHeaders, endStream, 1, asks)), false},
		{"half a body, HTTP/2", "downstream_rq_timeout", request(preface + frame(frameSettings, 0, 0, "") + frame(frameHeaders, endHeaders, 1, asks) + frame(frameData, 0, 1, "x")), false},
		{"no window, HTTP/2", "http2.tx_flush_timeout", request(preface + frame(frameSettings, 0, 0, "\x00\x04\x00\x00\x00\x00") + frame(frameHeaders, endHeaders|endStream, 1, asks)), false},
	} {
		if !strings.Contains(c.counter, ".") {
			c.counter = "http.http-1_ns_gw." + c.counter
		}
		want[c.counter] += many
		for range many {
			conn := dial(t, l.Port)
			if c.unread {
				must(t, conn.Conn.(*net.TCPConn).SetReadBuffer(4096))
			}
			go c.do(conn)
		}
	}
	for counter, n := range want {
		w.eventually(fmt.Sprintf("%d in %s", n, counter), func() error {
			if got := w.envoy.Stat(w.ctx, counter); got < n {
				return fmt.Errorf("%d; all are\n%s", got, w.counters())
			}
			return nil
		})
	}
	if n, err := stop(); err != nil || n == 0 {
		t.Errorf("of %d good requests: %v", n, err)
	}
	w.eventually("no connection is left", func() error {
		if n := w.envoy.Stat(w.ctx, "http.http-1_ns_gw.downstream_cx_active"); n > 0 {
			return fmt.Errorf("%d connections", n)
		}
		return nil
	})
}

// TestFloods sends what costs a server more than its client. The connection is ended and
// counted, and others are served all the while.
func TestFloods(t *testing.T) {
	w := newWorld(t)
	l := w.hostile()
	begin := preface + frame(frameSettings, 0, 0, "")
	repeat := func(n int, f func(i int) string) []string {
		all := []string{begin}
		for i := range n {
			all = append(all, f(i))
		}
		return all
	}
	stream := func(i int) uint32 { return uint32(2*i + 1) }
	want := map[string]int{}
	stop := good(l.Port)
	t.Run("floods", func(t *testing.T) {
		for _, c := range []struct {
			name, counter string
			send          []string
		}{
			{"rapid reset", "http.http-1_ns_gw.downstream_rq_too_many_premature_resets", repeat(5000, func(i int) string {
				return frame(frameHeaders, endHeaders|endStream, stream(i), asks) + frame(frameReset, 0, stream(i), "\x00\x00\x00\x08")
			})},
			{"resets that the server is made to send", "", repeat(5000, func(i int) string {
				// More window than there can be: the server resets the stream (MadeYouReset).
				return frame(frameHeaders, endHeaders|endStream, stream(i), asks) + frame(frameWindow, 0, stream(i), "\x7f\xff\xff\xff")
			})},
			{"endless headers", "http2.header_overflow", append([]string{begin, frame(frameHeaders, endStream, 1, asks)}, strings.Split(strings.Repeat(frame(frameContinuation, 0, 1, strings.Repeat(field("x", "y"), 1000))+"|", 1000), "|")...)},
			{"empty continuations", "http2.inbound_empty_frames_flood", repeat(100_000, func(i int) string {
				if i == 0 {
					return frame(frameHeaders, endStream, 1, asks)
				}
				return frame(frameContinuation, 0, 1, "")
			})},
			// One entry of 4,000 bytes in the table, and 16,000 references to it.
			{"HPACK bomb", "http2.header_list_size_too_large", []string{begin, frame(frameHeaders, endHeaders|endStream, 1, asks+"\x40\x01b\x7f\xa1\x1e"+strings.Repeat("y", 4000)+strings.Repeat("\xbe", 12000))}},
			{"pings", "http2.outbound_control_flood", repeat(50_000, func(int) string { return frame(framePing, 0, 0, "12345678") })},
			{"settings", "http2.outbound_control_flood", repeat(50_000, func(int) string { return frame(frameSettings, 0, 0, "") })},
			{"empty data", "http2.inbound_empty_frames_flood", repeat(10_000, func(i int) string {
				if i == 0 {
					return frame(frameHeaders, endHeaders, 1, asks)
				}
				return frame(frameData, 0, 1, "")
			})},
			{"priorities", "http2.inbound_priority_frames_flood", repeat(50_000, func(int) string { return frame(framePriority, 0, 1, "\x00\x00\x00\x03\x10") })},
			{"windows", "http2.inbound_window_update_frames_flood", repeat(50_000, func(i int) string {
				if i == 0 {
					return frame(frameHeaders, endHeaders, 1, asks)
				}
				return frame(frameWindow, 0, 0, "\x00\x00\x00\x01")
			})},
		} {
			if c.counter != "" {
				want[c.counter]++
			}
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				conn := dial(t, l.Port)
				go func() { // it may end before everything is sent
					var b strings.Builder
					for _, s := range c.send {
						if b.WriteString(s); b.Len() > 32<<10 {
							if _, err := io.WriteString(conn, b.String()); err != nil {
								return
							}
							b.Reset()
						}
					}
					_, _ = io.WriteString(conn, b.String())
				}()
				// Pings and settings are answered until nobody takes the answers.
				if strings.Contains(c.counter, "outbound") {
					w.eventually("the flood is counted", func() error {
						if w.envoy.Stat(w.ctx, c.counter) == 0 {
							return errors.New("nothing is counted")
						}
						return nil
					})
				}
				if err := ended(conn); err != nil {
					t.Error(err)
				}
			})
		}
	})
	for counter, n := range want {
		if got := w.envoy.Stat(w.ctx, counter); got < n {
			t.Errorf("%s is %d, want %d:\n%s", counter, got, n, w.counters())
		}
	}
	if n, err := stop(); err != nil || n == 0 {
		t.Errorf("of %d good requests: %v", n, err)
	}
}
