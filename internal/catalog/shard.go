package catalog

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// A RouteConfiguration has all hosts of its shard, of several owners. A host that cannot be encoded, or
// makes it too large, hurts itself only: it stays as it was sent last, or is answered 503.

// routesResource makes the RouteConfiguration of a shard; nil says that there is none, or that it
// cannot be sent.
func (c *Catalog) routesResource(k Key) *delta.Resource {
	maps.DeleteFunc(c.unfit, func(u Key, _ string) bool {
		return u.Type == agentv1.RouteType && u.Listener == k.Listener && u.shard == k.shard
	})
	s := c.listeners[k.Listener]
	if s == nil || s.listener == nil {
		return nil
	}
	if r, why := c.encodeRoutes(k, s.shards[k.shard]); why == "" {
		delete(s.sent, k.shard)
		delete(s.fitted, k.shard)
		return r
	}
	fit := newFitting(c, k, s)
	r, why := c.encodeRoutes(k, fit.hosts)
	if why != "" { // even so
		c.unfit[k] = why
		return nil
	}
	s.sent[k.shard] = fit.hosts
	s.fitted[k.shard] = true
	return r
}

// encodeRoutes encodes a shard, or says why it cannot be sent.
func (c *Catalog) encodeRoutes(k Key, hosts map[string]*model.VirtualHost) (*delta.Resource, string) {
	list := make([]model.VirtualHost, 0, len(hosts))
	for _, h := range hosts {
		list = append(list, *h)
	}
	r, err := delta.NewResource(k.Name, xds.RouteConfiguration(k.Listener, k.shard, list))
	if err != nil {
		return nil, fmt.Sprintf("it cannot be encoded: %v", err)
	}
	if n := len(r.Body.GetValue()); n > c.limit {
		return nil, fmt.Sprintf("it has %d bytes, and one resource may have %d", n, c.limit)
	}
	return &r, ""
}

// fitting is a shard with what can be sent of it.
type fitting struct {
	catalog *Catalog
	key     Key
	at      *listenerEntry
	hosts   map[string]*model.VirtualHost
	sizes   map[string]int // encoded, bytes
	sent    map[string]int // the same as last sent, of those that were asked for
	of      map[string]int // sizes by namespace
	total   int
}

// hostFrame is how many bytes a host needs in a RouteConfiguration beside its own, at most.
const hostFrame = 8

// newFitting replaces hosts of a shard until it can be sent: those that cannot be encoded, and then of the
// namespace that has most those that grew most. So one with no more than an equal part loses nothing.
func newFitting(c *Catalog, k Key, s *listenerEntry) *fitting {
	f := &fitting{
		catalog: c, key: k, at: s, hosts: maps.Clone(s.shards[k.shard]), sizes: map[string]int{}, sent: map[string]int{}, of: map[string]int{},
		total: proto.Size(xds.RouteConfiguration(k.Listener, k.shard, nil)),
	}
	for _, host := range slices.Sorted(maps.Keys(f.hosts)) {
		n, err := sizeOf(f.hosts[host])
		f.count(host, n)
		if err != nil {
			f.replace(host, fmt.Sprintf("it cannot be encoded: %v", err))
		}
	}
	for f.total > c.limit && len(f.of) > 0 {
		f.shrink(largest(f.of))
	}
	return f
}

