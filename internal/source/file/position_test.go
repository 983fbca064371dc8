package file

import (
	"strings"
	"testing"

	"fairlead.dev/internal/snapshot"
)

func TestPositions(t *testing.T) {
	const text = `# a comment
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Service
  metadata: {name: a}
  spec:
    ports:
    - port: 80
    - name: x
      port: 81
---
apiVersion: v1
kind: Namespace
metadata:
  name: team
`
	_, positions, _, err := Load(strings.NewReader(text), Stdin)
	if err != nil {
		t.Fatal(err)
	}
	service := snapshot.Key{Kind: snapshot.KindService, Name: snapshot.Name{Namespace: "default", Name: "a"}}
	namespace := snapshot.Key{Kind: snapshot.KindNamespace, Name: snapshot.Name{Name: "team"}}
	for _, c := range []struct {
		key         snapshot.Key
		field, line string
	}{
		{service, "", ":5"},
		{service, "spec.ports", ":9"},
		{service, "spec.ports[1]", ":11"},
		{service, "spec.ports[1].port", ":12"},
		{service, "spec.ports[1].protocol", ":11"}, // left out: what stands around it
		{service, "status.loadBalancer", ":5"},
		{namespace, "metadata.name", ":17"},
		{snapshot.Key{Kind: snapshot.KindService, Name: snapshot.Name{Name: "b"}}, "spec", ""},
	} {
		want := c.line
		if want != "" {
			want = "standard input" + want
		}
		if got := positions.Where(c.key, c.field); got != want {
			t.Errorf("%v %s: %q, want %q", c.key, c.field, got, want)
		}
	}
}
