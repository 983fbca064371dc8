package cluster

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The cluster's programs are a module of their own. Kubernetes and what most of it is
// compiled with has the same version in both: one compilation, and the cluster is the
// Kubernetes that Fairlead was built with.
func TestVersionsAreTheMainModules(t *testing.T) {
	ours, theirs := versions(t, filepath.Join("..", "..", "go.mod")), versions(t, filepath.Join("..", "..", "tools", "cluster", "go.mod"))
	same := 0
	for module, version := range theirs {
		if !shared.MatchString(module) {
			continue
		}
		if our, both := ours[module]; both && our != version {
			t.Errorf("%s: %s in tools/cluster/go.mod, and %s in go.mod", module, version, our)
		} else if both {
			same++
		}
	}
	if same < 40 {
		t.Errorf("only %d modules in common: the test reads the wrong files", same)
	}
}

var shared = regexp.MustCompile(`^(k8s\.io|sigs\.k8s\.io|go\.etcd\.io|google\.golang\.org|go\.uber\.org/zap|github\.com/prometheus)(/|$)`)

var line = regexp.MustCompile(`(?m)^\s*([a-z][^\s]*)\s+(=> [^\s]+ )?(v[^\s]+)`)

// versions are a go.mod's, those of replacements apart.
func versions(t *testing.T, path string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, m := range line.FindAllStringSubmatch(string(text), -1) {
		key := m[1]
		if m[2] != "" {
			key += " " + strings.TrimSpace(m[2])
		}
		found[key] = m[3]
	}
	return found
}