// shrink replaces hosts of a namespace until another one has more, or all can be sent. Where it has none left
// that is not closed, those are taken out, too.
func (f *fitting) shrink(namespace string) {
	var theirs []string
	for host, h := range f.hosts {
		if namespaceOf(h) == namespace {
			theirs = append(theirs, host)
		}
	}
	growth := func(host string) int { return max(0, f.sizes[host]-f.sentSize(host)) }
	slices.SortFunc(theirs, func(a, b string) int {
		return cmp.Or(cmp.Compare(growth(b), growth(a)), cmp.Compare(f.sizes[b], f.sizes[a]), cmp.Compare(a, b))
	})
	next := 0
	for other, size := range f.of {
		if other != namespace {
			next = max(next, size)
		}
	}
	shrunk := false
	for _, host := range theirs {
		if f.total <= f.catalog.limit || f.of[namespace] < next {
			return
		}
		if !isClosed(f.hosts[host]) {
			f.replace(host, fmt.Sprintf("its shard would have more bytes than the %d that one resource may have, most of them of namespace %s; the host has %d", f.catalog.limit, namespace, f.sizes[host]))
			shrunk = true
		}
	}
	if shrunk {
		return
	}
	for _, host := range theirs {
		f.total -= f.sizes[host] + hostFrame
		delete(f.hosts, host)
	}
	delete(f.of, namespace)
}

// sentSize is how large a host is as it was sent last; 0 where it was not.
func (f *fitting) sentSize(host string) int {
	n, known := f.sent[host]
	if sent := f.at.sent[f.key.shard][host]; !known && sent != nil {
		n, _ = sizeOf(sent)
	}
	f.sent[host] = n
	return n
}

func (f *fitting) count(host string, size int) {
	f.sizes[host] = size
	f.of[namespaceOf(f.hosts[host])] += size
	f.total += size + hostFrame
}

// replace replaces a host that cannot be sent: by the host as it was sent last, or by one that
// answers 503.
func (f *fitting) replace(host, why string) {
	now, before := f.hosts[host], f.sizes[host]
	f.of[namespaceOf(now)] -= before
	f.total -= before + hostFrame
	instead, size := f.at.sent[f.key.shard][host], f.sentSize(host)
	if size == 0 || instead == now || size >= before && before > 0 || namespaceOf(instead) != namespaceOf(now) || !f.at.leadsTo(f.catalog, instead) {
		instead = closedHost(now)
		size, _ = sizeOf(instead)
	}
	f.hosts[host] = instead
	f.count(host, size)
	if k := HostKey(f.key, host); f.catalog.unfit[k] == "" {
		f.catalog.unfit[k] = why
	}
}

// leadsTo says that the listener's machines have all groups of a host.
func (s *listenerEntry) leadsTo(c *Catalog, h *model.VirtualHost) bool {
	return !slices.ContainsFunc(groupsOf(h), func(g model.GroupID) bool {
		e := c.groups[g]
		return s.uses[g] == 0 || e == nil || e.group == nil
	})
}

// sizeOf is how large a host is, encoded; 0 where it cannot be.
func sizeOf(h *model.VirtualHost) (int, error) {
	body, err := proto.Marshal(xds.VirtualHost(*h))
	if err != nil {
		return 0, err
	}
	return len(body), nil
}

// namespaceOf is the namespace that a host's first route is of.
func namespaceOf(h *model.VirtualHost) string {
	if len(h.Routes) == 0 {
		return ""
	}
	return h.Routes[0].Owner.Namespace
}

// closedRoute names the route of a host that is closed.
const closedRoute = reasonUnfit

// closedHost answers 503 instead of a host.
func closedHost(h *model.VirtualHost) *model.VirtualHost {
	return &model.VirtualHost{HostKey: h.HostKey, Section: h.Section, Routes: []model.Route{{
		Name: closedRoute, Owner: model.Object{Namespace: namespaceOf(h)},
		Match:   model.Match{Path: model.PathMatch{Kind: model.PathPrefix, Value: "/"}},
		Respond: &model.Respond{Status: 503},
	}}}
}

func isClosed(h *model.VirtualHost) bool {
	return len(h.Routes) == 1 && h.Routes[0].Name == closedRoute
}

// largest is the name with most, and of those with as much the first.
func largest(of map[string]int) string {
	return slices.MinFunc(slices.Collect(maps.Keys(of)), func(a, b string) int {
		return cmp.Or(cmp.Compare(of[b], of[a]), cmp.Compare(a, b))
	})
}
