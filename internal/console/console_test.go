package console

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	v1 "fairlead.dev/internal/console/v1"
)

type health struct{ healthy, ready error }

func (h health) Healthz(context.Context) error { return h.healthy }
func (h health) Readyz(context.Context) error  { return h.ready }

func TestHandlerAnswersHealthReadinessMetricsAndStatus(t *testing.T) {
	metrics := prometheus.NewRegistry()
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: "fairlead_test_gauge"})
	gauge.Set(7)
	metrics.MustRegister(gauge)
	server := httptest.NewServer(Handler(Config{
		Health:  health{ready: errors.New("the informers are not synced")},
		Metrics: metrics,
		Status:  func(context.Context) any { return v1.Status{Plane: v1.PlaneStatus{Identity: "p1"}} },
		Log:     slog.New(slog.DiscardHandler),
	}))
	defer server.Close()
	client := Client{URL: server.URL, HTTP: server.Client()}

	if _, err := client.Get(t.Context(), "/healthz"); err != nil {
		t.Errorf("healthz: %v", err)
	}
	if _, err := client.Get(t.Context(), "/readyz"); err == nil || !strings.Contains(err.Error(), "informers are not synced") {
		t.Errorf("readyz: got %v, want the reason", err)
	}
	if body, err := client.Get(t.Context(), "/metrics"); err != nil || !strings.Contains(string(body), "fairlead_test_gauge 7") {
		t.Errorf("metrics: %v\n%s", err, body)
	}
	if s, err := client.Status(t.Context()); err != nil || s.Plane.Identity != "p1" {
		t.Errorf("status: %+v, %v", s, err)
	}
}

// Whoever asks for OpenMetrics gets it: only there are exemplars. Names are those of the other format.
func TestMetricsAreOpenMetricsForThoseWhoAsk(t *testing.T) {
	metrics := prometheus.NewRegistry()
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "fairlead_test_total"})
	metrics.MustRegister(counter)
	counter.(prometheus.ExemplarAdder).AddWithExemplar(7, prometheus.Labels{"trace_id": "abc"})
	handler := Handler(Config{Health: health{}, Metrics: metrics, Log: slog.New(slog.DiscardHandler)})
	for accept, want := range map[string]struct{ format, line string }{
		"":                             {"text/plain", "\nfairlead_test_total 7\n"},
		"application/openmetrics-text": {"application/openmetrics-text", "\nfairlead_test_total 7.0 # {trace_id=\"abc\"} 7.0 "},
	} {
		r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1/metrics", nil)
		r.Header.Set("Accept", accept)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if format := w.Header().Get("Content-Type"); !strings.HasPrefix(format, want.format) || !strings.Contains(w.Body.String(), want.line) {
			t.Errorf("Accept %q: %s\n%s", accept, format, w.Body)
		}
	}
}

func TestHandlerIsReadOnly(t *testing.T) {
	server := httptest.NewServer(Handler(Config{
		Health: health{}, Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
		Status: func(context.Context) any { return nil },
	}))
	defer server.Close()
	for _, path := range []string{"/healthz", "/readyz", v1.StatusPath} {
		response, err := server.Client().Post(server.URL+path, "text/plain", strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("POST %s: %s", path, response.Status)
		}
	}
}

func TestServeSurvivesGarbageAndSlowClients(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Serve(ctx, l, Config{Health: health{}, Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)})
	}()
	for range 50 { // clients that send half a request and never go on
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost"); err != nil {
			t.Fatal(err)
		}
	}
	garbage, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer garbage.Close()
	if _, err := garbage.Write([]byte{0x16, 3, 1, 0, 0xff, 0, '\n', '\n'}); err != nil {
		t.Fatal(err)
	}
	client := Client{URL: "http://" + l.Addr().String(), HTTP: &http.Client{Timeout: 10 * time.Second}}
	if _, err := client.Get(t.Context(), "/healthz"); err != nil {
		t.Errorf("a good client next to bad ones: %v", err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("serve: %v", err)
	}
}

func TestWriteTextSaysWhatIsWrongAndWhy(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	status := v1.Status{
		Plane: v1.PlaneStatus{Version: "v0.1.0", Identity: "p1", Leading: true, Epoch: 3, Revision: 17, Started: now.Add(-90 * time.Second)},
		Machines: []v1.MachineStatus{
			{Name: "edge-1", Connected: true, LastReport: now, Addresses: []string{"10.0.0.1"}, Proxy: v1.ProxyStatus{State: "ready", Starts: 2, Requests: 12}, Applied: 16, Wanted: 17},
			{Name: "edge-2", LastReport: now.Add(-time.Hour), Cordoned: true},
		},
		Listeners: []v1.ListenerStatus{{ID: "http-80", Port: 80, Protocol: v1.ProtocolHTTP, Hosts: 2, Machines: []string{"edge-1", "edge-2"}}},
		Routes: []v1.RouteStatus{
			{Kind: "HTTPRoute", Namespace: "team", Name: "app", Hosts: []string{"a.example.com"}, State: "pending"},
			{Kind: "HTTPRoute", Namespace: "team", Name: "app2", State: "invalid"},
		},
		OfOthers: 3,
		Problems: []v1.Problem{{Severity: v1.SeverityError, Subject: "Machine edge-2", Reason: "Lost", Message: "no report for 1h0m"}},
	}
	var got strings.Builder
	if err := WriteText(&got, status, TextOptions{Now: now, MaxRows: 1}); err != nil {
		t.Fatal(err)
	}
	want := `Plane      p1, leading, up 1m30s, epoch 3, revision 17, version v0.1.0

Machines (2)
  (the first 1 of 2; --all shows all)
  NAME    STATE      PROXY             REVISION  REQUESTS  ADDRESSES
  edge-1  connected  ready (2 starts)  16 of 17  12        10.0.0.1

Listeners (1)
  NAME     PORT  PROTOCOL  HOSTS  MACHINES
  http-80  80    HTTP      2      edge-1,edge-2

Routes (2)
  (the first 1 of 2; --all shows all)
  KIND       NAME      HOSTS          STATE
  HTTPRoute  team/app  a.example.com  pending
  3 IngressRoutes of other classes are not ours (--ingress-class)

Problems (1)
  error  Machine edge-2: Lost
         no report for 1h0m
`
	if got.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", got.String(), want)
	}
}

