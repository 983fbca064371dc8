package e2e

import (
	"fmt"
	"strings"
	"testing"

	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/xds"
)

// TestPortInUseOnOneEdge lets another process have a Gateway's port on one machine.
// The status names machine and port, the other edge serves, and the port's release
// heals it without anybody's help.
func TestPortInUseOnOneEdge(t *testing.T) {
	const port = 8088
	s := shared(t)
	s.namespace(t, "port")
	squatter, err := s.Lab.Machine(edge2.Name).Listen(t.Context(), "tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		t.Fatal(err)
	}
	defer squatter.Close()
	neighbour := s.startTraffic(t, newsHost)
	s.apply(t, gateway("squat", port), service("port", "app", s.backends["os1-a"]), httpRouteOf("squat", "port", "app", "port.example.com", to("app")))
	t.Cleanup(func() { s.kubectl(t, "-n", "default", "delete", "gateway", "squat") })

	const says = "edge-2: port 8088 is in use by another process of this machine: find it with `ss -ltnp 'sport = :8088'` and stop it, or give the listener another port; it is tried again every 10s: …"
	s.awaitConditions(t, "Gateway default/squat",
		condition{"Accepted", "True", "Accepted", "…"},
		condition{"Programmed", "False", "Invalid", "refused by the proxy of " + says})
	s.awaitConditions(t, "HTTPRoute port/app", condition{"fairlead.dev/Programmed", "False", "Refused", says})
	s.awaitProblem(t, v1.Problem{Severity: v1.SeverityError, Subject: "Gateway default/squat", Reason: "Refused", Message: "refused by the proxy of " + says})
	r := request{host: "port.example.com", port: port}
	s.awaitAnswerOf(t, edge1.Name, r, 200, "os1-a")

	if err := squatter.Close(); err != nil {
		t.Fatal(err)
	}
	s.awaitAnswerOf(t, edge2.Name, r, 200, "os1-a")
	s.awaitConditions(t, "Gateway default/squat", condition{"Programmed", "True", "Programmed", "every machine concerned runs it"})
	s.awaitConditions(t, "HTTPRoute port/app", programmed)
	s.awaitNoProblem(t)
	neighbour.none(t)
}

// monster is a rule whose path is an expression that the plane lets pass, and that is too large for the
// tests' Envoys (expressionLimit).
func monster(service string) string {
	return `{matches: [{path: {type: RegularExpression, value: '/[a-z]{500}'}}], backendRefs: [{name: ` + service + `, port: 80}]}`
}

// sameShard returns n further hosts that Envoy gets in one resource with this one.
func sameShard(host string, n int) []string {
	var found []string
	for i := 0; len(found) < n; i++ {
		if h := fmt.Sprintf("n%d.%s", i, host); xds.Shard("http-80", h) == xds.Shard("http-80", host) {
			found = append(found, h)
		}
	}
	return found
}

// TestRouteThatEnvoyRefuses applies routes that only Envoy can refuse. They alone are
// held back, with Envoy's words in their status; routes in the same shard go live, and
// so do later ones.
func TestRouteThatEnvoyRefuses(t *testing.T) {
	s := shared(t)
	s.namespace(t, "refused")
	const host = "refused.example.com"
	neighbours := sameShard(host, 3)
	was, later := neighbours[0], neighbours[1:]
	s.apply(t, service("refused", "app", s.backends["os1-a"]), service("refused", "other", s.backends["os1-b"]),
		httpRoute("refused", "was", was, to("app")))
	s.awaitAnswer(t, request{host: was}, 200, "os1-a")
	f := s.startTraffic(t, was)

	// One that is new, one that was fine before, and good ones with them.
	s.apply(t, httpRoute("refused", "bad", host, monster("app")),
		httpRoute("refused", "was", was, to("app"), monster("other")),
		httpRoute("refused", "later-0", later[0], to("other")))
	says := condition{"fairlead.dev/Programmed", "False", "Refused", "edge-1: …program size…; edge-2: …program size…"}
	for _, name := range []string{"bad", "was"} {
		r := ref("HTTPRoute refused/" + name)
		s.awaitConditions(t, r, condition{"Accepted", "True", "Accepted", "…"}, says)
		s.awaitProblem(t, v1.Problem{Severity: v1.SeverityError, Subject: string(r), Reason: "Refused", Message: "refused by the proxy of " + says.message})
	}
	s.awaitConditions(t, "HTTPRoute refused/later-0", programmed)
	s.awaitAnswer(t, request{host: later[0]}, 200, "os1-b")
	s.apply(t, httpRoute("refused", "later-1", later[1], to("app")))
	s.awaitConditions(t, "HTTPRoute refused/later-1", programmed)
	s.awaitAnswer(t, request{host: later[1]}, 200, "os1-a")
	s.awaitAnswer(t, request{host: host}, 503)
	for _, edge := range s.edges() {
		a, err := s.ask(t.Context(), edge, request{host: host})
		if want := "the routes of this host are not ready at this edge"; err != nil || strings.TrimSpace(a.body) != want {
			t.Errorf("%s answers %s (%v) for the host that it refused, want %q", edge, a, err, want)
		}
	}
	// What was served before is served still, as it was.
	s.awaitAnswer(t, request{host: was}, 200, "os1-a")

	s.apply(t, httpRoute("refused", "bad", host, to("app")), httpRoute("refused", "was", was, to("app")))
	for _, name := range []string{"bad", "was", "later-0", "later-1"} {
		s.awaitConditions(t, ref("HTTPRoute refused/"+name), programmed)
	}
	s.awaitAnswer(t, request{host: host}, 200, "os1-a")
	s.awaitNoProblem(t)
	f.none(t)
}
