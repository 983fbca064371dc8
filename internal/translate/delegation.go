package translate

import (
	"slices"
	"strconv"
	"strings"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// maxDepth bounds how many IngressRoutes may stand between a root and a route.
const maxDepth = 32

// treeFact is a root IngressRoute with all that it delegates to.
type treeFact struct {
	// claims are what it wants of hosts, sorted by their keys: one in clear text and one with
	// TLS, if it asks for that; none when its name cannot be claimed.
	claims []hostClaim
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

// hostClaim is what a root wants of one host.
type hostClaim struct {
	key   model.HostKey
	claim *claim
}

func (f *treeFact) hosts() []model.HostKey {
	if f == nil {
		return nil
	}
	var keys []model.HostKey
	for _, c := range f.claims {
		keys = append(keys, c.key)
	}
	return keys
}

func (t *Translator) computeTree(r reader, n node) {
	name := n.name()
	before := t.trees[name]
	update(t, n, t.trees, name, makeTreeFact(r, name))
	after := t.trees[name]
	if before == after {
		return
	}
	t.reach(name, before, after)
	owner := ingressOwner(name)
	for _, k := range before.hosts() {
		if !slices.Contains(after.hosts(), k) {
			t.claim(k, owner, nil)
		}
	}
	if after != nil {
		for _, c := range after.claims {
			t.claim(c.key, owner, c.claim)
		}
	}
	var created int64
	if f := t.ingresses[name]; f != nil {
		created = f.created
	}
	t.askPorts(owner, created, listenersOf(before.hosts()), listenersOf(after.hosts()))
}

// reach keeps who delegates to whom up to date, and asks for the statuses that
// may change with it.
func (t *Translator) reach(root snapshot.Name, before, after *treeFact) {
	if before != nil {
		for child := range before.found {
			drop(t.reached, child, root)
			t.graph.mark(named(nodeIngressStatus, child))
		}
	}
	if after != nil {
		for child := range after.found {
			put(t.reached, child, root)
			t.graph.mark(named(nodeIngressStatus, child))
		}
	}
}

// restart forgets what the walk found, but for who has to stay out.
func (w *walk) restart(root snapshot.Name) {
	w.tree.found, w.tree.routed = map[snapshot.Name][]string{root: nil}, map[snapshot.Name]struct{}{}
	w.placed, w.astray = map[snapshot.Name]struct{}{}, map[snapshot.Name][]astray{}
	w.clear, w.secure, w.size = nil, nil, treeSize{out: w.size.out}
}

// makeTreeFact walks from a root; nil when there is none of that name.
func makeTreeFact(r reader, root snapshot.Name) *treeFact {
	if r.t.config.ingressRoute(r.s, root) == nil {
		return nil
	}
	f := r.ingress(root)
	if f == nil || !f.root {
		return nil
	}
	tree := &treeFact{proxied: map[snapshot.Name]struct{}{}}
	tree.found, tree.routed = map[snapshot.Name][]string{root: nil}, map[snapshot.Name]struct{}{}
	if f.host == "" {
		tree.close(r, root, f)
		return tree
	}
	if problem, note := contested(r, root, f.host); problem != "" {
		tree.found[root] = []string{"spec.virtualhost.fqdn: " + problem}
		tree.close(r, root, f)
		return tree
	} else if note != "" {
		tree.notes = []string{note}
	}
	w := walk{r: r, tree: tree, created: f.created, tls: f.tls, proxies: f.tcp != nil}
	w.restart(root)
	switch n := len(f.steps); {
	case n > maxTreeRoutes:
		w.fail(root, "spec.routes: has "+strconv.Itoa(n)+" routes, and one host may have "+strconv.Itoa(maxTreeRoutes))
		fallthrough
	case len(f.closed) > 0:
		w.refuse(root, "/")
		tree.close(r, root, f)
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
	clearKey := model.HostKey{Listener: r.t.config.clearID(), Host: f.host}
	tree.claims = []hostClaim{{clearKey, &claim{owner: owner, created: f.created, entries: w.clear}}}
	if tree.secure = f.tls != nil; tree.secure {
		key := model.HostKey{Listener: r.t.config.tlsID(), Host: f.host}
		c := &tlsClaim{created: f.created, host: model.TLSHost{HostKey: key, Owner: owner}}
		f.secure(c, &w)
		tree.claims = append(tree.claims, hostClaim{key, &claim{owner: owner, created: f.created, entries: w.secure, tls: c}})
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

// contested says why a root may not have its host, which others have as well, or, if
// it may, who they are. The namespace of the oldest keeps the host, as of all that
// claim one: a team cannot take another one's down. Two of one namespace are that
// team's own contradiction, and neither is served, as in Contour.
func contested(r reader, root snapshot.Name, host string) (problem, note string) {
	c := r.rootsOf(host)
	switch {
	case len(c.names) < 2:
		return "", ""
	case c.keeper.Namespace != root.Namespace:
		return c.text + ": namespace " + c.keeper.Namespace + " keeps it, which came first", ""
	case c.byNamespace[root.Namespace] > 1:
		return c.text, ""
	}
	strangers := slices.DeleteFunc(slices.Clone(c.names), func(n snapshot.Name) bool { return n == root })
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

// close leaves it at the root, and notes those to which it would delegate: they are told,
// and the root is told of those that are not there.
func (f *treeFact) close(r reader, name snapshot.Name, root *ingressFact) {
	f.closed = true
	note := func(field string, target *snapshot.Name) {
		if target == nil {
			return
		}
		if r.ingress(*target) == nil {
			f.found[name] = append(f.found[name], field+".delegate: IngressRoute "+target.String()+" not found"+r.t.index.classText(*target))
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
