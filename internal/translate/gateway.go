package translate

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// gatewayFact is a Gateway of a class that is ours.
type gatewayFact struct {
	created   int64
	request   request
	accepted  verdict[gatewayv1.GatewayConditionReason]
	listeners []gatewayListener
}

// gatewayListener is one listener of a Gateway, in the order of the Gateway.
type gatewayListener struct {
	name     gatewayv1.SectionName
	port     int32
	protocol gatewayv1.ProtocolType
	hostname string // anyHost when unset

	accepted   verdict[gatewayv1.ListenerConditionReason]
	conflicted verdict[gatewayv1.ListenerConditionReason]
	resolved   verdict[gatewayv1.ListenerConditionReason]

	kinds    []gatewayv1.RouteGroupKind // of its routes, those that are supported
	from     gatewayv1.FromNamespaces
	selector *metav1.LabelSelector
}

// id is the listener of the model that serves it.
func (l *gatewayListener) id() model.ListenerID { return ListenerID(uint16(l.port)) }

// serves reports whether requests can come in through it.
func (l *gatewayListener) serves() bool { return !l.accepted.failed }

// allows reports whether HTTPRoutes of a namespace may attach.
func (l *gatewayListener) allows(r reader, gateway, namespace string) bool {
	if len(l.kinds) == 0 {
		return false
	}
	switch l.from {
	case gatewayv1.NamespacesFromAll:
		return true
	case gatewayv1.NamespacesFromSame:
		return namespace == gateway
	case gatewayv1.NamespacesFromSelector:
		selector, err := metav1.LabelSelectorAsSelector(l.selector)
		return err == nil && selector.Matches(labels.Set(r.labelsOf(namespace)))
	default:
		return false
	}
}

// owns reports whether requests for a host that come in at listener l's port are
// l's, and not those of a listener of the same Gateway with a hostname that says
// more.
func (f *gatewayFact) owns(l *gatewayListener, host string) bool {
	return !slices.ContainsFunc(f.listeners, func(other gatewayListener) bool {
		return other.serves() && other.port == l.port && other.hostname != l.hostname &&
			covers(l.hostname, other.hostname) && covers(other.hostname, host)
	})
}

// reserved are the hosts of listeners that take requests away from another
// listener of the Gateway, whether or not a route is attached.
func (f *gatewayFact) reserved() []model.HostKey {
	var keys []model.HostKey
	for i := range f.listeners {
		l := &f.listeners[i]
		if l.serves() && slices.ContainsFunc(f.listeners, func(other gatewayListener) bool {
			return other.serves() && other.port == l.port && other.hostname != l.hostname && covers(other.hostname, l.hostname)
		}) {
			keys = append(keys, model.HostKey{Listener: l.id(), Host: l.hostname})
		}
	}
	slices.SortFunc(keys, model.HostKey.Compare)
	return slices.Compact(keys)
}

