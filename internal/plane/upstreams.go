package plane

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/plane/status"
	"fairlead.dev/internal/snapshot"
)

// gimbalEndpoints is the kind of object that is deleted when an upstream takes Services over from Gimbal.
//
//nolint:staticcheck // Endpoints are deprecated; Gimbal has written nothing else
var gimbalEndpoints = &corev1.Endpoints{}

// upstreams are what upstreams should show, as discovery said last.
type upstreams struct {
	changed[string]
	said *upstreamsSaid
}

type upstreamsSaid struct {
	mu       sync.Mutex
	statuses map[string]*v1alpha1.UpstreamStatus
	orphans  []snapshot.Name // Services whose Upstream does not exist
}

func newUpstreams() upstreams {
	return upstreams{newChanged[string](), &upstreamsSaid{statuses: map[string]*v1alpha1.UpstreamStatus{}}}
}

// note takes what an upstream should show now; nil: it does not exist.
func (u upstreams) note(name string, s *v1alpha1.UpstreamStatus) {
	u.said.mu.Lock()
	if delete(u.said.statuses, name); s != nil {
		u.said.statuses[name] = s
	}
	u.said.mu.Unlock()
	u.changed.note(name)
}

// orphan takes the Services whose Upstream does not exist.
func (u upstreams) orphan(names []snapshot.Name) {
	u.said.mu.Lock()
	defer u.said.mu.Unlock()
	u.said.orphans = names
}

// orphans returns the Services whose Upstream does not exist, once each time they are said.
func (u upstreams) orphans() []snapshot.Name {
	u.said.mu.Lock()
	defer u.said.mu.Unlock()
	names := u.said.orphans
	u.said.orphans = nil
	return names
}

func (u upstreams) status(name string) *v1alpha1.UpstreamStatus {
	u.said.mu.Lock()
	defer u.said.mu.Unlock()
	return u.said.statuses[name]
}

func (u upstreams) all() map[string]bool {
	u.said.mu.Lock()
	defer u.said.mu.Unlock()
	names := map[string]bool{}
	for name := range u.said.statuses {
		names[name] = true
	}
	return names
}

// offerUpstreams hands what upstreams should show to the status writer.
func (l *loop) offerUpstreams(names map[string]bool) {
	if l.endTerm == nil {
		return
	}
	for name := range names {
		s := l.plane.upstreams.status(name)
		live := l.snapshot.Upstreams[snapshot.Name{Name: name}]
		if s == nil || live == nil {
			continue
		}
		l.plane.writer.Offer(status.Write{
			Object: model.Object{Kind: string(snapshot.KindUpstream), Name: name}, Generation: live.Generation, Live: live, Apply: applyUpstream(*s),
		})
	}
}

func applyUpstream(want v1alpha1.UpstreamStatus) status.Applier {
	return func(live client.Object, now metav1.Time) client.Object {
		o, is := live.(*v1alpha1.Upstream)
		if !is {
			return nil
		}
		s := want
		s.Conditions = status.MergeConditions(o.Status.Conditions, want.Conditions, func(t string) bool {
			return t == v1alpha1.ConditionAccepted || t == v1alpha1.ConditionReachable || t == v1alpha1.ConditionCurrent
		}, now)
		if equality.Semantic.DeepEqual(s, o.Status) {
			return nil
		}
		n := *o
		n.Status = s
		return n.DeepCopy()
	}
}
