package translate

import (
	"slices"
	"strconv"
	"strings"

	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// maxDepth bounds how many IngressRoutes may stand between a root and a route.
const maxDepth = 32

// treeFact is a root IngressRoute with all that it delegates to.
type treeFact struct {
	// hosts that it claims, sorted: one in clear text and one with TLS, if it asks for that; none when its name cannot be
	// claimed.
	hosts []model.HostKey
	// closed says that nothing below the root is served, whatever its host.
	closed bool
	// secure says that requests in clear text to its host are sent to https, where routes do not permit them.
	secure bool
	// found says what the walk found wrong with each IngressRoute that it reached:
	// an entry without problems is fine in this tree.
	found map[snapshot.Name][]string
	// routed and proxied are those whose routes, and whose tcpproxy, the walk reached.
	routed, proxied map[snapshot.Name]struct{}
	// notes are worth knowing of the root, though nothing is wrong with it.
	notes []string
}

// restart forgets what the walk found, but for who has to stay out.
func (w *walk) restart(root snapshot.Name) {
	w.tree.found, w.tree.routed = map[snapshot.Name][]string{root: nil}, map[snapshot.Name]struct{}{}
	w.placed, w.astray = map[snapshot.Name]struct{}{}, map[snapshot.Name][]astray{}
	w.clear, w.secure, w.size = nil, nil, treeSize{out: w.size.out}
}

// makeTree walks from a root, and claims its hosts.
func (t *contourTables) makeTree(c *memo.Context, root snapshot.Name) (*treeFact, bool) {
	if t.ingressRoute(c, root) == nil {
		return nil, false
	}
	f := t.routes.Get(c, root)
	if f == nil || !f.root {
		return nil, false
	}
	tree := t.walkFrom(c, root, f)
	for child := range tree.found {
		t.reached.Put(c, child, root, struct{}{})
	}
	for _, id := range listenersOf(tree.hosts) {
		t.host.ports.Put(c, id, ingressOwner(root), f.created)
	}
	return tree, true
}

func (t *contourTables) walkFrom(c *memo.Context, root snapshot.Name, f *ingressFact) *treeFact {
	tree := &treeFact{proxied: map[snapshot.Name]struct{}{}}
	tree.found, tree.routed = map[snapshot.Name][]string{root: nil}, map[snapshot.Name]struct{}{}
	if f.host == "" {
		t.closeTree(c, tree, root, f)
		return tree
	}
	if problem, note := t.contested(c, root, f.host); problem != "" {
		tree.found[root] = []string{"spec.virtualhost.fqdn: " + problem}
		t.closeTree(c, tree, root, f)
		return tree
	} else if note != "" {
		tree.notes = []string{note}
	}
	w := walk{t: t, ctx: c, tree: tree, created: f.created, tls: f.tls, proxies: f.tcp != nil}
	w.restart(root)
	switch n := len(f.steps); {
	case n > maxTreeRoutes:
		w.fail(root, "spec.routes: has "+strconv.Itoa(n)+" routes, and one host may have "+strconv.Itoa(maxTreeRoutes))
		fallthrough
	case len(f.closed) > 0:
		w.refuse(root, "/")
		t.closeTree(c, tree, root, f)
	default:
		w.visit(root, f, "/", nil)
		if w.size.exceeds() {
			w.restart(root)
			w.visit(root, f, "/", nil)
		}
		if f.tcp != nil {
			w.proxy(root, f, nil)
		}
	}
	slices.SortFunc(w.clear, (*entry).compare)
	slices.SortFunc(w.secure, (*entry).compare)
	owner := ingressOwner(root)
	clear := model.HostKey{Listener: t.in.config.clearID(), Host: f.host}
	tree.hosts = []model.HostKey{clear}
	t.host.claims.Put(c, clear, owner, &claim{owner: owner, created: f.created, entries: w.clear})
	if tree.secure = f.tls != nil; tree.secure {
		key := model.HostKey{Listener: t.in.config.tlsID(), Host: f.host}
		wants := &tlsClaim{created: f.created, host: model.TLSHost{HostKey: key, Owner: owner}}
		f.secure(wants, &w)
		tree.hosts = append(tree.hosts, key)
		t.host.claims.Put(c, key, owner, &claim{owner: owner, created: f.created, entries: w.secure})
		t.host.rootNames.Put(c, key, owner, wants)
	}
	return tree
}

// secure says what becomes of connections. Without a certificate, and without anybody who
// takes what is in them, they are closed.
func (f *ingressFact) secure(c *tlsClaim, w *walk) {
	if len(f.closed) > 0 || f.tcp != nil && len(w.tcp.shares) == 0 {
		return
	}
	c.host.TCP, c.groups = w.tcp.shares, w.tcp.groups
	if !f.tls.passthrough {
		c.host.Certificates, c.host.MinVersion = []model.CertificateID{f.tls.certificate}, f.tls.minVersion
	}
}

// rootsOfHost are the root IngressRoutes with one host. It is made once for all of
// them: each asks, and there may be thousands.
type rootsOfHost struct {
	names       []snapshot.Name // sorted
	byNamespace map[string]int
	keeper      snapshot.Name // the oldest
	text        string        // that there are several
}

func (t *contourTables) makeRoots(c *memo.Context, host string) (*rootsOfHost, bool) {
	created := t.rootsOf.Get(c, host)
	roots := &rootsOfHost{names: sortedParts(created), byNamespace: map[string]int{}}
	var oldest *claim
	for _, n := range roots.names {
		roots.byNamespace[n.Namespace]++
		of := &claim{owner: ingressOwner(n)}
		if of.created, _ = created.Get(n); oldest == nil || of.older(oldest) {
			oldest, roots.keeper = of, n
		}
	}
	if len(roots.names) > 1 {
		roots.text = "fqdn " + quote(host) + " is used in multiple IngressRoutes: " + listNames(roots.names)
	}
	return roots, true
}

// contested says why a root may not have its host, which others have as well, or, if
// it may, who they are. The namespace of the oldest keeps the host, as of all that
// claim one: a team cannot take another one's down. Two of one namespace are that
// team's own contradiction, and neither is served, as in Contour.
func (t *contourTables) contested(c *memo.Context, root snapshot.Name, host string) (problem, note string) {
	roots := t.roots.Get(c, host)
	switch {
	case len(roots.names) < 2:
		return "", ""
	case roots.keeper.Namespace != root.Namespace:
		return roots.text + ": namespace " + roots.keeper.Namespace + " keeps it, which came first", ""
	case roots.byNamespace[root.Namespace] > 1:
		return roots.text, ""
	}
	strangers := slices.DeleteFunc(slices.Clone(roots.names), func(n snapshot.Name) bool { return n == root })
	return "", "host " + quote(host) + " is claimed by " + listNames(strangers) + " too, which came later and is not served"
}

// listNames names the first few.
func listNames(names []snapshot.Name) string {
	const most = 8
	var text []string
	for _, n := range names[:min(len(names), most)] {
		text = append(text, n.String())
	}
	if more := len(names) - most; more > 0 {
		text = append(text, strconv.Itoa(more)+" more")
	}
	return strings.Join(text, ", ")
}

// closeTree leaves it at the root, and notes those to which it would delegate: they are told,
// and the root is told of those that are not there.
func (t *contourTables) closeTree(c *memo.Context, f *treeFact, name snapshot.Name, root *ingressFact) {
	f.closed = true
	note := func(field string, target *snapshot.Name) {
		if target == nil {
			return
		}
		if t.routes.Get(c, *target) == nil {
			f.found[name] = append(f.found[name], field+".delegate: IngressRoute "+target.String()+" not found"+t.classText(c, *target))
		} else if _, known := f.found[*target]; !known {
			f.found[*target] = nil
		}
	}
	for _, s := range root.steps {
		note(at("spec.routes", s.index), s.delegate)
	}
	if root.tcp != nil {
		note("spec.tcpproxy", root.tcp.delegate)
	}
}

// underPolicy adds to routes of an IngressRoute what its RoutePolicy asks. That of a root
// holds for the whole host.
func (t *contourTables) underPolicy(c *memo.Context, n snapshot.Name, f *ingressFact) func(*entry) *entry {
	same := func(e *entry) *entry { return e }
	if f.root {
		return same
	}
	policy, groups := t.policy.routePolicy(c, ingressOwner(n), "")
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
