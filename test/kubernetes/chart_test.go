package kubernetes

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	psaapi "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"fairlead.dev/deploy/crd"
	"fairlead.dev/internal/dashboard"
	"fairlead.dev/internal/snapshot"
)

// golden compares with a file that is made of something else, or writes it.
func golden(t *testing.T, path, want string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != want {
		t.Errorf("%s is stale: go test ./test/kubernetes -update, then read the difference\nit says\n%s\nwant\n%s", path, have, want)
	}
}

// rule is one of a role, in the order in which it reads best.
type rule struct {
	APIGroups     []string `json:"apiGroups"`
	Resources     []string `json:"resources"`
	ResourceNames []string `json:"resourceNames,omitempty"`
	Verbs         []string `json:"verbs"`
}

func rules(t *testing.T, comment string, list ...rule) string {
	t.Helper()
	text, err := yaml.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	return "# Written by `go test ./test/kubernetes -update`.\n" + comment + string(text)
}

// manifests returns the objects in every *.yaml of the file systems.
func manifests(t *testing.T, all ...fs.FS) []*unstructured.Unstructured {
	t.Helper()
	var objects []*unstructured.Unstructured
	for _, files := range all {
		names, err := fs.Glob(files, "*.yaml")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			data, err := fs.ReadFile(files, name)
			if err != nil {
				t.Fatal(err)
			}
			objects = append(objects, parse(t, string(data))...)
		}
	}
	return objects
}

func parse(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	var objects []*unstructured.Unstructured
	for d := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096); ; {
		o := &unstructured.Unstructured{}
		if err := d.Decode(o); errors.Is(err, io.EOF) {
			return objects
		} else if err != nil {
			t.Fatal(err)
		}
		if len(o.Object) > 0 {
			objects = append(objects, o)
		}
	}
}

// TestRights: the chart allows what the program does: it reads what its source follows,
// and writes the status of what has one.
func TestRights(t *testing.T) {
	objects := manifests(t, crd.All(crd.Standard)...)
	defined := map[schema.GroupResource]bool{} // and whether the definition has a status
	names := map[string][]string{}
	for _, o := range objects {
		names[o.GetKind()] = append(names[o.GetKind()], o.GetName())
		if o.GetKind() != "CustomResourceDefinition" {
			continue
		}
		var d apiextensionsv1.CustomResourceDefinition
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &d); err != nil {
			t.Fatal(err)
		}
		for _, v := range d.Spec.Versions {
			k := schema.GroupResource{Group: d.Spec.Group, Resource: d.Spec.Names.Plural}
			defined[k] = defined[k] || v.Subresources != nil && v.Subresources.Status != nil
		}
	}
	reads, writes := map[string][]string{}, map[string][]string{}
	for _, r := range snapshot.Resources() {
		writesStatus := r.Status != snapshot.StatusNone
		if has, is := defined[r.GroupResource()]; is == r.BuiltIn || is && has != writesStatus {
			t.Errorf("%s: defined by us %t, built into Kubernetes %t; the definition has a status %t, the plane writes one %t", r.Kind, is, r.BuiltIn, has, writesStatus)
		}
		if r.Kind == snapshot.KindSecret {
			continue // a value of the chart's decides
		}
		reads[r.Group] = append(reads[r.Group], r.Resource)
		if writesStatus {
			writes[r.Group] = append(writes[r.Group], r.Resource+"/status")
		}
	}
	var list []rule
	for _, group := range slices.Sorted(maps.Keys(reads)) {
		slices.Sort(reads[group])
		list = append(list, rule{APIGroups: []string{group}, Resources: reads[group], Verbs: []string{"get", "list", "watch"}})
	}
	for _, group := range slices.Sorted(maps.Keys(writes)) {
		slices.Sort(writes[group])
		list = append(list, rule{APIGroups: []string{group}, Resources: writes[group], Verbs: []string{"update"}})
	}
	list = append(list, rule{APIGroups: []string{"fairlead.dev"}, Resources: []string{"machines"}, Verbs: []string{"create", "update"}},
		rule{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}})
	golden(t, filepath.Join(chart, "files", "rights.yaml"),
		rules(t, "# What a plane follows, the status of it, the machines that join, and Events.\n", list...))

	list = nil
	for _, k := range []struct{ kind, group, resource string }{
		{"CustomResourceDefinition", "apiextensions.k8s.io", "customresourcedefinitions"},
		{"ValidatingAdmissionPolicy", "admissionregistration.k8s.io", "validatingadmissionpolicies"},
		{"ValidatingAdmissionPolicyBinding", "admissionregistration.k8s.io", "validatingadmissionpolicybindings"},
	} {
		slices.Sort(names[k.kind])
		list = append(list, rule{APIGroups: []string{k.group}, Resources: []string{k.resource}, Verbs: []string{"create"}},
			rule{APIGroups: []string{k.group}, Resources: []string{k.resource}, ResourceNames: names[k.kind], Verbs: []string{"get", "patch"}})
		delete(names, k.kind)
	}
	if len(names) > 0 {
		t.Errorf("deploy/crd holds kinds that the chart gives no right to install: %v", names)
	}
	golden(t, filepath.Join(chart, "files", "definitions.yaml"), rules(t, "# The definitions that a plane installs and upgrades.\n", list...))
}

