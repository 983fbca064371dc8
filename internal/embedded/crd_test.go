package embedded

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"fairlead.dev/deploy/crd"
)

// boatCRD is a definition with these versions, the last of which is stored.
func boatCRD(plural, annotation string, versions ...string) string {
	text := "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  name: " + plural + ".test.fairlead.dev\n"
	if annotation != "" {
		text += "  annotations: {" + annotation + "}\n"
	}
	text += "spec:\n  group: test.fairlead.dev\n  scope: Namespaced\n  names: {kind: Boat" + plural + ", plural: " + plural + "}\n  versions:\n"
	for i, v := range versions {
		stored := "false"
		if i == len(versions)-1 {
			stored = "true"
		}
		text += "  - {name: " + v + ", served: true, storage: " + stored + ", schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}\n"
	}
	return text
}

func fsWith(texts ...string) fs.FS {
	return fstest.MapFS{"crds/all.yaml": {Data: []byte(strings.Join(texts, "---\n"))}}
}

func getCRD(t *testing.T, s *Server, name string) *unstructured.Unstructured {
	t.Helper()
	c, err := dynamic.NewForConfig(s.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	o, err := c.Resource(crdResources[0].resource).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestOurDefinitionsInstallTwice(t *testing.T) {
	s := shared.get(t)
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	removeGatewayAPI(t, s)
	if err := InstallCRDs(t.Context(), s.RESTConfig(), logger, crd.All(crd.Standard)...); err != nil {
		t.Fatal(err)
	}
	getCRD(t, s, "machines.fairlead.dev")
	getCRD(t, s, "ingressroutes.contour.heptio.com")
	// Established means that objects are served at once.
	c, err := dynamic.NewForConfig(s.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	o := &unstructured.Unstructured{}
	text := "apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {name: fairlead}\nspec: {controllerName: fairlead.dev/gateway}\n"
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatal(err)
	}
	classes := schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "gatewayclasses"}
	if _, err := c.Resource(classes).Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	if err := c.Resource(classes).Delete(t.Context(), "fairlead", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	policies := c.Resource(crdResources[1].resource)
	if _, err := policies.Get(t.Context(), "safe-upgrades.gateway.networking.k8s.io", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	log.Reset()
	before := getCRD(t, s, "httproutes.gateway.networking.k8s.io").GetResourceVersion()
	if err := InstallCRDs(t.Context(), s.RESTConfig(), logger, crd.All(crd.Standard)...); err != nil {
		t.Fatal(err)
	}
	if log.Len() != 0 {
		t.Errorf("the second time something changed:\n%s", log.String())
	}
	if after := getCRD(t, s, "httproutes.gateway.networking.k8s.io").GetResourceVersion(); after != before {
		t.Errorf("the second time wrote: %s, then %s", before, after)
	}
}

// removeGatewayAPI deletes Gateway API's definitions and policies after a test.
func removeGatewayAPI(t *testing.T, s *Server) {
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		c, err := dynamic.NewForConfig(s.RESTConfig())
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "the Gateway API goes", func() error {
			var left []error
			for _, r := range crdResources {
				all, err := c.Resource(r.resource).List(ctx, metav1.ListOptions{})
				if err != nil {
					return err
				}
				for _, o := range all.Items {
					if strings.HasSuffix(o.GetName(), ".gateway.networking.k8s.io") {
						left = append(left, errors.New(o.GetName()+" is there"), c.Resource(r.resource).Delete(ctx, o.GetName(), metav1.DeleteOptions{}))
					}
				}
			}
			return errors.Join(left...)
		})
	})
}

