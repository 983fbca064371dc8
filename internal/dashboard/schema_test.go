package dashboard

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestSchema has TypeScript's compiler compare every dashboard with the types that Grafana publishes.
func TestSchema(t *testing.T) {
	modules, err := filepath.Abs(root + "/.tools/grafana/node_modules")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(modules); errors.Is(err, fs.ErrNotExist) {
		t.Skip("no @grafana/schema: tools/setup.sh grafana")
	}
	dir := t.TempDir()
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	types, err := os.ReadFile(root + "/tools/grafana/schema.ts")
	if err != nil {
		t.Fatal(err)
	}
	sources := map[string]string{"schema.ts": string(types)}
	for _, d := range All() {
		text, err := d.Grafana(Options{DataSource: "main"})
		if err != nil {
			t.Fatal(err)
		}
		sources[d.Name+".ts"] = "import type { Page } from './schema';\nexport const page: Page = " + string(text) + ";\n"
	}
	args := []string{filepath.Join(modules, "typescript", "bin", "tsc"), "--noEmit", "--strict", "--skipLibCheck", "--module", "preserve"}
	for name, source := range sources {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, name)
	}
	c := exec.Command("node", args...)
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("the compiler: %v: %s", err, out)
	}
}
