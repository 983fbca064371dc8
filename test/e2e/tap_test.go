package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "fairlead.dev/internal/console/v1"
)

// TestTapShowsWhatIsExplained sends random requests through real proxies: what `fairlead tap` shows of each is among what
// `fairlead explain` says of it, and no credential is shown.
//
// FAIRLEAD_TAP_COUNT is how many requests are to be shown, FAIRLEAD_TAP_SEED repeats a run.
func TestTapShowsWhatIsExplained(t *testing.T) {
	number := func(name string, otherwise int64) int64 {
		n, err := strconv.ParseInt(os.Getenv(name), 10, 64)
		if err != nil {
			return otherwise
		}
		return n
	}
	count, seed := number("FAIRLEAD_TAP_COUNT", 100), number("FAIRLEAD_TAP_SEED", time.Now().UnixNano())
	t.Logf("FAIRLEAD_TAP_SEED=%d", seed)
	random := rand.New(rand.NewPCG(uint64(seed), 0))

	s := shared(t)
	s.namespace(t, "tap")
	var manifests []string
	for name, b := range s.backends {
		manifests = append(manifests, service("tap", name, b))
	}
	s.apply(t, append(manifests, service("tap", "nobody"),
		httpRoute("tap", "app", "app.tap.example.com",
			"{matches: [{path: {value: /}}], backendRefs: [{name: k8s1-a, port: 80}]}",
			"{matches: [{path: {value: /weights}}], backendRefs: [{name: k8s1-c, port: 80, weight: 2}, {name: os1-a, port: 80, weight: 1}]}",
			"{matches: [{path: {value: /empty}}], backendRefs: [{name: nobody, port: 80}]}",
			"{matches: [{path: {value: /post}, method: POST}], backendRefs: [{name: os1-a, port: 80}]}",
			"{matches: [{headers: [{name: X-Version, value: two}]}], backendRefs: [{name: k8s1-b, port: 80}]}"),
		httpRoute("tap", "wild", "*.tap.example.com", "{matches: [{path: {value: /only}}], backendRefs: [{name: os1-b, port: 80}]}"),
	)...)
	for _, name := range []string{"app", "wild"} {
		s.awaitConditions(t, ref("HTTPRoute tap/"+name), programmed)
	}
	s.awaitAnswer(t, request{host: "app.tap.example.com", path: "/post", method: http.MethodPost}, 200, "os1-a")

	templates := []request{
		{host: "app.tap.example.com", path: "/"},
		{host: "app.tap.example.com", path: "/weights/x"},
		{host: "app.tap.example.com", path: "/empty"},
		{host: "app.tap.example.com", path: "/post", method: http.MethodPost},
		{host: "app.tap.example.com", path: "/post"},
		{host: "app.tap.example.com", path: "/v", header: http.Header{"X-Version": {"two"}}},
		{host: "x.tap.example.com", path: "/only"},
	}
	var explained []v1.Explanation
	for _, r := range templates {
		explained = append(explained, s.explain(t, r))
	}
	type result struct {
		status      int
		out, stderr string
	}
	ended := make(chan result, 1)
	go func() {
		status, out, stderr := s.run(t, s.plane.Machine, "tap", "-n", "tap", "--limit", fmt.Sprint(count), "-o", "json")
		ended <- result{status, out, stderr}
	}()
	var sent []int // templates, by the number of the request
	var got result
	for waiting := true; waiting; {
		select {
		case got = <-ended:
			waiting = false
			continue
		default:
		}
		i := random.IntN(len(templates))
		r := templates[i]
		r.path += fmt.Sprintf("?n=%d&access_token=hunter2", len(sent))
		r.header = r.header.Clone()
		if r.header == nil {
			r.header = http.Header{}
		}
		r.header.Set("Authorization", "Bearer hunter2")
		edges := s.edges()
		sent = append(sent, i)
		if _, err := s.ask(t.Context(), edges[random.IntN(len(edges))], r); err != nil {
			t.Fatal(err)
		}
	}
	if got.status != 0 {
		t.Fatalf("exit status %d: %s", got.status, got.stderr)
	}
	if strings.Contains(got.out, "hunter2") {
		t.Errorf("a credential is shown: %s", got.out)
	}
	lines := strings.Split(strings.TrimSpace(got.out), "\n")
	if len(lines) != int(count) {
		t.Errorf("%d requests are shown, want %d: %s", len(lines), count, got.stderr)
	}
	seen := map[string]bool{}
	for _, line := range lines {
		var r v1.TapRecord
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		var n int
		if _, query, _ := strings.Cut(r.Path, "?"); true {
			if _, err := fmt.Sscanf(query, "n=%d&", &n); err != nil || n >= len(sent) {
				t.Fatalf("%s: no request of this test", line)
			}
		}
		seen[r.Machine] = true
		e := explained[sent[n]]
		if e.Route == nil || e.Route.By.String() != r.Owner+" "+r.Rule {
			t.Errorf("%s %s follows %s %s, and is explained by %+v", r.Method, r.Path, r.Owner, r.Rule, e.Route)
		}
		if !slices.ContainsFunc(e.Answer.Outcomes, func(o v1.Outcome) bool { return o.Status == r.Status || o.Status == 0 && r.Status == 200 }) {
			t.Errorf("%s %s is answered %d, and is explained by %+v", r.Method, r.Path, r.Status, e.Answer)
		}
		if r.Backend == "" && r.Status != 200 {
			continue
		}
		if !slices.ContainsFunc(e.Groups, func(g v1.GroupStep) bool {
			return string(g.Group) == r.Group && slices.ContainsFunc(g.Backends, func(b v1.GroupBackend) bool { return b.Address.String() == r.Backend })
		}) {
			t.Errorf("%s %s goes to %s %s, and is explained by %+v", r.Method, r.Path, r.Group, r.Backend, e.Groups)
		}
		if r.Seconds <= 0 || r.FirstByte <= 0 || r.Host == "" || r.Service != strings.Join(strings.SplitN(r.Group, "/", 3)[:2], "/") {
			t.Errorf("record: %s", line)
		}
	}
	if len(seen) != len(s.edges()) {
		t.Errorf("only %v have shown requests", seen)
	}
}
