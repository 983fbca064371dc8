package model

import (
	"maps"
	"slices"
)

// Groups are the backend groups that requests of the host may reach and those of the
// services that its policies ask, sorted and unique.
func (h VirtualHost) Groups() []GroupID {
	set := groupSet{}
	set.addPolicy(h.Policy)
	for _, r := range h.Routes {
		set.addRoute(r)
	}
	return set.sorted()
}

// Groups are the groups of the services that a policy asks, sorted and unique.
func (p *RoutePolicy) Groups() []GroupID {
	set := groupSet{}
	set.addPolicy(p)
	return set.sorted()
}

// Or is the policy where nothing nearer says anything else: each matter is p's, or q's where
// p has none. Either may be nil.
func (p *RoutePolicy) Or(q *RoutePolicy) *RoutePolicy {
	switch {
	case p == nil:
		return q
	case q == nil:
		return p
	}
	both := *p
	if both.RateLimit == nil {
		both.RateLimit = q.RateLimit
	}
	if both.GlobalRateLimit == nil {
		both.GlobalRateLimit = q.GlobalRateLimit
	}
	if both.Authorization == nil {
		both.Authorization = q.Authorization
	}
	if both.Addresses == nil {
		both.Addresses = q.Addresses
	}
	if both.MaxRequestBytes == 0 {
		both.MaxRequestBytes = q.MaxRequestBytes
	}
	if both.ErrorPages == nil {
		both.ErrorPages = q.ErrorPages
	}
	if both.Compression == nil {
		both.Compression = q.Compression
	}
	if both.GRPCWeb == nil {
		both.GRPCWeb = q.GRPCWeb
	}
	if both.AccessLog == nil {
		both.AccessLog = q.AccessLog
	}
	return &both
}

type groupSet map[GroupID]struct{}

func (s groupSet) add(g GroupID) {
	if g != "" {
		s[g] = struct{}{}
	}
}

func (s groupSet) addRoute(r Route) {
	s.addPolicy(r.Policy)
	if r.Forward == nil {
		return
	}
	for _, b := range r.Forward.Backends {
		s.add(b.Group)
	}
	for _, m := range r.Forward.Mirrors {
		s.add(m.Group)
	}
}

func (s groupSet) addPolicy(p *RoutePolicy) {
	if p == nil {
		return
	}
	if p.Authorization != nil {
		s.add(p.Authorization.Service)
	}
	if p.GlobalRateLimit != nil {
		s.add(p.GlobalRateLimit.Service)
	}
}

func (s groupSet) sorted() []GroupID { return slices.Sorted(maps.Keys(s)) }

// Groups are the groups of the listener's access log and traces, sorted and unique.
func (l Listener) Groups() []GroupID {
	set := groupSet{}
	if c := l.Clients; c != nil {
		if c.AccessLog != nil && !c.AccessLog.Off {
			set.add(c.AccessLog.Collector)
		}
		if c.Tracing != nil {
			set.add(c.Tracing.Collector)
		}
	}
	return set.sorted()
}

// Groups are the groups that the connections inside are forwarded to, sorted and unique.
func (h TLSHost) Groups() []GroupID {
	set := groupSet{}
	for _, g := range h.TCP {
		set.add(g.Group)
	}
	return set.sorted()
}