// listenerIDs are the listeners of the model that the Gateway asks for, sorted.
func (f *gatewayFact) listenerIDs() []model.ListenerID {
	if f == nil || f.accepted.failed {
		return nil
	}
	var ids []model.ListenerID
	for i := range f.listeners {
		if l := &f.listeners[i]; l.serves() {
			ids = append(ids, l.id())
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func (t *Translator) computeGateway(r reader, n node) {
	name := n.name()
	before := t.gateways[name]
	update(t, n, t.gateways, name, makeGatewayFact(r, name))
	after := t.gateways[name]
	if before == after {
		return
	}
	t.graph.mark(named(nodeGatewayStatus, name))
	owner := gatewayOwner(name)
	t.setWant(owner, after.want(owner))
	t.askPorts(owner, before.listenerIDs(), after.listenerIDs())
	var old, reserved []model.HostKey
	if before != nil {
		old = before.reserved()
	}
	if after != nil && !after.accepted.failed {
		reserved = after.reserved()
	}
	for _, k := range old {
		if !slices.Contains(reserved, k) {
			t.claim(k, owner, nil)
		}
	}
	for _, k := range reserved {
		t.claim(k, owner, &claim{owner: owner})
	}
}

func gatewayOwner(n snapshot.Name) model.Object {
	return model.Object{Kind: string(snapshot.KindGateway), Namespace: n.Namespace, Name: n.Name}
}

// makeGatewayFact judges a Gateway; nil when there is none or another controller's.
func makeGatewayFact(r reader, n snapshot.Name) *gatewayFact {
	o := r.s.Gateways[n]
	if o == nil {
		return nil
	}
	class := r.class(string(o.Spec.GatewayClassName))
	if class == nil {
		return nil
	}
	f := &gatewayFact{created: o.CreationTimestamp.Unix()}
	f.request = gatewayRequest(o, func(problem string) { f.accepted.fail(gatewayv1.GatewayReasonUnsupportedAddress, problem) })
	for i := range o.Spec.Listeners {
		f.listeners = append(f.listeners, makeListener(r.t.config, &o.Spec.Listeners[i], at("spec.listeners", i)))
	}
	findConflicts(f.listeners)
	if class.verdict.failed {
		f.accepted.fail(gatewayv1.GatewayReasonPending, "GatewayClass "+string(o.Spec.GatewayClassName)+" is not accepted: "+class.verdict.message)
	}
	if i := o.Spec.Infrastructure; i != nil && i.ParametersRef != nil {
		f.accepted.fail(gatewayv1.GatewayReasonInvalidParameters,
			"spec.infrastructure.parametersRef: "+string(i.ParametersRef.Kind)+" "+i.ParametersRef.Name+": a Gateway takes no parameters")
	}
	if !f.accepted.failed && len(f.listenerIDs()) == 0 {
		f.accepted.fail(gatewayv1.GatewayReasonListenersNotValid, "no listener is accepted: "+f.refusedListeners())
	}
	return f
}

func (f *gatewayFact) refusedListeners() string {
	var names []string
	for i := range f.listeners {
		if l := &f.listeners[i]; !l.serves() {
			names = append(names, string(l.name)+" ("+string(l.accepted.reason)+")")
		}
	}
	if len(names) == 0 {
		return "there is none"
	}
	return strings.Join(names, ", ")
}

func makeListener(c Config, o *gatewayv1.Listener, path string) gatewayListener {
	l := gatewayListener{name: o.Name, port: int32(o.Port), protocol: o.Protocol, hostname: anyHost, from: gatewayv1.NamespacesFromSame}
	if o.Protocol != gatewayv1.HTTPProtocolType {
		l.accepted.fail(gatewayv1.ListenerReasonUnsupportedProtocol,
			path+".protocol: "+quote(string(o.Protocol))+" is not supported yet: only HTTP is")
	}
	if l.port < 1 || l.port > 65535 {
		l.accepted.fail(gatewayv1.ListenerReasonPortUnavailable, path+".port: "+strconv.Itoa(int(l.port))+" must be in the range 1-65535")
	} else if slices.Contains(c.ReservedPorts, uint16(l.port)) {
		l.accepted.fail(gatewayv1.ListenerReasonPortUnavailable, path+".port: "+strconv.Itoa(int(l.port))+" is used by Fairlead itself on every machine")
	}
	if host := strings.ToLower(string(deref(o.Hostname))); host != "" {
		if problem := hostProblem(host, true); problem != "" {
			l.accepted.fail(gatewayv1.ListenerReasonUnsupportedValue, path+".hostname: "+problem)
		} else {
			l.hostname = host
		}
	}
	allowed := deref(o.AllowedRoutes)
	if n := allowed.Namespaces; n != nil {
		l.from = cmp.Or(deref(n.From), gatewayv1.NamespacesFromSame)
		switch l.from {
		case gatewayv1.NamespacesFromAll, gatewayv1.NamespacesFromSame, gatewayv1.NamespacesFromNone:
		case gatewayv1.NamespacesFromSelector:
			l.selector = n.Selector
			if _, err := metav1.LabelSelectorAsSelector(n.Selector); err != nil {
				l.accepted.fail(gatewayv1.ListenerReasonUnsupportedValue, path+".allowedRoutes.namespaces.selector: "+err.Error())
			} else if n.Selector == nil {
				l.accepted.fail(gatewayv1.ListenerReasonUnsupportedValue, path+".allowedRoutes.namespaces.selector: must be set when from is Selector")
			}
		default:
			l.accepted.fail(gatewayv1.ListenerReasonUnsupportedValue, path+".allowedRoutes.namespaces.from: "+quote(string(l.from))+" is unknown")
		}
	}
	l.kinds = []gatewayv1.RouteGroupKind{}
	if o.Protocol == gatewayv1.HTTPProtocolType && len(allowed.Kinds) == 0 {
		l.kinds = append(l.kinds, httpRouteKind())
	}
	for i, k := range allowed.Kinds {
		group := gatewayv1.Group(gatewayv1.GroupName)
		if k.Group != nil {
			group = *k.Group
		}
		if group == gatewayv1.GroupName && k.Kind == gatewayv1.Kind(snapshot.KindHTTPRoute) && o.Protocol == gatewayv1.HTTPProtocolType {
			if len(l.kinds) == 0 {
				l.kinds = append(l.kinds, httpRouteKind())
			}
			continue
		}
		l.resolved.fail(gatewayv1.ListenerReasonInvalidRouteKinds,
			path+"."+at("allowedRoutes.kinds", i)+": "+string(k.Kind)+" routes cannot attach to a listener of protocol "+string(o.Protocol))
	}
	return l
}

func httpRouteKind() gatewayv1.RouteGroupKind {
	group := gatewayv1.Group(gatewayv1.GroupName)
	return gatewayv1.RouteGroupKind{Group: &group, Kind: gatewayv1.Kind(snapshot.KindHTTPRoute)}
}

// findConflicts refuses listeners between which requests could not choose.
// Listeners of a protocol that is never accepted do not take a port away from
// others, except those that would speak HTTP or TLS there (GatewaySpec.listeners).
func findConflicts(ls []gatewayListener) {
	type port struct {
		number   int32
		hostname string
	}
	sameHost := map[port][]int{}
	samePort := map[int32][]int{}
	for i, l := range ls {
		switch l.protocol {
		case gatewayv1.HTTPProtocolType, gatewayv1.HTTPSProtocolType, gatewayv1.TLSProtocolType:
			k := port{l.port, string(l.protocol) + " " + l.hostname}
			sameHost[k] = append(sameHost[k], i)
			samePort[l.port] = append(samePort[l.port], i)
		}
	}
	refuse := func(i int, reason gatewayv1.ListenerConditionReason, message string) {
		ls[i].conflicted.fail(reason, message)
		ls[i].accepted.fail(reason, message)
	}
	for i := range ls {
		l := &ls[i]
		for _, j := range sameHost[port{l.port, string(l.protocol) + " " + l.hostname}] {
			if i != j {
				refuse(i, gatewayv1.ListenerReasonHostnameConflict,
					"listener "+string(ls[j].name)+" has the same port, protocol and hostname")
				break
			}
		}
		for _, j := range samePort[l.port] {
			if ls[j].protocol != l.protocol && slices.Contains(samePort[l.port], i) {
				refuse(i, gatewayv1.ListenerReasonProtocolConflict,
					"listener "+string(ls[j].name)+" wants protocol "+string(ls[j].protocol)+" on the same port")
				break
			}
		}
	}
}

// addressLimit is the most that a Gateway's status may list.
const addressLimit = 16

func (t *Translator) computeGatewayStatus(r reader, n node) {
	name := n.name()
	object := gatewayOwner(name)
	o := r.s.Gateways[name]
	if o == nil || t.gateways[name] == nil {
		publish(t.result.Statuses, t.out.Statuses, object, nil)
		return
	}
	f := r.gateway(name)
	gen := o.Generation
	status := &gatewayv1.GatewayStatus{}
	reason, message := gatewayv1.GatewayReasonAccepted, "the Gateway is accepted"
	if f.accepted.failed {
		reason, message = f.accepted.reason, f.accepted.message
	} else if refused := slices.ContainsFunc(f.listeners, func(l gatewayListener) bool { return !l.serves() }); refused {
		reason, message = gatewayv1.GatewayReasonListenersNotValid, "some listeners are not accepted: "+f.refusedListeners()
	}
	status.Conditions = []metav1.Condition{condition(gatewayv1.GatewayConditionAccepted, !f.accepted.failed, reason, message, gen)}
	for i := range f.listeners {
		status.Listeners = append(status.Listeners, listenerStatus(&f.listeners[i], t.attached[name], gen))
	}
	var hold *Hold
	if !f.accepted.failed {
		var addresses []string
		if out := r.outcome(object); out == nil {
			addresses = r.addresses()
		} else {
			for _, a := range out.addresses {
				addresses = append(addresses, a.String())
			}
			hold = out.hold
		}
		kind := gatewayv1.IPAddressType
		for _, a := range addresses[:min(len(addresses), addressLimit)] {
			status.Addresses = append(status.Addresses, gatewayv1.GatewayStatusAddress{Type: &kind, Value: a})
		}
	}
	publish(t.result.Statuses, t.out.Statuses, object, &Status{Generation: gen, Gateway: status, Hold: hold, Listeners: f.listenerIDs()})
}

func listenerStatus(l *gatewayListener, attached map[gatewayv1.SectionName]int32, gen int64) gatewayv1.ListenerStatus {
	write := func(kind gatewayv1.ListenerConditionType, v verdict[gatewayv1.ListenerConditionReason], negative bool, reason gatewayv1.ListenerConditionReason, message string) metav1.Condition {
		if v.failed {
			reason, message = v.reason, v.message
		}
		return condition(kind, v.failed == negative, reason, message, gen)
	}
	return gatewayv1.ListenerStatus{
		Name:           l.name,
		SupportedKinds: l.kinds,
		AttachedRoutes: attached[l.name],
		Conditions: []metav1.Condition{
			write(gatewayv1.ListenerConditionAccepted, l.accepted, false, gatewayv1.ListenerReasonAccepted, "the listener is accepted"),
			write(gatewayv1.ListenerConditionConflicted, l.conflicted, true, gatewayv1.ListenerReasonNoConflicts, "no other listener is in conflict with it"),
			write(gatewayv1.ListenerConditionResolvedRefs, l.resolved, false, gatewayv1.ListenerReasonResolvedRefs, "all references are resolved"),
		},
	}
}
