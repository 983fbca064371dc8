package contour

import (
	"slices"
	"strings"

	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/backend"
	"fairlead.dev/internal/translate/field"
	"fairlead.dev/internal/translate/host"
	"fairlead.dev/internal/translate/input"
)

// maxDepth bounds how many IngressRoutes may stand between a root and a route.
const maxDepth = 32

// walk goes through a tree of delegations, in the order of the routes. It visits each IngressRoute
// at most once, at the first prefix that its routes may have, so the walk ends.
type walk struct {
	t       *Tables
	ctx     *memo.Context
	tree    *Tree
	created int64
	tls     *ingressTLS // the root's
	proxies bool        // the root takes connections, not requests
	size    treeSize
	walked  map[snapshot.Name]struct{} // IngressRoutes that were visited
	// astray are delegations that gave a prefix to an IngressRoute whose routes may not stand there.
	astray map[snapshot.Name][]astray
	// clear and secure are the routes for requests in clear text and over TLS.
	clear, secure []*host.Entry
	tcp           backend.TCPShares // takes connections
}

// delegator is an IngressRoute on the path from the root, with the prefix by which
// the path leaves it.
type delegator struct {
	name   snapshot.Name
	route  *IngressRoute
	prefix string
	field  string // that delegates
}

// astray is a delegation that leads nowhere.
type astray struct {
	by    snapshot.Name
	field string
}

const secondPrefixText = " already has another prefix of this host: it can have one"

// restart forgets the findings of a walk, except which branches stay out.
func (w *walk) restart(root snapshot.Name) {
	w.tree.Found, w.tree.Routed = map[snapshot.Name][]string{root: nil}, map[snapshot.Name]struct{}{}
	w.walked, w.astray = map[snapshot.Name]struct{}{}, map[snapshot.Name][]astray{}
	w.clear, w.secure, w.size = nil, nil, treeSize{out: w.size.out}
}

func (w *walk) fail(n snapshot.Name, problem string) {
	w.tree.Found[n] = append(w.tree.Found[n], problem)
}

// refuse answers a prefix with 503, so that no shorter prefix takes its requests.
func (w *walk) refuse(n snapshot.Name, prefix string) {
	w.serve(&host.Entry{Created: w.created, Route: model.Route{
		Name:    "IngressRoute/" + n.Namespace + "/" + n.Name + "/refused" + prefix,
		Owner:   input.Object(snapshot.KindIngressRoute, n),
		Match:   model.Match{Path: model.PathMatch{Kind: model.PathPrefix, Value: prefix}},
		Respond: &model.Respond{Status: 503},
	}}, nil)
}

// serve adds a route. Where the host has TLS, redirect replaces it for requests in clear text, unless it is nil.
func (w *walk) serve(e, redirect *host.Entry) {
	if w.tls != nil && !w.proxies {
		w.secure = append(w.secure, e)
	}
	if w.tls != nil && redirect != nil {
		e = redirect
	}
	w.clear = append(w.clear, e)
}

// visit adds the routes of an IngressRoute to which prefix was delegated.
func (w *walk) visit(n snapshot.Name, route *IngressRoute, prefix string, path []delegator) {
	if w.isMisplaced(n, route, path) {
		w.refuse(n, prefix)
		return
	}
	w.walked[n] = struct{}{}
	w.tree.Found[n] = nil
	for _, a := range w.astray[n] {
		w.fail(a.by, a.field+": IngressRoute "+n.String()+secondPrefixText)
	}
	w.size.enter(route, len(path) == 0)
	broken := len(route.Problems) > 0
	underPolicy := w.t.underPolicy(w.ctx, n, route)
	for _, s := range route.steps {
		switch {
		case s.delegate != nil:
			w.follow(n, route, s, path)
		case broken:
			w.refuse(n, s.prefix)
		default:
			w.serve(underPolicy(s.entry), s.redirect)
		}
	}
	if broken && !slices.ContainsFunc(route.steps, func(s step) bool { return s.prefix == prefix }) {
		w.refuse(n, prefix)
	}
}

// underPolicy adds the RoutePolicy of an IngressRoute to its routes. The policy of a root applies
// to the whole host instead.
func (t *Tables) underPolicy(c *memo.Context, n snapshot.Name, route *IngressRoute) func(*host.Entry) *host.Entry {
	same := func(e *host.Entry) *host.Entry { return e }
	if route.Root {
		return same
	}
	policy, groups := t.from.Policy.RoutePolicy(c, input.Object(snapshot.KindIngressRoute, n), "")
	if policy == nil {
		return same
	}
	return func(e *host.Entry) *host.Entry {
		if e == nil {
			return nil
		}
		asked := *e
		asked.Route.Policy, asked.Groups = policy, slices.Clone(e.Groups)
		for _, g := range groups {
			asked.Groups = backend.AddGroup(asked.Groups, g)
		}
		return &asked
	}
}

