package e2e

import (
	"strings"
	"testing"

	v1 "fairlead.dev/internal/console/v1"
)

// TestMistakesOfIngressRoutes applies IngressRoutes with one mistake each and mends
// them. Each says what is wrong and where, and disturbs nobody.
func TestMistakesOfIngressRoutes(t *testing.T) {
	s := shared(t)
	s.namespace(t, "mistake")
	s.namespace(t, "neighbour")
	s.apply(t, service("mistake", "app", s.backends["os1-a"]), service("mistake", "other", s.backends["os1-b"]))
	f := s.startTraffic(t, newsHost)
	const (
		good = "{match: /, services: [{name: app, port: 80}]}"
		fine = "valid IngressRoute"
	)
	for _, c := range []struct {
		name   string
		broken []string // manifests
		// says maps resources to their status and description.
		says map[ref][2]string
		// answers are by host and path while it is broken.
		answers map[string]int
		mended  []string
		healed  map[string]int
	}{
		{
			name:    "service",
			broken:  []string{ingressRoute("mistake", "service", "service.example.com", "{match: /, services: [{name: nobody, port: 80}]}")},
			says:    map[ref][2]string{"IngressRoute mistake/service": {"invalid", `spec.routes[0].services[0].name: Service mistake/nobody not found`}},
			answers: map[string]int{"service.example.com/": 503},
			mended:  []string{service("mistake", "nobody", s.backends["os1-a"])},
			healed:  map[string]int{"service.example.com/": 200},
		},
		{
			name:    "port",
			broken:  []string{ingressRoute("mistake", "port", "port.example.com", "{match: /, services: [{name: app, port: 81}]}")},
			says:    map[ref][2]string{"IngressRoute mistake/port": {"invalid", `spec.routes[0].services[0].port: Service mistake/app has no port 81; it has 80`}},
			answers: map[string]int{"port.example.com/": 503},
			mended:  []string{ingressRoute("mistake", "port", "port.example.com", good)},
			healed:  map[string]int{"port.example.com/": 200},
		},
		{
			name: "weights",
			broken: []string{
				ingressRoute("mistake", "weights", "weights.example.com", "{match: /, services: [{name: app, port: 80, weight: 0}, {name: other, port: 80, weight: 0}]}"),
			},
			says:    map[ref][2]string{"IngressRoute mistake/weights": {"invalid", "spec.routes[0].services: all weights are 0: at least one service must have a weight above 0"}},
			answers: map[string]int{"weights.example.com/": 503},
			mended: []string{
				ingressRoute("mistake", "weights", "weights.example.com", "{match: /, services: [{name: app, port: 80, weight: 1}, {name: other, port: 80, weight: 0}]}"),
			},
			healed: map[string]int{"weights.example.com/": 200},
		},
		{
			name: "twice",
			broken: []string{
				ingressRoute("mistake", "first", "twice.example.com", good),
				ingressRoute("mistake", "second", "twice.example.com", good),
			},
			says: map[ref][2]string{
				"IngressRoute mistake/first":  {"invalid", `…fqdn "twice.example.com" is used in multiple IngressRoutes: mistake/first, mistake/second`},
				"IngressRoute mistake/second": {"invalid", `…fqdn "twice.example.com" is used in multiple IngressRoutes: mistake/first, mistake/second`},
			},
			answers: map[string]int{"twice.example.com/": 404},
			mended:  []string{ingressRoute("mistake", "second", "once.example.com", good)},
			healed:  map[string]int{"twice.example.com/": 200, "once.example.com/": 200},
		},
		{
			name: "cycle",
			broken: []string{
				ingressRoute("mistake", "root", "cycle.example.com", "{match: /fine, services: [{name: app, port: 80}]}", "{match: /, delegate: {name: x}}"),
				ingressRoute("mistake", "x", "", "{match: /, delegate: {name: z}}"),
				ingressRoute("mistake", "z", "", "{match: /, delegate: {name: x}}"),
			},
			says: map[ref][2]string{
				"IngressRoute mistake/z": {"invalid", "spec.routes[0].delegate: route creates a delegation cycle: …mistake/x -> mistake/z -> mistake/x"},
			},
			answers: map[string]int{"cycle.example.com/": 503, "cycle.example.com/fine": 200},
			mended:  []string{ingressRoute("mistake", "z", "", good)},
			healed:  map[string]int{"cycle.example.com/": 200, "cycle.example.com/fine": 200},
		},
		{
			name: "orphan",
			broken: []string{
				ingressRoute("mistake", "orphan", "", "{match: /, services: [{name: app, port: 80}]}"),
			},
			says:    map[ref][2]string{"IngressRoute mistake/orphan": {"orphaned", "…"}},
			answers: map[string]int{"orphan.example.com/": 404},
			mended:  []string{ingressRoute("neighbour", "root", "orphan.example.com", "{match: /, delegate: {name: orphan, namespace: mistake}}")},
			healed:  map[string]int{"orphan.example.com/": 200},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.apply(t, c.broken...)
			var all []ref
			for r, says := range c.says {
				all = append(all, r)
				s.awaitIngress(t, r, says[0], says[1])
				severity, reason := v1.SeverityError, "Invalid"
				if says[0] == "orphaned" {
					severity, reason = v1.SeverityWarning, "Orphaned"
				}
				s.awaitProblem(t, v1.Problem{Severity: severity, Subject: string(r), Reason: reason, Message: says[1]})
			}
			expect := func(answers map[string]int) {
				t.Helper()
				for url, status := range answers {
					host, path, _ := strings.Cut(url, "/")
					s.awaitAnswer(t, request{host: host, path: path}, status)
				}
			}
			expect(c.answers)
			s.apply(t, c.mended...)
			for _, r := range all {
				s.awaitIngress(t, r, "valid", fine)
			}
			expect(c.healed)
			s.awaitNoProblem(t)
		})
	}
	f.none(t)

	// What the schema refuses never gets that far.
	for weight, says := range map[string]string{
		"-1":      "spec.routes[0].services[0].weight in body should be greater than or equal to 0",
		"1000001": "spec.routes[0].services[0].weight in body should be less than or equal to 1000000",
	} {
		_, err := s.plane.Apply(t.Context(), ingressRoute("mistake", "refused", "refused.example.com", "{match: /, services: [{name: app, port: 80, weight: "+weight+"}]}"))
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("weight %s: kubectl says %v, want %q", weight, err, says)
		}
	}
}

