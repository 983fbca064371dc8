package plane

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/embedded"
	"fairlead.dev/internal/model"
	apisource "fairlead.dev/internal/source/api"
)

// stamps installs the policy that says who changes objects, and waits until the API applies it.
func (r *rig) stamps() {
	r.t.Helper()
	ctx := context.Background()
	manifest, err := os.ReadFile("../../deploy/chart/fairlead/files/changed-by.yaml")
	if err != nil {
		r.t.Fatal(err)
	}
	api, err := dynamic.NewForConfig(shared.server.RESTConfig())
	if err != nil {
		r.t.Fatal(err)
	}
	resources := map[string]string{"MutatingAdmissionPolicy": "mutatingadmissionpolicies", "MutatingAdmissionPolicyBinding": "mutatingadmissionpolicybindings"}
	for document := range strings.SplitSeq(string(manifest), "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
			r.t.Fatal(err)
		}
		gvr := schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: resources[o.GetKind()]}
		if _, err := api.Resource(gvr).Apply(ctx, o.GetName(), o, metav1.ApplyOptions{FieldManager: "fairlead", Force: true}); err != nil {
			r.t.Fatal(err)
		}
	}
	eventually(r.t, "the API stamps objects", func() error {
		o := &v1alpha1.AddressPool{ObjectMeta: metav1.ObjectMeta{Name: "stamped"}, Spec: v1alpha1.AddressPoolSpec{Addresses: []string{"192.0.2.77"}}}
		if err := r.client.Create(ctx, o, client.DryRunAll); err != nil {
			return err
		}
		if o.Annotations[v1alpha1.AnnotationChangedBy] == "" {
			return fmt.Errorf("annotations are %v", o.Annotations)
		}
		return nil
	})
}

