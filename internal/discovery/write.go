package discovery

import (
	"cmp"
	"context"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/derive"
	"fairlead.dev/internal/mirror"
	"fairlead.dev/internal/snapshot"
)

// writePause is the shortest time between two writes of one object.
const writePause = time.Second

// write has an object brought about.
func (s *state) write(w mirror.Write) {
	o := derive.Object{
		Wanted: w.Wanted, Absent: w.Absent, Pause: writePause, Watched: true,
		Ours:  func(live client.Object) bool { return mirror.Ours(live) },
		Merge: func(live, wanted client.Object) bool { return mirror.Merge(live, wanted) },
	}
	upstream := w.Wanted.GetLabels()[v1alpha1.LabelUpstream]
	o.Tell = func(_ derive.Trouble, err error) {
		s.config.Log.Warn("a discovered object is not stored; it is in effect all the same", "object", client.ObjectKeyFromObject(w.Wanted).String(), "upstream", upstream, "error", err)
		s.troubled(w.Wanted, err)
	}
	s.config.Writer.Offer(o)
}

// troubled notes that a write has failed. Any goroutine may call it.
func (d *Discovery) troubled(o client.Object, err error) {
	k := snapshot.Key{Name: snapshot.Name{Namespace: o.GetNamespace(), Name: o.GetName()}}
	switch o.(type) {
	case *corev1.Service:
		k.Kind = snapshot.KindService
	case *discoveryv1.EndpointSlice:
		k.Kind = snapshot.KindEndpointSlice
	default:
		k.Kind = gimbalEndpoints
	}
	_ = d.ask(context.Background(), func(s *state) { s.troubles[k] = clip(err.Error()) }) // else it ends
}

// gimbalEndpoints are Endpoints that are to be deleted: Gimbal wrote them.
const gimbalEndpoints snapshot.Kind = "Endpoints"

// unwritten are the objects of an upstream that the API refuses to store, or to delete, or that fail otherwise.
type unwritten struct {
	n     int
	first snapshot.Key
	why   string // of the first
}

// unwrittenBy says, by upstream, which writes have failed since they last succeeded.
func (s *state) unwrittenBy() map[string]unwritten {
	all := map[string]unwritten{}
	maps.DeleteFunc(s.troubles, func(k snapshot.Key, why string) bool {
		name := s.mirror.Unwritten(k)
		if k.Kind == gimbalEndpoints {
			name = s.mirror.Copied(k.Name)
		}
		if name == "" {
			return true
		}
		u := all[name]
		if u.n++; u.n == 1 || before(k, u.first) {
			u.first, u.why = k, why
		}
		all[name] = u
		return false
	})
	return all
}

// before orders Services before EndpointSlices, and each by name: why a Service is refused says more.
func before(a, b snapshot.Key) bool {
	if a.Kind != b.Kind {
		return a.Kind == snapshot.KindService
	}
	return cmp.Or(cmp.Compare(a.Name.Namespace, b.Name.Namespace), cmp.Compare(a.Name.Name, b.Name.Name)) < 0
}
