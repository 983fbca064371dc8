package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.dev/lab/backend"
)

// speak sends bytes to the edge and reads the answer's status; 0 says that the edge closed
// the connection instead.
func (s *site) speak(ctx context.Context, bytes string) (status int, body string, err error) {
	c, err := s.Lab.Machine(client.Name).Dial(ctx, "tcp", net.JoinHostPort(s.Lab.Machine(edge1.Name).Addr4().String(), "80"))
	if err != nil {
		return 0, "", err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(answerTime)); err != nil {
		return 0, "", err
	}
	if _, err := io.WriteString(c, bytes); err != nil {
		return 0, "", nil //nolint:nilerr // the edge closed it
	}
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		if timeout, is := err.(net.Error); is && timeout.Timeout() { //nolint:errorlint // what the connection itself says
			return 0, "", err
		}
		return 0, "", nil
	}
	defer answer.Body.Close()
	all, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(all), err
}

// awaitSpoken waits until bytes are answered with a status.
func (s *site) awaitSpoken(t *testing.T, what, bytes string, status int) {
	t.Helper()
	s.await(t, fmt.Sprintf("%s to be answered %d", what, status), func(ctx context.Context) error {
		got, body, err := s.speak(ctx, bytes)
		if err != nil {
			return err
		}
		if got != status {
			return fmt.Errorf("it is answered %d %q", got, body)
		}
		return nil
	})
}