// user is a client of a ServiceAccount with rights of its own, and the account's name as a user.
func (r *rig) user(name string) (client.Client, string) {
	r.t.Helper()
	ctx := context.Background()
	api, err := kubernetes.NewForConfig(shared.server.RESTConfig())
	if err != nil {
		r.t.Fatal(err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "test-" + name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: name}},
	}
	if _, err := api.CoreV1().ServiceAccounts("default").Create(ctx, account, metav1.CreateOptions{}); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = api.CoreV1().ServiceAccounts("default").Delete(ctx, name, metav1.DeleteOptions{}) })
	if _, err := api.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = api.RbacV1().ClusterRoleBindings().Delete(ctx, "test-"+name, metav1.DeleteOptions{}) })
	token, err := api.CoreV1().ServiceAccounts("default").CreateToken(ctx, name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	cfg := shared.server.RESTConfig()
	cfg.CertFile, cfg.KeyFile, cfg.CertData, cfg.KeyData, cfg.BearerToken = "", "", nil, nil, token.Status.Token
	c, err := apisource.NewClient(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	return c, "system:serviceaccount:default:" + name
}

// changesOf are the changes of one object that a plane shows, newest first.
func (p *running) changesOf(kind, name string) []model.Change {
	p.t.Helper()
	all, err := p.Changes(context.Background())
	if err != nil {
		p.t.Fatal(err)
	}
	var list []model.Change
	for _, c := range all {
		if c.Object.Kind == kind && c.Object.Name == name {
			list = append(list, c)
		}
	}
	return list
}

// TestChangesSayWho: a route that a user changed shows that user, what it was before, and when the machine had it, also after a
// restart. What a client writes into the stamp is written over.
func TestChangesSayWho(t *testing.T) {
	r := newRig(t)
	r.stamps()
	for _, where := range []string{"file", "Secrets"} {
		t.Run(where, func(sub *testing.T) {
			r.t = sub
			defer func() { r.t = t }()
			r.wipe()
			file := filepath.Join(sub.TempDir(), "changes")
			if where == "Secrets" {
				file = ""
			}
			keep := func(c *Config) { c.ChangesFile = file }
			testChangesSayWho(sub, r, keep, "writer-"+strings.ToLower(where))
		})
	}
}

func testChangesSayWho(t *testing.T, r *rig, keep func(*Config), account string) {
	ctx := context.Background()
	r.world()
	p := r.plane("one", keep).awaitReady()
	a := r.joined(p, "edge-1")
	disconnect := a.connect(p.AgentAddress().String())
	defer disconnect()
	a.await("has the first route", a.holdsHost("app.example"))
	route := httpRoute("www", "www.example", "app")
	r.create(route)
	a.await("has the route", a.holdsHost("www.example"))

	writer, who := r.user(account)
	eventually(t, "the user changes the route", func() error {
		fresh := &gatewayv1.HTTPRoute{}
		if err := writer.Get(ctx, client.ObjectKeyFromObject(route), fresh); err != nil {
			return err
		}
		fresh.Annotations = map[string]string{v1alpha1.AnnotationChangedBy: "mallory", "note": "x"}
		fresh.Spec.Hostnames = append(fresh.Spec.Hostnames, "shop.example")
		return writer.Update(ctx, fresh)
	})
	shows := func(p *running) error {
		list := p.changesOf("HTTPRoute", "www")
		if len(list) != 2 || len(list[0].Machines) != 1 {
			return fmt.Errorf("changes are %+v", list)
		}
		c := list[0]
		if c.Who != who || c.Verb != model.ChangeChanged || c.Revision == 0 || c.Machines[0].Machine != "edge-1" || c.Machines[0].At.Before(c.At) {
			return fmt.Errorf("the change is %+v", c)
		}
		want := []model.FieldChange{{Path: `metadata.annotations["note"]`, New: `"x"`}, {Path: "spec.hostnames[1]", New: `"shop.example"`}}
		if fmt.Sprint(c.Diff) != fmt.Sprint(want) || list[1].Verb != model.ChangeCreated || list[1].Who == "" || list[1].Who == who {
			return fmt.Errorf("the changes are %+v", list)
		}
		return nil
	}
	eventually(t, "the change is shown", func() error { return shows(p) })
	p.stop()
	p = r.plane("two", keep).awaitReady()
	eventually(t, "the next plane shows it", func() error { return shows(p) })

	if err := writer.Delete(ctx, route); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the deletion is shown", func() error {
		list := p.changesOf("HTTPRoute", "www")
		if len(list) != 3 || list[0].Verb != model.ChangeDeleted || list[0].Who != "" {
			return fmt.Errorf("changes are %+v", list)
		}
		return nil
	})
	eventually(t, "the audit log says who", func() error {
		text, err := os.ReadFile(embedded.AuditLog(shared.dir))
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			var e struct {
				Verb      string
				User      struct{ Username string }
				ObjectRef struct{ Resource, Name string }
			}
			if json.Unmarshal([]byte(line), &e) == nil && e.Verb == "delete" && e.User.Username == who && e.ObjectRef.Resource == "httproutes" && e.ObjectRef.Name == "www" {
				return nil
			}
		}
		return cmp.Or(err, fmt.Errorf("no deletion by %s", who))
	})
}

// TestStampsProveNothingWithoutThePolicy: where the API does not write the stamp, a client may have. Nobody is named then.
func TestStampsProveNothingWithoutThePolicy(t *testing.T) {
	r := newRig(t)
	r.world()
	api, err := kubernetes.NewForConfig(shared.server.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	if err := api.AdmissionregistrationV1().MutatingAdmissionPolicyBindings().Delete(ctx, StampPolicy, metav1.DeleteOptions{}); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	p := r.plane("one", func(c *Config) { c.ChangesFile = filepath.Join(t.TempDir(), "changes") }).awaitReady()
	route := httpRoute("forged", "forged.example", "app")
	route.Annotations = map[string]string{v1alpha1.AnnotationChangedBy: "mallory"}
	r.create(route)
	eventually(t, "the change is shown", func() error {
		list := p.changesOf("HTTPRoute", "forged")
		if len(list) != 1 {
			return fmt.Errorf("changes are %+v", list)
		}
		if list[0].Who != "" {
			t.Fatalf("it is by %q", list[0].Who)
		}
		return nil
	})
}
