package xds_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
)

// TestRequestSmuggling sends what proxies and backends are known to read differently. The
// backend must see no request but those that Envoy answered, with the length that Envoy
// took, at the host that Envoy routed by; "/evil" and the host evil.test stand for a
// request that was hidden in another.
func TestRequestSmuggling(t *testing.T) {
	w := newWorld(t)
	var mu sync.Mutex
	var seen []string
	backend := w.serve(func(rw http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		if err != nil {
			return // Envoy took the request back
		}
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, fmt.Sprintf("%s %s%s %q", q.Method, q.Host, q.URL.RequestURI(), body))
		fmt.Fprint(rw, "ok")
	})
	w.group("ns/app/1", backend)
	l := model.Listener{ID: "http-1_ns_gw", Port: freePort(t), Protocol: model.ProtocolHTTP}
	w.listen(l, xds.Options{}, host(l.ID, "a.test", forward("r", "/", "ns/app/1", 1)), host(l.ID, "*", says("another host", prefix("/"))))
	const (
		post  = "POST /x HTTP/1.1\r\nHost: a.test\r\n"
		get   = "GET /x HTTP/1.1\r\nHost: a.test\r\n"
		evil  = "GET /evil HTTP/1.1\r\nHost: a.test\r\n\r\n"
		dead  = 400
		ended = 0
	)
	for _, c := range []struct {
		name, sent string
		status     int    // of the first response; 0: the connection ended without any
		saw        string // what the backend saw; empty: nothing
	}{
		{"as it should be", post + "Content-Length: 3\r\n\r\nabc", 200, `POST a.test/x "abc"`},
		{"chunks", post + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", 200, `POST a.test/x "abc"`},
		{"chunk extension", post + "Transfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n0\r\n\r\n", 200, `POST a.test/x "abc"`},
		{"trailers", post + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nHost: evil.test\r\n\r\n", 200, `POST a.test/x "abc"`},

		{"CL.TE", post + "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + evil, dead, ""},
		{"TE.CL", post + "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n1e\r\n" + evil + "\r\n0\r\n\r\n", dead, ""},
		{"TE.TE", post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: cow\r\n\r\n0\r\n\r\n" + evil, 501, ""},
		{"unknown coding", post + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + evil, 501, ""},
		{"coding after chunked", post + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + evil, 501, ""},
		{"identity with a length", post + "Content-Length: 3\r\nTransfer-Encoding: identity\r\n\r\nabc" + evil, dead, ""},
		{"space before the colon", post + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + evil, dead, ""},
		{"vertical tab", post + "Transfer-Encoding:\vchunked\r\n\r\n0\r\n\r\n" + evil, dead, ""},
		{"two lengths", post + "Content-Length: 3\r\nContent-Length: 40\r\n\r\nabc" + evil, dead, ""},
		{"list of lengths", post + "Content-Length: 3, 40\r\n\r\nabc" + evil, dead, ""},
		{"signed length", post + "Content-Length: +3\r\n\r\nabc" + evil, dead, ""},
		{"negative length", post + "Content-Length: -3\r\n\r\nabc" + evil, dead, ""},
		{"hexadecimal length", post + "Content-Length: 0x3\r\n\r\nabc" + evil, dead, ""},
		{"empty length", post + "Content-Length: \r\n\r\n" + evil, dead, ""},
		{"huge length", post + "Content-Length: 99999999999999999999\r\n\r\nabc", dead, ""},
		{"hexadecimal chunk", post + "Transfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n" + evil, dead, ""},
		{"negative chunk", post + "Transfer-Encoding: chunked\r\n\r\n-1\r\nabc\r\n0\r\n\r\n" + evil, dead, ""},
		{"huge chunk", post + "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nabc\r\n0\r\n\r\n" + evil, dead, ""},
		{"chunk longer than it says", post + "Transfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n" + evil, dead, ""},
		{"chunk without CR", post + "Transfer-Encoding: chunked\r\n\r\n3\nabc\n0\n\n" + evil, dead, ""},
		{"space after the chunk's size", post + "Transfer-Encoding: chunked\r\n\r\n3 \r\nabc\r\n0\r\n\r\n", 200, `POST a.test/x "abc"`},

		// Unfolded, as RFC 9112, 5.2 allows: a backend sees one line.
		{"folded header", get + "X: a\r\n b\r\n\r\n", 200, `GET a.test/x ""`},
		{"folded coding", post + "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n", 200, `POST a.test/x ""`},
		{"null byte in a value", get + "X: a\x00b\r\n\r\n", dead, ""},
		{"null byte in a name", get + "X\x00Y: a\r\n\r\n", dead, ""},
		{"null byte in the path", "GET /x\x00y HTTP/1.1\r\nHost: a.test\r\n\r\n", dead, ""},
		{"null byte in the host", "GET /x HTTP/1.1\r\nHost: a.test\x00.evil.test\r\n\r\n", dead, ""},
		{"encoded null byte in the path", "GET /x%00y HTTP/1.1\r\nHost: a.test\r\n\r\n", dead, ""},
		{"CR in a value", post + "X: a\rTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\nx", 200, `POST a.test/x "x"`}, // a space
		{"no colon", get + "X\r\n\r\n", dead, ""},
		{"no name", get + ": x\r\n\r\n", dead, ""},
		{"101 headers", get + strings.Repeat("X: "+strings.Repeat("y", 40)+"\r\n", 101) + "\r\n", 431, ""},
		{"61 KiB of headers", get + "X: " + strings.Repeat("y", 61<<10) + "\r\n\r\n", 431, ""},

		{"two hosts", "GET /x HTTP/1.1\r\nHost: a.test\r\nHost: evil.test\r\n\r\n", dead, ""},
		{"host with a space", "GET /x HTTP/1.1\r\nHost: a.test evil.test\r\n\r\n", dead, ""},
		{"host with a path", "GET /x HTTP/1.1\r\nHost: a.test/evil\r\n\r\n", dead, ""},
		{"host with a user", "GET /x HTTP/1.1\r\nHost: evil.test@a.test\r\n\r\n", dead, ""},
		{"absolute URI of another host", "GET http://evil.test/x HTTP/1.1\r\nHost: a.test\r\n\r\n", 200, ""},
		{"absolute URI, other Host", "GET http://a.test/x HTTP/1.1\r\nHost: evil.test\r\n\r\n", 200, `GET a.test/x ""`},
		{"absolute URI with a user", "GET http://evil.test@a.test/x HTTP/1.1\r\nHost: a.test\r\n\r\n", 200, `GET a.test/x ""`}, // taken off
		{"another scheme", "GET ftp://a.test/x HTTP/1.1\r\nHost: a.test\r\n\r\n", dead, ""},
		{"no slash", "GET x HTTP/1.1\r\nHost: a.test\r\n\r\n", dead, ""},
		{"fragment", "GET /x#/../evil HTTP/1.1\r\nHost: a.test\r\n\r\n", dead, ""},
		{"space in the path", "GET /x /evil HTTP/1.1\r\nHost: a.test\r\n\r\n", dead, ""},
		{"version 2.0", "GET /x HTTP/2.0\r\nHost: a.test\r\n\r\n", 200, `GET a.test/x ""`}, // as 1.1
		{"version 0.9", "GET /x\r\n\r\n", dead, ""},
		{"preface of HTTP/2 as a request", "PRI * HTTP/2.0\r\nHost: a.test\r\n\r\n", ended, ""},
		{"pseudo header", get + ":path: /evil\r\n\r\n", dead, ""},
		{"length of a WebSocket", get + "Connection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 5\r\n\r\n" + evil, dead, ""},
		{"chunks of a WebSocket", get + "Connection: upgrade\r\nUpgrade: websocket\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + evil, 200, `GET a.test/x ""`}, // Envoy drops the coding
		{"a WebSocket by POST", post + "Connection: upgrade\r\nUpgrade: websocket\r\n\r\n" + evil, dead, ""},
		{"a WebSocket that the backend refuses", get + "Connection: upgrade\r\nUpgrade: websocket\r\n\r\n" + evil, 200, `GET a.test/x ""`},
		{"h2c", get + "Connection: upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n", 200, `GET a.test/x ""`}, // not upgraded
		{"Expect", post + "Expect: 100-continue\r\nContent-Length: 3\r\n\r\nabc", 100, `POST a.test/x "abc"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			mu.Lock()
			seen = nil
			mu.Unlock()
			conn := dial(t, l.Port)
			if _, err := io.WriteString(conn, c.sent); err != nil {
				t.Logf("send: %v", err)
			}
			status := 0
			if r, err := http.ReadResponse(conn.r, nil); err == nil {
				status = r.StatusCode
				_, _ = io.ReadAll(r.Body)
				r.Body.Close()
			}
			if status != c.status {
				t.Errorf("status %d, want %d", status, c.status)
			}
			// The one worker of Envoy takes this after all that it took before.
			w.get(l.Port, "a.test", "/done")
			mu.Lock()
			defer mu.Unlock()
			for _, s := range seen {
				if s != c.saw && s != `GET a.test/done ""` {
					t.Errorf("the backend saw %s, want %q", s, c.saw)
				}
			}
			if c.saw != "" && !slices.Contains(seen, c.saw) {
				t.Errorf("the backend saw %v, want %q", seen, c.saw)
			}
		})
	}
}
