package translate

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	contourv1beta1 "fairlead.dev/api/contour/v1beta1"
	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// ingressFact is an IngressRoute judged for itself: before it is known who
// delegates to it.
type ingressFact struct {
	root    bool
	host    string // of a root, lower case; empty when it cannot be one
	created int64
	request request     // of a root
	tls     *ingressTLS // of a root that asks for it
	// closed are faults of a root for which nothing below it may be served.
	closed []string
	// problems are the others. With any, the routes of this object answer 503, so
	// that no shorter prefix takes their requests; what it delegates is still served.
	problems []string
	notes    []string // what is worth knowing, though nothing is wrong with it
	slashed  []slashedPath
	insecure []int // routes whose permitInsecure the operator overrides, where the host has TLS
	steps    []step
	prefixes prefixes // of the steps
	tcp      *tcpProxy
}

// step is one route of an IngressRoute whose match can be read.
type step struct {
	index    int // in spec.routes
	prefix   string
	delegate *snapshot.Name // or:
	entry    *entry         // nil when the route is broken
	// redirect takes its place for requests in clear text to a host with TLS, unless the
	// route permits them.
	redirect *entry
}

func ingressOwner(n snapshot.Name) model.Object {
	return model.Object{Kind: string(snapshot.KindIngressRoute), Namespace: n.Namespace, Name: n.Name}
}

// contourTables are the IngressRoutes.
type contourTables struct {
	in      *inputTables
	tls     *tlsTables
	backend *backendTables
	policy  *policyTables
	vip     *vipTables
	host    *hostTables

	others  *memo.Sum[snapshot.Name, memo.Unit, string, string] // the class of those that are another controller's
	rootsOf *index[string, int64]                               // roots by host, created when
	roots   *memo.Table[string, *rootsOfHost]
	routes  *memo.Table[snapshot.Name, *ingressFact]
	trees   *memo.Table[snapshot.Name, *treeFact]
	reached *memo.Sum[snapshot.Name, snapshot.Name, struct{}, memo.Parts[snapshot.Name, struct{}]] // the roots that delegate to one
}

func newContourTables(g *memo.Graph, in *inputTables, tls *tlsTables, backend *backendTables, policy *policyTables, vip *vipTables, host *hostTables) *contourTables {
	t := &contourTables{in: in, tls: tls, backend: backend, policy: policy, vip: vip, host: host}
	t.others = memo.NewSlot[snapshot.Name, string](g, "another controller's IngressRoute")
	t.rootsOf = memo.NewSum[string, snapshot.Name, int64](g, "roots of a host")
	memo.NewScan(g, "IngressRoutes: index", in.ingressRoutes, func(c *memo.Context, n snapshot.Name, o *contourv1beta1.IngressRoute) {
		switch {
		case !in.config.isOurs(o):
			t.others.Put(c, n, memo.Unit{}, classOf(o.Annotations))
		case o.Spec.VirtualHost != nil && o.Spec.VirtualHost.Fqdn != "" && in.config.mayBeRoot(n.Namespace):
			// A root that may not stand where it stands cannot spoil the host for one that may.
			t.rootsOf.Put(c, strings.ToLower(o.Spec.VirtualHost.Fqdn), n, o.CreationTimestamp.Unix())
		}
	}, memo.Puts(t.others, t.rootsOf))
	t.roots = memo.NewTable(g, "roots of a host, in order", t.makeRoots, memo.Reads(t.rootsOf))
	t.routes = memo.For(memo.NewTable(g, "IngressRoute judged", t.makeIngress,
		memo.Reads(in.ingressRoutes, in.delegations, tls.certificates, tls.authorities), backend.readsOfGroups(), memo.Puts(vip.wants, vip.roots)), in.ingressRoutes)
	t.reached = memo.NewSum[snapshot.Name, snapshot.Name, struct{}](g, "roots that delegate")
	t.trees = memo.For(memo.NewTable(g, "tree", t.makeTree,
		memo.Reads(in.ingressRoutes, t.routes, t.roots, t.others), policy.readsOfRoutes(),
		memo.Puts(host.claims, host.rootNames, host.ports, t.reached)), in.ingressRoutes)
	return t
}

