package translate

import (
	"cmp"
	"math"
	"time"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// backendOptions is what BackendPolicies ask of the groups of a port. Of a policy that is
// invalid they hold what could be read.
type backendOptions struct {
	outlier       *model.OutlierDetection
	breaker       *model.BackendLimits // without its retry budget
	retryBudget   uint32               // percent
	proxyProtocol *bool
}

// makeBackendOptions reads a BackendPolicy; the problems are those of its fields.
func makeBackendOptions(o *v1alpha1.BackendPolicy) (backendOptions, policyVerdict) {
	var options backendOptions
	if o == nil {
		return options, policyVerdict{}
	}
	c := policyCompiler{key: snapshot.Key{Kind: snapshot.KindBackendPolicy, Name: snapshot.Name{Namespace: o.Namespace, Name: o.Name}}}
	options.proxyProtocol = o.Spec.SendProxyProtocol
	if d := o.Spec.OutlierDetection; d != nil {
		const path = "spec.outlierDetection."
		options.outlier = &model.OutlierDetection{
			ConsecutiveErrors: cmp.Or(uint32(number(&c, d.ConsecutiveErrors, 1, 10_000, path+"consecutiveErrors")), 5),
			MaxEjected:        cmp.Or(uint32(number(&c, d.MaxEjectedPercent, 1, 100, path+"maxEjectedPercent")), 50),
			Interval:          c.duration(d.Interval, 100*time.Millisecond, time.Hour, 10*time.Second, path+"interval"),
			EjectionTime:      c.duration(d.EjectionTime, 100*time.Millisecond, 24*time.Hour, 30*time.Second, path+"ejectionTime"),
		}
	}
	if b := o.Spec.CircuitBreaker; b != nil {
		const path = "spec.circuitBreaker."
		options.breaker = &model.BackendLimits{
			MaxConnections: uint32(number(&c, b.MaxConnections, 1, math.MaxInt32, path+"maxConnections")),
			MaxPending:     uint32(number(&c, b.MaxPendingRequests, 1, math.MaxInt32, path+"maxPendingRequests")),
			MaxRequests:    uint32(number(&c, b.MaxRequests, 1, math.MaxInt32, path+"maxRequests")),
		}
	}
	if b := o.Spec.RetryBudget; b != nil {
		options.retryBudget = uint32(number(&c, &b.Percent, 1, 100, "spec.retryBudget.percent"))
	}
	return options, c.invalid
}

// under fills in what the policy of a port leaves out by that of its Service.
func (o backendOptions) under(p backendOptions) backendOptions {
	return backendOptions{
		outlier: cmp.Or(o.outlier, p.outlier), breaker: cmp.Or(o.breaker, p.breaker),
		retryBudget: cmp.Or(o.retryBudget, p.retryBudget), proxyProtocol: cmp.Or(o.proxyProtocol, p.proxyProtocol),
	}
}

// apply gives a group its options.
func (o backendOptions) apply(g *model.BackendGroup) {
	g.Outlier, g.SendProxyProtocol, g.Limits = o.outlier, deref(o.proxyProtocol), nil
	limits := deref(o.breaker)
	limits.MaxRetryBudget = o.retryBudget
	if limits != (model.BackendLimits{}) {
		g.Limits = &limits
	}
}

// withPolicies adds to a Service's ports what BackendPolicies ask, and what its annotations ask where these
// bound nothing. The node of the Service reads the policies themselves.
func (r reader) withPolicies(n snapshot.Name, f *serviceFact) *serviceFact {
	if f == nil {
		return nil
	}
	read := func(section string) backendOptions {
		options, _ := makeBackendOptions(r.s.BackendPolicies[r.holder(policyAnchor{snapshot.KindBackendPolicy, serviceOwner(n), section}).name])
		return options
	}
	for i := range f.ports {
		p := &f.ports[i]
		p.options = read("")
		if p.name != "" {
			p.options = read(p.name).under(p.options)
		}
		if p.options.breaker == nil {
			p.options.breaker = f.limits
		}
	}
	return f
}
