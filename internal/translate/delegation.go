package translate

import (
	"slices"
	"strconv"
	"strings"

	contourv1beta1 "fairlead.dev/api/contour/v1beta1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// maxDepth bounds how many IngressRoutes may stand between a root and a route.
const maxDepth = 32

// treeFact is a root IngressRoute with all that it delegates to.
type treeFact struct {
	// host is what it claims, none when its name cannot be claimed.
	host  *model.HostKey
	claim *claim
	// closed says that nothing below the root is served, whatever its host.
	closed bool
	// found says what the walk found wrong with each IngressRoute that it reached:
	// an entry without problems is fine in this tree.
	found map[snapshot.Name][]string
	// notes are worth knowing of the root, though nothing is wrong with it.
	notes []string
}

func (f *treeFact) hosts() []model.HostKey {
	if f == nil || f.host == nil {
		return nil
	}
	return []model.HostKey{*f.host}
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
	var c *claim
	if after != nil {
		c = after.claim
	}
	t.moveClaims(owner, before.hosts(), after.hosts(), c)
	t.askPorts(owner, listenersOf(before.hosts()), listenersOf(after.hosts()))
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

// makeTreeFact walks from a root; nil when there is none of that name.
func makeTreeFact(r reader, root snapshot.Name) *treeFact {
	if r.s.IngressRoutes[root] == nil {
		return nil
	}
	f := r.ingress(root)
	if f == nil || !f.root {
		return nil
	}
	tree := &treeFact{found: map[snapshot.Name][]string{root: nil}}
	if f.host == "" {
		tree.close(f)
		return tree
	}
	if problem, note := contested(r, root, f.host); problem != "" {
		tree.found[root] = []string{problem}
		tree.close(f)
		return tree
	} else if note != "" {
		tree.notes = []string{note}
	}
	tree.host = &model.HostKey{Listener: ListenerID(r.t.config.IngressRoutePort), Host: f.host}
	w := walk{r: r, tree: tree, created: f.created}
	if len(f.closed) > 0 {
		w.refuse(root, "/")
		tree.close(f)
	} else {
		w.visit(root, f, "/", nil)
	}
	slices.SortFunc(w.entries, (*entry).compare)
	tree.claim = &claim{owner: ingressOwner(root), created: f.created, entries: w.entries}
	return tree
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
		return c.text + "; namespace " + c.keeper.Namespace + " keeps it, which came first", ""
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

// close leaves it at the root, and notes those to which it would delegate: they are
// told.
func (f *treeFact) close(root *ingressFact) {
	f.closed = true
	for _, s := range root.steps {
		if s.delegate == nil {
			continue
		}
		if _, known := f.found[*s.delegate]; !known {
			f.found[*s.delegate] = nil
		}
	}
}

// walk goes through a tree of delegations, in the order of the routes. Each
// IngressRoute is visited once, so the walk ends.
type walk struct {
	r       reader
	tree    *treeFact
	created int64
	entries []*entry
}

// delegator is an IngressRoute on the path from the root, with the prefix by which
// the path leaves it.
type delegator struct {
	name   snapshot.Name
	fact   *ingressFact
	prefix string
}

func (w *walk) fail(n snapshot.Name, problem string) {
	w.tree.found[n] = append(w.tree.found[n], problem)
}

// refuse answers a prefix with 503, so that no shorter prefix takes its requests.
func (w *walk) refuse(n snapshot.Name, prefix string) {
	w.entries = append(w.entries, &entry{created: w.created, route: model.Route{
		Name:    "IngressRoute/" + n.Namespace + "/" + n.Name + "/refused" + prefix,
		Owner:   ingressOwner(n),
		Match:   model.Match{Path: model.PathMatch{Kind: model.PathPrefix, Value: prefix}},
		Respond: &model.Respond{Status: 503},
	}})
}

// visit takes in an IngressRoute to which prefix was delegated.
func (w *walk) visit(n snapshot.Name, f *ingressFact, prefix string, path []delegator) {
	outside := false
	for _, s := range f.steps {
		if problem := misplaced(s.prefix, path); problem != "" {
			w.fail(n, at("spec.routes", s.index)+".match: "+problem)
			outside = true
		}
	}
	if outside {
		w.refuse(n, prefix)
		return
	}
	broken := len(f.problems) > 0
	for _, s := range f.steps {
		switch {
		case s.delegate != nil:
			w.follow(n, f, s, path)
		case broken:
			w.refuse(n, s.prefix)
		default:
			w.entries = append(w.entries, s.entry)
		}
	}
	if _, has := f.prefixes[prefix]; broken && !has {
		w.refuse(n, prefix)
	}
}

// misplaced says why a route may not stand where the path from the root leads, or
// nothing. It must continue the prefix that was delegated, and must not reach into
// what somebody on the path gave to another.
func misplaced(prefix string, path []delegator) string {
	if len(path) == 0 {
		return ""
	}
	if last := path[len(path)-1]; !strings.HasPrefix(prefix, last.prefix) {
		return "the path prefix " + quote(prefix) + " does not match the parent's path prefix " + quote(last.prefix) + " (" + last.name.String() + ")"
	}
	for _, d := range path {
		for i := len(prefix); i > len(d.prefix); i-- {
			if _, taken := d.fact.prefixes[prefix[:i]]; taken {
				return "the path prefix " + quote(prefix) + " belongs to " + quote(prefix[:i]) + " of " + d.name.String()
			}
		}
	}
	return ""
}

// follow goes on to the IngressRoute that a step delegates to.
func (w *walk) follow(n snapshot.Name, f *ingressFact, s step, path []delegator) {
	target := *s.delegate
	refuse := func(problem string) {
		w.fail(n, at("spec.routes", s.index)+".delegate: "+problem)
		w.refuse(n, s.prefix)
	}
	path = append(slices.Clip(path), delegator{n, f, s.prefix})
	for i, d := range path {
		if d.name == target {
			var names []string
			for _, d := range path[i:] {
				names = append(names, d.name.String())
			}
			refuse("route creates a delegation cycle: " + strings.Join(append(names, target.String()), " -> "))
			return
		}
	}
	next := w.r.ingress(target)
	_, visited := w.tree.found[target]
	switch {
	case next == nil:
		refuse("IngressRoute " + target.String() + " not found")
	case next.root:
		refuse("root ingressroute cannot delegate to another root ingressroute: " + target.String() + " has a virtualhost")
	case visited:
		refuse("IngressRoute " + target.String() + " takes another prefix of this host already: it can take one")
	case len(path) >= maxDepth:
		refuse("too many delegations in a row")
	default:
		w.tree.found[target] = nil
		w.visit(target, next, s.prefix, path)
	}
}

// Descriptions of IngressRoutes, as Contour words them.
const (
	descriptionValid    = "valid IngressRoute"
	descriptionOrphaned = "this IngressRoute is not part of a delegation chain from a root IngressRoute"
)

// computeIngressStatus writes an IngressRoute's status, now that it is known who
// delegates to it and who has the host.
func (t *Translator) computeIngressStatus(r reader, n node) {
	name := n.name()
	o := r.s.IngressRoutes[name]
	object := ingressOwner(name)
	f := t.ingresses[name]
	if o == nil || f == nil {
		publish(t.result.Statuses, t.out.Statuses, object, nil)
		return
	}
	r.ingress(name)
	var found, lost, notes []string
	status := &Status{Generation: o.Generation, IngressRoute: &contourv1beta1.Status{}}
	alive := false
	for _, root := range sortedNames(t.reached[name]) {
		tree := r.tree(root)
		found = append(found, tree.found[name]...)
		if tree.closed && !f.root {
			lost = append(lost, "IngressRoute "+root.String()+", which delegates here, is invalid itself")
			continue
		}
		if tree.host == nil {
			continue
		}
		rootObject := ingressOwner(root)
		owner := r.owner(*tree.host)
		if !owner.has(rootObject) {
			lost = append(lost, "host "+quote(tree.host.Host)+" at port "+portText(tree.host)+" is kept by "+owner.keeper.String()+", which came first")
			continue
		}
		alive = true
		status.Hosts = append(status.Hosts, *tree.host)
		if root == name {
			notes = append(notes, tree.notes...)
		}
		if owner.conflict && f.root {
			notes = append(notes, "host "+quote(tree.host.Host)+" is claimed by "+owner.describeLosers()+" too, which came later and is not served there")
		}
	}
	slices.SortFunc(status.Hosts, model.HostKey.Compare)
	status.Listeners = listenersOf(status.Hosts)
	if f.root && f.host != "" {
		asking := object
		if f.request.empty() {
			asking = sharedIn(name.Namespace)
		}
		o := r.outcome(asking)
		status.IngressRoute.LoadBalancer = ingressStatus(o)
		if o != nil && o.hold != nil {
			status.Hold = o.hold
			notes = append(notes, o.hold.Message)
		}
	}
	out := status.IngressRoute
	switch {
	case f.root:
		for i := range lost {
			lost[i] = "spec.virtualhost.fqdn: " + lost[i]
		}
		out.CurrentStatus, out.Description = contourv1beta1.StatusInvalid, joinProblems(found, f.closed, f.problems, lost)
	case len(t.reached[name]) == 0:
		out.CurrentStatus, out.Description = contourv1beta1.StatusOrphaned, joinProblems([]string{descriptionOrphaned}, f.problems)
	case !alive:
		out.CurrentStatus, out.Description = contourv1beta1.StatusOrphaned, joinProblems([]string{descriptionOrphaned + " that is served"}, lost, found, f.problems)
	default:
		out.CurrentStatus, out.Description = contourv1beta1.StatusInvalid, joinProblems(found, f.problems)
	}
	if out.Description == "" {
		out.CurrentStatus, out.Description = contourv1beta1.StatusValid, joinProblems([]string{descriptionValid}, notes)
	}
	publish(t.result.Statuses, t.out.Statuses, object, status)
}

func portText(k *model.HostKey) string { return strings.TrimPrefix(string(k.Listener), listenerPrefix) }
