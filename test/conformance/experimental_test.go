package conformance

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// safeUpgrades is the policy of the standard channel that refuses definitions of the
// experimental one. Who wants those takes it away.
const safeUpgrades = "safe-upgrades.gateway.networking.k8s.io"

// installExperimental puts the definitions of the experimental channel over the standard
// ones, as a person would with kubectl, and returns when the API serves all of them.
func installExperimental(t *testing.T) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{apiextensionsv1.AddToScheme, admissionv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	api, err := client.New(restConfig(t), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []client.Object{
		&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: safeUpgrades}},
		&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: safeUpgrades}},
	} {
		if err := client.IgnoreNotFound(api.Delete(t.Context(), o)); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range experimentalFiles(t) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(text, crd); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		install(t, api, crd)
	}
}

// install replaces a definition, or makes it. The policy that is gone may refuse for a
// moment longer.
func install(t *testing.T, api client.Client, crd *apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	limit := time.Now().Add(time.Minute)
	for {
		old := &apiextensionsv1.CustomResourceDefinition{}
		err := api.Get(t.Context(), client.ObjectKeyFromObject(crd), old)
		switch {
		case err == nil:
			old.Annotations, old.Spec = crd.Annotations, crd.Spec
			err = api.Update(t.Context(), old)
		case client.IgnoreNotFound(err) == nil:
			err = api.Create(t.Context(), crd.DeepCopy())
		}
		if err == nil {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("install %s: %v", crd.Name, err)
		}
		select {
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// experimentalFiles are the channel's definitions in the module that go.mod names.
func experimentalFiles(t *testing.T) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/gateway-api").Output()
	if err != nil {
		t.Fatalf("find the module of the Gateway API: %v", err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "config", "crd", "experimental", "gateway.*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no definitions in %s (%v)", out, err)
	}
	return slices.DeleteFunc(files, func(path string) bool { return strings.Contains(filepath.Base(path), "_vap_") })
}