// isMisplaced says that routes of an IngressRoute may not stand where a path leads. Which ones, its
// owner is told once; who delegates to it anew costs no look at each of them.
func (w *walk) isMisplaced(n snapshot.Name, route *IngressRoute, path []delegator) bool {
	_, told := w.tree.Routed[n]
	w.tree.Routed[n] = struct{}{}
	is := false
	for _, s := range route.steps {
		if problem := misplaced(s.prefix, path); problem != "" {
			is = true
			if told {
				break
			}
			w.fail(n, field.At("spec.routes", s.index)+".match: "+problem)
		}
	}
	if is {
		d := path[len(path)-1]
		w.astray[n] = append(w.astray[n], astray{d.name, d.field})
	}
	return is
}

// misplaced says why a route may not stand where the path from the root leads, or
// nothing. It must continue the prefix that was delegated, segment by segment ("/foo" goes on in
// "/foo/bar", and not in "/foobar"), and must not reach into what somebody on the path gave to another.
func misplaced(prefix string, path []delegator) string {
	if len(path) == 0 {
		return ""
	}
	if last := path[len(path)-1]; !strings.HasPrefix(segment(prefix), segment(last.prefix)) {
		return "the path prefix " + field.Quote(prefix) + " does not match the parent's path prefix " + field.Quote(last.prefix) + " (" + last.name.String() + ")"
	}
	for _, d := range path {
		if given, _ := d.route.prefixes.longest(segment(prefix)); len(given) > len(segment(d.prefix)) {
			return "the path prefix " + field.Quote(prefix) + " belongs to " + field.Quote(strings.TrimSuffix(given, "/")) + " of " + d.name.String()
		}
	}
	return ""
}

// follow goes on to the IngressRoute that a step delegates to.
func (w *walk) follow(n snapshot.Name, route *IngressRoute, s step, path []delegator) {
	target := *s.delegate
	field := field.At("spec.routes", s.index) + ".delegate"
	refuse := func(problem string) {
		w.fail(n, field+": "+problem)
		w.refuse(n, s.prefix)
	}
	path = append(slices.Clip(path), delegator{n, route, s.prefix, field})
	var names []snapshot.Name
	for _, d := range path {
		names = append(names, d.name)
	}
	next := w.t.Routes.Get(w.ctx, target)
	_, visited := w.walked[target]
	switch {
	case slices.Contains(names, target):
		refuse("route creates a delegation cycle: " + cycleText(names, target))
	case next == nil:
		refuse("IngressRoute " + target.String() + " not found" + w.t.classText(w.ctx, target))
	case next.Root:
		refuse("root ingressroute cannot delegate to another root ingressroute: " + target.String() + " has a virtualhost")
	case len(next.steps) == 0 && next.tcp != nil:
		refuse("IngressRoute " + target.String() + " has no spec.routes")
	case visited:
		refuse("IngressRoute " + target.String() + secondPrefixText)
	case len(path) >= maxDepth:
		refuse("too many delegations in a row")
	case w.size.excludes(s, next, path):
		refuse(tooManyText(target))
		w.tree.Found[target] = []string{tooManyText(target)} // its owner did not write the root
	default:
		if len(path) == 1 {
			w.size.branches = append(w.size.branches, branch{step: s.index})
		}
		if _, reached := w.tree.Found[target]; !reached {
			w.tree.Found[target] = nil
		}
		w.visit(target, next, s.prefix, path)
	}
}

// proxy follows the delegations of connections, from a root on.
func (w *walk) proxy(n snapshot.Name, route *IngressRoute, path []snapshot.Name) {
	p := route.tcp
	w.tree.Proxied[n] = struct{}{}
	fail := func(problem string) { w.fail(n, "spec.tcpproxy.delegate: "+problem) }
	switch {
	case p.delegate != nil:
		target := *p.delegate
		path = append(path, n)
		next := w.t.Routes.Get(w.ctx, target)
		switch {
		case slices.Contains(path, target):
			fail("tcpproxy creates a delegation cycle: " + cycleText(path, target))
		case next == nil:
			fail("IngressRoute " + target.String() + " not found" + w.t.classText(w.ctx, target))
		case next.Root:
			fail("root ingressroute cannot delegate to another root ingressroute: " + target.String() + " has a virtualhost")
		case next.tcp == nil:
			fail("IngressRoute " + target.String() + " has no spec.tcpproxy")
			w.tree.Proxied[target] = struct{}{}
			w.fail(target, "spec.tcpproxy: must be specified: IngressRoute "+n.String()+" delegates connections here")
		case len(path) >= maxDepth:
			fail("too many delegations in a row")
		default:
			if _, known := w.tree.Found[target]; !known {
				w.tree.Found[target] = nil
			}
			w.proxy(target, next, path)
		}
	case len(route.Problems) > 0:
	case w.tls.passthrough && len(p.verifying) > 0:
		w.fail(n, strings.Join(p.verifying, ", ")+": with passthrough clients speak TLS with the backends themselves")
	case w.tls.passthrough:
		w.tcp = p.passed
	default:
		w.tcp = p.ended
	}
}

// cycleText names those of a path that lead from an IngressRoute back to it.
func cycleText(path []snapshot.Name, target snapshot.Name) string {
	var text []string
	for _, n := range append(slices.Clone(path[slices.Index(path, target):]), target) {
		text = append(text, n.String())
	}
	return strings.Join(text, " -> ")
}
