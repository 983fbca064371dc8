package translate

import (
	"slices"
	"strconv"
	"strings"
	"time"

	contourv1beta1 "fairlead.dev/api/contour/v1beta1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// ingressFact is an IngressRoute judged for itself: before it is known who
// delegates to it.
type ingressFact struct {
	root    bool
	host    string // of a root, lower case; empty when it cannot be one
	created int64
	request request // of a root
	// closed are faults of a root for which nothing below it may be served.
	closed []string
	// problems are the others. With any, the routes of this object answer 503, so
	// that no shorter prefix takes their requests; what it delegates is still served.
	problems []string
	steps    []step
	prefixes map[string]int // step of each prefix
}

// step is one route of an IngressRoute whose match can be read.
type step struct {
	index    int // in spec.routes
	prefix   string
	delegate *snapshot.Name // or:
	entry    *entry         // nil when the route is broken
}

func ingressOwner(n snapshot.Name) model.Object {
	return model.Object{Kind: string(snapshot.KindIngressRoute), Namespace: n.Namespace, Name: n.Name}
}

func makeIngressFact(r reader, n snapshot.Name) *ingressFact {
	o := r.s.IngressRoutes[n]
	if o == nil {
		return nil
	}
	c := ingressCompiler{r: r, name: n, fact: &ingressFact{created: o.CreationTimestamp.Unix(), prefixes: map[string]int{}}}
	if o.Spec.VirtualHost != nil {
		c.virtualHost(o.Spec.VirtualHost)
		c.fact.request = annotationRequest(o.Annotations)
	}
	if o.Spec.TCPProxy != nil {
		c.close("spec.tcpproxy: not supported yet")
	} else if len(o.Spec.Routes) == 0 {
		c.fail("spec.routes", "at least one route is needed")
	}
	for i := range o.Spec.Routes {
		c.step(i, &o.Spec.Routes[i])
	}
	return c.fact
}

// ingressCompiler collects what it finds in one IngressRoute.
type ingressCompiler struct {
	r    reader
	name snapshot.Name
	fact *ingressFact
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

func (c *ingressCompiler) virtualHost(v *contourv1beta1.VirtualHost) {
	c.fact.root = true
	host := strings.ToLower(v.Fqdn)
	problem := hostProblem(host, false)
	if v.Fqdn == "" {
		problem = "must be specified"
	}
	switch {
	case problem != "":
		c.close("spec.virtualhost.fqdn: " + problem)
	case !c.r.t.config.mayBeRoot(c.name.Namespace):
		c.close("spec.virtualhost: root IngressRoute cannot be defined in this namespace: only in " + strings.Join(c.r.t.config.RootNamespaces, ", "))
	default:
		c.fact.host = host
	}
	if v.TLS != nil {
		c.close("spec.virtualhost.tls: not supported yet, and the host is not served without it")
	}
}

func (c *ingressCompiler) step(i int, o *contourv1beta1.Route) {
	path := at("spec.routes", i)
	before := len(c.fact.problems)
	problem := pathProblem(o.Match)
	if problem == "" {
		if first, taken := c.fact.prefixes[o.Match]; taken {
			problem = quote(o.Match) + " is already matched by " + at("spec.routes", c.fact.steps[first].index)
		}
	}
	if problem != "" {
		c.fail(path+".match", problem)
	}
	forward, groups := c.forward(o, path)
	s := step{index: i, prefix: o.Match}
	if d := o.Delegate; d != nil && len(o.Services) == 0 {
		s.delegate = c.delegate(d, path+".delegate")
	}
	if problem != "" {
		return
	}
	if s.delegate == nil && len(c.fact.problems) == before {
		s.entry = &entry{groups: groups, order: i, created: c.fact.created, route: model.Route{
			Name:    "IngressRoute/" + c.name.Namespace + "/" + c.name.Name + "/routes/" + strconv.Itoa(i),
			Owner:   ingressOwner(c.name),
			Match:   model.Match{Path: model.PathMatch{Kind: model.PathPrefix, Value: o.Match}},
			Forward: forward,
		}}
	}
	c.fact.prefixes[o.Match] = len(c.fact.steps)
	c.fact.steps = append(c.fact.steps, s)
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

// forward reads where a route's requests go, and how.
func (c *ingressCompiler) forward(o *contourv1beta1.Route, path string) (*model.Forward, []model.BackendGroup) {
	switch {
	case len(o.Services) > 0 && o.Delegate != nil:
		c.fail(path, "only one of services or delegate can be specified in a single route")
	case len(o.Services) == 0 && o.Delegate == nil:
		c.fail(path, "one of services or delegate must be specified")
	}
	f := &model.Forward{WebSocket: o.EnableWebsockets}
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
	weights := c.weights(o.Services, path)
	var groups []model.BackendGroup
	for i := range o.Services {
		s := &o.Services[i]
		field := at(path, i)
		port, ok := c.service(s, field)
		var check *model.HealthCheck
		switch service := (snapshot.Name{Namespace: c.name.Namespace, Name: s.Name}); {
		case s.HealthCheck != nil:
			check = c.healthCheck(s.HealthCheck, service, field+".healthCheck")
		case o.HealthCheck != nil:
			check = makeHealthCheck(o.HealthCheck, service)
		}
		if s.UpstreamValidation != nil {
			c.fail(field+".validation", "not supported yet")
		}
		if !ok || weights == nil || weights[i] == 0 {
			continue
		}
		group, ok := c.group(s.Name, port, groupOptions{balance: balanceOf(s.Strategy), check: check, websocket: o.EnableWebsockets}, field)
		if !ok {
			continue
		}
		groups = addGroup(groups, group)
		f.Backends = addWeight(f.Backends, group.ID, weights[i])
	}
	return groups
}

// weights are the services' shares: equal when none says one, else those unset
// are 0. Nil when they cannot be.
func (c *ingressCompiler) weights(services []contourv1beta1.Service, path string) []uint32 {
	if len(services) == 0 {
		return nil
	}
	weights := make([]uint32, len(services))
	said, sum, bad := false, uint64(0), false
	for i, s := range services {
		if s.Weight == nil {
			continue
		}
		said = true
		if *s.Weight < 0 || *s.Weight > weightLimit {
			c.fail(at(path, i)+".weight", strconv.Itoa(int(*s.Weight))+" must be in the range 0-"+strconv.Itoa(weightLimit))
			bad = true
			continue
		}
		weights[i] = uint32(*s.Weight)
		sum += uint64(weights[i])
	}
	switch {
	case !said:
		for i := range weights {
			weights[i] = 1
		}
	case bad:
		return nil
	case sum == 0:
		c.fail(path, "all weights are 0: at least one service must have a weight above 0")
		return nil
	}
	return weights
}

func (c *ingressCompiler) service(s *contourv1beta1.Service, path string) (port servicePort, ok bool) {
	if s.Name == "" {
		c.fail(path+".name", "must be specified")
		return port, false
	}
	if s.Port < 1 || s.Port > 65535 {
		c.fail(path+".port", "service "+quote(s.Name)+": port must be in the range 1-65535")
		return port, false
	}
	port, fault, problem := findPort(c.r, snapshot.Name{Namespace: c.name.Namespace, Name: s.Name}, s.Port)
	switch fault {
	case serviceFine:
		return port, true
	case portMissing, portProtocol:
		c.fail(path+".port", problem)
	default:
		c.fail(path+".name", problem)
	}
	return port, false
}

// group is the group of a service that was found.
func (c *ingressCompiler) group(service string, port servicePort, o groupOptions, path string) (model.BackendGroup, bool) {
	group, fault, problem := makeGroup(c.r, snapshot.Name{Namespace: c.name.Namespace, Name: service}, port, o)
	if fault != serviceFine {
		c.fail(path+".port", problem)
	}
	return group, fault == serviceFine
}

// balanceOf reads a strategy; one that is unknown is round robin, as in Contour.
func balanceOf(strategy string) model.Balance {
	switch strategy {
	case "WeightedLeastRequest":
		return model.BalanceLeastRequest
	case "Random":
		return model.BalanceRandom
	case "Cookie":
		return model.BalanceCookie
	default:
		return model.BalanceRoundRobin
	}
}

// healthCheck reads a health check and notes what is wrong with it.
func (c *ingressCompiler) healthCheck(o *contourv1beta1.HealthCheck, service snapshot.Name, path string) *model.HealthCheck {
	if problem := pathProblem(strings.SplitN(o.Path, "?", 2)[0]); problem != "" {
		c.fail(path+".path", problem)
	} else if !printable(o.Path) || len(o.Path) > pathLimit {
		c.fail(path+".path", quote(o.Path)+" must not have spaces or control characters, nor more than "+strconv.Itoa(pathLimit)+" characters")
	}
	if o.Host != "" && (!printable(o.Host) || len(o.Host) > 260) {
		c.fail(path+".host", quote(o.Host)+" is no host")
	}
	for _, f := range []struct {
		name         string
		value, limit int64
	}{
		{"intervalSeconds", o.IntervalSeconds, healthCheckLimit},
		{"timeoutSeconds", o.TimeoutSeconds, healthTimeoutLimit},
		{"unhealthyThresholdCount", o.UnhealthyThresholdCount, healthCheckLimit},
		{"healthyThresholdCount", o.HealthyThresholdCount, healthCheckLimit},
	} {
		if f.value < 0 || f.value > f.limit {
			c.fail(path+"."+f.name, strconv.FormatInt(f.value, 10)+" must be in the range 0-"+strconv.FormatInt(f.limit, 10))
		}
	}
	return makeHealthCheck(o, service)
}

const (
	// healthCheckLimit bounds seconds and counts: a day.
	healthCheckLimit = 86_400
	// healthTimeoutLimit bounds a timeout, in seconds. A proxy takes new clusters into use together, each after its
	// first check: a backend that hangs would hold back everybody's for as long as its check may last.
	healthTimeoutLimit = 10
)

func makeHealthCheck(o *contourv1beta1.HealthCheck, service snapshot.Name) *model.HealthCheck {
	or := func(v, otherwise, limit int64) int64 {
		if v == 0 {
			return otherwise
		}
		return min(max(v, 0), limit)
	}
	h := &model.HealthCheck{
		Path:      o.Path,
		Host:      o.Host,
		Interval:  time.Duration(or(o.IntervalSeconds, 5, healthCheckLimit)) * time.Second,
		Timeout:   time.Duration(or(o.TimeoutSeconds, 2, healthTimeoutLimit)) * time.Second,
		Unhealthy: uint32(or(o.UnhealthyThresholdCount, 3, healthCheckLimit)),
		Healthy:   uint32(or(o.HealthyThresholdCount, 2, healthCheckLimit)),
	}
	if h.Host == "" {
		h.Host = service.Name
	}
	return h
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
	return d
}

// joinProblems writes what was found, each problem once, in the order given.
func joinProblems(lists ...[]string) string {
	var all []string
	for _, list := range lists {
		for _, p := range list {
			if !slices.Contains(all, p) {
				all = append(all, p)
			}
		}
	}
	return limit(strings.Join(all, "; "))
}
