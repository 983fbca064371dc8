package plane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/explain"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate"
	"fairlead.dev/internal/xds"
)

// Explain says what becomes of a request with what is published now.
func (p *Plane) Explain(ctx context.Context, r explain.Request) (explain.Explanation, error) {
	var e explain.Explanation
	synced := false
	err := p.ask(ctx, func(l *loop) {
		if synced = l.synced; synced {
			e = explain.Explain(r, l.world())
		}
	})
	if err == nil && !synced {
		err = errors.New("the resources of the API are not all read yet: ask again in a moment")
	}
	return e, err
}

// Explain says offline what would become of a request with a snapshot's resources. where
// is "file:line" of a field of an object.
func Explain(c translate.Config, s *snapshot.Snapshot, where func(k snapshot.Key, field string) string, r explain.Request) explain.Explanation {
	d := translate.Settle(c, s).Desired()
	statuses := map[model.Object]*translate.Status{}
	for _, o := range d.Statuses {
		statuses[o.Object] = o.Status
	}
	w := knowledge{snapshot: s, statuses: statuses}.world()
	w.Offline = true
	for _, l := range d.Listeners {
		w.Listeners = append(w.Listeners, *l)
	}
	w.VirtualHost = func(k model.HostKey) *model.VirtualHost {
		return find(d.VirtualHosts, k, func(h *model.VirtualHost, k model.HostKey) int { return h.Compare(k) })
	}
	w.Group = func(id model.GroupID) *model.BackendGroup {
		return find(d.Groups, id, func(g *model.BackendGroup, id model.GroupID) int { return cmp.Compare(g.ID, id) })
	}
	w.Set = func(id model.SetID) *model.BackendSet {
		return find(d.Sets, id, func(s *model.BackendSet, id model.SetID) int { return cmp.Compare(s.ID, id) })
	}
	w.Serving = func(id model.ListenerID) []string {
		names := []string{}
		for _, m := range d.Machines {
			v := find(d.Views, m.View, func(v *model.View, id model.ViewID) int { return cmp.Compare(v.ID, id) })
			if v != nil && slices.Contains(v.Listeners, id) {
				names = append(names, m.Name)
			}
		}
		return names
	}
	w.Where = func(o model.Object, field string) string { return where(key(o), field) }
	for _, a := range d.Assignments {
		w.VIPs = append(w.VIPs, model.VIPStatus{Assignment: *a, State: vipAssigned})
	}
	// A loop that nothing runs yet judges what translation says.
	l := &loop{statuses: statuses, tracker: newTracker(newCatalog(xds.Options{}))}
	for _, status := range d.Statuses {
		o := status.Object
		severity := model.SeverityError
		state, reason, message := l.objectState(o)
		switch state {
		case stateInvalid:
		case stateOrphaned:
			severity = model.SeverityWarning
		default:
			continue
		}
		w.Problems = append(w.Problems, model.Problem{Severity: severity, Subject: o.String(), Reason: reason, Message: message})
	}
	return explain.Explain(r, w)
}

// vipAssigned is the state of a VIP of which nobody says whether it is announced.
const vipAssigned = "assigned"

// world is what the loop knows, for one explanation.
func (l *loop) world() explain.World {
	w := knowledge{snapshot: l.snapshot, statuses: l.statuses}.world()
	for _, id := range slices.Sorted(maps.Keys(l.catalog.listeners)) {
		if s := l.catalog.listeners[id]; s.listener != nil {
			w.Listeners = append(w.Listeners, *s.listener)
		}
	}
	w.VirtualHost = func(k model.HostKey) *model.VirtualHost {
		if s := l.catalog.listeners[k.Listener]; s != nil {
			return s.shards[xds.Shard(k.Listener, k.Host)][k.Host]
		}
		return nil
	}
	w.Group = func(id model.GroupID) *model.BackendGroup {
		if e := l.catalog.groups[id]; e != nil {
			return e.group
		}
		return nil
	}
	w.Set = func(id model.SetID) *model.BackendSet {
		if e := l.catalog.sets[id]; e != nil {
			return e.set
		}
		return nil
	}
	w.Serving = l.servingMachines
	w.AllowUnderscores = l.plane.config.XDS.AllowUnderscores
	status := l.status()
	w.VIPs, w.Machines, w.Problems = status.VIPs, status.Machines, status.Problems
	if !status.Plane.Leading {
		w.Standby = status.Plane.Leader
	}
	return w
}

// knowledge finds the resources that decide something.
type knowledge struct {
	snapshot *snapshot.Snapshot
	statuses map[model.Object]*translate.Status
}

