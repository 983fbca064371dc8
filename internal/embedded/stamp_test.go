package embedded

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// testStamp is that of the API that tests share.
var testStamp = &Stamp{Annotation: "test.fairlead.dev/changed-by", Groups: []string{"test.fairlead.dev"}, Namespace: "kube-public"}

// TestChangesAreStamped: an object says which user changed it last, whatever a client writes, as soon as its definition is installed.
// Objects that planes do not read say nothing.
func TestChangesAreStamped(t *testing.T) {
	s := shared.get(t)
	if err := InstallCRDs(t.Context(), s.RESTConfig(), testLog(t), fsWith(boatCRD("stamps", "", "v1"))); err != nil {
		t.Fatal(err)
	}
	as := func(user string) dynamic.Interface {
		c := rest.CopyConfig(s.RESTConfig())
		c.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
		client, err := dynamic.NewForConfig(c)
		if err != nil {
			t.Fatal(err)
		}
		return client
	}
	const create, update, status = "create", "update", "status"
	boat, core := schema.GroupVersionResource{Group: "test.fairlead.dev", Version: "v1", Resource: "stamps"}, func(resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Version: "v1", Resource: resource}
	}
	for name, steps := range map[string][]struct {
		user, verb, namespace string
		of                    schema.GroupVersionResource
		text                  string // the object, or a merge patch of it
		want                  string // the stamp then; empty: none
	}{
		"a custom resource": {
			{"alice", create, "default", boat, "{apiVersion: test.fairlead.dev/v1, kind: Boatstamps, metadata: {name: one}, spec: {a: 1}}", "alice"},
			{"bob", update, "default", boat, "{metadata: {name: one}, spec: {a: 1}}", "alice"},
			{"bob", update, "default", boat, "{metadata: {name: one}, status: {ready: true}}", "alice"},
			{"bob", update, "default", boat, "{metadata: {name: one}, spec: {a: 2}}", "bob"},
			{"carol", update, "default", boat, "{metadata: {name: one, labels: {team: shop}}}", "carol"},
			{"mallory", update, "default", boat, "{metadata: {name: one, annotations: {test.fairlead.dev/changed-by: alice}}}", "mallory"},
			{"mallory", update, "default", boat, "{metadata: {name: one, annotations: null}}", "mallory"},
		},
		"one with a forged stamp": {
			{"mallory", create, "default", boat, "{apiVersion: test.fairlead.dev/v1, kind: Boatstamps, metadata: {name: two, annotations: {test.fairlead.dev/changed-by: alice}}}", "mallory"},
		},
		"a Service": {
			{"alice", create, "default", core("services"), "{apiVersion: v1, kind: Service, metadata: {name: stamped}, spec: {ports: [{port: 80}]}}", "alice"},
			{"bob", update, "default", core("services"), "{metadata: {name: stamped}, spec: {ports: [{port: 81}]}}", "bob"},
			{"carol", status, "default", core("services"), "{metadata: {name: stamped}, status: {loadBalancer: {}}}", "bob"},
			{"mallory", status, "default", core("services"), "{metadata: {name: stamped, annotations: {test.fairlead.dev/changed-by: alice}}}", "mallory"},
		},
		"a Namespace": {
			{"alice", create, "", core("namespaces"), "{apiVersion: v1, kind: Namespace, metadata: {name: stamped}}", "alice"},
			{"mallory", status, "", core("namespaces"), "{metadata: {name: stamped, annotations: {test.fairlead.dev/changed-by: bob}}}", "mallory"},
		},
		"a certificate": {
			{"alice", create, "default", core("secrets"), "{apiVersion: v1, kind: Secret, type: kubernetes.io/tls, metadata: {name: stamped}, stringData: {tls.crt: a, tls.key: b}}", "alice"},
			{"bob", update, "default", core("secrets"), "{metadata: {name: stamped}, stringData: {tls.key: c}}", "bob"},
		},
		"a Secret that no plane reads": {
			{"alice", create, "default", core("secrets"), "{apiVersion: v1, kind: Secret, metadata: {name: private}, stringData: {a: b}}", ""},
		},
		"a Secret of planes": {
			{"alice", create, "kube-public", core("secrets"), "{apiVersion: v1, kind: Secret, metadata: {name: own}, stringData: {a: b}}", "alice"},
		},
		"a ConfigMap that becomes one of authorities, and ends as one": {
			{"alice", create, "default", core("configmaps"), "{apiVersion: v1, kind: ConfigMap, metadata: {name: stamped}, data: {a: b}}", ""},
			{"bob", update, "default", core("configmaps"), "{metadata: {name: stamped}, data: {ca.crt: x}}", "bob"},
			{"carol", update, "default", core("configmaps"), "{metadata: {name: stamped}, data: {ca.crt: null}}", "carol"},
		},
		"a kind that planes do not read": {
			{"alice", create, "default", core("serviceaccounts"), "{apiVersion: v1, kind: ServiceAccount, metadata: {name: stamped}}", ""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for i, step := range steps {
				o := &unstructured.Unstructured{}
				if err := yaml.Unmarshal([]byte(step.text), &o.Object); err != nil {
					t.Fatal(err)
				}
				var client dynamic.ResourceInterface = as(step.user).Resource(step.of)
				if step.namespace != "" {
					client = as(step.user).Resource(step.of).Namespace(step.namespace)
				}
				var got *unstructured.Unstructured
				var err error
				if step.verb == create {
					got, err = client.Create(t.Context(), o, metav1.CreateOptions{})
				} else {
					patch, e := yaml.YAMLToJSON([]byte(step.text))
					if e != nil {
						t.Fatal(e)
					}
					var subresource []string
					if step.verb == status {
						subresource = []string{status}
					}
					got, err = client.Patch(t.Context(), o.GetName(), types.MergePatchType, patch, metav1.PatchOptions{}, subresource...)
				}
				if err != nil {
					t.Fatalf("step %d: %v", i, err)
				}
				if stamp := got.GetAnnotations()[testStamp.Annotation]; stamp != step.want {
					t.Errorf("step %d, by %s: it says %q, want %q", i, step.user, stamp, step.want)
				}
			}
		})
	}
}
