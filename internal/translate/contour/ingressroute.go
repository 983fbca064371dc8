package contour

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
	"fairlead.dev/internal/translate/backend"
	"fairlead.dev/internal/translate/certificate"
	"fairlead.dev/internal/translate/field"
	"fairlead.dev/internal/translate/host"
	"fairlead.dev/internal/translate/input"
	"fairlead.dev/internal/translate/policy"
	"fairlead.dev/internal/translate/vip"
)

// IngressRoute is an IngressRoute judged for itself: before it is known who
// delegates to it.
type IngressRoute struct {
	Root    bool
	Host    string // of a root, lower case; empty when it cannot be one
	created int64
	Request vip.Request // of a root
	TLS     *ingressTLS // of a root that asks for it
	// Closed are faults of a root for which nothing below it may be served.
	Closed []string
	// Problems are the others. With any, the routes of this object answer 503, so
	// that no shorter prefix takes their requests; what it delegates is still served.
	Problems []string
	Notes    []string // what is worth knowing, though nothing is wrong with it
	Slashed  []field.SlashedPath
	insecure []int // routes whose permitInsecure the operator overrides, where the host has TLS
	steps    []step
	Prefixes Prefixes // of the steps
	tcp      *tcpProxy
}

// step is one route of an IngressRoute whose match can be read.
type step struct {
	index    int // in spec.routes
	prefix   string
	delegate *snapshot.Name // or:
	entry    *host.Entry    // nil when the route is broken
	// redirect takes its place for requests in clear text to a host with TLS, unless the
	// route permits them.
	redirect *host.Entry
}

// Tables are the IngressRoutes.
type Tables struct {
	in           *input.Tables
	certificates *certificate.Tables
	backend      *backend.Tables
	policy       *policy.Tables
	vip          *vip.Tables
	host         *host.Tables

	Others  *memo.Sum[snapshot.Name, memo.Unit, string, string] // the class of those that are another controller's
	rootsOf *input.Index[string, int64]                         // roots by host, created when
	roots   *memo.Table[string, *Roots]
	Routes  *memo.Table[snapshot.Name, *IngressRoute]
	Trees   *memo.Table[snapshot.Name, *Tree]
	Reached *memo.Sum[snapshot.Name, snapshot.Name, struct{}, memo.Parts[snapshot.Name, struct{}]] // the roots that delegate to one
}

// New adds the tables of IngressRoutes to a graph.
func New(g *memo.Graph, in *input.Tables, certificates *certificate.Tables, backend *backend.Tables, policy *policy.Tables, vip *vip.Tables, host *host.Tables) *Tables {
	t := &Tables{in: in, certificates: certificates, backend: backend, policy: policy, vip: vip, host: host}
	t.Others = memo.NewSlot[snapshot.Name, string](g, "another controller's IngressRoute")
	t.rootsOf = memo.NewSum[string, snapshot.Name, int64](g, "roots of a host")
	memo.NewScan(g, "IngressRoutes: index", in.IngressRoutes, func(c *memo.Context, n snapshot.Name, o *contourv1beta1.IngressRoute) {
		switch {
		case !in.Config.IsOurs(o):
			t.Others.Put(c, n, memo.Unit{}, input.ClassOf(o.Annotations))
		case o.Spec.VirtualHost != nil && o.Spec.VirtualHost.Fqdn != "" && in.Config.MayBeRoot(n.Namespace):
			// A root that may not stand where it stands cannot spoil the host for one that may.
			t.rootsOf.Put(c, strings.ToLower(o.Spec.VirtualHost.Fqdn), n, o.CreationTimestamp.Unix())
		}
	}, memo.Puts(t.Others, t.rootsOf))
	t.roots = memo.NewTable(g, "roots of a host, in order", t.makeRoots, memo.Reads(t.rootsOf))
	t.Routes = memo.For(memo.NewTable(g, "IngressRoute judged", t.makeIngress,
		memo.Reads(in.IngressRoutes, in.Delegations, certificates.Certificates, certificates.Authorities), backend.ReadsOfGroups(), memo.Puts(vip.Wants, vip.Roots)), in.IngressRoutes)
	t.Reached = memo.NewSum[snapshot.Name, snapshot.Name, struct{}](g, "roots that delegate")
	t.Trees = memo.For(memo.NewTable(g, "tree", t.makeTree,
		memo.Reads(in.IngressRoutes, t.Routes, t.roots, t.Others), policy.ReadsOfRoutes(),
		memo.Puts(host.Candidates, host.RootNames, host.Ports, t.Reached)), in.IngressRoutes)
	return t
}

