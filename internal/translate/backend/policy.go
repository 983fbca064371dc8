package backend

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
	"fairlead.dev/internal/translate/field"
	"fairlead.dev/internal/translate/input"
	"fairlead.dev/internal/translate/target"
)

// Options is what BackendPolicies ask of the groups of a port. Of a policy that is
// invalid they hold what could be read.
type Options struct {
	outlier       *model.OutlierDetection
	breaker       *model.BackendLimits // without its retry budget
	retryBudget   uint32               // percent
	retryMethods  []string             // sorted
	idle          time.Duration
	proxyProtocol *bool
}

// ReadOptions reads a BackendPolicy; the problems are those of its fields.
func ReadOptions(o *v1alpha1.BackendPolicy) (Options, field.PolicyResult) {
	var options Options
	if o == nil {
		return options, field.PolicyResult{}
	}
	var c field.Policy
	options.proxyProtocol = o.Spec.SendProxyProtocol
	if d := o.Spec.OutlierDetection; d != nil {
		const path = "spec.outlierDetection."
		options.outlier = &model.OutlierDetection{
			ConsecutiveErrors: cmp.Or(uint32(field.Number(&c, d.ConsecutiveErrors, 1, 10_000, path+"consecutiveErrors")), 5),
			MaxEjected:        cmp.Or(uint32(field.Number(&c, d.MaxEjectedPercent, 1, 100, path+"maxEjectedPercent")), 50),
			Interval:          c.Duration(d.Interval, 100*time.Millisecond, time.Hour, 10*time.Second, path+"interval"),
			EjectionTime:      c.Duration(d.EjectionTime, 100*time.Millisecond, 24*time.Hour, 30*time.Second, path+"ejectionTime"),
		}
	}
	if b := o.Spec.CircuitBreaker; b != nil {
		const path = "spec.circuitBreaker."
		options.breaker = &model.BackendLimits{
			MaxConnections: uint32(field.Number(&c, b.MaxConnections, 1, math.MaxInt32, path+"maxConnections")),
			MaxPending:     uint32(field.Number(&c, b.MaxPendingRequests, 1, math.MaxInt32, path+"maxPendingRequests")),
			MaxRequests:    uint32(field.Number(&c, b.MaxRequests, 1, math.MaxInt32, path+"maxRequests")),
		}
	}
	if b := o.Spec.RetryBudget; b != nil {
		options.retryBudget = uint32(field.Number(&c, &b.Percent, 1, 100, "spec.retryBudget.percent"))
	}
	for i, m := range o.Spec.RetryMethods {
		if !slices.Contains(retryMethods, string(m)) {
			c.Fail(field.At("spec.retryMethods", i), field.Quote(string(m))+" must be one of "+strings.Join(retryMethods, ", "))
			continue
		}
		options.retryMethods = append(options.retryMethods, string(m))
	}
	slices.Sort(options.retryMethods)
	options.retryMethods = slices.Compact(options.retryMethods)
	options.idle = c.Duration(o.Spec.IdleTimeout, 100*time.Millisecond, time.Hour, 0, "spec.idleTimeout")
	return options, c.Invalid
}

// retryMethods are those that are not sent again unless a BackendPolicy says so.
var retryMethods = []string{"DELETE", "PATCH", "POST", "PUT"}

// under fills in what the policy of a port leaves out by that of its Service.
func (o Options) under(p Options) Options {
	if len(o.retryMethods) == 0 {
		o.retryMethods = p.retryMethods
	}
	return Options{
		retryMethods: o.retryMethods, idle: cmp.Or(o.idle, p.idle),
		outlier: cmp.Or(o.outlier, p.outlier), breaker: cmp.Or(o.breaker, p.breaker),
		retryBudget: cmp.Or(o.retryBudget, p.retryBudget), proxyProtocol: cmp.Or(o.proxyProtocol, p.proxyProtocol),
	}
}

// AllMay are the methods that may be retried at every one of several ports: m of some, and those
// of one more.
func AllMay(m []string, more bool, o Options) []string {
	if !more {
		return o.retryMethods
	}
	return slices.DeleteFunc(slices.Clone(m), func(method string) bool { return !slices.Contains(o.retryMethods, method) })
}

// apply gives a group its options.
func (o Options) apply(g *model.BackendGroup) {
	g.Outlier, g.SendProxyProtocol, g.Limits, g.IdleTimeout = o.outlier, field.Deref(o.proxyProtocol), nil, o.idle
	limits := field.Deref(o.breaker)
	limits.MaxRetryBudget = o.retryBudget
	if limits != (model.BackendLimits{}) {
		g.Limits = &limits
	}
}

// addPolicies adds to a Service's ports what BackendPolicies ask, and what its annotations ask where these
// bound nothing.
func (t *Tables) addPolicies(c *memo.Context, n snapshot.Name, f *Service) {
	read := func(section string) Options {
		holder := t.from.Targets.Holder(c, target.Ref{Kind: snapshot.KindBackendPolicy, Object: input.Object(snapshot.KindService, n), Section: section})
		if holder.None() {
			return Options{}
		}
		options, _ := ReadOptions(t.in.BackendPolicies.Get(c, holder.Name))
		return options
	}
	for i := range f.Ports {
		p := &f.Ports[i]
		p.Options = read("")
		if p.Name != "" {
			p.Options = read(p.Name).under(p.Options)
		}
		if p.Options.breaker == nil {
			p.Options.breaker = f.limits
		}
	}
}
