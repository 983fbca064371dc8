package contour

import (
	"maps"
	"slices"
	"strconv"
	"strings"

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
	"fairlead.dev/internal/translate/quota"
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
	Services []snapshot.Name // that requests go to
	insecure []int           // routes whose permitInsecure the operator overrides, where the host has TLS
	steps    []step
	prefixes prefixes // of the steps
	tcp      *tcpProxy
}

// step is one route of an IngressRoute whose match can be read.
type step struct {
	index    int // in spec.routes
	prefix   string
	delegate *snapshot.Name // or:
	entry    *host.Entry    // nil when the route is broken
	// redirect replaces entry for requests in clear text to a host with TLS, unless the
	// route permits them.
	redirect *host.Entry
}

// Rooms are the rooms that the tables read, besides the input.
type Rooms struct {
	Certificates *certificate.Tables
	Backend      *backend.Tables
	Policy       *policy.Tables
	VIP          *vip.Tables
	Host         *host.Tables
	Quota        quota.Routes
}

// Tables are the IngressRoutes.
type Tables struct {
	in   *input.Tables
	from Rooms

	Others  *memo.Sum[snapshot.Name, memo.Unit, string, string] // the class of those that are another controller's
	rootsOf *input.Index[string, int64]                         // roots by host, created when
	roots   *memo.Table[string, *hostRoots]
	Routes  *memo.Table[snapshot.Name, *IngressRoute]
	Trees   *memo.Table[snapshot.Name, *Tree]
	Reached *memo.Sum[snapshot.Name, snapshot.Name, struct{}, memo.Parts[snapshot.Name, struct{}]] // the roots that delegate to one
}

// New adds the tables of IngressRoutes to a graph.
func New(g *memo.Graph, in *input.Tables, r Rooms) *Tables {
	t := &Tables{in: in, from: r}
	t.Others = memo.NewSlot[snapshot.Name, string](g, "another controller's IngressRoute")
	t.rootsOf = memo.NewSum[string, snapshot.Name, int64](g, "roots of a host")
	memo.NewScan(g, "IngressRoutes: index", in.IngressRoutes, func(c *memo.Context, n snapshot.Name, o *contourv1beta1.IngressRoute) {
		switch {
		case !in.Config.IsOurs(o):
			t.Others.Put(c, n, memo.Unit{}, input.ClassOf(o.Annotations))
		case o.Spec.VirtualHost != nil && o.Spec.VirtualHost.Fqdn != "" && in.Config.MayBeRoot(n.Namespace):
			// A root in a namespace that may have none does not contest the host of an allowed root.
			t.rootsOf.Put(c, strings.ToLower(o.Spec.VirtualHost.Fqdn), n, o.CreationTimestamp.Unix())
		}
	}, memo.Puts(t.Others, t.rootsOf))
	t.roots = memo.NewTable(g, "roots of a host, in order", t.makeRoots, memo.Reads(t.rootsOf))
	t.Routes = memo.For(memo.NewTable(g, "IngressRoute judged", t.makeIngress,
		memo.Reads(in.IngressRoutes, in.Delegations, t.from.Certificates.Certificates, t.from.Certificates.Authorities), t.from.Quota.Reads(), t.from.Backend.ReadsOfGroups(), memo.Puts(t.from.VIP.Wants, t.from.VIP.Roots)), in.IngressRoutes)
	t.Reached = memo.NewSum[snapshot.Name, snapshot.Name, struct{}](g, "roots that delegate")
	t.Trees = memo.For(memo.NewTable(g, "tree", t.makeTree,
		memo.Reads(in.IngressRoutes, t.Routes, t.roots, t.Others), t.from.Policy.ReadsOfRoutes(),
		memo.Puts(t.from.Host.Candidates, t.from.Host.RootNames, t.from.Host.Ports, t.Reached)), in.IngressRoutes)
	return t
}

