package translate

import (
	"slices"
	"strings"

	contourv1beta1 "fairlead.dev/api/contour/v1beta1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// tcpProxy is what an IngressRoute does with connections. Who delegates to it decides whether
// their TLS ends here.
type tcpProxy struct {
	delegate *snapshot.Name // or:
	ended    tcpShares      // for connections whose TLS ended at the proxy
	passed   tcpShares      // for those that are handed on as they came
	// verifying are the fields that want TLS with backends, which connections that are handed
	// on have already.
	verifying []string
}

// tcpShares are shares of connections, with the groups that they name.
type tcpShares struct {
	shares []model.WeightedGroup
	groups []model.BackendGroup
}

func (s *tcpShares) add(g model.BackendGroup, weight uint32) {
	s.groups = addGroup(s.groups, g)
	s.shares = addWeight(s.shares, g.ID, weight)
}

// tcpProxy reads spec.tcpproxy.
func (c *ingressCompiler) tcpProxy(o *contourv1beta1.TCPProxy) {
	const path = "spec.tcpproxy"
	p := &tcpProxy{}
	c.fact.tcp = p
	if c.fact.root && c.fact.tls == nil {
		c.close(path + ": needs spec.virtualhost.tls: connections are told apart by the server name of TLS")
	}
	switch {
	case len(o.Services) > 0 && o.Delegate != nil:
		c.fail(path, "only one of services or delegate can be specified")
	case len(o.Services) == 0 && o.Delegate == nil:
		c.fail(path, "one of services or delegate must be specified")
	case o.Delegate != nil:
		p.delegate = c.delegate(o.Delegate, path+".delegate")
	}
	services := c.fewServices(o.Services, path+".services")
	weights := c.weights(c.weighed(services, path+".services"), path+".services")
	for i := range services {
		s := &services[i]
		field := at(path+".services", i)
		port, ok := c.service(s, field)
		balance := balanceOf(s.Strategy)
		if balance == model.BalanceCookie {
			c.fail(field+".strategy", "Cookie needs HTTP, which connections of a tcpproxy need not be")
		}
		if s.HealthCheck != nil {
			c.fail(field+".healthCheck", "asks over HTTP, which connections of a tcpproxy need not be")
		}
		if s.UpstreamValidation != nil {
			p.verifying = append(p.verifying, field+".validation")
		}
		_, tls := c.upstream(s, port, field)
		if !ok || weights == nil || weights[i] == 0 {
			continue
		}
		passed := plainGroup(snapshot.Name{Namespace: c.name.Namespace, Name: s.Name}, port.number)
		passed.Balance, passed.Protocol = balance, model.BackendTCP
		p.passed.add(withOptions(passed), weights[i])
		if ended, ok := c.group(s.Name, port, groupOptions{balance: balance, protocol: model.BackendTCP, tls: tls}, field); ok {
			p.ended.add(ended, weights[i])
		}
	}
}

// weighed has a weight of 1 for each service without one beside others that have one. Contour 0.15 ignored the weights
// of connections' services: none of them was without connections.
func (c *ingressCompiler) weighed(services []contourv1beta1.Service, path string) []contourv1beta1.Service {
	has := func(s contourv1beta1.Service) bool { return s.Weight != nil }
	if !slices.ContainsFunc(services, has) {
		return services
	}
	services = slices.Clone(services)
	for i := range services {
		if !has(services[i]) {
			services[i].Weight = new(int32(1))
			c.fact.notes = append(c.fact.notes, at(path, i)+".weight: counts as 1, since others have one")
		}
	}
	return services
}

// proxy goes through the delegations of connections, from a root on.
func (w *walk) proxy(n snapshot.Name, f *ingressFact, path []snapshot.Name) {
	p := f.tcp
	w.tree.proxied[n] = struct{}{}
	fail := func(problem string) { w.fail(n, "spec.tcpproxy.delegate: "+problem) }
	switch {
	case p.delegate != nil:
		target := *p.delegate
		path = append(path, n)
		next := w.t.routes.Get(w.ctx, target)
		switch {
		case slices.Contains(path, target):
			fail("tcpproxy creates a delegation cycle: " + cycleText(path, target))
		case next == nil:
			fail("IngressRoute " + target.String() + " not found" + w.t.classText(w.ctx, target))
		case next.root:
			fail("root ingressroute cannot delegate to another root ingressroute: " + target.String() + " has a virtualhost")
		case next.tcp == nil:
			fail("IngressRoute " + target.String() + " has no spec.tcpproxy")
			w.tree.proxied[target] = struct{}{}
			w.fail(target, "spec.tcpproxy: must be specified: IngressRoute "+n.String()+" delegates connections here")
		case len(path) >= maxDepth:
			fail("too many delegations in a row")
		default:
			if _, known := w.tree.found[target]; !known {
				w.tree.found[target] = nil
			}
			w.proxy(target, next, path)
		}
	case len(f.problems) > 0:
	case w.tls.passthrough && len(p.verifying) > 0:
		w.fail(n, strings.Join(p.verifying, ", ")+": with passthrough clients speak TLS with the backends themselves")
	case w.tls.passthrough:
		w.tcp = p.passed
	default:
		w.tcp = p.ended
	}
}
