package xds_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
)

// TestLinesOfText holds what lines of a template look like, and that no client or backend can end one, forge a field or change
// the look of the rest.
func TestLinesOfText(t *testing.T) {
	w := newWorld(t)
	file := filepath.Join(t.TempDir(), "access.log")
	w.group("shop/web/80", w.serve(func(rw http.ResponseWriter, q *http.Request) {
		rw.Header().Set("X-Said", q.Header.Get("X-Say"))
	}))
	l := model.Listener{ID: "http-1", Port: freePort(t), Protocol: model.ProtocolHTTP, Clients: &model.ClientSettings{AccessLog: &model.AccessLog{Template: []model.LogPart{
		{Text: "100% {"},
		{Field: "method"},
		{Text: " "},
		{Field: "host"},
		{Field: "path"},
		{Text: "} "},
		{Field: "status"},
		{Text: " "},
		{Field: "owner"},
		{Text: " "},
		{Field: "decision"},
		{Text: " agent="},
		{Field: "user_agent"},
		{Text: " tenant="},
		{Request: "x-tenant"},
		{Text: " said="},
		{Response: "x-said"},
	}}}}
	w.listen(l, xds.Options{AccessLog: file}, host(l.ID, "a.test", forward("HTTPRoute/shop/web/rules/0/matches/0", "/web", "shop/web/80", 1)))
	long := strings.Repeat("x", 50_000)
	want := []struct{ path, headers, line string }{
		{"/web?a=1", "User-Agent: curl/8\r\nX-Tenant: one\r\nX-Say: hi\r\n", `100% {GET a.test/web?a=1} 200 "HTTPRoute shop/web" "the backend answered" agent="curl/8" tenant="one" said="hi"`},
		{"/none", "", `100% {GET a.test/none} 404 - "nothing is served here" agent=- tenant=- said=-`},
		{"/web?\"forged", "User-Agent: a\" 200 \"b\\\r\nX-Tenant: one\ttwo\r\nX-Say: \"\r\n", `100% {GET a.test/web?\"forged} 200 "HTTPRoute shop/web" "the backend answered" agent="a\" 200 \"b\\" tenant="one..." said="\""`},
		{"/web?b=2", "User-Agent: evil\u202e\u0085txt\r\nX-Tenant: b\xff\xfed\r\nX-Say: Straße\r\n", `100% {GET a.test/web?b=2} 200 "HTTPRoute shop/web" "the backend answered" agent="evil..." tenant="b..." said="Straße"`},
		{"/web?" + long, "User-Agent: " + strings.Repeat("é", 2000) + "\r\n", `100% {GET a.test/web?` + long[:1019] + `} 200 "HTTPRoute shop/web" "the backend answered" agent="` + strings.Repeat("é", 512) + `" tenant=- said=""`},
	}
	before := 0 // lines
	w.eventually("the routes", func() error {
		before++
		if a := w.get(l.Port, "a.test", "/web"); a.status != 200 {
			return fmt.Errorf("status %d", a.status)
		}
		return nil
	})
	var all strings.Builder
	for _, q := range want {
		w.raw(l.Port, "GET "+q.path+" HTTP/1.1\r\nHost: a.test\r\n"+q.headers+"Connection: close\r\n\r\n")
		all.WriteString(q.line + "\n")
	}
	var got string
	w.eventually("the lines", func() error {
		b, _ := os.ReadFile(file)
		if got = string(b); strings.Count(got, "\n") < before+len(want) {
			return fmt.Errorf("lines: %q", got)
		}
		return nil
	})
	got = strings.Join(strings.SplitAfter(got, "\n")[before:], "")
	if got != all.String() {
		t.Errorf("got\n%.3000s\nwant\n%.3000s", got, all.String())
	}
	for _, c := range got {
		if c != '\n' && (unicode.IsControl(c) || unicode.Is(unicode.Bidi_Control, c)) {
			t.Errorf("a line has %U", c)
		}
	}
}

// Bytes in a path that no client should send end no line either: those that Envoy lets pass are cut.
func TestPathsInLinesOfText(t *testing.T) {
	w := newWorld(t)
	file := filepath.Join(t.TempDir(), "access.log")
	l := model.Listener{ID: "http-1", Port: freePort(t), Protocol: model.ProtocolHTTP, Clients: &model.ClientSettings{AccessLog: &model.AccessLog{Template: []model.LogPart{
		{Field: "status"}, {Text: " "}, {Field: "host"}, {Text: " "}, {Field: "path"}, {Text: " end"},
	}}}}
	w.listen(l, xds.Options{AccessLog: file}, host(l.ID, "a.test", says("r", prefix("/"))))
	n := 0
	for b := range 256 {
		if b == '\n' || b == '\r' {
			continue
		}
		if _, err := ask(l.Port, "GET /q?a="+string([]byte{byte(b)})+"b HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n"); err == nil {
			n++
		}
	}
	w.eventually("the lines", func() error {
		text, _ := os.ReadFile(file)
		all := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
		if len(all) < n {
			return fmt.Errorf("%d lines of %d", len(all), n)
		}
		for _, line := range all {
			if f := strings.Split(line, " "); len(f) != 4 || f[3] != "end" {
				return fmt.Errorf("line %q", line)
			}
			for _, c := range []byte(line) {
				if c < ' ' || c > '~' {
					return fmt.Errorf("line %q", line)
				}
			}
		}
		return nil
	})
}
