package gateway

import (
	"slices"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/certificate"
	"fairlead.dev/internal/translate/condition"
	"fairlead.dev/internal/translate/field"
	"fairlead.dev/internal/translate/host"
	"fairlead.dev/internal/translate/input"
	"fairlead.dev/internal/translate/pool"
	"fairlead.dev/internal/translate/vip"
)

type gatewayResult = condition.Result[gatewayv1.GatewayConditionReason]

// Gateway is a Gateway of a class that is ours, with what its ListenerSets add: before
// it is known which addresses it has.
type Gateway struct {
	created  int64
	class    string
	request  vip.Request
	hosts    string // whose they are at its listeners: AnnotationHosts
	Accepted gatewayResult
	Notes    []string // what is worth knowing, though nothing is wrong with it
	// resolved is of references that are not a listener's.
	resolved  gatewayResult
	Listeners []Listener
	frontends []clientValidation // the default first, then those of ports
	// clientCertificate is shown to backends.
	clientCertificate model.CertificateID

	sets     []snapshot.Name    // that name it, allowed or not, in their precedence
	Attached int32              // of them those that are accepted
	Wanted   []model.ListenerID // at addresses of its own, with those of its sets
	Direct   []DirectListener   // at addresses of its own, of the listeners without a proxy
	sections []sectionKey       // of all accepted listeners that proxies serve
}

// Rooms are the rooms that the tables read, besides the input.
type Rooms struct {
	Certificates *certificate.Tables
	VIP          *vip.Tables
	Host         *host.Tables
}

// Tables are the Gateways and ListenerSets, and what routes attach to.
type Tables struct {
	in   *input.Tables
	from Rooms

	Classes  *memo.Table[string, *Class] // that name our controller
	sets     *memo.Table[snapshot.Name, *listenerSet]
	Gateways *memo.Table[snapshot.Name, *Gateway] // of our classes
	Outcomes *memo.Sum[SetKey, memo.Unit, *SetOutcome, *SetOutcome]
	Sections *memo.Sum[sectionKey, memo.Unit, struct{}, struct{}] // of listeners that proxies serve
	Parents  *memo.Table[ParentKey, *Parent]
}

// New adds the tables of Gateways, ListenerSets and parents of routes to a graph.
func New(g *memo.Graph, in *input.Tables, r Rooms) *Tables {
	t := &Tables{in: in, from: r}
	t.Classes = memo.NewTable(g, "class", t.makeClass, memo.Reads(in.GatewayClasses, in.ClientPolicies))
	references := memo.Reads(in.GrantsIn, t.from.Certificates.Certificates, t.from.Certificates.Authorities)
	t.sets = memo.NewTable(g, "listener set", t.makeListenerSet, memo.Reads(in.ListenerSets), references)
	t.Outcomes = memo.NewSlot[SetKey, *SetOutcome](g, "outcome of a ListenerSet")
	t.Sections = memo.NewSlot[sectionKey, struct{}](g, "section")
	t.Gateways = memo.For(memo.NewTable(g, "gateway", t.makeGateway,
		memo.Reads(in.Gateways, t.Classes, in.ClientPolicies, in.SetsOf, t.sets, in.Labels), references,
		memo.Puts(t.from.VIP.Wants, t.Outcomes, t.Sections)), in.Gateways)
	parents := memo.NewTable(g, "parent", t.makeParent,
		memo.Reads(in.Gateways, in.ListenerSets, t.Gateways, t.sets, t.Outcomes, t.from.VIP.Outcomes),
		memo.Puts(t.from.Host.Ports, t.from.Host.Candidates, t.from.Host.Names))
	memo.ForKey(parents, in.Gateways, func(n snapshot.Name) ParentKey { return ParentKey{snapshot.KindGateway, n} })
	t.Parents = memo.ForKey(parents, in.ListenerSets, func(n snapshot.Name) ParentKey { return ParentKey{snapshot.KindListenerSet, n} })
	return t
}

