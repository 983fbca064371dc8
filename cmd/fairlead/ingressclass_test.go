package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTranslateOfOthersClasses holds that IngressRoutes of another class are left out, and that this is said.
func TestTranslateOfOthersClasses(t *testing.T) {
	name := filepath.Join(t.TempDir(), "in.yaml")
	manifest := `{apiVersion: contour.heptio.com/v1beta1, kind: IngressRoute, metadata: {name: app, namespace: team, annotations: {kubernetes.io/ingress.class: internal}}, spec: {virtualhost: {fqdn: app.example.com}, routes: [{match: /, services: [{name: web, port: 80}]}]}}`
	if err := os.WriteFile(name, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	const warning = "warning: 1 IngressRoutes have the class of another controller and are left out (--ingress-class): team/app"
	for class, served := range map[string]bool{"": false, "internal": true} {
		args := []string{"translate", "-f", name}
		if class != "" {
			args = append(args, "--ingress-class", class)
		}
		out, err := execute(args...)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(out, "status IngressRoute team/app"); got != served || strings.Contains(out, warning) == served {
			t.Errorf("class %q: served %v, want %v:\n%s", class, got, served, out)
		}
	}
}
