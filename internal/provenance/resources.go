package provenance

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/explain"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate"
)

// Resources are the inputs and results of a translation. They are read only.
type Resources struct {
	Snapshot   *snapshot.Snapshot
	Statuses   map[model.Object]*translate.Status
	Translator *translate.Translator
}

// World answers the questions of an explanation that resources answer; the caller adds the rest.
func (k Resources) World() explain.World {
	return explain.World{
		ListenerBy: k.listenerBy, HostBy: k.hostBy, SetBy: k.setBy, DiscoveredOf: k.discoveredOf, TLSBy: k.tlsBy, ClientsBy: k.clientsBy, BackendsBy: k.backendsBy,
		PoliciesOf: k.policiesOf, NamedBy: k.namedBy, OfOthers: k.ofOthers,
	}
}

// section is a listener as a Gateway or a ListenerSet writes it.
type section struct {
	name     gatewayv1.SectionName
	hostname string
	tls      bool
}

// sections are the listeners of a Gateway or a ListenerSet, in its order.
func (k Resources) sections(o model.Object) []section {
	var list []section
	add := func(name gatewayv1.SectionName, hostname *gatewayv1.Hostname, tls bool) {
		s := section{name: name, tls: tls}
		if hostname != nil {
			s.hostname = string(*hostname)
		}
		list = append(list, s)
	}
	switch snapshot.Kind(o.Kind) {
	case snapshot.KindGateway:
		if g := k.Snapshot.Gateways[nameOf(o)]; g != nil {
			for _, l := range g.Spec.Listeners {
				add(l.Name, l.Hostname, l.TLS != nil)
			}
		}
	case snapshot.KindListenerSet:
		if s := k.Snapshot.ListenerSets[nameOf(o)]; s != nil {
			for _, l := range s.Spec.Listeners {
				add(l.Name, l.Hostname, l.TLS != nil)
			}
		}
	}
	return list
}

// tlsBy is where a server name's certificate is said.
func (k Resources) tlsBy(h model.TLSHost) []explain.Source {
	o := h.Owner
	switch snapshot.Kind(o.Kind) {
	case snapshot.KindIngressRoute:
		return []explain.Source{{Object: o, Field: "spec.virtualhost.tls"}}
	case snapshot.KindTLSRoute, snapshot.KindTCPRoute:
		return []explain.Source{{Object: o, Field: "spec.rules[0]"}}
	}
	s := k.Statuses[o]
	if s == nil {
		return nil
	}
	for i, section := range k.sections(o) {
		if section.tls && s.Sections[section.name] == h.Listener && (strings.EqualFold(section.hostname, h.Host) || section.hostname == "" && h.Host == "*") {
			return []explain.Source{{Object: o, Field: fmt.Sprintf("spec.listeners[%d].tls", i)}}
		}
	}
	return nil
}

// clientsBy are the ClientPolicies of a listener.
func (k Resources) clientsBy(id model.ListenerID) []explain.Source {
	return policySources(k.Translator.ListenerPolicies(id))
}

// backendsBy are the policies of the backends of a Service's port.
func (k Resources) backendsBy(id model.SetID) []explain.Source {
	parts := strings.SplitN(string(id), "/", 3)
	if len(parts) != 3 {
		return nil
	}
	n := snapshot.Name{Namespace: parts[0], Name: parts[1]}
	port := ""
	if s := k.Snapshot.Services[n]; s != nil {
		for _, p := range s.Spec.Ports {
			if strconv.Itoa(int(p.Port)) == parts[2] {
				port = p.Name
			}
		}
	}
	return policySources(k.Translator.BackendPolicies(n, port))
}

func policySources(objects []model.Object) []explain.Source {
	var list []explain.Source
	for _, o := range objects {
		list = append(list, explain.Source{Object: o, Field: "spec"})
	}
	return list
}

