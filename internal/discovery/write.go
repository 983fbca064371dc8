package discovery

import (
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/derive"
	"fairlead.dev/internal/mirror"
)

// writePause is the shortest time between two writes of one object.
const writePause = time.Second

// derived is an object of an API.
type derived = client.Object

// write has an object brought about.
func (s *state) write(w mirror.Write) {
	o := derive.Object{
		Wanted: w.Wanted, Absent: w.Absent, Pause: writePause, Watched: true,
		Ours:  func(live derived) bool { return mirror.Ours(live) },
		Merge: func(live, wanted derived) bool { return mirror.Merge(live, wanted) },
	}
	upstream := w.Wanted.GetLabels()[v1alpha1.LabelUpstream]
	o.Tell = func(_ derive.Trouble, err error) {
		s.config.Log.Warn("a discovered object is not stored; it is in effect all the same", "object", client.ObjectKeyFromObject(w.Wanted).String(), "upstream", upstream, "error", err)
	}
	s.config.Writer.Offer(o)
}
