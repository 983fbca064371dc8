package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"

	"fairlead.dev/deploy/crd"
	"fairlead.dev/internal/snapshot"
)

func read(t *testing.T, archive []byte) map[string]string {
	t.Helper()
	zip, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(zip); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = string(body)
	}
}

func TestAPartThatFailsIsNamedAndTheRestIsThere(t *testing.T) {
	var out bytes.Buffer
	outcomes, err := Write(t.Context(), &out, "b", time.Unix(0, 0), time.Minute, []Part{
		{"plane/status.json", func(context.Context) ([]byte, error) { return []byte("{}"), nil }},
		{"plane/metrics.txt", func(context.Context) ([]byte, error) { return nil, errors.New("connection refused") }},
		{"plane/readyz.txt", func(context.Context) ([]byte, error) { return []byte("not synced"), errors.New("503") }},
		{"leader/routes.json", func(context.Context) ([]byte, error) { return []byte("this plane stands by\n"), errors.New("503") }},
		{"leader/backends.json", func(context.Context) ([]byte, error) { return []byte("[]"), errors.New("cut off") }},
	})
	if err != nil || len(outcomes) != 5 {
		t.Fatalf("%v, %v", outcomes, err)
	}
	files := read(t, out.Bytes())
	if files["b/plane/status.json"] != "{}" || files["b/plane/readyz.txt"] != "not synced" {
		t.Errorf("files: %v", files)
	}
	// A sentence is no JSON, whatever was asked for.
	if _, is := files["b/leader/routes.json"]; is || files["b/leader/routes.json.MISSING.txt"] != "this plane stands by\n" || files["b/leader/backends.json"] != "[]" {
		t.Errorf("files: %v", files)
	}
	if !strings.Contains(files["b/index.txt"], "missing: 503 (what there is of it: leader/routes.json.MISSING.txt)") {
		t.Errorf("the index does not lead to the answer:\n%s", files["b/index.txt"])
	}
	if !strings.Contains(files["b/index.txt"], "connection refused") {
		t.Errorf("the index does not name the missing part:\n%s", files["b/index.txt"])
	}
}

func TestAPartThatHangsIsGivenUp(t *testing.T) {
	var out bytes.Buffer
	outcomes, err := Write(t.Context(), &out, "b", time.Unix(0, 0), time.Millisecond, []Part{
		{"a", func(ctx context.Context) ([]byte, error) { <-ctx.Done(); return nil, ctx.Err() }},
	})
	if err != nil || !errors.Is(outcomes[0].Err, context.DeadlineExceeded) {
		t.Fatalf("%v, %v", outcomes, err)
	}
}

func TestResourcesLeaveSecretsAndNoiseOut(t *testing.T) {
	object := func(api, kind, name string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": api, "kind": kind,
			"metadata": map[string]any{
				"name": name, "namespace": "team",
				"annotations":   map[string]any{lastApplied: "everything once more"},
				"managedFields": []any{map[string]any{"manager": "kubectl"}},
			},
		}}
	}
	kinds := map[schema.GroupVersionResource]string{}
	collected, err := Kinds(crd.All(crd.Experimental)...)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range collected {
		kinds[r] = "List"
	}
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds,
		object("v1", "Service", "app"), object("v1", "Secret", "key"))
	var out bytes.Buffer
	outcomes, err := Write(t.Context(), &out, "b", time.Unix(0, 0), time.Minute, Resources(client, collected))
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range outcomes {
		if o.Err != nil {
			t.Errorf("%s: %v", o.Name, o.Err)
		}
	}
	files := read(t, out.Bytes())
	if !strings.Contains(files["b/resources/services.yaml"], "name: app") {
		t.Errorf("services: %q", files["b/resources/services.yaml"])
	}
	for name, body := range files {
		for _, never := range []string{"managedFields", "everything once more", "kind: Secret"} {
			if strings.Contains(body, never) {
				t.Errorf("%s holds %q", name, never)
			}
		}
	}
}