// TestMistakesOfHTTPRoutes does the same with HTTPRoutes.
func TestMistakesOfHTTPRoutes(t *testing.T) {
	s := shared(t)
	s.namespace(t, "blunder")
	s.apply(t, service("blunder", "app", s.backends["os1-a"]))
	f := s.startTraffic(t, newsHost)
	for _, c := range []struct {
		name   string
		rule   string
		parent string
		want   condition
		status int
	}{
		{
			name: "service", rule: to("nobody"), status: 500,
			want: condition{"ResolvedRefs", "False", "BackendNotFound", "…Service blunder/nobody not found"},
		},
		{
			name: "port", rule: "{backendRefs: [{name: app, port: 81}]}", status: 500,
			want: condition{"ResolvedRefs", "False", "BackendNotFound", "…Service blunder/app has no port 81; it has 80"},
		},
		{
			name: "stranger", rule: "{backendRefs: [{name: " + newsOS1 + ", namespace: news-team, port: 80}]}", status: 500,
			want: condition{"ResolvedRefs", "False", "RefNotPermitted", "spec.rules[0].backendRefs[0]: no ReferenceGrant in namespace news-team lets HTTPRoutes of namespace blunder use Service " + newsOS1},
		},
		{
			name: "filter", rule: "{filters: [{type: ExtensionRef, extensionRef: {group: example.com, kind: Filter, name: x}}], backendRefs: [{name: app, port: 80}]}", status: 500,
			want: condition{"ResolvedRefs", "False", "InvalidKind", `…spec.rules[0].filters[0].extensionRef…Filter.example.com…`},
		},
		{
			name: "regex", rule: "{matches: [{path: {type: RegularExpression, value: '/(a'}}], backendRefs: [{name: app, port: 80}]}", status: 404,
			want: condition{"Accepted", "False", "UnsupportedValue", `…spec.rules[0].matches[0].path.value…"/(a" is not a valid RE2 expression: missing closing ): …`},
		},
		{
			name: "listener", rule: to("app"), parent: "sectionName: nothere", status: 404,
			want: condition{"Accepted", "False", "NoMatchingParent", "…nothere…"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			host := c.name + ".blunder.example.com"
			broken := httpRoute("blunder", c.name, host, c.rule)
			if c.parent != "" {
				broken = strings.Replace(broken, "{name: edge, ", "{"+c.parent+", name: edge, ", 1)
			}
			s.apply(t, broken)
			r := ref("HTTPRoute blunder/" + c.name)
			s.awaitConditions(t, r, c.want)
			s.awaitProblem(t, v1.Problem{Severity: v1.SeverityError, Subject: string(r), Reason: c.want.reason, Message: c.want.message})
			s.awaitAnswer(t, request{host: host}, c.status)
			s.apply(t, httpRoute("blunder", c.name, host, to("app")))
			s.awaitConditions(t, r, programmed)
			s.awaitAnswer(t, request{host: host}, 200, "os1-a")
			s.awaitNoProblem(t)
		})
	}
	f.none(t)
}

