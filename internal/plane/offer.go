package plane

import (
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
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

func (l *loop) offerObject(o model.Object, v verdict) {
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
	if s == nil {
		if s = unattached(snapshot.Kind(o.Kind), live.GetGeneration()); s == nil {
			l.plane.writer.withdraw(o)
			return // it is not ours any more, and what it shows is somebody else's
		}
	}
	if g, is := live.(*gatewayv1.Gateway); is {
		l.plane.standing.offer(g)
	}
	if service, is := live.(*corev1.Service); is && s.Service != nil {
		s = l.judgeService(s, v, service.Status.Conditions)
	}
	apply := applierOf(s, v, l.plane.config.Translate.ControllerName)
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
	waits := v.State == verdictPending || v.State == verdictHold
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

// live is the object as the API last showed it, or nil.
func (l *loop) live(o model.Object) client.Object {
	n := snapshot.Name{Namespace: o.Namespace, Name: o.Name}
	switch snapshot.Kind(o.Kind) {
	case snapshot.KindGatewayClass:
		return present(l.snapshot.GatewayClasses[n])
	case snapshot.KindGateway:
		return present(l.snapshot.Gateways[n])
	case snapshot.KindListenerSet:
		return present(l.snapshot.ListenerSets[n])
	case snapshot.KindHTTPRoute:
		return present(l.snapshot.HTTPRoutes[n])
	case snapshot.KindTLSRoute:
		return present(l.snapshot.TLSRoutes[n])
	case snapshot.KindTCPRoute:
		return present(l.snapshot.TCPRoutes[n])
	case snapshot.KindUDPRoute:
		return present(l.snapshot.UDPRoutes[n])
	case snapshot.KindGRPCRoute:
		return present(l.snapshot.GRPCRoutes[n])
	case snapshot.KindClientPolicy:
		return present(l.snapshot.ClientPolicies[n])
	case snapshot.KindRoutePolicy:
		return present(l.snapshot.RoutePolicies[n])
	case snapshot.KindLoadBalancerPolicy:
		return present(l.snapshot.LoadBalancerPolicies[n])
	case snapshot.KindBackendPolicy:
		return present(l.snapshot.BackendPolicies[n])
	case snapshot.KindBackendTLSPolicy:
		return present(l.snapshot.BackendTLSPolicies[n])
	case snapshot.KindIngressRoute:
		return present(l.snapshot.IngressRoutes[n])
	case snapshot.KindMachine:
		return present(l.snapshot.Machines[n])
	case snapshot.KindAddressPool:
		return present(l.snapshot.AddressPools[n])
	case snapshot.KindBGPPeer:
		return present(l.snapshot.BGPPeers[n])
	case snapshot.KindService:
		return present(l.snapshot.Services[n])
	default:
		return nil
	}
}

// present keeps a nil pointer from becoming an interface that is not nil.
func present[T any, P interface {
	*T
	client.Object
}](p P) client.Object {
	if p == nil {
		return nil
	}
	return p
}
