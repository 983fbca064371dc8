package translate

import (
	"crypto/elliptic"
	"errors"
	"io"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/certificate/certificatetest"
)

// ourClass is the GatewayClass that is ours.
const ourClass = `
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: fairlead}
spec: {controllerName: fairlead.dev/gateway}
---`

// newObject returns an empty object of a kind; nil: no snapshot holds the kind.
func newObject(kind snapshot.Kind) metav1.Object {
	if r, is := snapshot.ResourceOf(kind); is {
		return r.New()
	}
	return nil
}

// readYAML puts every document into the snapshot.
func readYAML(t testing.TB, s *snapshot.Snapshot, text []byte) {
	t.Helper()
	reader := utilyaml.NewYAMLReader(newLineReader(text))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		var meta metav1.TypeMeta
		if err := yaml.Unmarshal(document, &meta); err != nil {
			t.Fatal(err)
		}
		o := newObject(snapshot.Kind(meta.Kind))
		if o == nil {
			t.Fatalf("a document of kind %q", meta.Kind)
		}
		if err := yaml.UnmarshalStrict(document, o); err != nil {
			t.Fatalf("%s: %v", meta.Kind, err)
		}
		if secret, is := o.(*corev1.Secret); is {
			fillIn(t, secret.StringData)
			o = snapshot.Trim(secret, v1alpha1.SystemNamespace)
		}
		if config, is := o.(*corev1.ConfigMap); is {
			fillIn(t, config.Data)
			o = snapshot.TrimConfigMap(config)
		}
		setAll(t, s, o)
	}
}

// namedPairs are the certificates that cases name, made when first named.
var namedPairs = map[string]map[string]string{}

// fillIn puts certificates and keys in the places of "CERTIFICATE name..." and "KEY name...":
// cases name them, since nobody can read them.
func fillIn(t testing.TB, data map[string]string) {
	t.Helper()
	for k, text := range data {
		what, names, _ := strings.Cut(text, " ")
		if what != "CERTIFICATE" && what != "KEY" {
			continue
		}
		if namedPairs[names] == nil {
			chain, key := certificatetest.Pair(t, certificatetest.Key(t, elliptic.P256()), strings.Fields(names)...)
			namedPairs[names] = map[string]string{"CERTIFICATE": string(chain), "KEY": string(key)}
		}
		data[k] = namedPairs[names][what]
	}
}

// setAll puts objects into the snapshot.
func setAll(t testing.TB, s *snapshot.Snapshot, objects ...metav1.Object) []snapshot.Key {
	t.Helper()
	var keys []snapshot.Key
	for _, o := range objects {
		k, err := s.Set(o)
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, k)
	}
	return keys
}

// text is what a result says, for comparisons.
func text(tr *Translator) string { return tr.Desired().Text() }

// lineDiff shows where two texts part.
func lineDiff(want, got string) string {
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	show := func(lines []string) string {
		return strings.Join(lines[max(0, min(i-3, len(lines))):min(len(lines), i+4)], "\n")
	}
	return "they part here\n--- want\n" + show(a) + "\n--- got\n" + show(b)
}
