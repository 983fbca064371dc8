package sbom

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/CycloneDX/cyclonedx-go"
)

// A bill names the modules of a program with their versions, and is the same each time.
func TestBill(t *testing.T) {
	// Test programs do not know their modules.
	self := filepath.Join(t.TempDir(), "write")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", self, "./write").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var texts [2][]byte
	for i := range texts {
		b := New("fairlead", "1", cyclonedx.ComponentTypeApplication)
		if err := b.AddProgram(self); err != nil {
			t.Fatal(err)
		}
		if err := b.AddEnvoy(self, "1.2.3"); err != nil {
			t.Fatal(err)
		}
		var err error
		if texts[i], err = b.JSON(); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(texts[0], texts[1]) {
		t.Error("equal inputs gave two bills")
	}
	var bom cyclonedx.BOM
	if err := cyclonedx.NewBOMDecoder(bytes.NewReader(texts[0]), cyclonedx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`github.com/CycloneDX/cyclonedx-go (v\S+)`)
	mod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{
		"pkg:golang/github.com/CycloneDX/cyclonedx-go@" + string(version.FindSubmatch(mod)[1]): false,
		"pkg:github/envoyproxy/envoy@v1.2.3":                                                   false,
	}
	seen := map[string]bool{}
	for _, c := range *bom.Components {
		if seen[c.BOMRef] {
			t.Errorf("%s is there twice", c.BOMRef)
		}
		seen[c.BOMRef] = true
		if _, is := want[c.PackageURL]; is {
			want[c.PackageURL] = true
		}
	}
	for purl, found := range want {
		if !found {
			t.Errorf("the bill lacks %s", purl)
		}
	}
}

func TestLibc(t *testing.T) {
	if v, err := Libc("/bin/sh"); err != nil || !strings.HasPrefix(v, "2.") {
		t.Errorf("%q, %v", v, err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if v, err := Libc(self); err == nil {
		t.Errorf("a static program needs %s", v)
	}
}