// Every kind that is defined is collected, and Secrets are not.
func TestEveryKindIsCollected(t *testing.T) {
	kinds, err := Kinds(crd.All(crd.Experimental)...)
	if err != nil {
		t.Fatal(err)
	}
	collected := map[string]bool{}
	for _, k := range kinds {
		collected[k.Resource] = true
	}
	definitions := 0
	for _, files := range crd.All(crd.Experimental) {
		if err := fs.WalkDir(files, ".", func(path string, _ fs.DirEntry, err error) error {
			body, _ := fs.ReadFile(files, path) // none of a folder
			if bytes.Contains(body, []byte("kind: CustomResourceDefinition\n")) {
				definitions++
				if plural := path[strings.LastIndexByte(path, '_')+1 : len(path)-len(".yaml")]; !collected[plural] {
					t.Errorf("%s is not collected", plural)
				}
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range snapshot.Resources() {
		if collected[r.Resource] == r.Private {
			t.Errorf("%s are private %t and collected %t", r.Resource, r.Private, collected[r.Resource])
		}
	}
	if definitions < 20 || len(kinds) < definitions || collected["secrets"] {
		t.Errorf("%d definitions, %d kinds: %v", definitions, len(kinds), kinds)
	}
}

// TestTailAfterAHole: what was freed of a log is no part of its tail.
func TestTailAfterAHole(t *testing.T) {
	log := filepath.Join(t.TempDir(), "envoy.log")
	for _, hole := range []int{4096, tailBytes} {
		if err := os.WriteFile(log, append(make([]byte, hole), " of a line\nthe last line\n"...), 0o600); err != nil {
			t.Fatal(err)
		}
		if body, err := Tail("envoy.log", log).Fetch(t.Context()); err != nil || string(body) != "the last line\n" {
			t.Errorf("after a hole of %d bytes the tail is %q, %v", hole, body, err)
		}
	}
}

// Keys that somebody wrote where none belong do not travel.
func TestPrivateKeysAreTakenOut(t *testing.T) {
	const planted = "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg"
	const pem = "-----BEGIN EC PRIVATE KEY-----\n" + planted + "\n-----END EC PRIVATE KEY-----"
	log := filepath.Join(t.TempDir(), "envoy.log")
	lines := strings.Repeat("a line\n", tailBytes/4) + strings.ReplaceAll(pem, "\n", `\n`) + "\nthe last line\n"
	if err := os.WriteFile(log, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	outcomes, err := Write(t.Context(), &out, "b", time.Unix(0, 0), time.Minute, []Part{
		Tail("logs/envoy.log", log),
		Tail("logs/none", log+".none"),
		{"half.txt", func(context.Context) ([]byte, error) { return []byte("before\n" + pem[:60]), nil }},
		{"status.json", func(context.Context) ([]byte, error) { return []byte("{\"a\": \"" + pem + "\", \"b\": 1}"), nil }},
	})
	if err != nil || outcomes[1].Err == nil {
		t.Fatalf("%+v, %v", outcomes, err)
	}
	files := read(t, out.Bytes())
	for name, body := range files {
		if strings.Contains(body, planted[:8]) {
			t.Errorf("%s has the key", name)
		}
	}
	if body := files["b/logs/envoy.log"]; len(body) > tailBytes || !strings.HasPrefix(body, "a line\n") || !strings.HasSuffix(body, "\nthe last line\n") {
		t.Errorf("the tail has %d bytes", len(body))
	}
	if !strings.Contains(files["b/status.json"], `"b": 1`) || !strings.HasPrefix(files["b/half.txt"], "before\n[redacted") {
		t.Errorf("%q, %q", files["b/status.json"], files["b/half.txt"])
	}
}

// Whoever writes a line of a key into a log, as any client can, has no more taken out than that; and what clients and
// routes say to servers to be let in is in no bundle.
func TestWhatIsScrubbed(t *testing.T) {
	for in, want := range map[string]string{
		`{"path":"/a","user_agent":"-----BEGIN PRIVATE KEY-----","status":200}` + "\n" + `{"path":"/b","status":404}`:                        `{"path":"/a","user_agent":"` + redacted + `","status":200}` + "\n" + `{"path":"/b","status":404}`,
		"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\nMIIE+/=\n-----END RSA PRIVATE KEY-----\nafter": redacted + "\nafter",
		`{"path":"/reset?token=abc&x=1","status":200}`:                   `{"path":"/reset?[redacted]","status":200}`,
		"set: [{name: Authorization, value: Bearer abcdef0123456789.x}]": "set: [{name: Authorization, value: Bearer [redacted]}]",
		`"value":"Basic dXNlcjpwYXNzd29yZA=="`:                           `"value":"Basic [redacted]"`,
		"the basic idea of bearer tokens is":                             "the basic idea of bearer tokens is",
	} {
		if got := string(scrub([]byte(in))); got != want {
			t.Errorf("%s\n became\n%s\nwant\n%s", in, got, want)
		}
	}
}