// Our own API goes over to the experimental channel, which keeps what the standard one
// drops; an API of others stays with the channel that it has.
func TestOnlyOurOwnAPIChangesItsChannel(t *testing.T) {
	s := shared.get(t)
	removeGatewayAPI(t, s)
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	install := func(f func(context.Context, *rest.Config, *slog.Logger, ...fs.FS) error, c crd.Channel) {
		t.Helper()
		log.Reset()
		if err := f(t.Context(), s.RESTConfig(), logger, crd.Gateway(c)); err != nil {
			t.Fatal(err)
		}
	}
	c, err := dynamic.NewForConfig(s.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	routes := c.Resource(schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "httproutes"}).Namespace("default")
	keepsRetry := func() bool {
		t.Helper()
		o := &unstructured.Unstructured{}
		text := "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: retries, namespace: default}\nspec: {rules: [{retry: {attempts: 2}}]}\n"
		if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
			t.Fatal(err)
		}
		made, err := routes.Create(t.Context(), o, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := routes.Delete(t.Context(), "retries", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		rules, _, err := unstructured.NestedSlice(made.Object, "spec", "rules")
		if err != nil || len(rules) != 1 {
			t.Fatalf("%v: %v", err, made.Object)
		}
		_, kept := rules[0].(map[string]any)["retry"]
		return kept
	}

	install(InstallCRDs, crd.Standard)
	if keepsRetry() {
		t.Error("the standard channel keeps retries: nothing can be told apart")
	}
	install(InstallCRDs, crd.Experimental)
	if !strings.Contains(log.String(), "it is of the standard channel") || keepsRetry() {
		t.Errorf("another's API changed its channel:\n%s", log.String())
	}
	install(InstallOwnCRDs, crd.Experimental)
	eventually(t, "retries are kept", func() error {
		if !keepsRetry() {
			return errors.New("they are dropped:\n" + log.String())
		}
		return nil
	})
	install(InstallOwnCRDs, crd.Experimental)
	if log.Len() != 0 {
		t.Errorf("the second time something changed:\n%s", log.String())
	}
	install(InstallCRDs, crd.Standard)
	if !strings.Contains(log.String(), "it is of the experimental channel") || !keepsRetry() {
		t.Errorf("fields were taken away:\n%s", log.String())
	}
}

// removeBoats deletes the definitions that a test made.
func removeBoats(t *testing.T, s *Server) {
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		c, err := dynamic.NewForConfig(s.RESTConfig())
		if err != nil {
			t.Fatal(err)
		}
		crds := c.Resource(crdResources[0].resource)
		eventually(t, "the test's definitions go", func() error {
			all, err := crds.List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			var left []error
			for _, o := range all.Items {
				if strings.HasSuffix(o.GetName(), ".test.fairlead.dev") {
					left = append(left, errors.New(o.GetName()+" is there"), crds.Delete(ctx, o.GetName(), metav1.DeleteOptions{}))
				}
			}
			return errors.Join(left...)
		})
	})
}

func TestDefinitionsUpgradeAndNeverDowngrade(t *testing.T) {
	s := shared.get(t)
	removeBoats(t, s)
	const bundle = "gateway.networking.k8s.io/bundle-version: "
	for _, test := range []struct {
		plural, there, ours string
		stays               string // what the warning says, "" if ours replaces what is there
	}{
		{"upgraded", boatCRD("upgraded", "", "v1alpha1"), boatCRD("upgraded", "", "v1alpha1", "v1"), ""},
		{"stores", boatCRD("stores", "", "v1alpha1", "v1"), boatCRD("stores", "", "v1", "v1alpha1"), "it stores version v1, ours v1alpha1"},
		{"unserved", boatCRD("unserved", "", "v1alpha1"), boatCRD("unserved", "", "v1"), "stored in version v1alpha1, which ours does not have"},
		{"bundles", boatCRD("bundles", bundle+"v1.10.0", "v1"), boatCRD("bundles", bundle+"v1.6.3", "v1"), "it is of bundle v1.10.0, ours of v1.6.3"},
		{"older", boatCRD("older", bundle+"v1.2.0", "v1"), boatCRD("older", bundle+"v1.6.3", "v1"), ""},
		{"mysteries", boatCRD("mysteries", bundle+"newest", "v1"), boatCRD("mysteries", bundle+"v1.6.3", "v1"), "cannot be compared"},
		{"experiments", boatCRD("experiments", channelKey+": experimental", "v1"), boatCRD("experiments", channelKey+": standard", "v1"), "experimental channel"},
		{"standards", boatCRD("standards", channelKey+": standard", "v1"), boatCRD("standards", channelKey+": experimental", "v1"), "standard channel"},
	} {
		t.Run(test.plural, func(t *testing.T) {
			if err := InstallCRDs(t.Context(), s.RESTConfig(), slog.New(slog.DiscardHandler), fsWith(test.there)); err != nil {
				t.Fatal(err)
			}
			name := test.plural + ".test.fairlead.dev"
			before := getCRD(t, s, name)
			var log bytes.Buffer
			if err := InstallCRDs(t.Context(), s.RESTConfig(), slog.New(slog.NewTextHandler(&log, nil)), fsWith(test.ours)); err != nil {
				t.Fatal(err)
			}
			after := getCRD(t, s, name)
			if replaced := before.GetResourceVersion() != after.GetResourceVersion(); replaced != (test.stays == "") {
				t.Errorf("replaced %v\n%s", replaced, log.String())
			}
			if !strings.Contains(log.String(), test.stays) {
				t.Errorf("log %q does not say %q", log.String(), test.stays)
			}
		})
	}
}

