package contour

import (
	"slices"
	"strconv"

	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/field"
	"fairlead.dev/internal/translate/host"
	"fairlead.dev/internal/translate/input"
)

// Tree is a root IngressRoute with all that it delegates to.
type Tree struct {
	// Hosts that it claims, sorted: one in clear text and one with TLS, if it asks for that; none when its name cannot be
	// claimed.
	Hosts []model.HostKey
	// Closed says that nothing below the root is served, whatever its host.
	Closed bool
	// Secure says that requests in clear text to its host are sent to https, where routes do not permit them.
	Secure bool
	// Found says what the walk found wrong with each IngressRoute that it reached:
	// an entry without problems is fine in this tree.
	Found map[snapshot.Name][]string
	// Routed and proxied are those whose routes, and whose tcpproxy, the walk reached.
	Routed, Proxied map[snapshot.Name]struct{}
	// Notes are worth knowing of the root, though nothing is wrong with it.
	Notes []string
}

// makeTree walks from a root, and makes it a candidate for its hosts.
func (t *Tables) makeTree(c *memo.Context, root snapshot.Name) (*Tree, bool) {
	if t.ingressRoute(c, root) == nil {
		return nil, false
	}
	route := t.Routes.Get(c, root)
	if route == nil || !route.Root {
		return nil, false
	}
	tree := t.walkFrom(c, root, route)
	for child := range tree.Found {
		t.Reached.Put(c, child, root, struct{}{})
	}
	for _, id := range host.ListenersOf(tree.Hosts) {
		t.from.Host.Ports.Put(c, id, input.Object(snapshot.KindIngressRoute, root), route.created)
	}
	return tree, true
}

func (t *Tables) walkFrom(c *memo.Context, root snapshot.Name, route *IngressRoute) *Tree {
	tree := &Tree{Proxied: map[snapshot.Name]struct{}{}}
	tree.Found, tree.Routed = map[snapshot.Name][]string{root: nil}, map[snapshot.Name]struct{}{}
	if route.Host == "" {
		t.closeTree(c, tree, root, route)
		return tree
	}
	if problem, note := t.contested(c, root, route.Host); problem != "" {
		tree.Found[root] = []string{"spec.virtualhost.fqdn: " + problem}
		t.closeTree(c, tree, root, route)
		return tree
	} else if note != "" {
		tree.Notes = []string{note}
	}
	w := walk{t: t, ctx: c, tree: tree, created: route.created, tls: route.TLS, proxies: route.tcp != nil}
	w.restart(root)
	switch n := len(route.steps); {
	case n > maxTreeRoutes:
		w.fail(root, "spec.routes: has "+strconv.Itoa(n)+" routes, and one host may have "+strconv.Itoa(maxTreeRoutes))
		fallthrough
	case len(route.Closed) > 0:
		w.refuse(root, "/")
		t.closeTree(c, tree, root, route)
	default:
		w.visit(root, route, "/", nil)
		if w.size.exceeds() {
			w.restart(root)
			w.visit(root, route, "/", nil)
		}
		if route.tcp != nil {
			w.proxy(root, route, nil)
		}
	}
	slices.SortFunc(w.clear, (*host.Entry).Compare)
	slices.SortFunc(w.secure, (*host.Entry).Compare)
	owner := input.Object(snapshot.KindIngressRoute, root)
	clear := model.HostKey{Listener: t.in.Config.ClearID(), Host: route.Host}
	tree.Hosts = []model.HostKey{clear}
	t.from.Host.Candidates.Put(c, clear, owner, &host.Candidate{Owner: owner, Created: route.created, Entries: w.clear})
	if tree.Secure = route.TLS != nil; tree.Secure {
		key := model.HostKey{Listener: t.in.Config.TLSID(), Host: route.Host}
		wants := &host.NameCandidate{Created: route.created, Host: model.TLSHost{HostKey: key, Owner: owner}}
		route.secure(wants, &w)
		tree.Hosts = append(tree.Hosts, key)
		t.from.Host.Candidates.Put(c, key, owner, &host.Candidate{Owner: owner, Created: route.created, Entries: w.secure})
		t.from.Host.RootNames.Put(c, key, owner, wants)
	}
	return tree
}

// secure sets where connections with TLS go, and their certificate. It sets neither for a root that is
// closed, nor for a tcpproxy without a sound service: such connections are closed.
func (r *IngressRoute) secure(c *host.NameCandidate, w *walk) {
	if len(r.Closed) > 0 || r.tcp != nil && len(w.tcp.Shares) == 0 {
		return
	}
	c.Host.TCP, c.Groups = w.tcp.Shares, w.tcp.Groups
	if !r.TLS.passthrough {
		c.Host.Certificates, c.Host.MinVersion = []model.CertificateID{r.TLS.Certificate}, r.TLS.MinVersion
	}
}

// hostRoots are the root IngressRoutes with one host. They are sorted once for all trees with that host,
// of which there may be thousands.
type hostRoots struct {
	names       []snapshot.Name // sorted
	byNamespace map[string]int
	keeper      snapshot.Name // the oldest
	text        string        // that there are several
}

func (t *Tables) makeRoots(c *memo.Context, hostName string) (*hostRoots, bool) {
	created := t.rootsOf.Get(c, hostName)
	roots := &hostRoots{names: input.SortedParts(created), byNamespace: map[string]int{}}
	var oldest *host.Candidate
	for _, n := range roots.names {
		roots.byNamespace[n.Namespace]++
		of := &host.Candidate{Owner: input.Object(snapshot.KindIngressRoute, n)}
		if of.Created, _ = created.Get(n); oldest == nil || of.Older(oldest) {
			oldest, roots.keeper = of, n
		}
	}
	if len(roots.names) > 1 {
		roots.text = "fqdn " + field.Quote(hostName) + " is used in multiple IngressRoutes: " + field.ListNames(roots.names)
	}
	return roots, true
}

// contested says why a root may not have its host, or names the other roots with the same host. The
// namespace of the oldest root keeps the host, so that no team takes down another team's host. Two
// roots of that namespace contradict each other, and neither is served, as in Contour.
func (t *Tables) contested(c *memo.Context, root snapshot.Name, host string) (problem, note string) {
	roots := t.roots.Get(c, host)
	switch {
	case len(roots.names) < 2:
		return "", ""
	case roots.keeper.Namespace != root.Namespace:
		return roots.text + ": namespace " + roots.keeper.Namespace + " keeps it, because the oldest is there", ""
	case roots.byNamespace[root.Namespace] > 1:
		return roots.text, ""
	}
	strangers := slices.DeleteFunc(slices.Clone(roots.names), func(n snapshot.Name) bool { return n == root })
	return "", "host " + field.Quote(host) + " is also claimed by " + field.ListNames(strangers) + " (newer, not served)"
}

// closeTree serves nothing of a tree. It notes the IngressRoutes to which the root would delegate, and
// which of these do not exist.
func (t *Tables) closeTree(c *memo.Context, tree *Tree, name snapshot.Name, root *IngressRoute) {
	tree.Closed = true
	note := func(field string, target *snapshot.Name) {
		if target == nil {
			return
		}
		if t.Routes.Get(c, *target) == nil {
			tree.Found[name] = append(tree.Found[name], field+".delegate: IngressRoute "+target.String()+" not found"+t.classText(c, *target))
		} else if _, known := tree.Found[*target]; !known {
			tree.Found[*target] = nil
		}
	}
	for _, s := range root.steps {
		note(field.At("spec.routes", s.index), s.delegate)
	}
	if root.tcp != nil {
		note("spec.tcpproxy", root.tcp.delegate)
	}
}
