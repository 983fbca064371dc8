package mirror

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// keyOf reads the key of the service that a stored object is of; false: the object does not say.
func keyOf(o snapshot.Object) (model.UpstreamKey, bool) {
	scope, name, said := strings.Cut(o.GetAnnotations()[v1alpha1.AnnotationUpstreamService], "/")
	return model.UpstreamKey{Scope: scope, Name: name}, said
}

// keyOfObject is the key of a Service or EndpointSlice.
func keyOfObject(o snapshot.Object) snapshot.Key {
	kind := snapshot.KindService
	if _, is := o.(*discoveryv1.EndpointSlice); is {
		kind = snapshot.KindEndpointSlice
	}
	return snapshot.Key{Kind: kind, Name: snapshot.Name{Namespace: o.GetNamespace(), Name: o.GetName()}}
}

// named is an object of which only the name is said.
func named(k snapshot.Key) snapshot.Object {
	meta := metav1.ObjectMeta{Namespace: k.Name.Namespace, Name: k.Name.Name}
	if k.Kind == snapshot.KindEndpointSlice {
		return &discoveryv1.EndpointSlice{ObjectMeta: meta}
	}
	return &corev1.Service{ObjectMeta: meta}
}

// sortedKeys are the keys of a map in order.
func sortedKeys[T any](m map[model.UpstreamKey]T) []model.UpstreamKey {
	return slices.SortedFunc(maps.Keys(m), model.UpstreamKey.Compare)
}

func compareNames(a, b snapshot.Name) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

const hashLength = 10 // hexadecimal digits that end names: 40 bits

// digest is a hash of strings, of which none is a part of another one's.
func digest(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:])[:hashLength]
}

// number is a count with its noun.
func number(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}
