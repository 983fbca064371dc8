package snapshot

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	contourv1beta1 "fairlead.dev/api/contour/v1beta1"
	"fairlead.dev/api/v1alpha1"
)

// Every kind is described once, by the type that its API has for it, and all that a snapshot does reaches its objects.
func TestResources(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, gatewayv1.Install, contourv1beta1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	if kinds := Kinds(); !slices.IsSorted(kinds) || len(slices.Compact(kinds)) != len(Resources()) {
		t.Errorf("the kinds are not in the order of their names: %v", kinds)
	}
	for _, r := range Resources() {
		t.Run(string(r.Kind), func(t *testing.T) {
			if r.Group != "discovery.k8s.io" {
				if gvk := r.GroupVersionKind(); !scheme.Recognizes(gvk) || !scheme.Recognizes(r.GroupVersion().WithKind(string(r.Kind)+"List")) {
					t.Errorf("no API has %s and a list of it", gvk)
				}
				if kinds, _, err := scheme.ObjectKinds(r.New()); err != nil || !slices.Contains(kinds, r.GroupVersionKind()) {
					t.Errorf("New gives %v, %v", kinds, err)
				}
			}
			if !meta.IsListType(r.NewList()) {
				t.Errorf("NewList gives a %T", r.NewList())
			}
			gv := r.GroupVersion().String()
			if found, is := ResourceFor(gv, string(r.Kind)); !is || found.Kind != r.Kind {
				t.Errorf("ResourceFor(%s, %s) finds %s", gv, r.Kind, found.Kind)
			}
			if found, is := ResourceOf(r.Kind); !is || found.Resource != r.Resource {
				t.Errorf("ResourceOf(%s) finds %s", r.Kind, found.Resource)
			}
			o := r.New()
			o.SetName("a")
			s := New()
			k, err := s.Set(o)
			if err != nil || k != (Key{r.Kind, Name{Name: "a"}}) || s.Get(k) != o || !slices.Equal(s.Keys(), []Key{k}) {
				t.Errorf("Set gives %s, %v; then there are %v", k, err, s.Keys())
			}
			if s.Delete(k); s.Get(k) != nil || len(s.Keys()) > 0 {
				t.Errorf("Delete leaves %v", s.Keys())
			}
			if trimmed := r.Trim(o, ""); trimmed.GetName() != "a" {
				t.Errorf("Trim makes it %v", trimmed)
			}
			if policy := r.Targets != nil; policy && (r.refs == nil || r.ancestors == nil) || !policy && r.refs != nil {
				t.Errorf("targets %v, with refs: %t, with ancestors: %t", r.Targets, r.refs != nil, r.ancestors != nil)
			}
			attached := 0
			if RouteStatus(o) != nil {
				attached++
			}
			if PolicyStatus(o) != nil {
				attached++
			}
			if attached > 1 || attached == 1 && r.Status != StatusTranslated {
				t.Errorf("a status of %d forms, and its origin is %d", attached, r.Status)
			}
		})
	}
	if _, is := ResourceFor("gateway.networking.k8s.io/v1beta1", "HTTPRoute"); !is {
		t.Error("HTTPRoute v1beta1 is not known")
	}
	for _, version := range []string{"v1", "gateway.networking.k8s.io/v1alpha2", ""} {
		if _, is := ResourceFor(version, "HTTPRoute"); is {
			t.Errorf("HTTPRoute of version %q is known", version)
		}
	}
	if s := New(); s.Get(Key{Kind: KindTime}) != nil || s.Get(Key{Kind: "Pod"}) != nil {
		t.Error("a snapshot holds what is no resource")
	}
}

// Every kind is named in the reference.
func TestResourcesAreDocumented(t *testing.T) {
	pages, err := filepath.Glob("../../docs/reference/*.md")
	if err != nil || len(pages) < 10 {
		t.Fatalf("the reference has the pages %v, %v", pages, err)
	}
	named := map[string]bool{}
	word := regexp.MustCompile(`\w+`)
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range word.FindAllString(string(text), -1) {
			named[w] = true
		}
	}
	for _, k := range Kinds() {
		if !named[string(k)] {
			t.Errorf("no page in docs/reference names %s", k)
		}
	}
}
