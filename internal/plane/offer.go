package plane

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/plane/status"
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
	l.offerUpstreams(l.plane.upstreams.all())
}

func (l *loop) offerObject(o model.Object, v progress.Result) {
	if l.endTerm == nil {
		return
	}
	live := l.live(o)
	if live == nil {
		l.plane.writer.Forget(o)
		return
	}
	s := l.statuses[o]
	if l.disowned(o) {
		l.plane.writer.Offer(status.Write{Object: o, Generation: live.GetGeneration(), Live: live, Apply: status.LeaveService})
		return
	}
	controller := l.plane.config.Translate.ControllerName
	var apply status.Applier
	switch {
	case s != nil:
	case snapshot.RouteStatus(live) != nil: // no parent of it is ours
		s = &translate.Status{Generation: live.GetGeneration()}
		apply = status.ApplyRoute(nil, s.Generation, v, controller)
	default:
		l.plane.writer.Withdraw(o)
		return // it is not ours any more, and what it shows is somebody else's
	}
	if g, is := live.(*gatewayv1.Gateway); is {
		l.plane.derived.Offer(infrastructure(g, l.plane.config.Log))
	}
	if service, is := live.(*corev1.Service); is && s.Service != nil {
		idle := ""
		if v.State == progress.Programmed { // else it is not shown
			idle = l.idleText(l.idle(s.Frontends))
		}
		s = status.JudgeService(s, v, idle, service.Status.Conditions)
	}
	if apply == nil {
		apply = status.ApplierOf(s, v, controller)
	}
	if s.BGPPeer != nil {
		c, known := l.established(o.Name, s.Generation)
		apply = status.ApplyBGPPeer(*s.BGPPeer, c, known)
	}
	if apply == nil {
		return
	}
	w := status.Write{Object: o, Generation: s.Generation, Live: live, Apply: apply, Fenced: s.AddressPool != nil}
	if pool, is := live.(*v1alpha1.AddressPool); is && releases(pool.Status, *s.AddressPool) {
		// An owner that is not known may only not have been read yet.
		if l.blind() {
			l.blinded[o] = true
			l.plane.writer.Withdraw(o)
			return
		}
		w.Delay = status.PendingDelay
	}
	waits := v.State == progress.Pending || v.State == progress.Unknown
	switch {
	case status.Requotes(live, s):
		w.Delay = status.RewordDelay
	case (waits || v.Lost) && status.ShowsProgrammed(live, s.Generation):
		w.Delay = status.ProgrammedDelay
	case waits:
		w.Delay = status.PendingDelay
	}
	l.plane.writer.Offer(w)
}

// disowned says that an object is a Service that was ours, is ours no longer, and shows it still.
func (l *loop) disowned(o model.Object) bool {
	service, is := l.live(o).(*corev1.Service)
	return is && l.statuses[o] == nil && status.ShowsService(service)
}

// offerMachine hands what a machine should show to the status writer.
func (l *loop) offerMachine(name string) {
	if l.endTerm == nil {
		return
	}
	live := l.snapshot.Machines[snapshot.Name{Name: name}]
	if live == nil {
		return
	}
	ready, state, known := l.machineReady(live)
	if !known {
		return
	}
	holding := l.holding(live, state)
	// A report that came while this plane led before says nothing now: others have led since.
	reported, decaps := !state.LastReport.IsZero() && !state.LastReport.Before(l.leadSince), l.decaps(name)
	conditions := []metav1.Condition{ready}
	if reported {
		conditions = append(conditions, l.addressesHeld(live, holding))
	}
	apply := func(o client.Object, now metav1.Time) client.Object {
		m, ok := o.(*v1alpha1.Machine)
		if !ok {
			return nil
		}
		next := m.Status
		if reported {
			next.Addresses, next.AgentVersion, next.Decaps = holding.held, state.AgentVersion, decaps
		}
		next.Conditions = status.MergeConditions(m.Status.Conditions, conditions, func(t string) bool { return t == v1alpha1.MachineReady }, now)
		if equality.Semantic.DeepEqual(next, m.Status) {
			return nil
		}
		n := *m
		n.Status = next
		return n.DeepCopy()
	}
	w := status.Write{Object: model.Object{Kind: string(snapshot.KindMachine), Name: name}, Generation: live.Generation, Live: live, Apply: apply}
	if ready.Status != metav1.ConditionTrue && meta.IsStatusConditionTrue(live.Status.Conditions, v1alpha1.MachineReady) {
		w.Delay = status.PendingDelay
	}
	l.plane.writer.Offer(w)
}

// offerPeers has the peers of a machine judged again.
func (l *loop) offerPeers(machine string) {
	for peer := range l.network.peersAt(machine) {
		l.due[model.Object{Kind: string(snapshot.KindBGPPeer), Name: peer}] = true
	}
}