// TestManifests: deploy/manifests is the chart with its defaults.
func TestManifests(t *testing.T) {
	text, err := render(t, "--set", "createNamespace=true")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, filepath.Join(root, "deploy", "manifests", "fairlead.yaml"), `# Fairlead in a cluster, as the chart in deploy/chart/fairlead makes it with its defaults
# (go test ./test/kubernetes -update). Definitions first:
#
#   kubectl apply --server-side -f deploy/crd/gateway -f deploy/crd/fairlead -f deploy/crd/contour
#   kubectl apply --server-side -f deploy/manifests
`+text)
}

func TestLint(t *testing.T) {
	if _, err := helm(t, "lint", "--strict", "--namespace", "fairlead-system", chart); err != nil {
		t.Error(err)
	}
}

// variants are values that reach every line of the templates.
var variants = map[string][]string{
	"defaults":     nil,
	"nothing else": {"agent.enabled=false", "gatewayClass.create=false", "rbac.create=false", "rbac.secrets=false", "networkPolicy.enabled=false", "crds.install=false", "plane.disruptionBudget=false"},
	"few rights":   {"agent.capabilities={NET_BIND_SERVICE}"},
	"everything": {
		"createNamespace=true", "podMonitor.enabled=true", "podMonitor.labels.release=prometheus", "agent.exposeConsole=true",
		"dashboards.enabled=true", "dashboards.annotations.grafana_folder=Fairlead", "prometheusRule.enabled=true", "prometheusRule.labels.release=prometheus",
		"prometheusRule.runbooks=https://git.example.com/runbooks/",
		"agent.planes={10.96.0.7:7443,192.0.2.1:7443}", "plane.service.clusterIP=10.96.0.7", "plane.rootNamespaces={default,ops}",
		"plane.extraArgs={--machine-ttl=20s}", "agent.extraArgs={--log-level=debug}", "image.registry=registry.example.com/mirror",
		"image.tag=v9", "image.pullSecrets[0].name=secret", "plane.podAnnotations.a=b", "agent.podAnnotations.a=b", "agent.preStopSeconds=0",
		"networkPolicy.consoleFrom[0].namespaceSelector.matchLabels.kubernetes\\.io/metadata\\.name=monitoring",
		"networkPolicy.agentsFrom[0].ipBlock.cidr=192.0.2.0/24", "plane.affinity.podAntiAffinity=null",
		"agent.resources.limits.memory=2Gi", "agent.runSizeLimit=128Mi", "agent.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchFields[0].key=metadata.name",
		"rbac.infrastructureNamespaces={shop,news}", "plane.resources.limits.memory=1Gi",
		"agent.tolerations[0].operator=Exists", "plane.tolerations[0].operator=Exists",
	},
}

