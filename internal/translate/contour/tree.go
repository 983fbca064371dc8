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

// makeTree walks from a root, and claims its hosts.
func (t *Tables) makeTree(c *memo.Context, root snapshot.Name) (*Tree, bool) {
	if t.ingressRoute(c, root) == nil {
		return nil, false
	}
	f := t.Routes.Get(c, root)
	if f == nil || !f.Root {
		return nil, false
	}
	tree := t.walkFrom(c, root, f)
	for child := range tree.Found {
		t.Reached.Put(c, child, root, struct{}{})
	}
	for _, id := range host.ListenersOf(tree.Hosts) {
		t.host.Ports.Put(c, id, input.IngressOwner(root), f.created)
	}
	return tree, true
}

func (t *Tables) walkFrom(c *memo.Context, root snapshot.Name, f *IngressRoute) *Tree {
	tree := &Tree{Proxied: map[snapshot.Name]struct{}{}}
	tree.Found, tree.Routed = map[snapshot.Name][]string{root: nil}, map[snapshot.Name]struct{}{}
	if f.Host == "" {
		t.closeTree(c, tree, root, f)
		return tree
	}
	if problem, note := t.contested(c, root, f.Host); problem != "" {
		tree.Found[root] = []string{"spec.virtualhost.fqdn: " + problem}
		t.closeTree(c, tree, root, f)
		return tree
	} else if note != "" {
		tree.Notes = []string{note}
	}
	w := walk{t: t, ctx: c, tree: tree, created: f.created, tls: f.TLS, proxies: f.tcp != nil}
	w.restart(root)
	switch n := len(f.steps); {
	case n > MaxTreeRoutes:
		w.fail(root, "spec.routes: has "+strconv.Itoa(n)+" routes, and one host may have "+strconv.Itoa(MaxTreeRoutes))
		fallthrough
	case len(f.Closed) > 0:
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
	slices.SortFunc(w.clear, (*host.Entry).Compare)
	slices.SortFunc(w.secure, (*host.Entry).Compare)
	owner := input.IngressOwner(root)
	clear := model.HostKey{Listener: t.in.Config.ClearID(), Host: f.Host}
	tree.Hosts = []model.HostKey{clear}
	t.host.Candidates.Put(c, clear, owner, &host.Candidate{Owner: owner, Created: f.created, Entries: w.clear})
	if tree.Secure = f.TLS != nil; tree.Secure {
		key := model.HostKey{Listener: t.in.Config.TLSID(), Host: f.Host}
		wants := &host.NameCandidate{Created: f.created, Host: model.TLSHost{HostKey: key, Owner: owner}}
		f.secure(wants, &w)
		tree.Hosts = append(tree.Hosts, key)
		t.host.Candidates.Put(c, key, owner, &host.Candidate{Owner: owner, Created: f.created, Entries: w.secure})
		t.host.RootNames.Put(c, key, owner, wants)
	}
	return tree
}

// secure says what becomes of connections. Without a certificate, and without anybody who
// takes what is in them, they are closed.
func (f *IngressRoute) secure(c *host.NameCandidate, w *walk) {
	if len(f.Closed) > 0 || f.tcp != nil && len(w.tcp.Shares) == 0 {
		return
	}
	c.Host.TCP, c.Groups = w.tcp.Shares, w.tcp.Groups
	if !f.TLS.passthrough {
		c.Host.Certificates, c.Host.MinVersion = []model.CertificateID{f.TLS.Certificate}, f.TLS.MinVersion
	}
}

// Roots are the root IngressRoutes with one host. It is made once for all of
// them: each asks, and there may be thousands.
type Roots struct {
	names       []snapshot.Name // sorted
	byNamespace map[string]int
	keeper      snapshot.Name // the oldest
	text        string        // that there are several
}

func (t *Tables) makeRoots(c *memo.Context, hostName string) (*Roots, bool) {
	created := t.rootsOf.Get(c, hostName)
	roots := &Roots{names: input.SortedParts(created), byNamespace: map[string]int{}}
	var oldest *host.Candidate
	for _, n := range roots.names {
		roots.byNamespace[n.Namespace]++
		of := &host.Candidate{Owner: input.IngressOwner(n)}
		if of.Created, _ = created.Get(n); oldest == nil || of.Older(oldest) {
			oldest, roots.keeper = of, n
		}
	}
	if len(roots.names) > 1 {
		roots.text = "fqdn " + field.Quote(hostName) + " is used in multiple IngressRoutes: " + field.ListNames(roots.names)
	}
	return roots, true
}

// contested says why a root may not have its host, which others have as well, or, if
// it may, who they are. The namespace of the oldest keeps the host, as of all that
// claim one: a team cannot take another one's down. Two of one namespace are that
// team's own contradiction, and neither is served, as in Contour.
func (t *Tables) contested(c *memo.Context, root snapshot.Name, host string) (problem, note string) {
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
	return "", "host " + field.Quote(host) + " is claimed by " + field.ListNames(strangers) + " too, which came later and is not served"
}

// closeTree leaves it at the root, and notes those to which it would delegate: they are told,
// and the root is told of those that are not there.
func (t *Tables) closeTree(c *memo.Context, f *Tree, name snapshot.Name, root *IngressRoute) {
	f.Closed = true
	note := func(field string, target *snapshot.Name) {
		if target == nil {
			return
		}
		if t.Routes.Get(c, *target) == nil {
			f.Found[name] = append(f.Found[name], field+".delegate: IngressRoute "+target.String()+" not found"+t.classText(c, *target))
		} else if _, known := f.Found[*target]; !known {
			f.Found[*target] = nil
		}
	}
	for _, s := range root.steps {
		note(field.At("spec.routes", s.index), s.delegate)
	}
	if root.tcp != nil {
		note("spec.tcpproxy", root.tcp.delegate)
	}
}
