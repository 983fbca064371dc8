package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	v1 "fairlead.dev/internal/console/v1"
)

// TestExplanationsHoldForRealClients explains requests with the command line and then
// sends them: every answer must be one that was predicted, and every share must be seen.
func TestExplanationsHoldForRealClients(t *testing.T) {
	const each = 60 // requests to each edge; a share of a fifth is missed once in 10^5 times
	s := shared(t)
	s.namespace(t, "explain")
	var manifests []string
	for name, b := range s.backends {
		manifests = append(manifests, service("explain", name, b))
	}
	manifests = append(manifests,
		service("explain", "both", s.backends["k8s1-a"], s.backends["k8s1-b"]), service("explain", "nobody"),
		httpRoute("explain", "app", "app.explain.example.com",
			"{matches: [{path: {value: /}}], backendRefs: [{name: both, port: 80}]}",
			"{matches: [{path: {value: /weights}}], backendRefs: [{name: k8s1-c, port: 80, weight: 2}, {name: os1-a, port: 80, weight: 1}]}",
			"{matches: [{path: {value: /half}}], backendRefs: [{name: os1-b, port: 80}, {name: missing, port: 80}]}",
			"{matches: [{path: {value: /mixed}}], backendRefs: [{name: os1-b, port: 80}, {name: nobody, port: 80}]}",
			"{matches: [{path: {value: /empty}}], backendRefs: [{name: nobody, port: 80}]}",
			"{matches: [{path: {value: /broken}}], backendRefs: [{name: missing, port: 80}]}",
			"{matches: [{path: {value: /post}, method: POST}], backendRefs: [{name: os1-a, port: 80}]}",
			"{matches: [{path: {type: RegularExpression, value: '/v[0-9]+/.*'}}], backendRefs: [{name: os1-b, port: 80}]}",
			"{matches: [{headers: [{name: X-Version, value: two}], queryParams: [{name: q, value: '1'}]}], backendRefs: [{name: k8s1-c, port: 80}]}"),
		httpRoute("explain", "only", "only.explain.example.com", "{matches: [{path: {type: Exact, value: /here}}], backendRefs: [{name: os1-a, port: 80}]}"),
		httpRoute("explain", "wild", "*.explain.example.com", to("k8s1-a")),
		httpRoute("explain", "refused", "refused.example.com", "{matches: [{path: {type: RegularExpression, value: '/('}}], backendRefs: [{name: os1-a, port: 80}]}"),
		ingressRoute("explain", "root", "root.example.com", "{match: /, services: [{name: os1-a, port: 80}]}", "{match: /given, delegate: {name: child}}", "{match: /away, delegate: {name: nobody}}"),
		ingressRoute("explain", "child", "", "{match: /given, prefixRewrite: /, services: [{name: k8s1-b, port: 80, weight: 1}, {name: os1-b, port: 80, weight: 1}]}"),
	)
	s.apply(t, manifests...)
	for _, name := range []string{"only", "wild"} {
		s.awaitConditions(t, ref("HTTPRoute explain/"+name), programmed)
	}
	s.awaitAnswer(t, request{host: "app.explain.example.com", path: "/post", method: http.MethodPost}, 200, "os1-a")
	s.awaitAnswer(t, request{host: "root.example.com", path: "/away"}, 503)
	s.awaitAnswer(t, request{host: "root.example.com", path: "/given"}, 200, "k8s1-b", "os1-b")

	upgrade := http.Header{"Upgrade": {"websocket"}, "Connection": {"Upgrade"}}
	for _, c := range []struct {
		request
		by string // route that takes it, without "matches"
	}{
		{request{host: "app.explain.example.com", path: "/"}, "HTTPRoute explain/app spec.rules[0]"},
		{request{host: "App.Explain.example.com:80", path: "/x/../weights/y"}, "HTTPRoute explain/app spec.rules[1]"},
		{request{host: "app.explain.example.com", path: "/weightsy"}, "HTTPRoute explain/app spec.rules[0]"},
		{request{host: "app.explain.example.com", path: "/half"}, "HTTPRoute explain/app spec.rules[2]"},
		{request{host: "app.explain.example.com", path: "/mixed"}, "HTTPRoute explain/app spec.rules[3]"},
		{request{host: "app.explain.example.com", path: "/empty"}, "HTTPRoute explain/app spec.rules[4]"},
		{request{host: "app.explain.example.com", path: "/broken"}, "HTTPRoute explain/app spec.rules[5]"},
		{request{host: "app.explain.example.com", path: "/post", method: http.MethodPost}, "HTTPRoute explain/app spec.rules[6]"},
		{request{host: "app.explain.example.com", path: "/post"}, "HTTPRoute explain/app spec.rules[0]"},
		{request{host: "app.explain.example.com", path: "/v12/x?y"}, "HTTPRoute explain/app spec.rules[7]"},
		{request{host: "app.explain.example.com", path: "/?q=1", header: http.Header{"X-Version": {"two"}}}, "HTTPRoute explain/app spec.rules[8]"},
		{request{host: "app.explain.example.com", path: "/", header: upgrade}, "HTTPRoute explain/app spec.rules[0]"},
		{request{host: "only.explain.example.com", path: "/here"}, "HTTPRoute explain/only spec.rules[0]"},
		{request{host: "only.explain.example.com", path: "/elsewhere"}, ""},
		{request{host: "b.a.explain.example.com", path: "/"}, "HTTPRoute explain/wild spec.rules[0]"},
		{request{host: "refused.example.com", path: "/"}, ""},
		{request{host: "nobody.example.org", path: "/"}, ""},
		{request{host: "root.example.com", path: "/givenx"}, "IngressRoute explain/child spec.routes[0]"},
		{request{host: "root.example.com", path: "/away/x"}, "IngressRoute explain/root spec.routes"},
	} {
		name := fmt.Sprintf("%s %s%s %v", c.method, c.host, c.path, c.header)
		e := s.explain(t, c.request)
		taken := ""
		if e.Route != nil {
			taken, _, _ = strings.Cut(e.Route.By.String(), ".matches")
		}
		if taken != c.by {
			t.Errorf("%s: taken by %q, want %q", name, taken, c.by)
		}
		for _, edge := range s.edges() {
			if !slices.ContainsFunc(e.Network.Edges, func(x v1.EdgeStep) bool {
				return x.Machine == edge && slices.Contains(x.Through, s.Lab.Machine(edge).Addr4().String())
			}) {
				t.Errorf("%s: %s at its address is none of the edges %+v", name, edge, e.Network.Edges)
			}
			s.compare(t, name, edge, c.request, e, each)
		}
	}
	e := s.explain(t, request{host: "refused.example.com", path: "/"})
	if len(e.Problems) != 1 || e.Problems[0].Subject != "HTTPRoute explain/refused" {
		t.Errorf("of a refused route: %+v", e.Problems)
	}
	status, out, stderr := s.run(t, s.plane.Machine, "explain", "http://app.explain.example.com/weights", "--from", "192.0.2.7")
	if status != 0 || !strings.Contains(out, "-> answer   a backend answers\n") || !strings.Contains(out, "66.7% to explain/k8s1-c/80") {
		t.Errorf("exit status %d\n%s%s", status, out, stderr)
	}
}

