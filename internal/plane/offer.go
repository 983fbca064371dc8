package plane

import (
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/progress"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate"
)

func (l *loop) offerAll() {
	for o := range l.statuses {
		l.due[o] = true
	}
	for n := range l.snapshot.Services {
		if o := object(snapshot.Key{Kind: snapshot.KindService, Name: n}); l.disowned(o) {
			l.due[o] = true
		}
	}
	for name := range l.machines {
		l.offerMachine(name)
	}
}

func (l *loop) offerObject(o model.Object, v progress.Result) {
	if l.endTerm == nil {
		return
	}
	live := l.live(o)
	if live == nil {
		l.plane.writer.forget(o)
		return
	}
	s := l.statuses[o]
	if l.disowned(o) {
		l.plane.writer.offer(statusWrite{Object: o, Generation: live.GetGeneration(), Live: live, Apply: leaveService})
		return
	}
	controller := l.plane.config.Translate.ControllerName
	var apply applier
	switch {
	case s != nil:
	case snapshot.RouteStatus(live) != nil: // no parent of it is ours
		s = &translate.Status{Generation: live.GetGeneration()}
		apply = applyRoute(nil, s.Generation, v, controller)
	default:
		l.plane.writer.withdraw(o)
		return // it is not ours any more, and what it shows is somebody else's
	}
	if g, is := live.(*gatewayv1.Gateway); is {
		l.plane.derived.Offer(infrastructure(g, l.plane.config.Log))
	}
	if service, is := live.(*corev1.Service); is && s.Service != nil {
		s = l.judgeService(s, v, service.Status.Conditions)
	}
	if apply == nil {
		apply = applierOf(s, v, controller)
	}
	if s.BGPPeer != nil {
		c, known := l.established(o.Name, s.Generation)
		apply = applyBGPPeer(*s.BGPPeer, c, known)
	}
	if apply == nil {
		return
	}
	w := statusWrite{Object: o, Generation: s.Generation, Live: live, Apply: apply, Fenced: s.AddressPool != nil}
	if pool, is := live.(*v1alpha1.AddressPool); is && releases(pool.Status, *s.AddressPool) {
		// An owner that is not known may only not have been read yet.
		if l.blind() {
			l.blinded[o] = true
			l.plane.writer.withdraw(o)
			return
		}
		w.Delay = settleTime
	}
	waits := v.State == progress.Pending || v.State == progress.Unknown
	switch {
	case requotes(live, s):
		w.Delay = rewordTime
	case (waits || v.Lost) && showsProgrammed(live, s.Generation):
		w.Delay = steadyTime
	case waits:
		w.Delay = settleTime
	}
	l.plane.writer.offer(w)
}

// live is the object as the API last showed it, nil when there is none or the plane writes no status of its kind.
func (l *loop) live(o model.Object) client.Object {
	if r, is := snapshot.ResourceOf(snapshot.Kind(o.Kind)); !is || r.Status == snapshot.StatusNone {
		return nil
	}
	return l.snapshot.Get(key(o))
}