// makeGateway judges a Gateway with the ListenerSets that name it.
func (t *Tables) makeGateway(c *memo.Context, n snapshot.Name) (*Gateway, bool) {
	f, outcomes := t.judgeGateway(c, n)
	if f == nil {
		return nil, false
	}
	for set, o := range outcomes {
		t.Outcomes.Put(c, SetKey{n, set}, memo.Unit{}, o)
	}
	for _, k := range field.Distinct(f.sections) {
		t.Sections.Put(c, k, memo.Unit{}, struct{}{})
	}
	t.from.VIP.Wants.Put(c, memo.Unit{}, input.Object(snapshot.KindGateway, n), &vip.Want{
		Owner: input.Object(snapshot.KindGateway, n), Created: f.created, Request: f.request, Needs: f.request.Needs(), Listeners: f.Wanted, Idle: f.Accepted.Failed,
	})
	return f, true
}

// judgeGateway judges a Gateway and the ListenerSets that name it; nil when there is none
// or another controller's.
func (t *Tables) judgeGateway(c *memo.Context, n snapshot.Name) (*Gateway, map[snapshot.Name]*SetOutcome) {
	o := t.in.Gateways.Get(c, n)
	if o == nil {
		return nil, nil
	}
	class := t.Classes.Get(c, string(o.Spec.GatewayClassName))
	if class == nil {
		return nil, nil
	}
	f := &Gateway{created: o.CreationTimestamp.Unix(), class: string(o.Spec.GatewayClassName), Notes: field.GatewayNotes(o.Annotations)}
	switch hosts := o.Annotations[v1alpha1.AnnotationHosts]; hosts {
	case "", v1alpha1.HostsOfNamespaces, v1alpha1.HostsShared:
		f.hosts = hosts
	default:
		f.Notes = append(f.Notes, "metadata.annotations["+v1alpha1.AnnotationHosts+"]: "+field.Quote(hosts)+" is neither "+v1alpha1.HostsOfNamespaces+" nor "+v1alpha1.HostsShared)
	}
	f.request = vip.GatewayRequest(o, func(problem string) { f.Accepted.Fail(gatewayv1.GatewayReasonUnsupportedAddress, problem) })
	b := bearer{t, c, snapshot.KindGateway, n}
	for i := range o.Spec.Listeners {
		f.Listeners = append(f.Listeners, b.makeListener(&o.Spec.Listeners[i], field.At("spec.listeners", i)))
	}
	if o.Spec.TLS != nil {
		t.makeFrontends(c, f, n, o.Spec.TLS.Frontend)
		t.readClientCertificate(c, f, n, o.Spec.TLS.Backend)
	}
	f.validate("", f.Listeners)
	m := newMerge()
	m.add(f.Listeners)
	m.take(f.Listeners)
	if class.Accepted.Failed {
		f.Accepted.Fail(gatewayv1.GatewayReasonPending, "GatewayClass "+string(o.Spec.GatewayClassName)+" is not accepted: "+class.Accepted.Message)
	}
	if i := o.Spec.Infrastructure; i != nil && i.ParametersRef != nil {
		p := i.ParametersRef
		if problem := t.parametersProblem(c, string(p.Group), string(p.Kind), snapshot.Name{Namespace: n.Namespace, Name: p.Name}); problem != "" {
			f.Accepted.Fail(gatewayv1.GatewayReasonInvalidParameters, "spec.infrastructure.parametersRef: "+problem)
		}
	}
	if l := o.Spec.AllowedListeners; l != nil && l.Namespaces != nil && field.Deref(l.Namespaces.From) == gatewayv1.NamespacesFromSelector {
		pool.SelectorProblem(l.Namespaces.Selector, "spec.allowedListeners.namespaces.selector", func(path, problem string) {
			f.Accepted.Fail(gatewayv1.GatewayReasonInvalid, path+": "+problem)
		})
	}
	if !f.Accepted.Failed && !slices.ContainsFunc(f.Listeners, func(l Listener) bool { return l.Serves() }) {
		f.Accepted.Fail(gatewayv1.GatewayReasonListenersNotValid, "no listener is accepted: "+RefusedListeners(f.Listeners))
	}
	outcomes := t.mergeSets(c, f, n, o.Spec.AllowedListeners, m)
	lists, bearers := [][]Listener{f.Listeners}, []ParentKey{{snapshot.KindGateway, n}}
	for _, set := range f.sets {
		if out := outcomes[set]; !out.Accepted.Failed {
			lists, bearers = append(lists, out.listeners), append(bearers, ParentKey{snapshot.KindListenerSet, set})
		}
	}
	m.relate(lists)
	f.sum(n, lists, bearers)
	return f, outcomes
}

