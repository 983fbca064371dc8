package file

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate"
)

// load reads a text as standard input.
func load(t *testing.T, text string) (*snapshot.Snapshot, []string, error) {
	t.Helper()
	s, _, warnings, err := Load(strings.NewReader(text), Stdin)
	var said []string
	for _, w := range warnings {
		said = append(said, w.String())
	}
	return s, said, err
}

func TestLoad(t *testing.T) {
	const service = "apiVersion: v1\nkind: Service\nmetadata: {name: app, namespace: team}\n"
	for _, c := range []struct {
		name, text     string
		keys, warnings []string
		errs           []string // each must stand in the error, in its own line; keys are what was read in spite of them
		out            int      // objects that are left out; 0 is one for the errors
	}{
		{name: "nothing", text: ""},
		{name: "only comments", text: "# nothing\n---\n# here\n"},
		{name: "one", text: service, keys: []string{"Service team/app"}},
		{
			name: "documents of all sorts", text: "---\n" + service + "--- # and\napiVersion: v1\nkind: Namespace\nmetadata: {name: team}\n...\n" +
				`{"apiVersion": "contour.heptio.com/v1beta1", "kind": "IngressRoute", "metadata": {"name": "app"}, "spec": {}}`,
			keys: []string{"IngressRoute default/app", "Namespace team", "Service team/app"},
		},
		{
			name: "a list", text: "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Service\n  metadata: {name: a}\n- apiVersion: v1\n  kind: Service\n  metadata: {name: b}\n",
			keys: []string{"Service default/a", "Service default/b"},
		},
		{name: "an older version", text: "apiVersion: gateway.networking.k8s.io/v1beta1\nkind: ReferenceGrant\nmetadata: {name: x}\nspec: {from: [], to: []}\n", keys: []string{"ReferenceGrant default/x"}},
		{
			name: "a kind that is not read", text: service + "---\n\napiVersion: v1\nkind: Pod\nmetadata: {name: c, namespace: d}\n",
			keys: []string{"Service team/app"}, warnings: []string{"standard input:6: Pod d/c (v1) is ignored: translation does not use this kind"},
		},
		{
			name: "unknown fields", text: "# a comment\n" + service + "spec:\n  ports:\n  - port: 80\n    prot: TCP\n  typo: 1\n",
			keys: []string{"Service team/app"}, warnings: []string{
				`standard input:8: Service team/app: unknown field "spec.ports[0].prot"`,
				`standard input:9: Service team/app: unknown field "spec.typo"`,
			},
		},
		{name: "an unknown field in a list", text: "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Service\n  metadata: {name: a}\n  specs: {}\n", keys: []string{"Service default/a"}, warnings: []string{`standard input:7: Service a: unknown field "specs"`}},
		{name: "twice", text: service + "---\n" + service, errs: []string{"standard input:5: Service team/app is defined twice: the definition at standard input:1 is ignored"}, keys: []string{"Service team/app"}},
		{name: "a key twice", text: service + "---\n" + service + "kind: Service\n", errs: []string{`standard input:4: `}, keys: []string{"Service team/app"}},
		{
			name: "Secrets, and pools and peers",
			text: "apiVersion: v1\nkind: Secret\nmetadata: {name: tor, namespace: fairlead-system}\nstringData: {password: a, tls.key: b}\n---\n" +
				"apiVersion: v1\nkind: Secret\nmetadata: {name: tor, namespace: team}\nstringData: {password: a}\n---\n" +
				"apiVersion: fairlead.dev/v1alpha1\nkind: AddressPool\nmetadata: {name: edge}\nspec: {addresses: [192.0.2.0/28]}\n---\n" +
				"apiVersion: fairlead.dev/v1alpha1\nkind: BGPPeer\nmetadata: {name: tor}\nspec: {address: 10.0.0.1, localASN: 1, peerASN: 2}\n",
			keys: []string{"AddressPool edge", "BGPPeer tor", "Secret fairlead-system/tor", "Secret team/tor"},
		},
		{name: "no YAML", text: "\n---\na: [\n", errs: []string{"standard input:2: yaml: line"}},
		{name: "a tab", text: service + "---\n\tx: 1\n", errs: []string{"standard input:4: yaml: line 5"}, keys: []string{"Service team/app"}},
		{name: "no object", text: "- a\n---\nx: 1\n---\n7\n", errs: []string{"standard input:1: no Kubernetes object", "standard input:3: no Kubernetes object: apiVersion and kind must be set", "standard input:5: no Kubernetes object"}, out: 3},
		{name: "a wrong type", text: service + "spec: {ports: [{port: eighty}]}\n", errs: []string{`standard input:4: Service team/app: spec.ports[0].port: want a whole number, found the text "eighty"`}},
		{
			name: "wrong types", text: `apiVersion: v1
kind: Service
metadata:
  name: app
  annotations:
    contour.heptio.com/max-connections: 10
    other: x
  creationTimestamp: yesterday
spec:
  clusterIPs: 10.0.0.1
  publishNotReadyAddresses: "true"
  selector: [app]
  ports:
  - port: "80"
    targetPort: {}
  - port: 99999999999
  - 80
  - port: 1.5
    name: true
    targetPort: http
    nodePort: null
`,
			errs: []string{
				`standard input:6: Service app: metadata.annotations[contour.heptio.com/max-connections]: want a text, found the number 10: put it into quotes`,
				`standard input:8: Service app: metadata.creationTimestamp: want a time such as "2026-01-02T15:04:05Z", found the text "yesterday"`,
				`standard input:10: Service app: spec.clusterIPs: want a list, found the text "10.0.0.1"`,
				`standard input:11: Service app: spec.publishNotReadyAddresses: want true or false, found the text "true": write it without quotes`,
				`standard input:12: Service app: spec.selector: want fields, found a list`,
				`standard input:14: Service app: spec.ports[0].port: want a whole number, found the text "80": write it without quotes`,
				`standard input:15: Service app: spec.ports[0].targetPort: want a whole number or a text, found fields`,
				`standard input:16: Service app: spec.ports[1].port: want a whole number from -2147483648 to 2147483647, found the number 99999999999`,
				`standard input:17: Service app: spec.ports[2]: want fields, found the number 80`,
				`standard input:18: Service app: spec.ports[3].port: want a whole number, found the number 1.5`,
				`standard input:19: Service app: spec.ports[3].name: want a text, found true: put it into quotes`,
			},
		},
		{name: "a wrong type in the header", text: "apiVersion: v1\nkind: Service\nmetadata:\n  name: 7\n", errs: []string{`standard input:4: no Kubernetes object: metadata.name: want a text, found the number 7: put it into quotes`}},
		{name: "a wrong type in a list", text: "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Namespace\n  metadata: {name: a}\n- apiVersion: v1\n  kind: Secret\n  metadata: {name: b}\n  data:\n    tls.key: no base64\n  stringData: {pin: 1234}\n", errs: []string{"standard input:11: Secret b: data[tls.key]: want base64, found a text: a text as it is belongs into stringData", "standard input:12: Secret b: stringData.pin: want a text, found a number: put it into quotes"}, keys: []string{"Namespace a"}},
		{name: "fields that are none", text: "apiVersion: contour.heptio.com/v1beta1\nkind: IngressRoute\nmetadata: {name: a}\nspec: {routes: [{match: /, services: [{name: web, port: \"80\"}]}]}\n", errs: []string{`standard input:4: IngressRoute a: spec.routes[0].services[0].port: want a whole number`}},
		{name: "faults among others", text: service + "---\n" + service + "spec: {ports: [{port: eighty}, {port: x}]}\n---\napiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Service, metadata: {name: a}, spec: []}\n- {apiVersion: v1, kind: Service, metadata: {name: b}}\n- {apiVersion: v1, kind: Service, metadata: {name: B}}\n- {apiVersion: v1, kind: Service, metadata: {name: b}}\n", errs: []string{"standard input:8: Service team/app: spec.ports[0].port", "standard input:8: Service team/app: spec.ports[1].port", "standard input:13: Service a: spec", "standard input:15: Service B: metadata.name", "standard input:16: Service default/b is defined twice: the definition at standard input:14 is ignored"}, out: 4, keys: []string{"Service default/b", "Service team/app"}},
		{name: "no name", text: "apiVersion: v1\nkind: Service\nmetadata: {}\n", errs: []string{"standard input:3: Service: metadata.name:"}},
		{name: "bad names", text: "apiVersion: v1\nkind: Service\nmetadata:\n  name: a/b\n  namespace: C\n", errs: []string{"standard input:4: Service C/a/b: metadata.name:", "standard input:5: Service C/a/b: metadata.namespace:"}},
		{name: "a namespace where none belongs", text: "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: a\n  namespace: b\n", errs: []string{"standard input:5: Namespace b/a: a Namespace has no namespace"}},
		{name: "an alias", text: "apiVersion: v1\nkind: Service\nmetadata: &m {name: app, namespace: team}\nspec: {selector: {a: b}, typo: *m}\n", keys: []string{"Service team/app"}, warnings: []string{`standard input:4: Service team/app: unknown field "spec.typo"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, warnings, err := load(t, c.text)
			if !slices.Equal(warnings, c.warnings) {
				t.Errorf("warnings %q, want %q", warnings, c.warnings)
			}
			var faults *Faults
			out := 0
			if errors.As(err, &faults) {
				out = faults.Objects
			}
			var messages []string
			if err != nil {
				messages = strings.Split(err.Error(), "\n")
			}
			if len(c.errs) > 0 {
				c.out = max(c.out, 1)
			}
			if len(messages) != len(c.errs) || out != c.out {
				t.Fatalf("errors %q, want %q; %d objects left out, want %d", messages, c.errs, out, c.out)
			}
			for i, want := range c.errs {
				if !strings.HasPrefix(messages[i], want) {
					t.Errorf("error %q, want %q", messages[i], want)
				}
			}
			var keys []string
			for _, k := range s.Keys() {
				keys = append(keys, k.String())
			}
			if !slices.Equal(keys, c.keys) {
				t.Errorf("holds %q, want %q", keys, c.keys)
			}
		})
	}
}

func TestLoadDirectory(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	object := func(name string) string { return "apiVersion: v1\nkind: Service\nmetadata: {name: " + name + "}\n" }
	write("b.yaml", object("b"))
	write("deep/a.yml", object("a"))
	write("deep/c.json", `{"apiVersion":"v1","kind":"Service","metadata":{"name":"c"}}`)
	write("notes.txt", "no: [manifest")
	write(".hidden/d.yaml", "no: [manifest")
	other := write("e.manifest", object("e"))
	if err := os.Mkdir(filepath.Join(dir, "empty"), 0o755); err != nil {
		t.Fatal(err)
	}

	s, _, _, err := Load(nil, dir, other)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Services) != 4 {
		t.Errorf("found %v", s.Keys())
	}
	if _, _, _, err = Load(nil, filepath.Join(dir, "empty")); err == nil || !strings.Contains(err.Error(), "empty has no *.yaml") {
		t.Errorf("an empty directory: %v", err)
	}
	if s, _, _, err = Load(nil, dir, filepath.Join(dir, "missing")); s != nil || err == nil || !strings.Contains(err.Error(), "missing") {
		t.Errorf("a missing file: %v", err)
	}
	if s, _, _, err = Load(nil, dir, dir); err == nil || strings.Count(err.Error(), "is defined twice") != 3 || len(s.Services) != 3 {
		t.Errorf("everything twice: %v", err)
	}
	// Of what stands twice the last counts, as with `kubectl apply`.
	write("y.yaml", object("z")+"spec: {ports: [{port: 1}]}\n")
	write("z.yaml", object("z")+"spec: {ports: [{port: 2}]}\n")
	s, positions, _, err := Load(nil, dir)
	z := snapshot.Name{Namespace: "default", Name: "z"}
	if err == nil || s.Services[z].Spec.Ports[0].Port != 2 || positions.Where(snapshot.Key{Kind: snapshot.KindService, Name: z}, "") != filepath.Join(dir, "z.yaml:1") {
		t.Errorf("twice: %v", err)
	}
}

// TestGoldenInputs reads the golden cases of translation and translates them: the
// way of `fairlead translate` gives what is expected there.
func TestGoldenInputs(t *testing.T) {
	cases, err := filepath.Glob("../../translate/testdata/*.txtar")
	if err != nil || len(cases) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, name := range cases {
		archive, err := txtar.ParseFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var in bytes.Buffer
		want, configured := "", false
		for _, f := range archive.Files {
			switch f.Name {
			case "want":
				want = string(f.Data)
			case "config", "unrecorded", "now":
				configured = true
			default:
				// The tests of translation make the certificates that a case names.
				configured = configured || bytes.Contains(f.Data, []byte("CERTIFICATE "))
				in.WriteString("---\n")
				in.Write(f.Data)
			}
		}
		if configured {
			continue
		}
		s, _, warnings, err := Load(&in, Stdin)
		if err != nil || len(warnings) > 0 {
			t.Errorf("%s: %v %v", name, err, warnings)
			continue
		}
		tr := translate.Converge(translate.Config{}, s)
		if got := tr.Desired().Text(); got != want {
			t.Errorf("%s: another result by way of files:\n%s", name, got)
		}
	}
}

// FuzzLoad reads anything without a panic, and the same twice.
func FuzzLoad(f *testing.F) {
	for _, s := range []string{"", "a: b", "---\n---", "- 1", "apiVersion: v1\nkind: List\nitems: [1, {}, null]", "apiVersion: v1\nkind: Service\nmetadata: &a {x: *a}", "\xff", "kind: Service\napiVersion: v1\nmetadata: {name: x}\nspec: {y: {z: [1]}}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, warnings, err := load(t, text)
		again, warningsAgain, errAgain := load(t, text)
		if fmt.Sprint(err) != fmt.Sprint(errAgain) || !slices.Equal(warnings, warningsAgain) || !slices.Equal(s.Keys(), again.Keys()) {
			t.Fatalf("not the same twice: %q and %q", err, errAgain)
		}
	})
}

// TestNetworkExample holds that the example of the network means what it says.
func TestNetworkExample(t *testing.T) {
	s, _, warnings, err := Load(nil, "../../../examples/network", "testdata/edge.yaml")
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	d := translate.Converge(translate.Config{}, s).Desired()
	if len(d.VIPs) != 4 || len(d.Peers) != 1 || d.Peers[0].Machine != "r1" || d.VIPs[0].Address.String() != "203.0.113.16" {
		t.Error(d.Text())
	}
}

// TestCloudsExample holds that the example of upstreams is accepted as it is, and that its route waits for nothing but what
// is discovered.
func TestCloudsExample(t *testing.T) {
	s, _, warnings, err := Load(nil, "../../../examples/clouds")
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	upstreams := 0
	for _, k := range s.Keys() {
		if k.Kind == snapshot.KindUpstream {
			upstreams++
		}
	}
	if upstreams != 3 {
		t.Errorf("%d Upstreams, want 3", upstreams)
	}
	routes := 0
	for _, o := range translate.Converge(translate.Config{}, s).Desired().Statuses {
		route := o.Status.Route()
		if route == nil {
			continue
		}
		for _, p := range route.Parents {
			routes++
			if c := meta.FindStatusCondition(p.Conditions, "Accepted"); c == nil || c.Status != metav1.ConditionTrue {
				t.Errorf("%s: %v", o.Object, c)
			}
			if c := meta.FindStatusCondition(p.Conditions, "ResolvedRefs"); c == nil || c.Reason != "BackendNotFound" {
				t.Errorf("%s: %v", o.Object, c)
			}
		}
	}
	if routes != 1 {
		t.Errorf("%d routes, want 1", routes)
	}
}

// TestL4Guide holds that what the guide to the L4 load balancer applies is accepted, and makes
// the frontend that it goes on to speak of.
func TestL4Guide(t *testing.T) {
	raw, err := os.ReadFile("../../../docs/guides/l4.md")
	if err != nil {
		t.Fatal(err)
	}
	dir, n := t.TempDir(), 0
	for block := range strings.SplitSeq(string(raw), "<<END\n") {
		manifest, _, is := strings.Cut(block, "\n    END\n")
		if !is {
			continue
		}
		n++
		manifest = strings.ReplaceAll("\n"+manifest, "\n    ", "\n")
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.yaml", n)), []byte(manifest), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, _, warnings, err := Load(nil, dir)
	if n != 3 || err != nil || len(warnings) > 0 {
		t.Fatal(n, err, warnings)
	}
	d := translate.Converge(translate.Config{}, s).Desired()
	if len(d.Frontends) != 1 || d.Frontends[0].String() != "tcp://203.0.113.16:80" {
		t.Errorf("frontends %v", d.Frontends)
	}
	for _, o := range d.Statuses {
		if p := o.Status.Policy; p != nil && (len(p.Ancestors) != 1 || !meta.IsStatusConditionTrue(p.Ancestors[0].Conditions, "Accepted")) {
			t.Errorf("%s: %+v", o.Object, p.Ancestors)
		}
	}
}

// TestL4Example holds that the examples of balancing are accepted as they are, and lead where
// they say.
func TestL4Example(t *testing.T) {
	s, _, warnings, err := Load(nil, "../../../examples/l4", "../../../examples/network/pool.yaml")
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	d := translate.Converge(translate.Config{}, s).Desired()
	for _, o := range d.Statuses {
		var conditions []metav1.Condition
		if route := o.Status.Route(); route != nil {
			for _, p := range route.Parents {
				conditions = append(conditions, p.Conditions...)
			}
		}
		if p := o.Status.Policy; p != nil {
			for _, a := range p.Ancestors {
				conditions = append(conditions, a.Conditions...)
			}
		}
		if g := o.Status.Gateway; g != nil {
			conditions = append(conditions, g.Conditions...)
		}
		for _, c := range conditions {
			if c.Status != metav1.ConditionTrue {
				t.Errorf("%s: %s=%s %s", o.Object, c.Type, c.Status, c.Message)
			}
		}
		if o.Status.Notes != "" {
			t.Errorf("%s: %s", o.Object, o.Status.Notes)
		}
	}
	var got []string
	for _, f := range d.Frontends {
		if f.VIP.Is4() {
			got = append(got, f.String()+" "+f.Owner.Name)
		}
	}
	want := []string{
		"udp://203.0.113.16:53 direct", "tcp://203.0.113.16:993 direct", "tcp://203.0.113.16:5432 direct",
		"tcp://203.0.113.17:53 dns", "udp://203.0.113.17:53 dns", "tcp://203.0.113.17:80 web",
	}
	if !slices.Equal(got, want) {
		t.Errorf("frontends %q, want %q", got, want)
	}
}