// TestHostClaimedByBothKinds lets an HTTPRoute and an IngressRoute ask for one host at
// one port. The older one keeps it, both say so, and whoever goes frees it.
func TestHostClaimedByBothKinds(t *testing.T) {
	s := shared(t)
	s.namespace(t, "claim")
	s.apply(t, service("claim", "http", s.backends["os1-a"]), service("claim", "ingress", s.backends["os1-b"]),
		httpRoute("claim", "first", "claimed.example.com", to("http")))
	s.awaitConditions(t, "HTTPRoute claim/first", programmed)
	// Creation times have whole seconds; of two in one second the name decides, so the
	// names here are in the order of creation.
	s.apply(t, ingressRoute("claim", "second", "claimed.example.com", "{match: /, services: [{name: ingress, port: 80}]}"))
	s.awaitIngress(t, "IngressRoute claim/second", "invalid", `spec.virtualhost.fqdn: host "claimed.example.com" at port 80 belongs to the older HTTPRoute claim/first`)
	s.awaitConditions(t, "HTTPRoute claim/first", programmed,
		condition{"fairlead.dev/HostConflict", "True", "HostKept", "claimed by others too, which are not served there: …claimed.example.com…IngressRoute claim/second…"})
	s.awaitAnswer(t, request{host: "claimed.example.com"}, 200, "os1-a")

	s.kubectl(t, "-n", "claim", "delete", "httproute", "first")
	s.awaitIngress(t, "IngressRoute claim/second", "valid", "valid IngressRoute")
	s.awaitAnswer(t, request{host: "claimed.example.com"}, 200, "os1-b")

	s.apply(t, httpRoute("claim", "third", "claimed.example.com", to("http")))
	s.awaitConditions(t, "HTTPRoute claim/third",
		condition{"Accepted", "False", "HostConflict", "…claimed.example.com…IngressRoute claim/second…"},
		condition{"fairlead.dev/HostConflict", "True", "HostLost", "…claimed.example.com…IngressRoute claim/second…"})
	s.awaitIngress(t, "IngressRoute claim/second", "valid", `…claimed by HTTPRoute claim/third…`)
	s.awaitAnswer(t, request{host: "claimed.example.com"}, 200, "os1-b")
	s.kubectl(t, "-n", "claim", "delete", "ingressroute", "second")
	s.awaitConditions(t, "HTTPRoute claim/third", programmed)
	s.awaitAnswer(t, request{host: "claimed.example.com"}, 200, "os1-a")
}
