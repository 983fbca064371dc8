package translate

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

type gatewayVerdict = verdict[gatewayv1.GatewayConditionReason]

// gatewayFact is a Gateway of a class that is ours, with what its ListenerSets add: before
// it is known which addresses it has.
type gatewayFact struct {
	created  int64
	class    string
	request  request
	hosts    string // whose they are at its listeners: AnnotationHosts
	accepted gatewayVerdict
	notes    []string // what is worth knowing, though nothing is wrong with it
	// resolved is of references that are not a listener's.
	resolved  gatewayVerdict
	listeners []gatewayListener
	frontends []frontendFact // the default first, then those of ports
	// clientCertificate is shown to backends.
	clientCertificate model.CertificateID

	sets     []snapshot.Name    // that name it, allowed or not, in their precedence
	attached int32              // of them those that are accepted
	wanted   []model.ListenerID // at addresses of its own, with those of its sets
	doors    []gatewayDoor      // at addresses of its own, of the listeners without a proxy
	sections []sectionKey       // of all accepted listeners that proxies serve
}

func gatewayOwner(n snapshot.Name) model.Object {
	return model.Object{Kind: string(snapshot.KindGateway), Namespace: n.Namespace, Name: n.Name}
}

func (t *Translator) computeGateway(r reader, n node) {
	name := n.name()
	before := t.gateways[name]
	made, outcomes := makeGatewayFact(r, name)
	update(t, n, t.gateways, name, made)
	after := t.gateways[name]
	for set, o := range outcomes {
		k := setKey{name, set}
		update(t, k.node(), t.setOutcomes, k, o)
	}
	t.graph.mark(parentKey{snapshot.KindGateway, name}.node())
	if before == after {
		return
	}
	t.graph.mark(named(nodeGatewayStatus, name))
	t.setWant(gatewayOwner(name), after.want(gatewayOwner(name)))
	var were, are []sectionKey
	if before != nil {
		were = before.sections
		for _, set := range before.sets {
			if outcomes[set] == nil {
				k := setKey{name, set}
				update(t, k.node(), t.setOutcomes, k, nil)
			}
		}
	}
	if after != nil {
		are = after.sections
	}
	t.moveSections(were, are)
}

// moveSections replaces the hostnames of a Gateway's listeners. Only those who looked for
// one that comes or goes look again.
func (t *Translator) moveSections(before, after []sectionKey) {
	gone := make(map[sectionKey]struct{}, len(before))
	for _, k := range before {
		gone[k] = struct{}{}
	}
	for _, k := range after {
		if _, stood := gone[k]; stood {
			delete(gone, k)
			continue
		}
		t.sections[k] = struct{}{}
		t.graph.changed(k.node())
	}
	for k := range gone {
		delete(t.sections, k)
		t.graph.changed(k.node())
	}
}

// makeGatewayFact judges a Gateway and the ListenerSets that name it; nil when there is none
// or another controller's.
func makeGatewayFact(r reader, n snapshot.Name) (*gatewayFact, map[snapshot.Name]*setOutcome) {
	o := r.s.Gateways[n]
	if o == nil {
		return nil, nil
	}
	class := r.class(string(o.Spec.GatewayClassName))
	if class == nil {
		return nil, nil
	}
	f := &gatewayFact{created: o.CreationTimestamp.Unix(), class: string(o.Spec.GatewayClassName), notes: gatewayNotes(o.Annotations)}
	switch hosts := o.Annotations[v1alpha1.AnnotationHosts]; hosts {
	case "", v1alpha1.HostsOfNamespaces, v1alpha1.HostsShared:
		f.hosts = hosts
	default:
		f.notes = append(f.notes, "metadata.annotations["+v1alpha1.AnnotationHosts+"]: "+quote(hosts)+" is neither "+v1alpha1.HostsOfNamespaces+" nor "+v1alpha1.HostsShared)
	}
	f.request = gatewayRequest(o, func(problem string) { f.accepted.fail(gatewayv1.GatewayReasonUnsupportedAddress, problem) })
	b := bearer{r, snapshot.KindGateway, n}
	for i := range o.Spec.Listeners {
		f.listeners = append(f.listeners, b.makeListener(&o.Spec.Listeners[i], at("spec.listeners", i)))
	}
	if o.Spec.TLS != nil {
		f.makeFrontends(r, n, o.Spec.TLS.Frontend)
		f.makeBackendTLS(r, n, o.Spec.TLS.Backend)
	}
	f.validate("", f.listeners)
	m := newMerge()
	m.add(f.listeners)
	m.take(f.listeners)
	if class.verdict.failed {
		f.accepted.fail(gatewayv1.GatewayReasonPending, "GatewayClass "+string(o.Spec.GatewayClassName)+" is not accepted: "+class.verdict.message)
	}
	if i := o.Spec.Infrastructure; i != nil && i.ParametersRef != nil {
		p := i.ParametersRef
		if problem := r.parametersProblem(string(p.Group), string(p.Kind), snapshot.Name{Namespace: n.Namespace, Name: p.Name}); problem != "" {
			f.accepted.fail(gatewayv1.GatewayReasonInvalidParameters, "spec.infrastructure.parametersRef: "+problem)
		}
	}
	if l := o.Spec.AllowedListeners; l != nil && l.Namespaces != nil && deref(l.Namespaces.From) == gatewayv1.NamespacesFromSelector {
		selectorProblem(l.Namespaces.Selector, "spec.allowedListeners.namespaces.selector", func(path, problem string) {
			f.accepted.fail(gatewayv1.GatewayReasonInvalid, path+": "+problem)
		})
	}
	if !f.accepted.failed && !slices.ContainsFunc(f.listeners, func(l gatewayListener) bool { return l.serves() }) {
		f.accepted.fail(gatewayv1.GatewayReasonListenersNotValid, "no listener is accepted: "+refusedListeners(f.listeners))
	}
	outcomes := f.takeSets(r, n, o.Spec.AllowedListeners, m)
	lists, bearers := [][]gatewayListener{f.listeners}, []parentKey{{snapshot.KindGateway, n}}
	for _, set := range f.sets {
		if out := outcomes[set]; !out.accepted.failed {
			lists, bearers = append(lists, out.listeners), append(bearers, parentKey{snapshot.KindListenerSet, set})
		}
	}
	m.relate(lists)
	f.sum(n, lists, bearers)
	return f, outcomes
}

