package crd_test

import (
	"context"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

// TestUpstreamsAreChecked holds that the API refuses an Upstream that the planes could not follow, and says what to do instead.
func TestUpstreamsAreChecked(t *testing.T) {
	const cluster = "kubernetes: {secret: up01}, "
	of := func(fields string) string { return "openstack: {secret: up02, " + fields + "}" }
	for _, c := range []struct{ spec, want string }{
		{cluster, ""},
		{"kubernetes: {secret: up01, context: admin@one}", ""},
		{"openstack: {secret: up02}", ""},
		{of("cloud: one, api: LBaaSv2, projects: [team01, 7f0c9d6f0b8c4d2e9d3a5f1b2c4e6a80], pollInterval: 200ms, sweepInterval: 24h, notificationTopic: lb"), ""},
		{of("pollInterval: 1h, sweepInterval: 1s"), ""},
		{cluster + "namespaces: {include: ['team*', kube-system], exclude: [team02], map: [{from: Team 01, to: team01}], projectsBy: ID}", ""},
		{cluster + "services: {matchLabels: {expose: 'true'}}, addresses: [10.0.0.0/8, '2001:db8::/32', 192.0.2.7/32]", ""},
		{cluster + "requestsPerSecond: 10000, limits: {services: 1000000, endpoints: 10000000, answerMiB: 4096}", ""},
		{cluster + "loss: {threshold: 0, keepFor: 24h, returnTime: 0s}, naming: Gimbal", ""},
		{cluster + "loss: {threshold: 100, keepFor: '0', returnTime: 1h}", ""},

		{"", "give either kubernetes or openstack"},
		{cluster + "openstack: {secret: up02}", "give either kubernetes or openstack"},
		{"kubernetes: {}", "spec.kubernetes.secret: Required value"},
		{"kubernetes: {secret: ''}", "at least 1 chars long"},
		{"openstack: {}", "spec.openstack.secret: Required value"},
		{of("api: LBaaSv1"), `supported values: "Octavia", "LBaaSv2"`},
		{of("pollInterval: 199ms"), "must be a duration from 200ms to 1h, such as 1s"},
		{of("pollInterval: 61m"), "must be a duration from 200ms to 1h, such as 1s"},
		{of("pollInterval: often"), "must be a duration from 200ms to 1h, such as 1s"},
		{of("pollInterval: -1s"), "must be a duration from 200ms to 1h, such as 1s"},
		{of("pollInterval: 1"), "spec.openstack.pollInterval"},
		{of("sweepInterval: 999ms"), "must be a duration from 1s to 24h, such as 30s"},
		{of("sweepInterval: 25h"), "must be a duration from 1s to 24h, such as 30s"},
		{of("sweepInterval: ''"), "must be a duration from 1s to 24h, such as 30s"},
		{of("projects: ['" + strings.Repeat("p", 65) + "']"), "may not be more than 64"},

		{cluster + "namespaces: {projectsBy: Number}", `supported values: "Name", "ID"`},
		{cluster + "namespaces: {map: [{from: a, to: A}]}", "should match '^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'"},
		{cluster + "namespaces: {map: [{from: a, to: a-}]}", "should match '^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'"},
		{cluster + "namespaces: {map: [{from: '', to: a}]}", "at least 1 chars long"},
		{cluster + "namespaces: {map: [{from: a}]}", "to: Required value"},
		{cluster + "addresses: [10.0.0.0]", "must be a network such as 10.0.0.0/8 or 2001:db8::/32"},
		{cluster + "addresses: [10.0.0.0/33]", "must be a network such as 10.0.0.0/8 or 2001:db8::/32"},
		{cluster + "addresses: [pods]", "must be a network such as 10.0.0.0/8 or 2001:db8::/32"},
		{cluster + "requestsPerSecond: 0", "should be greater than or equal to 1"},
		{cluster + "requestsPerSecond: 10001", "should be less than or equal to 10000"},
		{cluster + "limits: {services: 0}", "should be greater than or equal to 1"},
		{cluster + "limits: {services: 1000001}", "should be less than or equal to 1000000"},
		{cluster + "limits: {endpoints: 0}", "should be greater than or equal to 1"},
		{cluster + "limits: {endpoints: 10000001}", "should be less than or equal to"},
		{cluster + "limits: {answerMiB: 0}", "should be greater than or equal to 1"},
		{cluster + "limits: {answerMiB: 4097}", "should be less than or equal to 4096"},
		{cluster + "loss: {threshold: -1}", "should be greater than or equal to 0"},
		{cluster + "loss: {threshold: 101}", "should be less than or equal to 100"},
		{cluster + "loss: {keepFor: never}", "must be a duration, such as 0s, 30m or 24h"},
		{cluster + "loss: {keepFor: -1h}", "must be a duration, such as 0s, 30m or 24h"},
		{cluster + "loss: {returnTime: 61m}", "must be a duration from 0s to 1h, such as 10s"},
		{cluster + "loss: {returnTime: soon}", "must be a duration from 0s to 1h, such as 10s"},
		{cluster + "naming: Contour", `supported values: "Fairlead", "Gimbal"`},
	} {
		problems := judge(t, "upstreams", strings.TrimSuffix(c.spec, ", "))
		switch {
		case c.want == "" && len(problems) > 0:
			t.Errorf("{%s} is refused: %v", c.spec, problems.ToAggregate())
		case c.want != "" && (len(problems) == 0 || !strings.Contains(problems.ToAggregate().Error(), c.want)):
			t.Errorf("{%s}: got %v, want %q", c.spec, problems.ToAggregate(), c.want)
		case c.want != "" && strings.Contains(problems.ToAggregate().Error(), "conversion error"):
			t.Errorf("{%s} is refused by the way rules are evaluated: %v", c.spec, problems.ToAggregate())
		}
	}
}

// TestNamesOfUpstreams holds that the name of an Upstream leaves room for the names of its Services, which it begins.
func TestNamesOfUpstreams(t *testing.T) {
	_, structural := schemaOf(t, "fairlead.dev_upstreams.yaml")
	for name, valid := range map[string]bool{
		"up01": true, "u": true, "a" + strings.Repeat("b", 31): true,
		"a" + strings.Repeat("b", 32): false, "01up": false, "up-": false, "up.one": false, "Up01": false,
	} {
		object := parsed(t, "metadata: {name: '"+name+"'}\nspec: {kubernetes: {secret: up01}}\n")
		problems, _ := cel.NewValidator(structural, true, callCost).Validate(context.Background(), nil, structural, object, nil, objectCost)
		const want = "the name of an Upstream begins the names of its Services: it begins with a letter, and has at most 32 lower-case letters, digits and '-'"
		if got := problems.ToAggregate(); valid != (got == nil) || got != nil && !strings.Contains(got.Error(), want) {
			t.Errorf("%s: got %v, want it to be valid: %v", name, got, valid)
		}
	}
}

// TestDefaultsOfUpstreams holds that the API gives an Upstream the values that the reference says.
func TestDefaultsOfUpstreams(t *testing.T) {
	for of, want := range map[string]string{
		"kubernetes: {secret: up01}": `{"kubernetes":{"secret":"up01"},"limits":{"answerMiB":256,"endpoints":100000,"services":10000},` +
			`"loss":{"keepFor":"0s","returnTime":"10s","threshold":50},"naming":"Fairlead","requestsPerSecond":20}`,
		"openstack: {secret: up02}, namespaces: {}": `{"limits":{"answerMiB":256,"endpoints":100000,"services":10000},` +
			`"loss":{"keepFor":"0s","returnTime":"10s","threshold":50},"namespaces":{"projectsBy":"Name"},"naming":"Fairlead",` +
			`"openstack":{"api":"Octavia","notificationTopic":"notifications","pollInterval":"1s","secret":"up02","sweepInterval":"30s"},"requestsPerSecond":20}`,
	} {
		_, structural := schemaOf(t, "fairlead.dev_upstreams.yaml")
		object := map[string]any{"spec": parsed(t, "{"+of+"}")}
		defaulting.Default(object, structural)
		if got, err := json.Marshal(object["spec"]); err != nil || string(got) != want {
			t.Errorf("{%s} becomes %v\n%s\nwant\n%s", of, err, got, want)
		}
	}
}

// parsed is what an API server reads; its numbers are integers.
func parsed(t *testing.T, text string) map[string]any {
	t.Helper()
	encoded, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := json.Unmarshal(encoded, &object); err != nil {
		t.Fatal(err)
	}
	return object
}