// explain runs `fairlead explain` beside the plane.
func (s *site) explain(t *testing.T, r request) v1.Explanation {
	t.Helper()
	args := []string{"explain", "http://" + r.host + r.path, "-o", "json"}
	if r.method != "" {
		args = append(args, "--method", r.method)
	}
	for name, values := range r.header {
		for _, v := range values {
			args = append(args, "-H", name+": "+v)
		}
	}
	status, out, stderr := s.run(t, s.plane.Machine, args...)
	if status != 0 {
		t.Fatalf("fairlead %q: exit status %d: %s", args, status, stderr)
	}
	var e v1.Explanation
	if err := json.Unmarshal([]byte(out), &e); err != nil {
		t.Fatal(err)
	}
	return e
}

// compare sends requests to an edge and holds the answers against the explanation.
func (s *site) compare(t *testing.T, name, edge string, r request, e v1.Explanation, n int) {
	t.Helper()
	predicted := map[string]bool{} // statuses of the proxy, and names of backends
	if e.Answer.Outcomes == nil || !e.Answer.Connects {
		t.Errorf("%s: %+v", name, e.Answer)
	}
	for _, o := range e.Answer.Outcomes {
		if o.Status != 0 {
			predicted[fmt.Sprint(o.Status)] = true
		}
	}
	for _, g := range e.Groups {
		for _, b := range g.Backends {
			for _, known := range s.backends {
				if known.Address == b.Address && b.Percent > 0 {
					predicted[known.Name] = true
				}
			}
		}
	}
	if len(e.Answer.Outcomes) == 1 && e.Answer.Outcomes[0].Status != 0 {
		predicted = map[string]bool{fmt.Sprint(e.Answer.Outcomes[0].Status): true} // not what stands behind it
	}
	got := map[string]int{}
	for range n {
		a, err := s.ask(t.Context(), edge, r)
		if err != nil {
			t.Errorf("%s: %s: %v", name, edge, err)
			return
		}
		if a.backend == "" {
			a.backend = fmt.Sprint(a.status)
		}
		got[a.backend]++
		if len(predicted) == 1 && got[a.backend] >= 3 && len(got) == 1 {
			break // nothing to divide
		}
	}
	for answer, count := range got {
		if !predicted[answer] {
			t.Errorf("%s: %s: %d of %d answers are %s; predicted were %v", name, edge, count, n, answer, predicted)
		}
	}
	for answer := range predicted {
		if got[answer] == 0 {
			t.Errorf("%s: %s: no answer is %s, which was predicted: %v", name, edge, answer, got)
		}
	}
}