// sum gathers what follows from all listeners.
func (f *gatewayFact) sum(n snapshot.Name, lists [][]gatewayListener, bearers []parentKey) {
	if f.accepted.failed {
		return
	}
	for b, list := range lists {
		for i := range list {
			l := &list[i]
			if !l.serves() {
				continue
			}
			if l.direct() {
				f.doors = append(f.doors, gatewayDoor{l.transport(), uint16(l.port), bearers[b], l.name})
				continue
			}
			id := model.OwnListener(l.modelProtocol(), uint16(l.port), n.Namespace, n.Name)
			if !slices.Contains(f.wanted, id) {
				f.wanted = append(f.wanted, id)
			}
			f.sections = append(f.sections, sectionKey{n, l.port, l.hostname})
		}
	}
	slices.Sort(f.wanted)
}

// makeBackendTLS reads the certificate that backends are shown.
func (f *gatewayFact) makeBackendTLS(r reader, n snapshot.Name, o *gatewayv1.GatewayBackendTLS) {
	if o == nil || o.ClientCertificateRef == nil {
		return
	}
	const path = "spec.tls.backend.clientCertificateRef: "
	c, refused, problem := resolveCertificate(r, snapshot.KindGateway, n.Namespace, o.ClientCertificateRef)
	switch {
	case problem == "":
		f.clientCertificate = c.certificate.ID
	case refused:
		f.resolved.fail(gatewayv1.GatewayReasonRefNotPermitted, path+problem)
	default:
		f.resolved.fail(gatewayv1.GatewayReasonInvalidClientCertificateRef, path+problem)
	}
}

func refusedListeners(list []gatewayListener) string {
	var names []string
	for i := range list {
		if l := &list[i]; !l.serves() {
			names = append(names, string(l.name)+" ("+string(l.accepted.reason)+")")
		}
	}
	if len(names) == 0 {
		return "there is none"
	}
	return strings.Join(names, ", ")
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
	f, parent := r.gateway(name), r.parent(parentKey{snapshot.KindGateway, name})
	gen := o.Generation
	out := &Status{Generation: gen, Gateway: &gatewayv1.GatewayStatus{}, Listeners: parent.listenerIDs(), Sections: parent.served()}
	listeners := parent.final(r)
	reason, message := gatewayv1.GatewayReasonAccepted, "the Gateway is accepted"
	if f.accepted.failed {
		reason, message = f.accepted.reason, f.accepted.message
	} else if slices.ContainsFunc(listeners, func(l gatewayListener) bool { return !l.serves() }) {
		reason, message = gatewayv1.GatewayReasonListenersNotValid, "some listeners are not accepted: "+refusedListeners(listeners)
	}
	if len(f.notes) > 0 {
		message = limit(message + "; " + strings.Join(f.notes, "; "))
	}
	out.Gateway.Conditions = []metav1.Condition{
		condition(gatewayv1.GatewayConditionAccepted, !f.accepted.failed, reason, message, gen),
		f.resolvedCondition(listeners, gen),
	}
	if problem := f.insecure(); problem != "" {
		out.Gateway.Conditions = append(out.Gateway.Conditions,
			condition(gatewayv1.GatewayConditionInsecureFrontendValidationMode, true, gatewayv1.GatewayReasonConfigurationChanged, problem, gen))
	}
	for i := range listeners {
		l := &listeners[i]
		out.Gateway.Listeners = append(out.Gateway.Listeners, gatewayv1.ListenerStatus{
			Name: l.name, SupportedKinds: l.kinds, AttachedRoutes: t.attached[parentKey{snapshot.KindGateway, name}][l.name], Conditions: l.conditions(r, gen),
		})
		out.noteUnserved(l)
	}
	out.Gateway.AttachedListenerSets = &f.attached
	out.noteFrontends(r, parent, listeners)
	if !f.accepted.failed {
		var addresses []string
		given := r.outcome(object)
		switch {
		case given == nil && len(f.wanted) == 0 && len(f.doors) > 0:
			out.Hold = &Hold{Reason: gatewayv1.GatewayReasonAddressNotAssigned, Message: needVIP}
		case given == nil:
			addresses = r.addresses()
		default:
			for _, a := range given.addresses {
				addresses = append(addresses, a.String())
			}
			out.Hold = given.hold
		}
		kind := gatewayv1.IPAddressType
		for _, a := range addresses[:min(len(addresses), addressLimit)] {
			out.Gateway.Addresses = append(out.Gateway.Addresses, gatewayv1.GatewayStatusAddress{Type: &kind, Value: a})
		}
	}
	publish(t.result.Statuses, t.out.Statuses, object, out)
}