func setting(values []string) []string {
	var args []string
	for _, v := range values {
		args = append(args, "--set", v)
	}
	return args
}

// TestTemplates: every object decodes strictly, every image is on the list, and every pod
// keeps the Pod Security level of its namespace.
func TestTemplates(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientscheme.AddToScheme(scheme), gatewayv1.Install(scheme)); err != nil {
		t.Fatal(err)
	}
	strict := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	listed, err := os.ReadFile(filepath.Join(root, "deploy", "images.txt"))
	if err != nil {
		t.Fatal(err)
	}
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range variants {
		t.Run(name, func(t *testing.T) {
			text, err := render(t, setting(values)...)
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range parse(t, text) {
				data, err := o.MarshalJSON()
				if err != nil {
					t.Fatal(err)
				}
				if o.GetKind() == "PodMonitor" || o.GetKind() == "PrometheusRule" { // of the Prometheus operator
					continue
				}
				object, _, err := strict.Decode(data, nil, nil)
				if err != nil {
					t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
					continue
				}
				var pod corev1.PodTemplateSpec
				level := psaapi.LevelRestricted
				switch object := object.(type) {
				case *appsv1.Deployment:
					pod = object.Spec.Template
				case *appsv1.DaemonSet:
					pod, level = object.Spec.Template, psaapi.LevelPrivileged
				default:
					continue
				}
				for _, r := range evaluator.EvaluatePod(psaapi.LevelVersion{Level: level, Version: psaapi.LatestVersion()}, &pod.ObjectMeta, &pod.Spec) {
					if !r.Allowed {
						t.Errorf("%s is not %s: %s: %s", o.GetName(), level, r.ForbiddenReason, r.ForbiddenDetail)
					}
				}
				image := pod.Spec.Containers[0].Image
				if name == "everything" {
					checkValues(t, pod.Spec)
					rest, ok := strings.CutPrefix(image, "registry.example.com/mirror/")
					if image = strings.TrimSuffix(rest, ":v9"); !ok || image == rest {
						t.Errorf("image %s", pod.Spec.Containers[0].Image)
					}
				}
				if !bytes.Contains(listed, []byte("\n"+image)) {
					t.Errorf("deploy/images.txt lacks %s", image)
				}
			}
		})
	}
}

// checkValues: limits, affinity and the size of the memory volume are those of "everything".
func checkValues(t *testing.T, pod corev1.PodSpec) {
	t.Helper()
	limit := pod.Containers[0].Resources.Limits.Memory().String()
	if pod.Containers[0].Name == "plane" {
		if limit != "1Gi" {
			t.Errorf("the plane's limit is %s", limit)
		}
		return
	}
	if limit != "2Gi" {
		t.Errorf("the agent's limit is %s", limit)
	}
	if pod.Affinity == nil || pod.Affinity.NodeAffinity == nil {
		t.Errorf("the agent's affinity is %v", pod.Affinity)
	}
	at := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == "run" })
	if size := pod.Volumes[at].EmptyDir.SizeLimit; size == nil || size.String() != "128Mi" {
		t.Errorf("the memory volume holds %v", size)
	}
}