// TestClientPolicies has one ClientPolicy of the GatewayClass say one thing after the other,
// and sees what a real Envoy does. All hosts share the listener: what holds for the Gateway's
// holds for those of IngressRoutes.
func TestClientPolicies(t *testing.T) {
	s, h := policyLab(t)
	say := func(spec string) {
		t.Helper()
		s.apply(t, policy("ClientPolicy", "fairlead-system", "all", "GatewayClass fairlead", spec))
		s.awaitConditions(t, "ClientPolicy fairlead-system/all", accepted, condition{"ResolvedRefs", "True", "ResolvedRefs", "all references are resolved"})
	}
	get := func(host, path string, headers ...string) string {
		return "GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\n" + strings.Join(append(headers, ""), "\r\n") + "\r\n"
	}
	hosts := []string{"app.example.com", "old.example.com"}

	t.Run("one Gateway cannot", func(t *testing.T) {
		s.apply(t, policy("ClientPolicy", "default", "mine", "Gateway edge", "acceptProxyProtocol: true"))
		s.awaitConditions(t, "ClientPolicy default/mine", condition{"Accepted", "False", "SharedListener", "…shares its listeners…"})
		s.apply(t, policy("ClientPolicy", "team", "mine", "GatewayClass fairlead", "acceptProxyProtocol: true"))
		s.awaitConditions(t, "ClientPolicy team/mine", condition{"Accepted", "False", "TargetNotPermitted", "…fairlead-system…"})
		for _, host := range hosts {
			s.awaitAnswer(t, request{host: host}, 200)
		}
	})
	t.Run("PROXY protocol", func(t *testing.T) {
		say("acceptProxyProtocol: true")
		for _, host := range hosts {
			s.awaitSpoken(t, "a request without a PROXY header", get(host, "/"), 0)
			s.await(t, "the backend to see the client of the PROXY header", func(ctx context.Context) error {
				status, body, err := s.speak(ctx, "PROXY TCP4 192.0.2.99 192.0.2.1 4711 80\r\n"+get(host, backend.PathEcho))
				if err != nil {
					return err
				}
				var e backend.Echo
				if err := json.Unmarshal([]byte(body), &e); err != nil || status != 200 {
					return fmt.Errorf("%d %q: %w", status, body, err)
				}
				if got := e.Headers.Get("X-Forwarded-For"); got != "192.0.2.99" {
					return fmt.Errorf("it sees %q", got)
				}
				return nil
			})
		}
	})
	t.Run("limits", func(t *testing.T) {
		say("limits: {maxHeaderBytes: 2048, maxHeaders: 20}\ntimeouts: {headers: 500ms}")
		var many []string
		for i := range 30 {
			many = append(many, fmt.Sprintf("X-%d: %s", i, strings.Repeat("y", 30)))
		}
		for _, host := range hosts {
			s.awaitSpoken(t, "a request of many headers", get(host, "/", many...), 431)
			s.awaitSpoken(t, "a request of large headers", get(host, "/", "X-Large: "+strings.Repeat("x", 4000)), 431)
			s.awaitSpoken(t, "a client that does not go on", "GET / HTTP/1.1\r\nHost: "+host+"\r\nX-Slow: ", 408)
			s.awaitAnswer(t, request{host: host}, 200)
		}
		say("trustedHops: 1\nlimits: {maxConnections: 1}")
		held, err := s.Lab.Machine(client.Name).Dial(t.Context(), "tcp", net.JoinHostPort(s.Lab.Machine(edge1.Name).Addr4().String(), "80"))
		if err != nil {
			t.Fatal(err)
		}
		defer held.Close()
		s.await(t, "one more connection to be refused", func(ctx context.Context) error {
			if status, body, err := s.speak(ctx, get(hosts[0], "/")); err != nil || status != 0 {
				_ = held.Close() // the listener may have been another one then
				if held, err = s.Lab.Machine(client.Name).Dial(ctx, "tcp", net.JoinHostPort(s.Lab.Machine(edge1.Name).Addr4().String(), "80")); err != nil {
					return err
				}
				return fmt.Errorf("it is answered %d %q", status, body)
			}
			return nil
		})
	})
	t.Run("access log", func(t *testing.T) {
		say("accessLog: {destination: OTLP, collector: {name: otel, port: 80}, fields: [path, status, route]}")
		for i, host := range hosts {
			path := fmt.Sprintf("/logged-%d", i)
			s.await(t, "a record at the collector", func(ctx context.Context) error {
				if _, err := s.ask(ctx, edge1.Name, request{host: host, path: path}); err != nil {
					return err
				}
				if fields, status := h.logged(path); !slices.Equal(fields, []string{"path", "route", "status"}) || status != "200" {
					return fmt.Errorf("it has %v, status %q", fields, status)
				}
				return nil
			})
		}
		say("accessLog: {fields: [path, status], errorsOnly: true}")
		run, err := s.Lab.Machine(edge1.Name).Dir("run")
		if err != nil {
			t.Fatal(err)
		}
		s.await(t, "the line of an error in the file, and none of a success", func(ctx context.Context) error {
			for _, host := range []string{hosts[0], "nobody.example.com"} {
				if _, err := s.ask(ctx, edge1.Name, request{host: host, path: "/filed-" + host}); err != nil {
					return err
				}
			}
			log, err := os.ReadFile(filepath.Join(run, "envoy.log"))
			if err != nil {
				return err
			}
			for _, line := range strings.Split(string(log), "\n") {
				if line == `{"path":"/filed-nobody.example.com","status":404}` {
					return nil
				}
			}
			return fmt.Errorf("it is not there")
		})
		if log, _ := os.ReadFile(filepath.Join(run, "envoy.log")); strings.Contains(string(log), "/filed-"+hosts[0]) {
			t.Error("a request that was answered 200 was written")
		}
	})
	t.Run("access log by a template", func(t *testing.T) {
		run, err := s.Lab.Machine(edge1.Name).Dir("run")
		if err != nil {
			t.Fatal(err)
		}
		written := func(line string) bool {
			log, _ := os.ReadFile(filepath.Join(run, "envoy.log"))
			return slices.Contains(strings.Split(string(log), "\n"), line)
		}
		say("accessLog: {template: '{host}{path} {status} {owner} {decision} {request.x-tenant}'}")
		// A RoutePolicy chooses for its own routes, and its change ends no connection.
		s.apply(t, policy("RoutePolicy", "team", "logged", "HTTPRoute app small", "accessLog: {requests: None}"))
		s.awaitConditions(t, "RoutePolicy team/logged", accepted)
		n := 0
		s.await(t, "lines of text, and none of the route that wants none", func(ctx context.Context) error {
			n++
			paths := []string{fmt.Sprintf("/small/%d", n), fmt.Sprintf("/texted-%d", n)}
			for _, path := range paths {
				if _, err := s.ask(ctx, edge1.Name, request{host: hosts[0], path: path, header: http.Header{"X-Tenant": {"a\" 500"}}}); err != nil {
					return err
				}
			}
			line := hosts[0] + "%s 200 \"HTTPRoute team/app\" \"the backend answered\" \"a\\\" 500\""
			for deadline := time.Now().Add(answerTime); !written(fmt.Sprintf(line, paths[1])); {
				if time.Now().After(deadline) {
					return fmt.Errorf("the line of %s is not there", paths[1])
				}
			}
			if written(fmt.Sprintf(line, paths[0])) {
				return fmt.Errorf("%s has a line", paths[0])
			}
			return nil
		})
		// A template that is wrong is refused by name, and requests go on.
		s.apply(t, policy("ClientPolicy", "fairlead-system", "all", "GatewayClass fairlead", "accessLog: {template: '{status} {request.authorization}'}"))
		s.awaitConditions(t, "ClientPolicy fairlead-system/all", condition{"Accepted", "False", "Invalid", `spec.accessLog.template: "authorization" can hold credentials, which access logs must not have`})
		s.awaitAnswer(t, request{host: hosts[0]}, 200)
	})
	t.Run("tracing", func(t *testing.T) {
		say("tracing: {collector: {name: otel, port: 80}, samplePercent: 0, serviceName: edge}")
		const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
		s.await(t, "the span of a trace that a client began", func(ctx context.Context) error {
			r := request{host: hosts[0], header: http.Header{"Traceparent": {"00-" + trace + "-00f067aa0ba902b7-01"}}}
			if _, err := s.ask(ctx, edge1.Name, r); err != nil {
				return err
			}
			h.mu.Lock()
			defer h.mu.Unlock()
			if !h.spans["edge "+trace] {
				return fmt.Errorf("there are %v", h.spans)
			}
			return nil
		})
	})
}