// makeIngress judges an IngressRoute. A root wants an address of its own
// when it asks for one, else the one that all others share.
func (t *Tables) makeIngress(c *memo.Context, n snapshot.Name) (*IngressRoute, bool) {
	f := t.judgeIngress(c, n)
	switch {
	case f == nil:
		return nil, false
	case f.Host != "" && f.Request.Empty():
		t.vip.Roots.Put(c, n.Namespace, n, f.TLS != nil)
	case f.Root && !f.Request.Empty():
		w := &vip.Want{Owner: input.IngressOwner(n), Created: f.created, Request: f.Request, Needs: f.Request.Needs(), Idle: f.Host == ""}
		if !w.Idle {
			w.Listeners = []model.ListenerID{t.in.Config.ClearID()}
			if f.TLS != nil {
				w.Listeners = append(w.Listeners, t.in.Config.TLSID())
			}
		}
		t.vip.Wants.Put(c, memo.Unit{}, w.Owner, w)
	}
	return f, true
}

func (t *Tables) judgeIngress(ctx *memo.Context, n snapshot.Name) *IngressRoute {
	o := t.ingressRoute(ctx, n)
	if o == nil {
		return nil
	}
	c := Compiler{t: t, ctx: ctx, name: n, Route: &IngressRoute{created: o.CreationTimestamp.Unix()}, taken: map[string]int{}, noted: map[string]bool{}}
	if o.Spec.VirtualHost != nil {
		c.virtualHost(o.Spec.VirtualHost, o.Spec.TCPProxy != nil)
		c.Route.Request = vip.AnnotationRequest(o.Annotations)
		c.Route.Notes = append(c.Route.Notes, field.UnknownAnnotations(o.Annotations, v1alpha1.AnnotationPool, v1alpha1.AnnotationAddresses)...)
	}
	c.unreadable(o.Annotations[snapshot.Unreadable])
	routes := o.Spec.Routes
	if o.Spec.TCPProxy != nil {
		c.tcpProxy(o.Spec.TCPProxy)
		if len(routes) > 0 && c.Route.Root && c.Route.TLS != nil {
			// Contour 0.10 to 0.15 wanted a route there, which it did not serve.
			c.Route.Notes = append(c.Route.Notes, "spec.routes: ignored beside spec.tcpproxy, as in Contour")
			routes = nil
		}
	} else if len(routes) == 0 {
		c.fail("spec.routes", "at least one route is needed")
	}
	for i := range routes {
		c.step(i, &routes[i])
	}
	c.Route.Prefixes = NewPrefixes(segmented(slices.Collect(maps.Keys(c.taken))))
	return c.Route
}

// Compiler collects what it finds in one IngressRoute.
type Compiler struct {
	t     *Tables
	ctx   *memo.Context
	name  snapshot.Name
	Route *IngressRoute
	taken map[string]int  // index in spec.routes of each prefix
	noted map[string]bool // Services whose refused endpoints a note names
}

func (c *Compiler) fail(path, problem string) {
	c.Route.Problems = append(c.Route.Problems, path+": "+problem)
}

// close notes a fault for which a root serves nothing; in a child it is a problem
// like others.
func (c *Compiler) close(problem string) {
	if c.Route.Root {
		c.Route.Closed = append(c.Route.Closed, problem)
	} else {
		c.Route.Problems = append(c.Route.Problems, problem)
	}
}

// unreadable notes the values that the source left out. Without one of its virtualhost a root could be served in
// another way than it was meant, in clear text, say.
func (c *Compiler) unreadable(values string) {
	switch {
	case values == "":
	case strings.Contains(values, "spec.virtualhost"):
		if c.Route.Root && c.Route.TLS == nil && strings.Contains(values, "spec.virtualhost.tls") {
			c.Route.TLS = &ingressTLS{} // closed, and no wildcard's
		}
		c.close(values)
	default:
		c.Route.Problems = append(c.Route.Problems, values)
	}
}

func (c *Compiler) virtualHost(v *contourv1beta1.VirtualHost, proxies bool) {
	c.Route.Root = true
	host := strings.ToLower(v.Fqdn)
	problem := field.HostProblem(host, false)
	if v.Fqdn == "" {
		problem = "must be specified"
	}
	switch {
	case problem != "":
		c.close("spec.virtualhost.fqdn: " + problem)
	case !c.t.in.Config.MayBeRoot(c.name.Namespace):
		c.close("spec.virtualhost: root IngressRoute cannot be defined in this namespace: only in " + strings.Join(c.t.in.Config.RootNamespaces, ", "))
	default:
		c.Route.Host = host
	}
	if v.TLS != nil {
		c.tls(v.TLS, proxies)
	}
}