func TestWriteTextOfNothingSaysWhatToDo(t *testing.T) {
	var got strings.Builder
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	status := v1.Status{Plane: v1.PlaneStatus{Started: now}, Machines: []v1.MachineStatus{}}
	if err := WriteText(&got, status, TextOptions{Now: now}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"fairlead token create", "no Gateway", "Nothing is wrong."} {
		if !strings.Contains(got.String(), want) {
			t.Errorf("missing %q in:\n%s", want, got.String())
		}
	}
}

// A plane that knows nothing yet must not say that there is nothing.
func TestWriteTextOfAStart(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	problem := []v1.Problem{{Severity: v1.SeverityError, Subject: "API", Reason: "Starting", Message: "the API is starting"}}
	for _, c := range []struct {
		plane v1.PlaneStatus
		first string
	}{
		{v1.PlaneStatus{Version: "v0.1.0"}, "Plane      starting, version v0.1.0\n"},
		{v1.PlaneStatus{Identity: "p1", Started: now}, "Plane      p1, standby, without knowing the leader, up 0s, epoch 0, revision 0, version \n"},
		{v1.PlaneStatus{Identity: "p1", Started: now, Leader: "192.0.2.1:7443"}, "Plane      p1, standby of 192.0.2.1:7443, up 0s, epoch 0, revision 0, version \n           machines report to the leader: ask it for their state\n"},
		{v1.PlaneStatus{Identity: "p1", Started: now, Ending: true, Leader: "192.0.2.2:7443", Epoch: 4}, "Plane      p1, ending, up 0s, epoch 4, revision 0, version \n"},
		{v1.PlaneStatus{Identity: "p1", Started: now, Starting: true, Leader: "192.0.2.2:7443", Epoch: 4}, "Plane      p1, starting to lead, up 0s, epoch 4, revision 0, version \n"},
	} {
		var got strings.Builder
		if err := WriteText(&got, v1.Status{Plane: c.plane, Problems: problem}, TextOptions{Now: now}); err != nil {
			t.Fatal(err)
		}
		want := c.first + "\nProblems (1)\n  error  API: Starting\n         the API is starting\n"
		if got.String() != want {
			t.Errorf("got:\n%s\nwant:\n%s", got.String(), want)
		}
	}
}

// What one cause does to many objects is shown once, with how many there are.
func TestOneCauseIsShownOnce(t *testing.T) {
	problem := func(subject, message string) v1.Problem {
		return v1.Problem{Severity: v1.SeverityWarning, Subject: subject, Reason: "Pending", Message: message}
	}
	s := v1.Status{Plane: v1.PlaneStatus{Version: "test"}}
	for i := range 100 {
		s.Problems = append(s.Problems, problem(fmt.Sprintf("HTTPRoute team/r%02d", i), "waiting for edge-1"))
		if i < 2 {
			s.Problems = append(s.Problems, problem(fmt.Sprintf("Gateway team/g%d", i), "no machine serves this"))
		}
	}
	for rows, want := range map[int]string{
		5: `
Problems (2), at 102 objects
  warning  HTTPRoute team/r00, HTTPRoute team/r01, HTTPRoute team/r02 and 97 more: Pending
         waiting for edge-1
  warning  Gateway team/g0, Gateway team/g1: Pending
         no machine serves this
`,
		1: `
Problems (2), at 102 objects
  (the first 1 of 2; --all shows all)
  warning  HTTPRoute team/r00, HTTPRoute team/r01, HTTPRoute team/r02 and 97 more: Pending
         waiting for edge-1
`,
	} {
		var got strings.Builder
		if err := WriteText(&got, s, TextOptions{MaxRows: rows}); err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(got.String(), want) {
			t.Errorf("with %d rows:\n%s", rows, got.String())
		}
	}
	var all strings.Builder
	if err := WriteText(&all, s, TextOptions{}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(all.String(), "HTTPRoute team/r98, HTTPRoute team/r99: Pending") {
		t.Errorf("not all are named:\n%s", all.String())
	}
}