// sum gathers what follows from all listeners.
func (f *Gateway) sum(n snapshot.Name, lists [][]Listener, bearers []ParentKey) {
	if f.Accepted.Failed {
		return
	}
	for b, list := range lists {
		for i := range list {
			l := &list[i]
			if !l.Serves() {
				continue
			}
			if l.Direct() {
				f.Direct = append(f.Direct, DirectListener{l.Transport(), uint16(l.Port), bearers[b], l.Name})
				continue
			}
			id := model.OwnListener(l.modelProtocol(), uint16(l.Port), n.Namespace, n.Name)
			if !slices.Contains(f.Wanted, id) {
				f.Wanted = append(f.Wanted, id)
			}
			f.sections = append(f.sections, sectionKey{n, l.Port, l.Hostname})
		}
	}
	slices.Sort(f.Wanted)
}

// readClientCertificate reads the certificate that backends are shown.
func (t *Tables) readClientCertificate(c *memo.Context, f *Gateway, n snapshot.Name, o *gatewayv1.GatewayBackendTLS) {
	if o == nil || o.ClientCertificateRef == nil {
		return
	}
	const path = "spec.tls.backend.clientCertificateRef: "
	certificate, refused, problem := t.resolveCertificate(c, snapshot.KindGateway, n.Namespace, o.ClientCertificateRef)
	switch {
	case problem == "":
		f.clientCertificate = certificate.Certificate.ID
	case refused:
		f.resolved.Fail(gatewayv1.GatewayReasonRefNotPermitted, path+problem)
	default:
		f.resolved.Fail(gatewayv1.GatewayReasonInvalidClientCertificateRef, path+problem)
	}
}

// RefusedListeners names the listeners that are not served, each with its reason.
func RefusedListeners(list []Listener) string {
	var names []string
	for i := range list {
		if l := &list[i]; !l.Serves() {
			names = append(names, string(l.Name)+" ("+string(l.Accepted.Reason)+")")
		}
	}
	if len(names) == 0 {
		return "there is none"
	}
	return strings.Join(names, ", ")
}

// DirectListener is a listener without a proxy of a Gateway or one of its ListenerSets.
type DirectListener struct {
	Transport model.Transport
	Port      uint16
	Bearer    ParentKey
	Section   gatewayv1.SectionName
}

// ResolvedCondition sums up the references of a Gateway and its listeners.
func (f *Gateway) ResolvedCondition(listeners []Listener, gen int64) metav1.Condition {
	v := f.resolved
	var names []string
	for i := range listeners {
		if l := &listeners[i]; l.Resolved.Failed {
			names = append(names, string(l.Name)+" ("+l.Resolved.Message+")")
		}
	}
	if len(names) > 0 {
		v.Fail(gatewayv1.GatewayReasonListenersNotResolved, "listeners with references that are not resolved: "+strings.Join(names, ", "))
	}
	if !v.Failed {
		v.Reason, v.Message = gatewayv1.GatewayReasonResolvedRefs, "all references are resolved"
	}
	return condition.New(gatewayv1.GatewayConditionResolvedRefs, !v.Failed, v.Reason, v.Message, gen)
}