func TestDefinitionsThatCannotWork(t *testing.T) {
	s := shared.get(t)
	removeBoats(t, s)
	for _, test := range []struct{ name, text, says string }{
		{"not YAML", "apiVersion: [", "crds/all.yaml"},
		{"something else", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}\n", "ConfigMap other is neither a definition"},
		{"invalid", boatCRD("invalid", "", "not a version"), "invalid.test.fairlead.dev"},
		{"names taken", strings.Replace(boatCRD("taken", "", "v1"), "kind: Boattaken", "kind: Boatholder", 1), "its names are taken"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.name == "names taken" {
				if err := InstallCRDs(t.Context(), s.RESTConfig(), testLog(t), fsWith(boatCRD("holder", "", "v1"))); err != nil {
					t.Fatal(err)
				}
			}
			wantError(t, InstallCRDs(t.Context(), s.RESTConfig(), testLog(t), fsWith(test.text)), test.says)
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantError(t, InstallCRDs(ctx, s.RESTConfig(), testLog(t), fsWith(boatCRD("late", "", "v1"))), "late.test.fairlead.dev", "context canceled")
}

// lateAPI answers in time at the third try.
type lateAPI struct {
	dynamic.ResourceInterface
	tries int
}

func (l *lateAPI) Apply(_ context.Context, _ string, o *unstructured.Unstructured, _ metav1.ApplyOptions, _ ...string) (*unstructured.Unstructured, error) {
	l.tries++
	switch l.tries {
	case 1:
		return nil, apierrors.NewTimeoutError("request did not complete within requested timeout", 0)
	case 2:
		return nil, apierrors.NewTooManyRequests("later", 1)
	}
	return o, nil
}

// TestBusyAPIIsAskedAgain: an API that is late when it has just started does not end a plane.
func TestBusyAPIIsAskedAgain(t *testing.T) {
	o := &unstructured.Unstructured{Object: map[string]any{"kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "x"}}}
	late := &lateAPI{}
	if got, err := (&installer{log: slog.New(slog.DiscardHandler)}).apply(t.Context(), late, o); err != nil || got != o || late.tries != 3 {
		t.Errorf("after %d tries: %v, %v", late.tries, got, err)
	}
}

// stuckAPI has accepted the names of a definition and establishes it when it changes.
type stuckAPI struct {
	dynamic.ResourceInterface
	touched time.Time
	there   *unstructured.Unstructured
}

func (s *stuckAPI) Apply(_ context.Context, _ string, o *unstructured.Unstructured, _ metav1.ApplyOptions, _ ...string) (*unstructured.Unstructured, error) {
	if s.touched.IsZero() {
		s.touched = time.Now()
	}
	s.there = withConditions(o, "NamesAccepted", "Established")
	return s.there, nil
}

func (s *stuckAPI) Get(context.Context, string, metav1.GetOptions, ...string) (*unstructured.Unstructured, error) {
	return s.there, nil
}

func withConditions(o *unstructured.Unstructured, types ...string) *unstructured.Unstructured {
	var conditions []any
	for _, typ := range types {
		conditions = append(conditions, map[string]any{"type": typ, "status": "True"})
	}
	o = o.DeepCopy()
	o.Object["status"] = map[string]any{"conditions": conditions}
	return o
}

// TestLateDefinitionsAreTouched: at once where nothing else moves, and not while an API that has
// much to do comes further with others.
func TestLateDefinitionsAreTouched(t *testing.T) {
	for name, others := range map[string]time.Duration{"alone": 0, "beside others": 20 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ours := &unstructured.Unstructured{Object: map[string]any{"kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "x"}}}
				i := &installer{log: testLog(t)}
				api := &stuckAPI{there: withConditions(ours, "NamesAccepted")}
				begun := time.Now()
				go func() {
					for time.Since(begun) < others {
						i.moves()
						time.Sleep(2 * time.Second)
					}
				}()
				if err := i.established(t.Context(), api, ours, api.there); err != nil {
					t.Fatal(err)
				}
				if at := api.touched.Sub(begun); at < others+establishedPatience/3 || at > others+establishedPatience {
					t.Errorf("touched after %v", at)
				}
				if at := api.there.GetAnnotations()[touchedKey]; at != "" {
					t.Errorf("it keeps %q", at)
				}
			})
		})
	}
}