func (k knowledge) world() explain.World {
	return explain.World{ListenerBy: k.listenerBy, HostBy: k.hostBy, SetBy: k.setBy, Claimants: k.claimants}
}

// find searches a sorted list; nil says that nothing is there.
func find[V, K any](list []*V, k K, compare func(*V, K) int) *V {
	if i, there := slices.BinarySearchFunc(list, k, compare); there {
		return list[i]
	}
	return nil
}

// key is an object's key in a snapshot.
func key(o model.Object) snapshot.Key {
	return snapshot.Key{Kind: snapshot.Kind(o.Kind), Name: snapshot.Name{Namespace: o.Namespace, Name: o.Name}}
}

// listenerBy are the Gateways, ListenerSets and root IngressRoutes that ask for a listener.
func (k knowledge) listenerBy(id model.ListenerID) []explain.Source {
	var by []explain.Source
	for o, s := range k.statuses {
		if !slices.Contains(s.Listeners, id) {
			continue
		}
		switch snapshot.Kind(o.Kind) {
		case snapshot.KindGateway:
			if g := k.snapshot.Gateways[key(o).Name]; g != nil {
				for i := range g.Spec.Listeners {
					if s.Sections[g.Spec.Listeners[i].Name] == id {
						by = append(by, explain.Source{Object: o, Field: fmt.Sprintf("spec.listeners[%d]", i)})
						break
					}
				}
			}
		case snapshot.KindListenerSet:
			if set := k.snapshot.ListenerSets[key(o).Name]; set != nil {
				for i := range set.Spec.Listeners {
					if s.Sections[set.Spec.Listeners[i].Name] == id {
						by = append(by, explain.Source{Object: o, Field: fmt.Sprintf("spec.listeners[%d]", i)})
						break
					}
				}
			}
		case snapshot.KindIngressRoute:
			if r := k.snapshot.IngressRoutes[key(o).Name]; r != nil && r.Spec.VirtualHost != nil {
				by = append(by, explain.Source{Object: o, Field: "spec.virtualhost"})
			}
		}
	}
	return by
}

// hostBy are the routes that have a virtual host.
func (k knowledge) hostBy(host model.HostKey) []explain.Source {
	var by []explain.Source
	for o, s := range k.statuses {
		if _, has := slices.BinarySearchFunc(s.Hosts, host, model.HostKey.Compare); !has {
			continue
		}
		switch snapshot.Kind(o.Kind) {
		case snapshot.KindHTTPRoute:
			if r := k.snapshot.HTTPRoutes[key(o).Name]; r != nil {
				by = append(by, hostnameBy(o, r.Spec.Hostnames, host.Host))
			}
		case snapshot.KindGRPCRoute:
			if r := k.snapshot.GRPCRoutes[key(o).Name]; r != nil {
				by = append(by, hostnameBy(o, r.Spec.Hostnames, host.Host))
			}
		case snapshot.KindIngressRoute:
			if r := k.snapshot.IngressRoutes[key(o).Name]; r != nil && r.Spec.VirtualHost != nil {
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
func (k knowledge) setBy(id model.SetID) []explain.Source {
	parts := strings.SplitN(string(id), "/", 3)
	if len(parts) != 3 {
		return nil
	}
	var by []explain.Source
	for n, s := range k.snapshot.EndpointSlices {
		if n.Namespace == parts[0] && s.Labels[discoveryv1.LabelServiceName] == parts[1] {
			by = append(by, explain.Source{
				Object: model.Object{Kind: string(snapshot.KindEndpointSlice), Namespace: n.Namespace, Name: n.Name}, Field: "endpoints",
			})
		}
	}
	return by
}

// claimants are the routes that name a host, served or not.
func (k knowledge) claimants(host string) []model.Object {
	var objects []model.Object
	for r := range gatewayRoutes(k.snapshot) {
		if slices.ContainsFunc(r.hostnames, func(h gatewayv1.Hostname) bool { return names(string(h), host) }) {
			objects = append(objects, r.object)
		}
	}
	for n, r := range k.snapshot.IngressRoutes {
		if r.Spec.VirtualHost != nil && names(r.Spec.VirtualHost.Fqdn, host) {
			objects = append(objects, model.Object{Kind: string(snapshot.KindIngressRoute), Namespace: n.Namespace, Name: n.Name})
		}
	}
	return objects
}

// names says whether a host name of a resource takes a host, which is lower case.
func names(pattern, host string) bool {
	pattern = strings.ToLower(pattern)
	suffix, wildcard := strings.CutPrefix(pattern, "*")
	return pattern == host || wildcard && len(host) > len(suffix) && strings.HasSuffix(host, suffix)
}