// makeIngress judges an IngressRoute. A root wants an address of its own
// when it asks for one, else the one that all others share.
func (t *contourTables) makeIngress(c *memo.Context, n snapshot.Name) (*ingressFact, bool) {
	f := t.judgeIngress(c, n)
	switch {
	case f == nil:
		return nil, false
	case f.host != "" && f.request.empty():
		t.vip.roots.Put(c, n.Namespace, n, f.tls != nil)
	case f.root && !f.request.empty():
		w := &want{owner: ingressOwner(n), created: f.created, request: f.request, needs: f.request.needs(), idle: f.host == ""}
		if !w.idle {
			w.listeners = []model.ListenerID{t.in.config.clearID()}
			if f.tls != nil {
				w.listeners = append(w.listeners, t.in.config.tlsID())
			}
		}
		t.vip.wants.Put(c, memo.Unit{}, w.owner, w)
	}
	return f, true
}

func (t *contourTables) judgeIngress(ctx *memo.Context, n snapshot.Name) *ingressFact {
	o := t.ingressRoute(ctx, n)
	if o == nil {
		return nil
	}
	c := ingressCompiler{t: t, ctx: ctx, name: n, fact: &ingressFact{created: o.CreationTimestamp.Unix()}, taken: map[string]int{}, noted: map[string]bool{}}
	if o.Spec.VirtualHost != nil {
		c.virtualHost(o.Spec.VirtualHost, o.Spec.TCPProxy != nil)
		c.fact.request = annotationRequest(o.Annotations)
		c.fact.notes = append(c.fact.notes, unknownNotes(o.Annotations, v1alpha1.AnnotationPool, v1alpha1.AnnotationAddresses)...)
	}
	c.unreadable(o.Annotations[snapshot.Unreadable])
	routes := o.Spec.Routes
	if o.Spec.TCPProxy != nil {
		c.tcpProxy(o.Spec.TCPProxy)
		if len(routes) > 0 && c.fact.root && c.fact.tls != nil {
			// Contour 0.10 to 0.15 wanted a route there, which it did not serve.
			c.fact.notes = append(c.fact.notes, "spec.routes: ignored beside spec.tcpproxy, as in Contour")
			routes = nil
		}
	} else if len(routes) == 0 {
		c.fail("spec.routes", "at least one route is needed")
	}
	for i := range routes {
		c.step(i, &routes[i])
	}
	c.fact.prefixes = newPrefixes(segmented(slices.Collect(maps.Keys(c.taken))))
	return c.fact
}

// ingressCompiler collects what it finds in one IngressRoute.
type ingressCompiler struct {
	t     *contourTables
	ctx   *memo.Context
	name  snapshot.Name
	fact  *ingressFact
	taken map[string]int  // index in spec.routes of each prefix
	noted map[string]bool // Services whose refused endpoints a note names
}

func (c *ingressCompiler) fail(path, problem string) {
	c.fact.problems = append(c.fact.problems, path+": "+problem)
}

// close notes a fault for which a root serves nothing; in a child it is a problem
// like others.
func (c *ingressCompiler) close(problem string) {
	if c.fact.root {
		c.fact.closed = append(c.fact.closed, problem)
	} else {
		c.fact.problems = append(c.fact.problems, problem)
	}
}

// unreadable notes the values that the source left out. Without one of its virtualhost a root could be served in
// another way than it was meant, in clear text, say.
func (c *ingressCompiler) unreadable(values string) {
	switch {
	case values == "":
	case strings.Contains(values, "spec.virtualhost"):
		if c.fact.root && c.fact.tls == nil && strings.Contains(values, "spec.virtualhost.tls") {
			c.fact.tls = &ingressTLS{} // closed, and no wildcard's
		}
		c.close(values)
	default:
		c.fact.problems = append(c.fact.problems, values)
	}
}

