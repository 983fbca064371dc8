package plane

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"

	"fairlead.dev/internal/explain"
	"fairlead.dev/internal/health"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/plane/status"
	"fairlead.dev/internal/progress"
	"fairlead.dev/internal/provenance"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate"
)

// Explain says what becomes of a request with what is published now.
func (p *Plane) Explain(ctx context.Context, r explain.Request) (explain.Explanation, error) {
	e, err := question(ctx, p, func(l *loop) *explain.Explanation {
		if !l.synced {
			return nil
		}
		e := explain.Explain(r, l.world())
		return &e
	})
	switch {
	case err != nil:
		return explain.Explanation{}, err
	case e == nil:
		return explain.Explanation{}, errNotSynced
	}
	p.dateDiscovered(ctx, e.Groups)
	return *e, nil
}

// dateDiscovered says how old the backends of discovered Services are. Discovery knows it, and the loop does not wait for it.
func (p *Plane) dateDiscovered(ctx context.Context, groups []explain.Group) {
	var names []snapshot.Name
	for _, g := range groups {
		if namespace, name, is := g.Group.Service(); is && g.Upstream != nil {
			names = append(names, snapshot.Name{Namespace: namespace, Name: name})
		}
	}
	if len(names) == 0 {
		return
	}
	found, err := p.discovery.Services(ctx, names)
	if err != nil {
		return // the plane ends, or who asks has gone
	}
	now := p.config.Now()
	for i := range groups {
		namespace, name, _ := groups[i].Group.Service()
		if service, is := found[snapshot.Name{Namespace: namespace, Name: name}]; is && groups[i].Upstream != nil {
			d := explain.Discovered{Upstream: service.Upstream, Object: service.From.Object, Held: service.Held, Failing: service.Failing}
			if at := service.From.Seen; !at.IsZero() {
				d.Age = max(now.Sub(at), 1)
			}
			if !service.Contact.IsZero() {
				d.Contact = max(now.Sub(service.Contact), 1)
			}
			groups[i].Upstream = &d
		}
	}
}

var errNotSynced = errors.New("the resources of the API are not all read yet: ask again in a moment")

// Explain says offline what would become of a request with a snapshot's resources. where is "file:line" of a field of an object.
func Explain(c translate.Config, s *snapshot.Snapshot, where func(k snapshot.Key, field string) string, r explain.Request) explain.Explanation {
	t := translate.Converge(c, s)
	d := t.Desired()
	statuses := map[model.Object]*translate.Status{}
	for _, o := range d.Statuses {
		statuses[o.Object] = o.Status
	}
	w := provenance.Resources{Snapshot: s, Statuses: statuses, Translator: t}.World()
	w.Offline, w.Now, w.MinTLS = true, s.Now, c.MinTLS
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
	w.TLSHost = func(k model.HostKey) *model.TLSHost {
		return find(d.TLSHosts, k, func(h *model.TLSHost, k model.HostKey) int { return h.Compare(k) })
	}
	w.TLSHosts = func(id model.ListenerID) []string {
		var names []string
		for _, h := range d.TLSHosts {
			if h.Listener == id {
				names = append(names, h.Host)
			}
		}
		return names
	}
	w.Certificate = func(id model.CertificateID) *model.Certificate {
		return find(d.Certificates, id, func(c *model.Certificate, id model.CertificateID) int { return cmp.Compare(c.ID, id) })
	}
	w.Serving = func(id model.ListenerID) []string {
		names := []string{}
		for _, m := range d.Machines {
			if slices.ContainsFunc(m.Views, func(view model.ViewID) bool {
				v := find(d.Views, view, func(v *model.View, id model.ViewID) int { return cmp.Compare(v.ID, id) })
				return v != nil && slices.Contains(v.Listeners, id)
			}) {
				names = append(names, m.Name)
			}
		}
		return names
	}
	w.Where = func(o model.Object, field string) string { return where(key(o), field) }
	for _, a := range d.Assignments {
		w.VIPs = append(w.VIPs, model.VIPStatus{Assignment: *a, State: vipAssigned})
	}
	for _, s := range d.Statuses {
		o := s.Object
		severity := model.SeverityError
		state, reason, message := status.StateOf(s.Status, progress.Result{}) // no machine has said anything
		switch state {
		case status.StateInvalid, status.StateDegraded:
		case status.StateOrphaned:
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
	w := provenance.Resources{Snapshot: l.snapshot, Statuses: l.statuses, Translator: l.translator}.World()
	for _, id := range l.catalog.ListenerIDs() {
		w.Listeners = append(w.Listeners, *l.catalog.Listener(id))
	}
	w.VirtualHost, w.Group, w.Set = l.catalog.VirtualHost, l.catalog.Group, l.catalog.Set
	w.Health = func(g model.GroupID, backend netip.AddrPort) model.Health {
		health, _ := l.health.Of(health.User{Group: g}, backend)
		return health
	}
	w.TLSHost, w.TLSHosts, w.Certificate = l.catalog.TLSHost, l.catalog.ServerNames, l.catalog.Certificate
	w.Serving = l.servingMachines
	w.MinTLS, w.AllowUnderscores, w.TrustedHops = l.plane.config.XDS.MinTLS, l.plane.config.XDS.AllowUnderscores, l.plane.config.XDS.TrustedHops
	status := l.status()
	w.Now, w.Freeze, w.Held = l.plane.config.Now(), status.Plane.Freeze, l.history.Holds
	w.VIPs, w.Machines, w.Problems = status.VIPs, status.Machines, status.Problems
	if !status.Plane.Leading {
		w.Standby = status.Plane.Leader
	}
	return w
}

// find searches a sorted list; nil says that nothing is there.
func find[V, K any](list []*V, k K, compare func(*V, K) int) *V {
	if i, there := slices.BinarySearchFunc(list, k, compare); there {
		return list[i]
	}
	return nil
}
