package plane

import (
	"maps"
	"slices"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
)

// reasonUnfit is the reason of a problem: a resource cannot be sent, and machines keep
// the version of it that they have.
const reasonUnfit = "CannotBeSent"

// unfitProblems says which resources cannot be sent, and which hosts feel it.
func (c *catalog) unfitProblems() []model.Problem {
	var problems []model.Problem
	for k, why := range c.unfit {
		subject, message := shortType(k.typ)+" "+k.name, why
		if k.host != "" {
			subject = "host " + k.host + " at " + string(k.listener)
			message += "; it is served as it was sent last, or answered 503 or 404"
		} else {
			message += "; machines keep the version that they have, those that have none go without"
			if hosts := c.hostsOn(k); len(hosts) > 0 {
				message += "; concerned is " + list(hosts, ", ")
			}
		}
		problems = append(problems, model.Problem{Severity: model.SeverityError, Subject: subject, Reason: reasonUnfit, Message: message})
	}
	return problems
}

// hostsOn are the hosts that one resource of routes or of a group serves.
func (c *catalog) hostsOn(k resourceKey) []string {
	hosts := map[string]bool{}
	switch k.typ {
	case typeRoute:
		if s := c.listeners[k.listener]; s != nil {
			for h := range s.shards[k.shard] {
				hosts[h] = true
			}
		}
	case typeCluster, typeEndpoint:
		if e := c.groups[k.group]; e != nil {
			for u := range e.users {
				if u.Host != "" {
					hosts[u.Host] = true
				}
			}
		}
	case typeSecret:
		if e := c.secrets.entries[k.name]; e != nil {
			for id := range e.listeners {
				for host, names := range c.listeners[id].claims {
					if host != "" && slices.Contains(names, k.name) {
						hosts[host] = true
					}
				}
			}
		}
	}
	return slices.Collect(maps.Keys(hosts))
}

// toldUnfit is how many resources that cannot be sent one publication logs; the status names all.
const toldUnfit = 16

// tellUnfit logs what cannot be sent that could be before.
func (l *loop) tellUnfit(before map[resourceKey]string) {
	told, more := 0, 0
	for k, why := range l.catalog.unfit {
		switch {
		case before[k] != "":
		case told == toldUnfit:
			more++
		default:
			told++
			l.plane.config.Log.Error("a resource cannot be sent; machines keep the version that they have, or get one that answers 503 for a host", "type", shortType(k.typ), "name", k.name, "reason", why)
		}
	}
	if more > 0 {
		l.plane.config.Log.Error("more resources cannot be sent; the status names them", "count", more)
	}
}

// noteUnfit notes since when resources cannot be sent, and the objects of hosts that cannot be: they
// themselves need not have changed.
func (t *tracker) noteUnfit(rev delta.Revision, stale map[model.Object]bool) {
	maps.DeleteFunc(t.unfitAt, func(k resourceKey, _ delta.Revision) bool { return t.catalog.unfit[k] == "" })
	for k := range t.catalog.unfit {
		if _, ok := t.unfitAt[k]; !ok {
			t.unfitAt[k] = rev
			maps.Copy(stale, t.byHost[model.HostKey{Listener: k.listener, Host: k.host}])
		}
	}
}

// noteFit notes the objects that a Secret or a host concerns which can be sent again: nothing else of
// them need change with it.
func (t *tracker) noteFit(stale map[model.Object]bool) {
	for k := range t.unfitAt {
		if k.host != "" && t.catalog.unfit[k] == "" {
			maps.Copy(stale, t.byHost[model.HostKey{Listener: k.listener, Host: k.host}])
		}
		if k.typ != typeSecret || t.catalog.unfit[k] != "" {
			continue
		}
		e := t.catalog.secrets.entries[k.name]
		if e == nil {
			continue
		}
		for id := range e.listeners {
			for host, names := range t.catalog.listeners[id].claims {
				if host != "" && slices.Contains(names, k.name) {
					maps.Copy(stale, t.byHost[model.HostKey{Listener: id, Host: host}])
				}
			}
		}
	}
}

// held says why the newest version of a target cannot be sent; empty when it can. What
// did not change since its resource became unfit runs as it should.
func (t *tracker) held(n *target) string {
	if len(t.unfitAt) == 0 {
		return ""
	}
	why := ""
	look := func(k resourceKey, changed delta.Revision) {
		if at, ok := t.unfitAt[k]; ok && changed.Compare(at) >= 0 {
			why = "the plane cannot send " + shortType(k.typ) + " " + k.name + ": " + t.catalog.unfit[k]
		}
	}
	lookHost := func(k resourceKey) { // whatever changed last: it may be another one's
		if why == "" && t.catalog.unfit[k] != "" {
			why = "the plane cannot send host " + k.host + ": " + t.catalog.unfit[k]
		}
	}
	for _, k := range n.hosts {
		shard := xds.Shard(k.Listener, k.Host)
		if s := t.catalog.listeners[k.Listener]; s != nil {
			for _, g := range groupsOf(s.shards[shard][k.Host]) {
				look(clusterKey(g), t.hostAt[k])
			}
		}
		look(routesKey(k.Listener, shard), t.hostAt[k])
		lookHost(hostIn(routesKey(k.Listener, shard), k.Host))
		for _, name := range t.catalog.secretsOf(k) {
			look(secretKey(name), t.hostAt[k])
		}
	}
	for _, id := range n.listeners {
		look(listenerKey(id), t.portAt[id])
	}
	return why
}