func (c *ingressCompiler) virtualHost(v *contourv1beta1.VirtualHost, proxies bool) {
	c.fact.root = true
	host := strings.ToLower(v.Fqdn)
	problem := hostProblem(host, false)
	if v.Fqdn == "" {
		problem = "must be specified"
	}
	switch {
	case problem != "":
		c.close("spec.virtualhost.fqdn: " + problem)
	case !c.t.in.config.mayBeRoot(c.name.Namespace):
		c.close("spec.virtualhost: root IngressRoute cannot be defined in this namespace: only in " + strings.Join(c.t.in.config.RootNamespaces, ", "))
	default:
		c.fact.host = host
	}
	if v.TLS != nil {
		c.tls(v.TLS, proxies)
	}
}

func (c *ingressCompiler) step(i int, o *contourv1beta1.Route) {
	path := at("spec.routes", i)
	before := len(c.fact.problems)
	problem := pathProblem(o.Match)
	if problem == "" {
		if first, taken := c.taken[o.Match]; taken {
			problem = quote(o.Match) + " is already matched by " + at("spec.routes", first)
		}
	}
	if problem != "" {
		c.fail(path+".match", problem)
	}
	forward, groups := c.forward(o, path)
	s := step{index: i, prefix: o.Match}
	if d := o.Delegate; d != nil && len(o.Services) == 0 {
		s.delegate = c.delegate(d, path+".delegate")
		if idle := idleOptions(o); len(idle) > 0 {
			c.fact.notes = append(c.fact.notes, path+": "+strings.Join(idle, ", ")+" of a route that delegates: the one that it delegates to says these for its routes")
		}
	}
	if problem != "" {
		return
	}
	if s.delegate == nil && len(c.fact.problems) == before {
		route := model.Route{
			Name:  "IngressRoute/" + c.name.Namespace + "/" + c.name.Name + "/routes/" + strconv.Itoa(i),
			Owner: ingressOwner(c.name),
			Match: model.Match{Path: model.PathMatch{Kind: model.PathPrefix, Value: o.Match}},
		}
		if !o.PermitInsecure || c.t.in.config.DisablePermitInsecure {
			s.redirect = &entry{order: i, created: c.fact.created, route: route}
			s.redirect.route.Redirect = c.t.in.config.redirectToTLS()
			if o.PermitInsecure {
				c.fact.insecure = append(c.fact.insecure, i)
			}
		}
		route.Forward = forward
		s.entry = &entry{groups: groups, order: i, created: c.fact.created, route: route}
	}
	if p, is := slashed(path+".match", model.PathMatch{Kind: model.PathPrefix, Value: o.Match}); is {
		c.fact.slashed = append(c.fact.slashed, p)
	}
	c.taken[o.Match] = i
	c.fact.steps = append(c.fact.steps, s)
}

// idleOptions are the fields of a route that mean nothing where it delegates, as in Contour.
func idleOptions(o *contourv1beta1.Route) []string {
	var idle []string
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"enableWebsockets", o.EnableWebsockets},
		{"healthCheck", o.HealthCheck != nil},
		{"permitInsecure", o.PermitInsecure},
		{"prefixRewrite", o.PrefixRewrite != ""},
		{"retryPolicy", o.RetryPolicy != nil},
		{"timeoutPolicy", o.TimeoutPolicy != nil},
	} {
		if f.set {
			idle = append(idle, f.name)
		}
	}
	return idle
}

// delegate is the IngressRoute that takes over, nil when none is named.
func (c *ingressCompiler) delegate(d *contourv1beta1.Delegate, path string) *snapshot.Name {
	if d.Name == "" {
		c.fail(path+".name", "must be specified")
		return nil
	}
	target := snapshot.Name{Namespace: c.name.Namespace, Name: d.Name}
	if d.Namespace != "" {
		target.Namespace = d.Namespace
	}
	return &target
}

// ingressTimeout is the time for an answer where a route says none: Envoy's default, and so
// Contour's.
const ingressTimeout = 15 * time.Second