// TestMonitoring: the chart has every dashboard and every alert, as the files have them, and Prometheus keeps the
// labels of the metrics.
func TestMonitoring(t *testing.T) {
	text, err := render(t, setting(variants["everything"])...)
	if err != nil {
		t.Fatal(err)
	}
	files, err := dashboard.Files(dashboard.Options{}, dashboard.RuleOptions{Runbooks: "https://git.example.com/runbooks"})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for _, f := range files {
		want[filepath.Base(f.Name)] = strings.TrimSpace(string(f.Content))
	}
	var monitors []string
	for _, o := range parse(t, text) {
		switch {
		case o.GetKind() == "PodMonitor":
			monitors = append(monitors, o.GetName())
			endpoints, _, _ := unstructured.NestedSlice(o.Object, "spec", "podMetricsEndpoints")
			for _, e := range endpoints {
				e, _ := e.(map[string]any)
				if e["honorLabels"] != nil || fmt.Sprint(e["metricRelabelings"]) != "[map[regex:(.+) sourceLabels:[exported_namespace] targetLabel:namespace] map[action:labeldrop regex:exported_namespace]]" {
					t.Errorf("PodMonitor %s: %v lets Prometheus rename the label namespace, or pods write the labels of others", o.GetName(), e)
				}
			}
			if len(endpoints) != 1 {
				t.Errorf("PodMonitor %s has %d endpoints", o.GetName(), len(endpoints))
			}
		case o.GetKind() == "PrometheusRule":
			var rules any
			if err := yaml.Unmarshal([]byte(want[dashboard.RulesFile]), &rules); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(o.Object["spec"], rules) || o.GetLabels()["release"] != "prometheus" {
				t.Errorf("the PrometheusRule differs from the file: %v", o.Object)
			}
			delete(want, dashboard.RulesFile)
		case strings.HasPrefix(o.GetName(), "fairlead-dashboard-"):
			data, _, _ := unstructured.NestedStringMap(o.Object, "data")
			for name, content := range data {
				name = strings.TrimPrefix(name, "fairlead-")
				if strings.TrimSpace(content) != want[name] || o.GetLabels()["grafana_dashboard"] != "1" {
					t.Errorf("ConfigMap %s differs from the file", o.GetName())
				}
				delete(want, name)
			}
		}
	}
	if len(want) > 0 {
		t.Errorf("the chart lacks %v", slices.Sorted(maps.Keys(want)))
	}
	if slices.Sort(monitors); !slices.Equal(monitors, []string{"fairlead-agent", "fairlead-plane"}) {
		t.Errorf("the PodMonitors are %v", monitors)
	}
}

// TestServiceAccountsAreOfNamespaces: nothing gives the plane ServiceAccounts of the whole
// cluster, for who writes one in kube-system may have its pods run as another.
func TestServiceAccountsAreOfNamespaces(t *testing.T) {
	for name, values := range variants {
		text, err := render(t, setting(values)...)
		if err != nil {
			t.Fatal(err)
		}
		var namespaces []string
		for _, o := range parse(t, text) {
			if o.GetKind() != "ClusterRole" && o.GetKind() != "Role" {
				continue
			}
			rules, err := yaml.Marshal(o.Object["rules"])
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(rules), "serviceaccounts") {
				namespaces = append(namespaces, o.GetNamespace())
			}
		}
		var want []string
		if name == "everything" {
			want = []string{"news", "shop"}
		}
		if slices.Sort(namespaces); !slices.Equal(namespaces, want) {
			t.Errorf("%s: rights on ServiceAccounts in %q, want %q", name, namespaces, want)
		}
	}
}

// TestRefusedValues: what cannot work is said before anything is installed.
func TestRefusedValues(t *testing.T) {
	for name, c := range map[string]struct {
		args  []string
		words string
	}{
		"unknown value":       {[]string{"--set", "plane.replica=3"}, "replica"},
		"another namespace":   {[]string{"--namespace", "default"}, "into the namespace fairlead-system"},
		"agents with planes":  {[]string{"--set", "agent.namespace=fairlead-system"}, "agent"},
		"no replica":          {[]string{"--set", "plane.replicas=0"}, "replicas"},
		"plane without port":  {[]string{"--set", "agent.planes={192.0.2.1}"}, "planes"},
		"unknown log level":   {[]string{"--set", "log.level=loud"}, "level"},
		"unknown pull policy": {[]string{"--set", "image.pullPolicy=Sometimes"}, "pullPolicy"},
		"unknown output":      {[]string{"--set", "agent.proxyOutput=stderr"}, "proxyOutput"},
		"unknown data plane":  {[]string{"--set", "agent.dataPlane=XDP"}, "dataPlane"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := render(t, c.args...); err == nil || !strings.Contains(err.Error(), c.words) {
				t.Errorf("got %v, want %q", err, c.words)
			}
		})
	}
}