func (c *Compiler) step(i int, o *contourv1beta1.Route) {
	path := field.At("spec.routes", i)
	before := len(c.Route.Problems)
	problem := field.PathProblem(o.Match)
	if problem == "" {
		if first, taken := c.taken[o.Match]; taken {
			problem = field.Quote(o.Match) + " is already matched by " + field.At("spec.routes", first)
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
			c.Route.Notes = append(c.Route.Notes, path+": "+strings.Join(idle, ", ")+" of a route that delegates: the one that it delegates to says these for its routes")
		}
	}
	if problem != "" {
		return
	}
	if s.delegate == nil && len(c.Route.Problems) == before {
		route := model.Route{
			Name:  "IngressRoute/" + c.name.Namespace + "/" + c.name.Name + "/routes/" + strconv.Itoa(i),
			Owner: input.IngressOwner(c.name),
			Match: model.Match{Path: model.PathMatch{Kind: model.PathPrefix, Value: o.Match}},
		}
		if !o.PermitInsecure || c.t.in.Config.DisablePermitInsecure {
			s.redirect = &host.Entry{Order: i, Created: c.Route.created, Route: route}
			s.redirect.Route.Redirect = c.t.in.Config.RedirectToTLS()
			if o.PermitInsecure {
				c.Route.insecure = append(c.Route.insecure, i)
			}
		}
		route.Forward = forward
		s.entry = &host.Entry{Groups: groups, Order: i, Created: c.Route.created, Route: route}
	}
	if p, is := field.Slashed(path+".match", model.PathMatch{Kind: model.PathPrefix, Value: o.Match}); is {
		c.Route.Slashed = append(c.Route.Slashed, p)
	}
	c.taken[o.Match] = i
	c.Route.steps = append(c.Route.steps, s)
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
func (c *Compiler) delegate(d *contourv1beta1.Delegate, path string) *snapshot.Name {
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
func (c *Compiler) forward(o *contourv1beta1.Route, path string) (*model.Forward, []model.BackendGroup) {
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
		if problem := field.PathProblem(o.PrefixRewrite); problem != "" {
			c.fail(path+".prefixRewrite", problem)
		}
		f.Path = &model.PathRewrite{Kind: model.RewritePrefix, Value: o.PrefixRewrite}
	}
	if p := o.TimeoutPolicy; p != nil && p.Request != "" {
		f.Timeout = c.Duration(p.Request, path+".timeoutPolicy.request")
	}
	if p := o.RetryPolicy; p != nil {
		if p.NumRetries < 0 || p.NumRetries > 100 {
			c.fail(path+".retryPolicy.count", strconv.Itoa(int(p.NumRetries))+" must be in the range 0-100")
		}
		f.Retry = &model.Retry{Attempts: uint32(max(p.NumRetries, 1)), ServerErrors: true}
		if p.PerTryTimeout != "" {
			f.TryTimeout = max(c.Duration(p.PerTryTimeout, path+".retryPolicy.perTryTimeout"), 0)
		}
	}
	if o.HealthCheck != nil {
		c.healthCheck(o.HealthCheck, snapshot.Name{}, path+".healthCheck")
	}
	groups := c.services(f, o, path+".services")
	return f, groups
}

// services adds the shares of a route's services to f.
func (c *Compiler) services(f *model.Forward, o *contourv1beta1.Route, path string) []model.BackendGroup {
	services := c.fewServices(o.Services, path)
	weights := c.weights(services, path)
	var groups []model.BackendGroup
	for i := range services {
		s := &services[i]
		field := field.At(path, i)
		port, ok := c.service(s, field)
		options := backend.GroupOptions{Balance: balanceOf(s.Strategy), Websocket: o.EnableWebsockets}
		switch service := (snapshot.Name{Namespace: c.name.Namespace, Name: s.Name}); {
		case s.HealthCheck != nil:
			options.Check = c.healthCheck(s.HealthCheck, service, field+".healthCheck")
		case o.HealthCheck != nil:
			options.Check = makeHealthCheck(o.HealthCheck, service)
		}
		options.Protocol, options.TLS = c.upstream(s, port, field)
		if !ok || weights == nil || weights[i] == 0 {
			continue
		}
		group, ok := c.group(s.Name, port, options, field)
		if !ok {
			continue
		}
		f.RetryMethods = backend.AllMay(f.RetryMethods, len(groups) > 0, port.Options)
		groups = backend.AddGroup(groups, group)
		f.Backends = backend.AddWeight(f.Backends, group.ID, weights[i])
	}
	return groups
}

// Duration reads a timeout; "infinity" and zero mean none.
func (c *Compiler) Duration(text, path string) time.Duration {
	if text == "infinity" {
		return model.Never
	}
	d, err := time.ParseDuration(text)
	switch {
	case err != nil || d < 0:
		c.fail(path, field.Quote(text)+` is no duration like "10s", nor "infinity"`)
		return 0
	case d == 0:
		return model.Never
	}
	return min(d, field.Longest)
}

// Unused says what of a child nobody delegates to.
func (f *IngressRoute) Unused(routed, proxied bool) []string {
	switch {
	case f.tcp != nil && !proxied:
		return []string{"spec.tcpproxy: no root that is served delegates connections here"}
	case len(f.steps) > 0 && !routed:
		return []string{"spec.routes: no root that is served delegates requests here"}
	}
	return nil
}
