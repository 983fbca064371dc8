package translate

import (
	"slices"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/memo"
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

// gatewayTables are the Gateways and ListenerSets, and what routes attach to.
type gatewayTables struct {
	in   *inputTables
	tls  *tlsTables
	vip  *vipTables
	host *hostTables

	classes  *memo.Table[string, *classFact] // that name our controller
	sets     *memo.Table[snapshot.Name, *setFact]
	gateways *memo.Table[snapshot.Name, *gatewayFact] // of our classes
	outcomes *memo.Sum[setKey, memo.Unit, *setOutcome, *setOutcome]
	sections *memo.Sum[sectionKey, memo.Unit, struct{}, struct{}] // of listeners that proxies serve
	parents  *memo.Table[parentKey, *parentFact]
}

func newGatewayTables(g *memo.Graph, in *inputTables, tls *tlsTables, vip *vipTables, host *hostTables) *gatewayTables {
	t := &gatewayTables{in: in, tls: tls, vip: vip, host: host}
	t.classes = memo.NewTable(g, "class", t.makeClass, memo.Reads(in.gatewayClasses, in.clientPolicies))
	references := memo.Reads(in.grantsIn, tls.certificates, tls.authorities)
	t.sets = memo.NewTable(g, "listener set", t.makeSetFact, memo.Reads(in.listenerSets), references)
	t.outcomes = memo.NewSlot[setKey, *setOutcome](g, "outcome of a ListenerSet")
	t.sections = memo.NewSlot[sectionKey, struct{}](g, "section")
	t.gateways = memo.For(memo.NewTable(g, "gateway", t.makeGateway,
		memo.Reads(in.gateways, t.classes, in.clientPolicies, in.setsOf, t.sets, in.labels), references,
		memo.Puts(vip.wants, t.outcomes, t.sections)), in.gateways)
	parents := memo.NewTable(g, "parent", t.makeParent,
		memo.Reads(in.gateways, in.listenerSets, t.gateways, t.sets, t.outcomes, vip.outcomes),
		memo.Puts(host.ports, host.claims, host.names))
	memo.ForKey(parents, in.gateways, func(n snapshot.Name) parentKey { return parentKey{snapshot.KindGateway, n} })
	t.parents = memo.ForKey(parents, in.listenerSets, func(n snapshot.Name) parentKey { return parentKey{snapshot.KindListenerSet, n} })
	return t
}

// makeGateway judges a Gateway with the ListenerSets that name it.
func (t *gatewayTables) makeGateway(c *memo.Context, n snapshot.Name) (*gatewayFact, bool) {
	f, outcomes := t.judgeGateway(c, n)
	if f == nil {
		return nil, false
	}
	for set, o := range outcomes {
		t.outcomes.Put(c, setKey{n, set}, memo.Unit{}, o)
	}
	for _, k := range distinct(f.sections) {
		t.sections.Put(c, k, memo.Unit{}, struct{}{})
	}
	t.vip.wants.Put(c, memo.Unit{}, gatewayOwner(n), &want{
		owner: gatewayOwner(n), created: f.created, request: f.request, needs: f.request.needs(), listeners: f.wanted, idle: f.accepted.failed,
	})
	return f, true
}

// judgeGateway judges a Gateway and the ListenerSets that name it; nil when there is none
// or another controller's.
func (t *gatewayTables) judgeGateway(c *memo.Context, n snapshot.Name) (*gatewayFact, map[snapshot.Name]*setOutcome) {
	o := t.in.gateways.Get(c, n)
	if o == nil {
		return nil, nil
	}
	class := t.classes.Get(c, string(o.Spec.GatewayClassName))
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
	b := bearer{t, c, snapshot.KindGateway, n}
	for i := range o.Spec.Listeners {
		f.listeners = append(f.listeners, b.makeListener(&o.Spec.Listeners[i], at("spec.listeners", i)))
	}
	if o.Spec.TLS != nil {
		t.makeFrontends(c, f, n, o.Spec.TLS.Frontend)
		t.readClientCertificate(c, f, n, o.Spec.TLS.Backend)
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
		if problem := t.parametersProblem(c, string(p.Group), string(p.Kind), snapshot.Name{Namespace: n.Namespace, Name: p.Name}); problem != "" {
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
	outcomes := t.takeSets(c, f, n, o.Spec.AllowedListeners, m)
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

// readClientCertificate reads the certificate that backends are shown.
func (t *gatewayTables) readClientCertificate(c *memo.Context, f *gatewayFact, n snapshot.Name, o *gatewayv1.GatewayBackendTLS) {
	if o == nil || o.ClientCertificateRef == nil {
		return
	}
	const path = "spec.tls.backend.clientCertificateRef: "
	certificate, refused, problem := t.resolveCertificate(c, snapshot.KindGateway, n.Namespace, o.ClientCertificateRef)
	switch {
	case problem == "":
		f.clientCertificate = certificate.certificate.ID
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

// gatewayDoor is a listener without a proxy of a Gateway or one of its ListenerSets.
type gatewayDoor struct {
	transport model.Transport
	port      uint16
	bearer    parentKey
	section   gatewayv1.SectionName
}
