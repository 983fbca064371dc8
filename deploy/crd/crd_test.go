package crd_test

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"fairlead.dev/deploy/crd"
)

func TestEverySetHasDefinitions(t *testing.T) {
	for name, set := range map[string]fs.FS{"gateway": crd.Gateway(crd.Standard), "experimental": crd.Gateway(crd.Experimental), "fairlead": crd.Fairlead(), "contour": crd.Contour()} {
		files, err := fs.Glob(set, "*.yaml")
		if err != nil || len(files) == 0 {
			t.Errorf("%s: files %v, error %v", name, files, err)
		}
		for _, file := range files {
			b, err := fs.ReadFile(set, file)
			if err != nil {
				t.Error(err)
			}
			if !bytes.Contains(b, []byte("\nkind: ")) {
				t.Errorf("%s/%s has no kind", name, file)
			}
		}
	}
}

// The copy must be what the module in go.mod holds.
func TestGatewayIsTheModulesOwn(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/gateway-api").Output()
	if err != nil {
		t.Fatalf("ask go for the module: %v", err)
	}
	for _, c := range []crd.Channel{crd.Standard, crd.Experimental} {
		dir := filepath.Join(strings.TrimSpace(string(out)), "config/crd")
		// The experimental channel has more kinds, which nobody here serves.
		theirs, err := filepath.Glob(filepath.Join(dir, "standard", "*.yaml"))
		if err != nil || len(theirs) == 0 {
			t.Fatalf("no definitions in %s: %v", dir, err)
		}
		ours, err := fs.Glob(crd.Gateway(c), "*.yaml")
		if err != nil {
			t.Fatal(err)
		}
		if len(ours) != len(theirs) {
			t.Errorf("%s: %d files here, %d in the module: run deploy/crd/sync.sh", c, len(ours), len(theirs))
		}
		for _, path := range theirs {
			want, err := os.ReadFile(filepath.Join(dir, string(c), filepath.Base(path)))
			if err != nil {
				t.Fatal(err)
			}
			got, err := fs.ReadFile(crd.Gateway(c), filepath.Base(path))
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: %s differs from the module's (%v): run deploy/crd/sync.sh", c, filepath.Base(path), err)
			}
			if bytes.Contains(got, []byte("kind: CustomResourceDefinition")) && !bytes.Contains(got, []byte("gateway.networking.k8s.io/channel: "+string(c)+"\n")) {
				t.Errorf("%s: %s is of another channel", c, filepath.Base(path))
			}
		}
	}
}