// policiesOf are the RoutePolicies of a route and of its host.
func (k Resources) policiesOf(h model.HostKey, r *model.Route) (route, host []explain.Says) {
	if r != nil {
		route = says(k.Translator.RoutePolicies(r.Owner, k.ruleOf(r)))
	}
	return route, says(k.Translator.HostPolicies(h))
}

func says(list []translate.Says) []explain.Says {
	var out []explain.Says
	for _, s := range list {
		out = append(out, explain.Says{Object: s.Object, Policy: s.Policy})
	}
	return out
}

// ruleOf is the name of the rule that made a route; empty when it has none.
func (k Resources) ruleOf(r *model.Route) string {
	rest, ok := strings.CutPrefix(r.Name, r.Owner.Key()+"/rules/")
	if !ok {
		return ""
	}
	text, _, _ := strings.Cut(rest, "/")
	i, err := strconv.Atoi(text)
	if err != nil {
		return ""
	}
	var name *gatewayv1.SectionName
	switch snapshot.Kind(r.Owner.Kind) {
	case snapshot.KindHTTPRoute:
		if o := k.Snapshot.HTTPRoutes[nameOf(r.Owner)]; o != nil && i < len(o.Spec.Rules) {
			name = o.Spec.Rules[i].Name
		}
	case snapshot.KindGRPCRoute:
		if o := k.Snapshot.GRPCRoutes[nameOf(r.Owner)]; o != nil && i < len(o.Spec.Rules) {
			name = o.Spec.Rules[i].Name
		}
	}
	if name == nil {
		return ""
	}
	return string(*name)
}

// listenerBy are the Gateways, ListenerSets and root IngressRoutes that ask for a listener.
func (k Resources) listenerBy(id model.ListenerID) []explain.Source {
	var by []explain.Source
	for o, s := range k.Statuses {
		if !slices.Contains(s.Listeners, id) {
			continue
		}
		switch snapshot.Kind(o.Kind) {
		case snapshot.KindGateway, snapshot.KindListenerSet:
			for i, section := range k.sections(o) {
				if s.Sections[section.name] == id {
					by = append(by, explain.Source{Object: o, Field: fmt.Sprintf("spec.listeners[%d]", i)})
					break
				}
			}
		case snapshot.KindIngressRoute:
			if r := k.Snapshot.IngressRoutes[nameOf(o)]; r != nil && r.Spec.VirtualHost != nil {
				by = append(by, explain.Source{Object: o, Field: "spec.virtualhost"})
			}
		}
	}
	return by
}

// hostBy are the routes that have a virtual host.
func (k Resources) hostBy(host model.HostKey) []explain.Source {
	var by []explain.Source
	for o, s := range k.Statuses {
		if _, has := slices.BinarySearchFunc(s.Hosts, host, model.HostKey.Compare); !has {
			continue
		}
		switch snapshot.Kind(o.Kind) {
		case snapshot.KindHTTPRoute:
			if r := k.Snapshot.HTTPRoutes[nameOf(o)]; r != nil {
				by = append(by, hostnameBy(o, r.Spec.Hostnames, host.Host))
			}
		case snapshot.KindTLSRoute:
			if r := k.Snapshot.TLSRoutes[nameOf(o)]; r != nil {
				by = append(by, hostnameBy(o, r.Spec.Hostnames, host.Host))
			}
		case snapshot.KindGRPCRoute:
			if r := k.Snapshot.GRPCRoutes[nameOf(o)]; r != nil {
				by = append(by, hostnameBy(o, r.Spec.Hostnames, host.Host))
			}
		case snapshot.KindIngressRoute:
			if r := k.Snapshot.IngressRoutes[nameOf(o)]; r != nil && r.Spec.VirtualHost != nil {
				by = append(by, explain.Source{Object: o, Field: "spec.virtualhost.fqdn"})
			}
		}
	}
	return by
}

