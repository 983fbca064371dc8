package translate

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// backendOptions is what BackendPolicies ask of the groups of a port. Of a policy that is
// invalid they hold what could be read.
type backendOptions struct {
	outlier       *model.OutlierDetection
	breaker       *model.BackendLimits // without its retry budget
	retryBudget   uint32               // percent
	retryMethods  []string             // sorted
	idle          time.Duration
	proxyProtocol *bool
}

// makeBackendOptions reads a BackendPolicy; the problems are those of its fields.
func makeBackendOptions(o *v1alpha1.BackendPolicy) (backendOptions, policyVerdict) {
	var options backendOptions
	if o == nil {
		return options, policyVerdict{}
	}
	var c policyFields
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
	for i, m := range o.Spec.RetryMethods {
		if !slices.Contains(retryMethods, string(m)) {
			c.fail(at("spec.retryMethods", i), quote(string(m))+" must be one of "+strings.Join(retryMethods, ", "))
			continue
		}
		options.retryMethods = append(options.retryMethods, string(m))
	}
	slices.Sort(options.retryMethods)
	options.retryMethods = slices.Compact(options.retryMethods)
	options.idle = c.duration(o.Spec.IdleTimeout, 100*time.Millisecond, time.Hour, 0, "spec.idleTimeout")
	return options, c.invalid
}

// retryMethods are those that are not sent again unless a BackendPolicy says so.
var retryMethods = []string{"DELETE", "PATCH", "POST", "PUT"}

// under fills in what the policy of a port leaves out by that of its Service.
func (o backendOptions) under(p backendOptions) backendOptions {
	if len(o.retryMethods) == 0 {
		o.retryMethods = p.retryMethods
	}
	return backendOptions{
		retryMethods: o.retryMethods, idle: cmp.Or(o.idle, p.idle),
		outlier: cmp.Or(o.outlier, p.outlier), breaker: cmp.Or(o.breaker, p.breaker),
		retryBudget: cmp.Or(o.retryBudget, p.retryBudget), proxyProtocol: cmp.Or(o.proxyProtocol, p.proxyProtocol),
	}
}

// allMay are the methods that may be retried at every one of several ports: m of some, and those
// of one more.
func allMay(m []string, more bool, o backendOptions) []string {
	if !more {
		return o.retryMethods
	}
	return slices.DeleteFunc(slices.Clone(m), func(method string) bool { return !slices.Contains(o.retryMethods, method) })
}

// apply gives a group its options.
func (o backendOptions) apply(g *model.BackendGroup) {
	g.Outlier, g.SendProxyProtocol, g.Limits, g.IdleTimeout = o.outlier, deref(o.proxyProtocol), nil, o.idle
	limits := deref(o.breaker)
	limits.MaxRetryBudget = o.retryBudget
	if limits != (model.BackendLimits{}) {
		g.Limits = &limits
	}
}

// addPolicies adds to a Service's ports what BackendPolicies ask, and what its annotations ask where these
// bound nothing.
func (t *backendTables) addPolicies(c *memo.Context, n snapshot.Name, f *serviceFact) {
	read := func(section string) backendOptions {
		holder := t.anchor.holder(c, policyAnchor{snapshot.KindBackendPolicy, serviceOwner(n), section})
		if holder.none() {
			return backendOptions{}
		}
		options, _ := makeBackendOptions(t.in.backendPolicies.Get(c, holder.name))
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
}