// forward reads where a route's requests go, and how.
func (c *ingressCompiler) forward(o *contourv1beta1.Route, path string) (*model.Forward, []model.BackendGroup) {
	switch {
	case len(o.Services) > 0 && o.Delegate != nil:
		c.fail(path, "only one of services or delegate can be specified in a single route")
	case len(o.Services) == 0 && o.Delegate == nil:
		c.fail(path, "one of services or delegate must be specified")
	}
	f := &model.Forward{ // as Contour has it
		WebSocket: o.EnableWebsockets, NoUpgrade: !o.EnableWebsockets, Timeout: ingressTimeout, StartHeader: true,
	}
	if o.PrefixRewrite != "" {
		if problem := pathProblem(o.PrefixRewrite); problem != "" {
			c.fail(path+".prefixRewrite", problem)
		}
		f.Path = &model.PathRewrite{Kind: model.RewritePrefix, Value: o.PrefixRewrite}
	}
	if p := o.TimeoutPolicy; p != nil && p.Request != "" {
		f.Timeout = c.duration(p.Request, path+".timeoutPolicy.request")
	}
	if p := o.RetryPolicy; p != nil {
		if p.NumRetries < 0 || p.NumRetries > 100 {
			c.fail(path+".retryPolicy.count", strconv.Itoa(int(p.NumRetries))+" must be in the range 0-100")
		}
		f.Retry = &model.Retry{Attempts: uint32(max(p.NumRetries, 1)), ServerErrors: true}
		if p.PerTryTimeout != "" {
			f.TryTimeout = max(c.duration(p.PerTryTimeout, path+".retryPolicy.perTryTimeout"), 0)
		}
	}
	if o.HealthCheck != nil {
		c.healthCheck(o.HealthCheck, snapshot.Name{}, path+".healthCheck")
	}
	groups := c.services(f, o, path+".services")
	return f, groups
}

// services adds the shares of a route's services to f.
func (c *ingressCompiler) services(f *model.Forward, o *contourv1beta1.Route, path string) []model.BackendGroup {
	services := c.fewServices(o.Services, path)
	weights := c.weights(services, path)
	var groups []model.BackendGroup
	for i := range services {
		s := &services[i]
		field := at(path, i)
		port, ok := c.service(s, field)
		options := groupOptions{balance: balanceOf(s.Strategy), websocket: o.EnableWebsockets}
		switch service := (snapshot.Name{Namespace: c.name.Namespace, Name: s.Name}); {
		case s.HealthCheck != nil:
			options.check = c.healthCheck(s.HealthCheck, service, field+".healthCheck")
		case o.HealthCheck != nil:
			options.check = makeHealthCheck(o.HealthCheck, service)
		}
		options.protocol, options.tls = c.upstream(s, port, field)
		if !ok || weights == nil || weights[i] == 0 {
			continue
		}
		group, ok := c.group(s.Name, port, options, field)
		if !ok {
			continue
		}
		f.RetryMethods = allMay(f.RetryMethods, len(groups) > 0, port.options)
		groups = addGroup(groups, group)
		f.Backends = addWeight(f.Backends, group.ID, weights[i])
	}
	return groups
}

// duration reads a timeout; "infinity" and zero mean none.
func (c *ingressCompiler) duration(text, path string) time.Duration {
	if text == "infinity" {
		return model.Never
	}
	d, err := time.ParseDuration(text)
	switch {
	case err != nil || d < 0:
		c.fail(path, quote(text)+` is no duration like "10s", nor "infinity"`)
		return 0
	case d == 0:
		return model.Never
	}
	return min(d, longest)
}

// joinProblems writes what was found, each problem once, in the order given.
func joinProblems(lists ...[]string) string {
	var all []string
	written := map[string]struct{}{}
	for _, list := range lists {
		for _, p := range list {
			if _, known := written[p]; !known {
				written[p] = struct{}{}
				all = append(all, p)
			}
		}
	}
	return limit(strings.Join(all, "; "))
}
