package progress

import (
	"maps"

	"fairlead.dev/internal/catalog"
	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// noteUnfit notes since when resources cannot be sent, and the objects of hosts that cannot be: they
// themselves need not have changed.
func (t *Tracker) noteUnfit(rev delta.Revision, stale map[model.Object]bool) {
	maps.DeleteFunc(t.unfitAt, func(k catalog.Key, _ delta.Revision) bool { return t.catalog.Unfit(k) == "" })
	for k := range t.catalog.AllUnfit() {
		if _, ok := t.unfitAt[k]; !ok {
			t.unfitAt[k] = rev
			maps.Copy(stale, t.byHost[model.HostKey{Listener: k.Listener, Host: k.Host}])
		}
	}
}

// noteFit notes the objects that a Secret or a host concerns which can be sent again: nothing else of
// them need change with it.
func (t *Tracker) noteFit(stale map[model.Object]bool) {
	for k := range t.unfitAt {
		if k.Host != "" && t.catalog.Unfit(k) == "" {
			maps.Copy(stale, t.byHost[model.HostKey{Listener: k.Listener, Host: k.Host}])
		}
		if k.Type != agentv1.SecretType || t.catalog.Unfit(k) != "" {
			continue
		}
		for host := range t.catalog.HostsWith(k.Name) {
			if host.Host != "" {
				maps.Copy(stale, t.byHost[host])
			}
		}
	}
}

// held says why the newest version of a target cannot be sent; empty when it can. What
// did not change since its resource became unfit runs as it should.
func (t *Tracker) held(n *target) string {
	if len(t.unfitAt) == 0 {
		return ""
	}
	why := ""
	look := func(k catalog.Key, changed delta.Revision) {
		if at, ok := t.unfitAt[k]; ok && changed.Compare(at) >= 0 {
			why = "the plane cannot send " + catalog.ShortType(k.Type) + " " + k.Name + ": " + t.catalog.Unfit(k)
		}
	}
	lookHost := func(k catalog.Key) { // whatever changed last: it may be another one's
		if why == "" && t.catalog.Unfit(k) != "" {
			why = "the plane cannot send host " + k.Host + ": " + t.catalog.Unfit(k)
		}
	}
	for _, k := range n.hosts {
		shard := xds.Shard(k.Listener, k.Host)
		if h := t.catalog.VirtualHost(k); h != nil {
			for _, g := range h.Groups() {
				look(catalog.ClusterKey(g), t.hostAt[k])
			}
		}
		look(catalog.RoutesKey(k.Listener, shard), t.hostAt[k])
		lookHost(catalog.HostKey(catalog.RoutesKey(k.Listener, shard), k.Host))
		for _, name := range t.catalog.SecretsOf(k) {
			look(catalog.SecretKey(name), t.hostAt[k])
		}
	}
	for _, id := range n.listeners {
		look(catalog.ListenerKey(id), t.portAt[id])
	}
	return why
}