// hostnameBy is where a route says a host; the Gateway's listener says it where the route
// has no hostname of its own.
func hostnameBy(o model.Object, hostnames []gatewayv1.Hostname, host string) explain.Source {
	source := explain.Source{Object: o, Field: "spec.parentRefs"}
	for i, name := range hostnames {
		if strings.EqualFold(string(name), host) {
			source.Field = fmt.Sprintf("spec.hostnames[%d]", i)
		}
	}
	return source
}

// setBy are the EndpointSlices of a set's Service.
func (k Resources) setBy(id model.SetID) []explain.Source {
	parts := strings.SplitN(string(id), "/", 3)
	if len(parts) != 3 {
		return nil
	}
	var by []explain.Source
	for n, s := range k.Snapshot.EndpointSlices {
		if n.Namespace == parts[0] && s.Labels[discoveryv1.LabelServiceName] == parts[1] {
			by = append(by, explain.Source{
				Object: model.Object{Kind: string(snapshot.KindEndpointSlice), Namespace: n.Namespace, Name: n.Name}, Field: "endpoints",
			})
		}
	}
	return by
}

// discoveredOf is of what the Service of a set was discovered, by its labels and annotations; nil: it was not.
func (k Resources) discoveredOf(id model.SetID) *explain.Discovered {
	parts := strings.SplitN(string(id), "/", 3)
	if len(parts) != 3 {
		return nil
	}
	s := k.Snapshot.Services[snapshot.Name{Namespace: parts[0], Name: parts[1]}]
	if s == nil || s.Labels[v1alpha1.LabelUpstream] == "" {
		return nil
	}
	return &explain.Discovered{Upstream: s.Labels[v1alpha1.LabelUpstream], Object: s.Annotations[v1alpha1.AnnotationUpstreamObject]}
}

// namedBy are the resources that name a host, served or not.
func (k Resources) namedBy(host string) []model.Object {
	var objects []model.Object
	for key, r := range k.Snapshot.GatewayRoutes() {
		if slices.ContainsFunc(r.Hostnames, func(h gatewayv1.Hostname) bool { return names(string(h), host) }) {
			objects = append(objects, model.Object{Kind: string(key.Kind), Namespace: key.Name.Namespace, Name: key.Name.Name})
		}
	}
	// Gateways and ListenerSets that name it, for whose certificate a client may wait.
	for o := range k.Statuses {
		if slices.ContainsFunc(k.sections(o), func(s section) bool { return s.hostname != "" && names(s.hostname, host) }) {
			objects = append(objects, o)
		}
	}
	for n, r := range k.Snapshot.IngressRoutes {
		if r.Spec.VirtualHost != nil && names(r.Spec.VirtualHost.Fqdn, host) {
			objects = append(objects, model.Object{Kind: string(snapshot.KindIngressRoute), Namespace: n.Namespace, Name: n.Name})
		}
	}
	return objects
}

// ofOthers are the IngressRoutes of other classes that name a host.
func (k Resources) ofOthers(host string) []explain.OfOther {
	var list []explain.OfOther
	for n, r := range k.Snapshot.IngressRoutes {
		if class := k.Translator.OthersClass(n); class != "" && r.Spec.VirtualHost != nil && names(r.Spec.VirtualHost.Fqdn, host) {
			o := model.Object{Kind: string(snapshot.KindIngressRoute), Namespace: n.Namespace, Name: n.Name}
			list = append(list, explain.OfOther{Source: explain.Source{Object: o, Field: "spec.virtualhost.fqdn"}, Class: class})
		}
	}
	return list
}

// names says whether a host name of a resource matches a host, which is lower case.
func names(pattern, host string) bool {
	pattern = strings.ToLower(pattern)
	suffix, wildcard := strings.CutPrefix(pattern, "*")
	return pattern == host || wildcard && len(host) > len(suffix) && strings.HasSuffix(host, suffix)
}

func nameOf(o model.Object) snapshot.Name { return snapshot.Name{Namespace: o.Namespace, Name: o.Name} }
