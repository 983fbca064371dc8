package proxy

import (
	"io"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestConnectionsAreOneQuestion: Envoy looks at each of its statistics for each question, and a
// drain asks often.
func TestConnectionsAreOneQuestion(t *testing.T) {
	path := filepath.Join(t.TempDir(), "admin.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	const stats = `http.admin.downstream_cx_active: 1
http.admin.downstream_cx_total: 9
http.http-80.downstream_cx_active: 2
http.http-80.downstream_cx_total: 30
http.http-80.downstream_cx_ssl_total: 7
http.http-80.downstream_rq_completed: 400
http.https-443.downstream_cx_active: 3
http.https-443.downstream_cx_total: 50
http.https-443.downstream_rq_completed: 600
`
	asked := make(chan string, 10)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.Path
		filter := regexp.MustCompile(r.URL.Query().Get("filter"))
		for line := range strings.Lines(stats) {
			if name, _, _ := strings.Cut(line, ": "); filter.MatchString(name) {
				_, _ = io.WriteString(w, line)
			}
		}
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	s := &Supervisor{admin: newAdmin(path)}
	open, taken, err := s.Connections(t.Context())
	if err != nil || open != 5 || taken != 80 || len(asked) != 1 {
		t.Errorf("%d open, %d taken, %v, by %d questions; want 5 and 80 by one", open, taken, err, len(asked))
	}
	if requests, _, _, err := s.admin.figures(t.Context()); err != nil || requests != 1000 {
		t.Errorf("%d requests, %v; want 1000", requests, err)
	}
}