// resolvedCondition sums up the references of a Gateway and its listeners.
func (f *gatewayFact) resolvedCondition(listeners []gatewayListener, gen int64) metav1.Condition {
	v := f.resolved
	var names []string
	for i := range listeners {
		if l := &listeners[i]; l.resolved.failed {
			names = append(names, string(l.name)+" ("+l.resolved.message+")")
		}
	}
	if len(names) > 0 {
		v.fail(gatewayv1.GatewayReasonListenersNotResolved, "listeners with references that are not resolved: "+strings.Join(names, ", "))
	}
	if !v.failed {
		v.reason, v.message = gatewayv1.GatewayReasonResolvedRefs, "all references are resolved"
	}
	return condition(gatewayv1.GatewayConditionResolvedRefs, !v.failed, v.reason, v.message, gen)
}

// final are the listeners with what is known only when server names have their owners.
func (f *parentFact) final(r reader) []gatewayListener {
	list := make([]gatewayListener, 0, len(f.listeners))
	for i := range f.listeners {
		p := &f.listeners[i]
		l := p.gatewayListener
		lost := f.lostTo(r, p)
		if lost == "" && l.secure() && l.serves() {
			if o := r.owner(model.HostKey{Listener: p.id, Host: l.hostname}); o.kind == snapshot.KindIngressRoute {
				lost = o.keeper.String()
			}
		}
		if lost != "" && f.refused == "" {
			message := "server name " + quote(l.hostname) + " at port " + portNumber(l.port) + " is " + lost + "'s, which came first"
			l.accepted.fail(gatewayv1.ListenerReasonHostnameConflict, message)
			l.conflicted.fail(gatewayv1.ListenerReasonHostnameConflict, message)
		}
		if p.id == "" {
			list = append(list, f.finalDirect(r, p))
			continue
		}
		if keeper := r.lostPort(p.id); keeper != "" && l.serves() && f.refused == "" {
			l.accepted.fail(gatewayv1.ListenerReasonPortUnavailable, "port "+portNumber(l.port)+" speaks another protocol for "+keeper+
				", which came first: without an address of its own the Gateway shares its ports with others")
		}
		list = append(list, l)
	}
	return list
}

// conditions are those of a listener but Programmed.
func (l *gatewayListener) conditions(r reader, gen int64) []metav1.Condition {
	write := func(kind gatewayv1.ListenerConditionType, v listenerVerdict, negative bool, reason gatewayv1.ListenerConditionReason, message string) metav1.Condition {
		if v.failed {
			reason, message = v.reason, v.message
		}
		return condition(kind, v.failed == negative, reason, message, gen)
	}
	accepted := "the listener is accepted"
	if note := r.t.config.floorNote(l.minTLS); note != "" {
		accepted += "; tls.options[" + OptionMinTLS + "]: " + note
	}
	list := []metav1.Condition{
		write(gatewayv1.ListenerConditionAccepted, l.accepted, false, gatewayv1.ListenerReasonAccepted, accepted),
		write(gatewayv1.ListenerConditionConflicted, l.conflicted, true, gatewayv1.ListenerReasonNoConflicts, "no other listener is in conflict with it"),
		write(gatewayv1.ListenerConditionResolvedRefs, l.resolved, false, gatewayv1.ListenerReasonResolvedRefs, "all references are resolved"+r.validityNotes(l.certificates)),
	}
	if l.overlaps != "" {
		list = append(list, condition(gatewayv1.ListenerConditionOverlappingTLSConfig, true, gatewayv1.ListenerReasonOverlappingHostnames,
			"hostname "+quote(l.hostname)+" overlaps with "+quote(l.overlaps)+" of another listener at port "+portNumber(l.port)+
				": a client that uses a connection again for the other name is answered 421", gen))
	}
	return list
}
