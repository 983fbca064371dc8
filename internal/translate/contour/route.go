package contour

import (
	"strconv"
	"strings"
	"time"

	contourv1beta1 "fairlead.dev/api/contour/v1beta1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/backend"
	"fairlead.dev/internal/translate/field"
	"fairlead.dev/internal/translate/host"
	"fairlead.dev/internal/translate/input"
)

func (c *compiler) step(i int, o *contourv1beta1.Route) {
	path := field.At("spec.routes", i)
	before := len(c.route.Problems)
	problem := field.PathProblem(o.Match)
	if problem == "" {
		if first, repeated := c.matched[o.Match]; repeated {
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
			c.route.Notes = append(c.route.Notes, path+": "+strings.Join(idle, ", ")+": without effect on a delegating route: set this in the child IngressRoute")
		}
	}
	if problem != "" {
		return
	}
	if s.delegate == nil && len(c.route.Problems) == before {
		route := model.Route{
			Name:  "IngressRoute/" + c.name.Namespace + "/" + c.name.Name + "/routes/" + strconv.Itoa(i),
			Owner: input.Object(snapshot.KindIngressRoute, c.name),
			Match: model.Match{Path: model.PathMatch{Kind: model.PathPrefix, Value: o.Match}},

			Measured: c.measured,
		}
		if !o.PermitInsecure || c.t.in.Config.DisablePermitInsecure {
			s.redirect = &host.Entry{Order: i, Created: c.route.created, Route: route}
			s.redirect.Route.Redirect = c.t.in.Config.RedirectToTLS()
			if o.PermitInsecure {
				c.route.insecure = append(c.route.insecure, i)
			}
		}
		route.Forward = forward
		s.entry = &host.Entry{Groups: groups, Order: i, Created: c.route.created, Route: route}
	}
	if p, is := field.Slashed(path+".match", model.PathMatch{Kind: model.PathPrefix, Value: o.Match}); is {
		c.route.Slashed = append(c.route.Slashed, p)
	}
	c.matched[o.Match] = i
	c.route.steps = append(c.route.steps, s)
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

// ingressTimeout is the time for an answer where a route says none: Envoy's default, and so
// Contour's.
const ingressTimeout = 15 * time.Second

// forward compiles a route's services and options.
func (c *compiler) forward(o *contourv1beta1.Route, path string) (*model.Forward, []model.BackendGroup) {
	switch {
	case len(o.Services) > 0 && o.Delegate != nil:
		c.fail(path, "only one of services or delegate can be specified in a single route")
	case len(o.Services) == 0 && o.Delegate == nil:
		c.fail(path, "one of services or delegate must be specified")
	}
	forward := &model.Forward{ // as Contour has it
		WebSocket: o.EnableWebsockets, NoUpgrade: !o.EnableWebsockets, Timeout: ingressTimeout, StartHeader: true,
	}
	if o.PrefixRewrite != "" {
		if problem := field.PathProblem(o.PrefixRewrite); problem != "" {
			c.fail(path+".prefixRewrite", problem)
		}
		forward.Path = &model.PathRewrite{Kind: model.RewritePrefix, Value: o.PrefixRewrite}
	}
	if p := o.TimeoutPolicy; p != nil && p.Request != "" {
		forward.Timeout = c.duration(p.Request, path+".timeoutPolicy.request")
	}
	if p := o.RetryPolicy; p != nil {
		if p.NumRetries < 0 || p.NumRetries > 100 {
			c.fail(path+".retryPolicy.count", strconv.Itoa(int(p.NumRetries))+" must be in the range 0-100")
		}
		forward.Retry = &model.Retry{Attempts: uint32(max(p.NumRetries, 1)), ServerErrors: true}
		if p.PerTryTimeout != "" {
			forward.TryTimeout = max(c.duration(p.PerTryTimeout, path+".retryPolicy.perTryTimeout"), 0)
		}
	}
	if o.HealthCheck != nil {
		c.healthCheck(o.HealthCheck, snapshot.Name{}, path+".healthCheck")
	}
	groups := c.services(forward, o, path+".services")
	return forward, groups
}

// services adds the shares of a route's services to forward.
func (c *compiler) services(forward *model.Forward, o *contourv1beta1.Route, path string) []model.BackendGroup {
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
		forward.RetryMethods = backend.AllMay(forward.RetryMethods, len(groups) > 0, port.Options)
		groups = backend.AddGroup(groups, group)
		forward.Backends = backend.AddWeight(forward.Backends, group.ID, weights[i])
	}
	return groups
}

// duration reads a timeout; "infinity" and zero mean none.
func (c *compiler) duration(text, path string) time.Duration {
	if text == "infinity" {
		return model.Never
	}
	d, err := time.ParseDuration(text)
	switch {
	case err != nil || d < 0:
		c.fail(path, field.Quote(text)+` is not a duration like "10s", nor "infinity"`)
		return 0
	case d == 0:
		return model.Never
	}
	return min(d, field.Longest)
}
