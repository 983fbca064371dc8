package translate

import (
	"cmp"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// routePolicyFact is a RoutePolicy judged for itself. Of one that is invalid it holds what
// could be read, and shuts what could not: who may pass is never more than was said.
type routePolicyFact struct {
	policy   model.RoutePolicy
	groups   []model.BackendGroup // that policy names
	invalid  policyVerdict
	resolved policyVerdict
}

func makeRoutePolicyFact(r reader, n snapshot.Name) *routePolicyFact {
	o := r.s.RoutePolicies[n]
	if o == nil {
		return nil
	}
	c := policyCompiler{r: r, key: snapshot.Key{Kind: snapshot.KindRoutePolicy, Name: n}}
	f := &routePolicyFact{}
	spec := &o.Spec
	if spec.RateLimit != nil {
		f.policy.RateLimit = c.rateLimit(spec.RateLimit, "spec.rateLimit")
	}
	if g := spec.GlobalRateLimit; g != nil {
		limit, groups := c.globalRateLimit(g, "spec.globalRateLimit")
		f.policy.GlobalRateLimit, f.groups = limit, groups
	}
	if a := spec.Authorization; a != nil {
		authorization, groups := c.authorization(a, "spec.authorization")
		f.policy.Authorization = authorization
		for _, g := range groups {
			f.groups = addGroup(f.groups, g)
		}
	}
	if spec.Addresses != nil {
		f.policy.Addresses = c.addresses(spec.Addresses, "spec.addresses")
	}
	f.policy.MaxRequestBytes = uint64(number(&c, spec.MaxRequestBytes, 1, 1<<32-1, "spec.maxRequestBytes"))
	f.policy.ErrorPages = c.routeErrorPages(spec.ErrorPages, "spec.errorPages")
	if spec.Compression != nil {
		f.policy.Compression = c.compression(spec.Compression, "spec.compression")
	}
	if spec.GRPCWeb != nil {
		is := *spec.GRPCWeb
		f.policy.GRPCWeb = &is
	}
	f.invalid, f.resolved = c.invalid, c.resolved
	return f
}

func (c *policyCompiler) rateLimit(o *v1alpha1.RateLimit, path string) *model.RateLimit {
	l := &model.RateLimit{
		Requests: uint32(number(c, &o.Requests, 1, 1<<32-1, path+".requests")),
		Per:      c.duration(o.Per, 50*time.Millisecond, 24*time.Hour, time.Second, path+".per"),
	}
	l.Burst = cmp.Or(uint32(number(c, o.Burst, 1, 1<<32-1, path+".burst")), l.Requests)
	if l.Requests == 0 {
		return nil
	}
	return l
}

// globalRateLimit reads a limit. One with a fault has no service: it cannot be asked, and
// what is to happen then happens.
func (c *policyCompiler) globalRateLimit(o *v1alpha1.GlobalRateLimit, path string) (*model.GlobalRateLimit, []model.BackendGroup) {
	faults := c.invalid.message
	l := &model.GlobalRateLimit{
		Domain: c.word(o.Domain, path+".domain"), FailOpen: o.FailOpen,
		Timeout: c.duration(o.Timeout, time.Millisecond, 10*time.Second, 100*time.Millisecond, path+".timeout"),
	}
	if len(o.Descriptor) == 0 {
		c.fail(path+".descriptor", "at least one entry is needed")
	}
	for i, e := range o.Descriptor {
		field := at(path+".descriptor", i)
		source := model.RateLimitSource{Key: c.word(e.Key, field+".key"), Header: strings.ToLower(e.Header), ClientAddress: e.ClientAddress, Value: e.Value}
		said := 0
		for _, is := range []bool{source.Header != "", source.ClientAddress, source.Value != ""} {
			if is {
				said++
			}
		}
		switch {
		case said != 1:
			c.fail(field, "exactly one of header, clientAddress and value must be said")
			continue
		case e.Header != "" && !isToken(e.Header):
			c.fail(field+".header", quote(e.Header)+" is no header name")
			continue
		case e.Value != "":
			source.Value = c.word(e.Value, field+".value")
		}
		l.Descriptors = append(l.Descriptors, source)
	}
	group, ok := c.service(&o.Service, model.BackendHTTP2, path+".service")
	if !ok || c.invalid.message != faults {
		return l, nil
	}
	l.Service = group.ID
	return l, []model.BackendGroup{group}
}

// word refuses what cannot stand in a message to a service.
func (c *policyCompiler) word(text, path string) string {
	if text == "" || len(text) > 253 || !printable(text) {
		c.fail(path, quote(text)+" must have 1 to 253 characters, and no spaces or control characters")
		return ""
	}
	return text
}

// authorization reads whom to ask. With a fault there is no service, as with
// globalRateLimit.
func (c *policyCompiler) authorization(o *v1alpha1.Authorization, path string) (*model.Authorization, []model.BackendGroup) {
	faults := c.invalid.message
	a := &model.Authorization{
		FailOpen: o.FailOpen, MaxBodyBytes: uint32(number(c, o.MaxBodyBytes, 1, 16<<20, path+".maxBodyBytes")),
		Timeout: c.duration(o.Timeout, time.Millisecond, time.Minute, time.Second, path+".timeout"),
	}
	protocol := model.BackendHTTP2
	switch o.Protocol {
	case "", v1alpha1.AuthorizationGRPC:
		if o.HTTP != nil {
			c.fail(path+".http", "is for protocol HTTP: set protocol, or leave http out")
		}
	case v1alpha1.AuthorizationHTTP:
		a.HTTP, protocol = true, model.BackendHTTP1
		if h := o.HTTP; h != nil {
			if h.PathPrefix != "" {
				if problem := pathProblem(h.PathPrefix); problem != "" {
					c.fail(path+".http.pathPrefix", problem)
				} else {
					a.PathPrefix = h.PathPrefix
				}
			}
			a.RequestHeaders = c.headers(h.RequestHeaders, path+".http.requestHeaders")
			a.ResponseHeaders = c.headers(h.ResponseHeaders, path+".http.responseHeaders")
		}
	default:
		c.fail(path+".protocol", quote(string(o.Protocol))+" must be GRPC or HTTP")
	}
	group, ok := c.service(&o.Service, protocol, path+".service")
	if !ok || c.invalid.message != faults {
		return a, nil
	}
	a.Service = group.ID
	return a, []model.BackendGroup{group}
}

// headers reads names of headers: lower case, sorted, each once.
func (c *policyCompiler) headers(names []string, path string) []string {
	var list []string
	for i, name := range names {
		if !isToken(name) {
			c.fail(at(path, i), quote(name)+" is no header name")
			continue
		}
		list = append(list, strings.ToLower(name))
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// everybody are all addresses.
func everybody() []netip.Prefix {
	return []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)}
}

// addresses reads a filter. One with a fault lets nobody in.
func (c *policyCompiler) addresses(o *v1alpha1.AddressFilter, path string) *model.AddressFilter {
	bad := false
	read := func(texts []string, path string) []netip.Prefix {
		var list []netip.Prefix
		for i, text := range texts {
			p, ok := parsePrefix(text)
			if !ok {
				c.fail(at(path, i), quote(text)+" is no address like 192.0.2.7, nor a CIDR like 192.0.2.0/24")
				bad = true
				continue
			}
			list = append(list, p)
		}
		slices.SortFunc(list, netip.Prefix.Compare)
		return slices.Compact(list)
	}
	f := &model.AddressFilter{Allow: read(o.Allow, path+".allow"), Deny: read(o.Deny, path+".deny")}
	if len(o.Allow)+len(o.Deny) == 0 {
		c.fail(path, "allow or deny must be said")
		return nil
	}
	if bad {
		return &model.AddressFilter{Deny: everybody()}
	}
	return f
}

// routePolicyFact is what became of a RoutePolicy.
func (r reader) routePolicyFact(n snapshot.Name) *routePolicyFact {
	r.t.graph.read(r.by, policyNode(snapshot.Key{Kind: snapshot.KindRoutePolicy, Name: n}))
	return r.t.policies.routes[n]
}

// routePolicy returns what the RoutePolicies of a route ask, and the groups that this
// names: that of the section goes before that of the object, matter by matter. It is nil
// when there is none. Sections without a name have none of their own.
func (r reader) routePolicy(of model.Object, section string) (*model.RoutePolicy, []model.BackendGroup) {
	return r.mergePolicies(r.routeHeld(of, section))
}

func (r reader) routeHeld(of model.Object, section string) []heldPolicy {
	target := policyAnchor{snapshot.KindRoutePolicy, of, section}
	held := []heldPolicy{r.holder(target)}
	if section != "" {
		held = append(held, r.holder(target.whole()))
	}
	return held
}

// mergePolicies merges policies, those that go before others first.
func (r reader) mergePolicies(held []heldPolicy) (*model.RoutePolicy, []model.BackendGroup) {
	var merged *model.RoutePolicy
	var groups []model.BackendGroup
	for _, h := range held {
		if h.none() {
			continue
		}
		f := r.routePolicyFact(h.name)
		if f == nil {
			continue
		}
		merged = merged.Or(&f.policy)
		for _, g := range f.groups {
			groups = addGroup(groups, g)
		}
	}
	if merged == nil || *merged == (model.RoutePolicy{}) {
		return nil, nil
	}
	named := merged.Groups()
	return merged, slices.DeleteFunc(groups, func(g model.BackendGroup) bool { return !slices.Contains(named, g.ID) })
}

// underPolicy adds to routes of an IngressRoute what its RoutePolicy asks. That of a root
// holds for the whole host.
func (r reader) underPolicy(n snapshot.Name, f *ingressFact) func(*entry) *entry {
	same := func(e *entry) *entry { return e }
	if f.root {
		return same
	}
	policy, groups := r.routePolicy(ingressOwner(n), "")
	if policy == nil {
		return same
	}
	return func(e *entry) *entry {
		if e == nil {
			return nil
		}
		asked := *e
		asked.route.Policy, asked.groups = policy, slices.Clone(e.groups)
		for _, g := range groups {
			asked.groups = addGroup(asked.groups, g)
		}
		return &asked
	}
}

// hostPlace is a listener of a Gateway or ListenerSet through which a route is attached to
// a virtual host.
type hostPlace struct {
	parent  model.Object
	section string
	// above is the Gateway of a ListenerSet; zero for a Gateway itself.
	above model.Object
}

// placedHost is one host of a route with one place through which it has it.
type placedHost struct {
	host    model.HostKey
	place   hostPlace
	gateway snapshot.Name // through whose listeners
	// apart: the host is for the routes of one namespace there, and for those of the namespace of the
	// Gateway or ListenerSet, their home.
	apart, home bool
}

// place is where a route is attached by a listener of a parent.
func (p *routeParent) place(section gatewayv1.SectionName) hostPlace {
	place := hostPlace{parent: p.parent.object(), section: string(section)}
	if p.parent.kind == snapshot.KindListenerSet {
		place.above = gatewayOwner(p.gateway)
	}
	return place
}

// places are those of all parents.
func (f *routeFact) places() []placedHost {
	if f == nil {
		return nil
	}
	var all []placedHost
	for i := range f.parents {
		all = append(all, f.parents[i].places...)
	}
	return all
}

// movePlaces replaces the places through which a route has its hosts.
func (t *Translator) movePlaces(before, after []placedHost) {
	count := func(list []placedHost, by int) {
		for _, p := range list {
			places := t.policies.places[p.host]
			if places == nil {
				places = &tally[hostPlace]{}
				t.policies.places[p.host] = places
			}
			if n := places.add(p.place, by); n == 0 || by > 0 && n == by {
				t.graph.mark(hostNode(p.host)) // it has a place less, or one more
			}
			if places.len() == 0 {
				delete(t.policies.places, p.host)
			}
		}
	}
	count(after, 1)
	count(before, -1)
}

// policyAt brings the groups that a virtual host's policy names up to date, and returns
// that policy; nil for a host that is gone.
func (t *Translator) policyAt(r reader, k model.HostKey, h *hostState) *model.RoutePolicy {
	var policy *model.RoutePolicy
	var groups []model.BackendGroup
	if h != nil {
		policy, groups = r.hostPolicy(k, h)
	}
	settleUses(t, t.policies.hosts, k, groups)
	return policy
}

// hostPolicy returns what the RoutePolicies of those ask through which a virtual host is
// reached: of a root IngressRoute, or of listeners, ListenerSets and Gateways, in this
// order. Of several on one level the oldest goes first. IngressRoutes have besides what
// Contour gave them all.
func (r reader) hostPolicy(k model.HostKey, h *hostState) (*model.RoutePolicy, []model.BackendGroup) {
	policy, groups := r.mergePolicies(r.hostHeld(k, h))
	if h.owner.kind == snapshot.KindIngressRoute {
		policy = policy.Or(model.ContourEncoding())
	}
	return policy, groups
}

// placesAt are the places through which routes have a host that are not rejected there.
func (t *Translator) placesAt(k model.HostKey, h *hostState) iter.Seq[hostPlace] {
	rejected := t.rejected[k.Listener]
	if len(rejected) == 0 || !slices.ContainsFunc(slices.Collect(maps.Keys(h.claims)), func(owner model.Object) bool { _, is := rejected[owner]; return is }) {
		if places := t.policies.places[k]; places != nil {
			return places.keys()
		}
		return func(func(hostPlace) bool) {}
	}
	places := map[hostPlace]struct{}{}
	for owner := range h.claims {
		if !isRivalKind(owner.Kind) || t.isRejected(owner, k.Listener) {
			continue
		}
		for _, p := range t.routes[owner].places() {
			if p.host == k {
				places[p.place] = struct{}{}
			}
		}
	}
	return maps.Keys(places)
}

func (r reader) hostHeld(k model.HostKey, h *hostState) []heldPolicy {
	if h.owner.kind == snapshot.KindIngressRoute {
		for owner := range h.claims {
			if owner.Kind == string(snapshot.KindIngressRoute) {
				return r.routeHeld(owner, "")
			}
		}
		return nil
	}
	const levels = 3
	var held [levels][]heldPolicy
	note := func(level int, target policyAnchor) {
		if p := r.holder(target); !p.none() && !slices.Contains(held[level], p) {
			held[level] = append(held[level], p)
		}
	}
	for place := range r.t.placesAt(k, h) {
		target := policyAnchor{snapshot.KindRoutePolicy, place.parent, place.section}
		note(0, target)
		if place.above == (model.Object{}) {
			note(2, target.whole())
			continue
		}
		note(1, target.whole())
		note(2, policyAnchor{kind: snapshot.KindRoutePolicy, object: place.above})
	}
	for _, list := range held {
		sortHeld(list)
	}
	return slices.Concat(held[:]...)
}
