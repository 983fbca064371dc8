package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTranslateOfOthersClasses holds that IngressRoutes of another class are ignored with a warning.
func TestTranslateOfOthersClasses(t *testing.T) {
	name := filepath.Join(t.TempDir(), "in.yaml")
	manifest := `{apiVersion: contour.heptio.com/v1beta1, kind: IngressRoute, metadata: {name: app, namespace: team, annotations: {kubernetes.io/ingress.class: internal}}, spec: {virtualhost: {fqdn: app.example.com}, routes: [{match: /, services: [{name: web, port: 80}]}]}}`
	if err := os.WriteFile(name, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	const warning = "warning: 1 IngressRoute ignored, with the class of another controller (--ingress-class): team/app"
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

// TestExplainOfOthersClasses holds that explain of a host that another controller serves says whose it is.
func TestExplainOfOthersClasses(t *testing.T) {
	name := filepath.Join(t.TempDir(), "in.yaml")
	const root = `{apiVersion: contour.heptio.com/v1beta1, kind: IngressRoute, metadata: {name: NAME, namespace: team, annotations: {kubernetes.io/ingress.class: CLASS}}, spec: {virtualhost: {fqdn: NAME.example.com}, routes: [{match: /, services: [{name: web, port: 80}]}]}}` + "\n---\n"
	manifest := strings.NewReplacer("NAME", "app", "CLASS", "internal").Replace(root) + strings.NewReplacer("NAME", "web", "CLASS", "contour").Replace(root)
	if err := os.WriteFile(name, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	says := "IngressRoute team/app spec.virtualhost.fqdn (" + name + `:1) has the host, but its class "internal" is another controller's (--ingress-class)`
	for _, c := range []struct {
		host, class string
		others      bool
	}{{"app", "contour", true}, {"web", "contour", false}, {"app", "internal", false}} {
		out, err := execute("explain", "-f", name, "--ingress-class", c.class, "http://"+c.host+".example.com/")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(out, says) != c.others || strings.Contains(out, "another controller's") != c.others {
			t.Errorf("%s with class %q: no %q in\n%s", c.host, c.class, says, out)
		}
	}
}
