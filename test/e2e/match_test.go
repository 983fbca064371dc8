package e2e

import (
	"context"
	"fmt"
	"net/http"
	"testing"
)

// TestHTTPRouteMatches sends requests through a real Envoy and sees by the backend
// that answers which rule took them.
func TestHTTPRouteMatches(t *testing.T) {
	s := shared(t)
	s.namespace(t, "match")
	var manifests []string
	for name, b := range s.backends {
		manifests = append(manifests, service("match", name, b))
	}
	rule := func(service, matches string) string {
		return "{matches: [" + matches + "], backendRefs: [{name: " + service + ", port: 80}]}"
	}
	manifests = append(manifests,
		// The order of the rules is not the order in which they count.
		httpRoute("match", "paths", "paths.example.com",
			rule("k8s1-a", "{path: {type: PathPrefix, value: /}}"),
			rule("k8s1-b", "{path: {type: PathPrefix, value: /long}}"),
			rule("k8s1-c", "{path: {type: RegularExpression, value: '/long/[0-9]+(/.*)?'}}"),
			rule("os1-a", "{path: {type: Exact, value: /long/7}}"),
			rule("os1-b", "{path: {type: PathPrefix, value: /long/and/longer}}")),
		httpRoute("match", "more", "more.example.com",
			rule("k8s1-a", "{method: POST}"),
			rule("k8s1-b", "{headers: [{name: X-Version, value: two}]}, {headers: [{type: RegularExpression, name: X-Version, value: 'v[3-9]'}]}"),
			rule("k8s1-c", "{headers: [{name: X-Version, value: two}, {name: X-Canary, value: 'yes'}]}"),
			rule("os1-a", "{queryParams: [{name: q, value: a b}]}"),
			rule("os1-b", "{queryParams: [{type: RegularExpression, name: 'n', value: '[0-9]+'}], method: GET}")),
		httpRoute("match", "exact-host", "a.wild.example.com", to("k8s1-a")),
		httpRoute("match", "wildcard", "*.wild.example.com", to("k8s1-b")),
		httpRoute("match", "wilder", "*.example.com", to("k8s1-c")),
	)
	s.apply(t, manifests...)
	for _, name := range []string{"paths", "more", "exact-host", "wildcard", "wilder"} {
		s.awaitConditions(t, ref("HTTPRoute match/"+name), programmed)
	}

	header := func(pairs ...string) http.Header {
		h := http.Header{}
		for i := 0; i < len(pairs); i += 2 {
			h.Add(pairs[i], pairs[i+1])
		}
		return h
	}
	for _, c := range []struct {
		request request
		want    string // backend; "" is a 404
	}{
		{request{host: "paths.example.com", path: "/"}, "k8s1-a"},
		{request{host: "paths.example.com", path: "/longer"}, "k8s1-a"},
		{request{host: "paths.example.com", path: "/long"}, "k8s1-b"},
		{request{host: "paths.example.com", path: "/long/"}, "k8s1-b"},
		{request{host: "paths.example.com", path: "/long/and"}, "k8s1-b"},
		{request{host: "paths.example.com", path: "/long/7"}, "os1-a"},
		{request{host: "paths.example.com", path: "/long/7?x=y"}, "os1-a"},
		{request{host: "paths.example.com", path: "/long/7/"}, "k8s1-c"},
		{request{host: "paths.example.com", path: "/long/77/x"}, "k8s1-c"},
		{request{host: "paths.example.com", path: "/long/7x"}, "k8s1-b"},
		{request{host: "paths.example.com", path: "/long/and/longer/still"}, "os1-b"},

		{request{host: "more.example.com", method: http.MethodPost}, "k8s1-a"},
		{request{host: "more.example.com", method: http.MethodPost, header: header("X-Version", "two")}, "k8s1-a"},
		{request{host: "more.example.com", method: http.MethodPut}, ""},
		{request{host: "more.example.com", header: header("x-version", "two")}, "k8s1-b"},
		{request{host: "more.example.com", header: header("X-Version", "v3")}, "k8s1-b"},
		{request{host: "more.example.com", header: header("X-Version", "v33")}, ""},
		{request{host: "more.example.com", header: header("X-Version", "two", "X-Canary", "yes")}, "k8s1-c"},
		{request{host: "more.example.com", path: "/?n=12"}, "os1-b"},
		{request{host: "more.example.com", path: "/?n=12a"}, ""},
		{request{host: "more.example.com", path: "/"}, ""},

		{request{host: "a.wild.example.com"}, "k8s1-a"},
		{request{host: "A.Wild.Example.COM:80"}, "k8s1-a"},
		{request{host: "b.wild.example.com"}, "k8s1-b"},
		{request{host: "c.b.wild.example.com"}, "k8s1-b"},
		{request{host: "wild.example.com"}, "k8s1-c"},
		{request{host: "example.com"}, ""},
		{request{host: "nobody.example.org"}, ""},
	} {
		for i, edge := range s.edges() {
			c.request.v6 = i == 1
			got, err := s.ask(t.Context(), edge, c.request)
			if err != nil {
				t.Errorf("%s: %+v: %v", edge, c.request, err)
				continue
			}
			if status := map[bool]int{true: 404, false: 200}[c.want == ""]; got.status != status || got.backend != c.want {
				t.Errorf("%s: %+v is answered %s, want %d from %q", edge, c.request, got, status, c.want)
			}
		}
	}

	// Rules and hosts come and go alone.
	s.apply(t, httpRoute("match", "exact-host", "c.wild.example.com", to("os1-a")))
	s.awaitAnswer(t, request{host: "c.wild.example.com"}, 200, "os1-a")
	s.awaitAnswer(t, request{host: "a.wild.example.com"}, 200, "k8s1-b")
	s.kubectl(t, "-n", "match", "delete", "httproute", "wildcard")
	s.awaitAnswer(t, request{host: "a.wild.example.com"}, 200, "k8s1-c")
	s.kubectl(t, "-n", "match", "delete", "httproute", "wilder")
	s.awaitAnswer(t, request{host: "a.wild.example.com"}, 404)
	s.awaitAnswer(t, request{host: "c.wild.example.com"}, 200, "os1-a")
}

// TestBackendsFollowTheirEndpointSlices changes who is behind a service while requests
// run: nothing fails, and the answers follow.
func TestBackendsFollowTheirEndpointSlices(t *testing.T) {
	s := shared(t)
	s.namespace(t, "slices")
	s.apply(t, service("slices", "app", s.backends["k8s1-a"]), httpRoute("slices", "app", "slices.example.com", to("app")))
	s.awaitConditions(t, "HTTPRoute slices/app", programmed)
	s.awaitAnswer(t, request{host: "slices.example.com"}, 200, "k8s1-a")
	f := s.startTraffic(t, "slices.example.com")
	for _, b := range []string{"k8s1-b", "k8s1-c", "k8s1-a"} {
		s.apply(t, endpoints("slices", "app", "http", s.backends[b]))
		for _, one := range f.flows {
			s.await(t, b+" alone to answer", func(context.Context) error {
				for _, got := range one.latest() {
					if got != b {
						return fmt.Errorf("%s answered among the latest", got)
					}
				}
				return nil
			})
		}
	}
	f.none(t)
	s.kubectl(t, "-n", "slices", "patch", "endpointslice", "app-1", "--type=merge", "-p", `{"endpoints": []}`)
	s.awaitAnswer(t, request{host: "slices.example.com"}, 503)
	s.apply(t, endpoints("slices", "app", "http", s.backends["k8s1-a"]))
	s.awaitAnswer(t, request{host: "slices.example.com"}, 200, "k8s1-a")
}
