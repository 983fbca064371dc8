package snapshot

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/api/v1alpha1"
)

// Unreadable is the annotation in which a source says which values of an object it left out, since they do not fit their
// fields. It stands in no API: sources take it away from what they read.
const Unreadable = "fairlead.dev/unreadable"

// Name is a namespace and a name; the namespace is empty for cluster-scoped kinds.
type Name = types.NamespacedName

// Key names one object of a snapshot.
type Key struct {
	Kind Kind
	Name Name
}

// String is "Kind namespace/name".
func (k Key) String() string {
	if k.Name.Namespace == "" {
		return string(k.Kind) + " " + k.Name.Name
	}
	return string(k.Kind) + " " + k.Name.String()
}

// Compare orders keys by kind, namespace and name.
func (k Key) Compare(l Key) int {
	return cmp.Or(cmp.Compare(k.Kind, l.Kind),
		cmp.Compare(k.Name.Namespace, l.Name.Namespace), cmp.Compare(k.Name.Name, l.Name.Name))
}

// Own are the endpoints at which the plane itself takes calls, in any order.
type Own struct {
	Agents []netip.AddrPort // where its agents call
	API    []netip.AddrPort // of its own Kubernetes API; none: the API is somebody else's
}

// Snapshot is the state of the API as far as translation needs it. The zero value
// is not usable; call New.
type Snapshot struct {
	// Now is the time at which the validity of certificates is judged; zero judges none. Who
	// moves it on says so with a key of KindTime.
	Now time.Time

	// Own is where the plane that translates takes calls. Who moves it says so with a key of KindOwn.
	Own Own

	// PeersInForce are the settings of BGPPeers that machines have, as the last translation
	// said. They go before those of an object's status, which may not have been written yet. Who changes
	// one says so with the key of its BGPPeer.
	PeersInForce map[Name]*v1alpha1.BGPPeerSpec

	objects
}

// New returns an empty snapshot.
func New() *Snapshot {
	s := &Snapshot{PeersInForce: map[Name]*v1alpha1.BGPPeerSpec{}}
	for i := range resources {
		resources[i].objects.begin(s)
	}
	return s
}

// Get returns the named object, nil when there is none.
func (s *Snapshot) Get(k Key) Object {
	if r := find(k.Kind); r != nil {
		return r.objects.get(s, k.Name)
	}
	return nil
}

// Set puts an object in, replacing the one of the same name, and returns its key.
// The snapshot keeps the pointer: the object must not change afterwards. A type
// that no snapshot holds is an error, and so is a Secret that was not trimmed.
func (s *Snapshot) Set(object metav1.Object) (Key, error) {
	n := Name{Namespace: object.GetNamespace(), Name: object.GetName()}
	if secret, is := object.(*corev1.Secret); is && !trimmed(secret) {
		return Key{}, fmt.Errorf("secret %s holds more than a snapshot may: it was not trimmed", n)
	}
	for i := range resources {
		if resources[i].objects.set(s, n, object) {
			return Key{resources[i].Kind, n}, nil
		}
	}
	return Key{}, fmt.Errorf("a snapshot holds no %T", object)
}

// Delete takes the named object out; a missing one is no error.
func (s *Snapshot) Delete(k Key) {
	if r := find(k.Kind); r != nil {
		r.objects.remove(s, k.Name)
	}
	if k.Kind == KindBGPPeer {
		delete(s.PeersInForce, k.Name)
	}
}

// Keys returns the key of every object, sorted.
func (s *Snapshot) Keys() []Key {
	var keys []Key
	for i := range resources {
		for n := range resources[i].objects.names(s) {
			keys = append(keys, Key{resources[i].Kind, n})
		}
	}
	if !s.Now.IsZero() {
		keys = append(keys, Key{Kind: KindTime})
	}
	if len(s.Own.Agents)+len(s.Own.API) > 0 {
		keys = append(keys, Key{Kind: KindOwn})
	}
	slices.SortFunc(keys, Key.Compare)
	return keys
}
