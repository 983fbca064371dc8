package kubernetes

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the files that are made of the program and of the chart")

// root is the checkout.
const root = "../.."

var chart = filepath.Join(root, "deploy", "chart", "fairlead")

// helmPath finds Helm: FAIRLEAD_HELM, or where tools/setup.sh puts it.
func helmPath(t *testing.T) string {
	t.Helper()
	path := os.Getenv("FAIRLEAD_HELM")
	if path == "" {
		path = filepath.Join(root, ".tools", "bin", "helm")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("no Helm (tools/setup.sh helm builds it): %v", err)
	}
	return path
}

// helm runs Helm and returns what it printed; nothing of it stays in the home.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), helmPath(t), args...)
	home := t.TempDir()
	command.Env = append(os.Environ(), "HOME="+home, "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	var out, problems bytes.Buffer
	command.Stdout, command.Stderr = &out, &problems
	if err := command.Run(); err != nil {
		return out.String(), fmt.Errorf("helm %s: %w: %s%s", strings.Join(args, " "), err, out.String(), problems.String())
	}
	return out.String(), nil
}

// render is what the chart makes of values.
func render(t *testing.T, args ...string) (string, error) {
	t.Helper()
	return helm(t, append([]string{"template", "fairlead", chart, "--namespace", "fairlead-system"}, args...)...)
}
