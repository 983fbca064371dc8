package contour

import (
	"slices"

	contourv1beta1 "fairlead.dev/api/contour/v1beta1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/backend"
	"fairlead.dev/internal/translate/field"
)

// tcpProxy is what an IngressRoute does with connections. Who delegates to it decides whether
// their TLS ends here.
type tcpProxy struct {
	delegate *snapshot.Name    // or:
	ended    backend.TCPShares // for connections whose TLS ended at the proxy
	passed   backend.TCPShares // for those that are handed on as they came
	// verifying are the fields that want TLS with backends, which connections that are handed
	// on have already.
	verifying []string
}

// tcpProxy reads spec.tcpproxy.
func (c *compiler) tcpProxy(o *contourv1beta1.TCPProxy) {
	const path = "spec.tcpproxy"
	p := &tcpProxy{}
	c.route.tcp = p
	if c.route.Root && c.route.TLS == nil {
		c.close(path + ": needs spec.virtualhost.tls: connections are routed by TLS server name (SNI)")
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
		field := field.At(path+".services", i)
		port, ok := c.service(s, field)
		balance := balanceOf(s.Strategy)
		if balance == model.BalanceCookie {
			c.fail(field+".strategy", "Cookie requires HTTP, and tcpproxy forwards TCP: remove it")
		}
		if s.HealthCheck != nil {
			c.fail(field+".healthCheck", "an HTTP check does not apply to a tcpproxy: remove it")
		}
		if s.UpstreamValidation != nil {
			p.verifying = append(p.verifying, field+".validation")
		}
		_, tls := c.upstream(s, port, field)
		if !ok || weights == nil || weights[i] == 0 {
			continue
		}
		passed := backend.PlainGroup(snapshot.Name{Namespace: c.name.Namespace, Name: s.Name}, port)
		passed.Balance, passed.Protocol = balance, model.BackendTCP
		p.passed.Add(backend.WithOptions(passed), weights[i])
		if ended, ok := c.group(s.Name, port, backend.GroupOptions{Balance: balance, Protocol: model.BackendTCP, TLS: tls}, field); ok {
			p.ended.Add(ended, weights[i])
		}
	}
}

// weighed has a weight of 1 for each service without one beside others that have one. Contour 0.15 ignored the weights
// of connections' services: none of them was without connections.
func (c *compiler) weighed(services []contourv1beta1.Service, path string) []contourv1beta1.Service {
	has := func(s contourv1beta1.Service) bool { return s.Weight != nil }
	if !slices.ContainsFunc(services, has) {
		return services
	}
	services = slices.Clone(services)
	for i := range services {
		if !has(services[i]) {
			services[i].Weight = new(int32(1))
			c.route.Notes = append(c.route.Notes, field.At(path, i)+".weight: counts as 1, since others have one")
		}
	}
	return services
}