// makeIngress judges an IngressRoute. A root wants an address of its own
// when it asks for one, else the one that all others share.
func (t *Tables) makeIngress(c *memo.Context, n snapshot.Name) (*IngressRoute, bool) {
	route := t.judgeIngress(c, n)
	switch {
	case route == nil:
		return nil, false
	case route.Host != "" && route.Request.Empty():
		t.from.VIP.Roots.Put(c, n.Namespace, n, route.TLS != nil)
	case route.Root && !route.Request.Empty():
		w := &vip.Want{Owner: input.Object(snapshot.KindIngressRoute, n), Created: route.created, Request: route.Request, Needs: route.Request.Needs(), Idle: route.Host == ""}
		if !w.Idle {
			w.Listeners = []model.ListenerID{t.in.Config.ClearID()}
			if route.TLS != nil {
				w.Listeners = append(w.Listeners, t.in.Config.TLSID())
			}
		}
		t.from.VIP.Wants.Put(c, memo.Unit{}, w.Owner, w)
	}
	return route, true
}

func (t *Tables) judgeIngress(ctx *memo.Context, n snapshot.Name) *IngressRoute {
	o := t.ingressRoute(ctx, n)
	if o == nil {
		return nil
	}
	c := compiler{t: t, ctx: ctx, name: n, route: &IngressRoute{created: o.CreationTimestamp.Unix()}, matched: map[string]int{}, noted: map[string]bool{}}
	var unmeasured string
	c.measured, unmeasured = t.from.Quota.Has(ctx, input.Object(snapshot.KindIngressRoute, n), o.Annotations, c.route.created)
	c.route.Notes = append(c.route.Notes, field.NonEmpty(unmeasured)...)
	if o.Spec.VirtualHost != nil {
		c.virtualHost(o.Spec.VirtualHost, o.Spec.TCPProxy != nil)
		c.route.Request = vip.AnnotationRequest(o.Annotations)
		c.route.Notes = append(c.route.Notes, field.RouteNotes(o.Annotations, v1alpha1.AnnotationPool, v1alpha1.AnnotationAddresses)...)
	} else {
		c.route.Notes = append(c.route.Notes, field.RouteNotes(o.Annotations)...) // a child has no address
	}
	c.unreadable(o.Annotations[snapshot.Unreadable])
	routes := o.Spec.Routes
	if o.Spec.TCPProxy != nil {
		c.tcpProxy(o.Spec.TCPProxy)
		if len(routes) > 0 && c.route.Root && c.route.TLS != nil {
			// Contour 0.10 to 0.15 wanted a route there, which it did not serve.
			c.route.Notes = append(c.route.Notes, "spec.routes: ignored beside spec.tcpproxy, as in Contour")
			routes = nil
		}
	} else if len(routes) == 0 {
		c.fail("spec.routes", "at least one route is needed")
	}
	for i := range routes {
		c.step(i, &routes[i])
	}
	c.route.prefixes = newPrefixes(segmented(slices.Collect(maps.Keys(c.matched))))
	return c.route
}

// unreadable notes the values that the source left out. Without one of its virtualhost a root could be served in
// another way than it was meant, in clear text, say.
func (c *compiler) unreadable(values string) {
	switch {
	case values == "":
	case strings.Contains(values, "spec.virtualhost"):
		if c.route.Root && c.route.TLS == nil && strings.Contains(values, "spec.virtualhost.tls") {
			c.route.TLS = &ingressTLS{} // closed, and no wildcard's
		}
		c.close(values)
	default:
		c.route.Problems = append(c.route.Problems, values)
	}
}

func (c *compiler) virtualHost(v *contourv1beta1.VirtualHost, proxies bool) {
	c.route.Root = true
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
		c.route.Host = host
	}
	if v.TLS != nil {
		c.tls(v.TLS, proxies)
	}
}

// Unused names the fields of a child to which no root delegates.
func (r *IngressRoute) Unused(routed, proxied bool) []string {
	switch {
	case r.tcp != nil && !proxied:
		return []string{"spec.tcpproxy: no root that is served delegates connections here"}
	case len(r.steps) > 0 && !routed:
		return []string{"spec.routes: no root that is served delegates requests here"}
	}
	return nil
}

// InsecureNote says that permitInsecure of routes has no effect; empty where none has it.
func (r *IngressRoute) InsecureNote() string {
	if len(r.insecure) == 0 {
		return ""
	}
	others := ""
	switch n := len(r.insecure) - 1; {
	case n == 1:
		others = " (and of 1 other route)"
	case n > 1:
		others = " (and of " + strconv.Itoa(n) + " other routes)"
	}
	return field.At("spec.routes", r.insecure[0]) + ".permitInsecure" + others +
		": has no effect, since the plane has --disable-permit-insecure: requests in clear text are redirected to https"
}
