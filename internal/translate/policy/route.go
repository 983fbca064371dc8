package policy

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/address"
	"fairlead.dev/internal/translate/backend"
	"fairlead.dev/internal/translate/field"
)

// Route is a RoutePolicy judged for itself. Of one that is invalid it holds what
// could be read, and shuts what could not: who may pass is never more than was said.
type Route struct {
	Policy   model.RoutePolicy
	groups   []model.BackendGroup // that policy names
	invalid  field.PolicyResult
	resolved field.PolicyResult
}

func (t *Tables) makeRoutePolicy(ctx *memo.Context, n snapshot.Name) (*Route, bool) {
	o := t.in.RoutePolicies.Get(ctx, n)
	if o == nil {
		return nil, false
	}
	c := policyCompiler{t: t, ctx: ctx, key: snapshot.Key{Kind: snapshot.KindRoutePolicy, Name: n}}
	f := &Route{}
	spec := &o.Spec
	if spec.RateLimit != nil {
		f.Policy.RateLimit = c.rateLimit(spec.RateLimit, "spec.rateLimit")
	}
	if g := spec.GlobalRateLimit; g != nil {
		limit, groups := c.globalRateLimit(g, "spec.globalRateLimit")
		f.Policy.GlobalRateLimit, f.groups = limit, groups
	}
	if a := spec.Authorization; a != nil {
		authorization, groups := c.authorization(a, "spec.authorization")
		f.Policy.Authorization = authorization
		for _, g := range groups {
			f.groups = backend.AddGroup(f.groups, g)
		}
	}
	if spec.Addresses != nil {
		f.Policy.Addresses = c.addresses(spec.Addresses, "spec.addresses")
	}
	f.Policy.MaxRequestBytes = uint64(field.Number(&c.Policy, spec.MaxRequestBytes, 1, 1<<32-1, "spec.maxRequestBytes"))
	f.Policy.ErrorPages = c.routeErrorPages(spec.ErrorPages, "spec.errorPages")
	if spec.Compression != nil {
		f.Policy.Compression = c.compression(spec.Compression, "spec.compression")
	}
	if spec.GRPCWeb != nil {
		is := *spec.GRPCWeb
		f.Policy.GRPCWeb = &is
	}
	if spec.AccessLog != nil {
		f.Policy.AccessLog = c.logShare(spec.AccessLog, "spec.accessLog")
	}
	f.invalid, f.resolved = c.Invalid, c.resolved
	return f, true
}

func (c *policyCompiler) rateLimit(o *v1alpha1.RateLimit, path string) *model.RateLimit {
	l := &model.RateLimit{
		Requests: uint32(field.Number(&c.Policy, &o.Requests, 1, 1<<32-1, path+".requests")),
		Per:      c.Duration(o.Per, 50*time.Millisecond, 24*time.Hour, time.Second, path+".per"),
	}
	l.Burst = cmp.Or(uint32(field.Number(&c.Policy, o.Burst, 1, 1<<32-1, path+".burst")), l.Requests)
	if l.Requests == 0 {
		return nil
	}
	return l
}

// globalRateLimit reads a limit. One with a fault has no service: it cannot be asked, and
// what is to happen then happens.
func (c *policyCompiler) globalRateLimit(o *v1alpha1.GlobalRateLimit, path string) (*model.GlobalRateLimit, []model.BackendGroup) {
	faults := c.Invalid.Message
	l := &model.GlobalRateLimit{
		Domain: c.word(o.Domain, path+".domain"), FailOpen: o.FailOpen,
		Timeout: c.Duration(o.Timeout, time.Millisecond, 10*time.Second, 100*time.Millisecond, path+".timeout"),
	}
	if len(o.Descriptor) == 0 {
		c.Fail(path+".descriptor", "at least one entry is needed")
	}
	for i, e := range o.Descriptor {
		fieldName := field.At(path+".descriptor", i)
		source := model.RateLimitSource{Key: c.word(e.Key, fieldName+".key"), Header: strings.ToLower(e.Header), ClientAddress: e.ClientAddress, Value: e.Value}
		said := 0
		for _, is := range []bool{source.Header != "", source.ClientAddress, source.Value != ""} {
			if is {
				said++
			}
		}
		switch {
		case said != 1:
			c.Fail(fieldName, "exactly one of header, clientAddress and value must be said")
			continue
		case e.Header != "" && !field.IsToken(e.Header):
			c.Fail(fieldName+".header", field.Quote(e.Header)+" is not a valid header name")
			continue
		case e.Value != "":
			source.Value = c.word(e.Value, fieldName+".value")
		}
		l.Descriptors = append(l.Descriptors, source)
	}
	group, ok := c.service(&o.Service, model.BackendHTTP2, path+".service")
	if !ok || c.Invalid.Message != faults {
		return l, nil
	}
	l.Service = group.ID
	return l, []model.BackendGroup{group}
}

// word refuses what cannot stand in a message to a service.
func (c *policyCompiler) word(text, path string) string {
	if text == "" || len(text) > 253 || !field.Printable(text) {
		c.Fail(path, field.Quote(text)+" must have 1 to 253 characters, and no spaces or control characters")
		return ""
	}
	return text
}

// authorization reads whom to ask. With a fault there is no service, as with
// globalRateLimit.
func (c *policyCompiler) authorization(o *v1alpha1.Authorization, path string) (*model.Authorization, []model.BackendGroup) {
	faults := c.Invalid.Message
	a := &model.Authorization{
		FailOpen: o.FailOpen, MaxBodyBytes: uint32(field.Number(&c.Policy, o.MaxBodyBytes, 1, 16<<20, path+".maxBodyBytes")),
		Timeout: c.Duration(o.Timeout, time.Millisecond, time.Minute, time.Second, path+".timeout"),
	}
	protocol := model.BackendHTTP2
	switch o.Protocol {
	case "", v1alpha1.AuthorizationGRPC:
		if o.HTTP != nil {
			c.Fail(path+".http", "is for protocol HTTP: set protocol, or leave http out")
		}
	case v1alpha1.AuthorizationHTTP:
		a.HTTP, protocol = true, model.BackendHTTP1
		if h := o.HTTP; h != nil {
			if h.PathPrefix != "" {
				if problem := field.PathProblem(h.PathPrefix); problem != "" {
					c.Fail(path+".http.pathPrefix", problem)
				} else {
					a.PathPrefix = h.PathPrefix
				}
			}
			a.RequestHeaders = c.headers(h.RequestHeaders, path+".http.requestHeaders")
			a.ResponseHeaders = c.headers(h.ResponseHeaders, path+".http.responseHeaders")
		}
	default:
		c.Fail(path+".protocol", field.Quote(string(o.Protocol))+" must be GRPC or HTTP")
	}
	group, ok := c.service(&o.Service, protocol, path+".service")
	if !ok || c.Invalid.Message != faults {
		return a, nil
	}
	a.Service = group.ID
	return a, []model.BackendGroup{group}
}

// headers reads names of headers: lower case, sorted, each once.
func (c *policyCompiler) headers(names []string, path string) []string {
	var list []string
	for i, name := range names {
		if !field.IsToken(name) {
			c.Fail(field.At(path, i), field.Quote(name)+" is not a valid header name")
			continue
		}
		list = append(list, strings.ToLower(name))
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// everybody are all addresses.
func everybody() []netip.Prefix {
	return []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)}
}

// addresses reads a filter. One with a fault lets nobody in.
func (c *policyCompiler) addresses(o *v1alpha1.AddressFilter, path string) *model.AddressFilter {
	bad := false
	read := func(texts []string, path string) []netip.Prefix {
		var list []netip.Prefix
		for i, text := range texts {
			p, ok := address.ParsePrefix(text)
			if !ok {
				c.Fail(field.At(path, i), field.Quote(text)+" is neither an address like 192.0.2.7 nor a CIDR like 192.0.2.0/24")
				bad = true
				continue
			}
			list = append(list, p)
		}
		slices.SortFunc(list, netip.Prefix.Compare)
		return slices.Compact(list)
	}
	f := &model.AddressFilter{Allow: read(o.Allow, path+".allow"), Deny: read(o.Deny, path+".deny")}
	if len(o.Allow)+len(o.Deny) == 0 {
		c.Fail(path, "allow or deny must be said")
		return nil
	}
	if bad {
		return &model.AddressFilter{Deny: everybody()}
	}
	return f
}

func (t *Tables) routeOutcome(c *memo.Context, n snapshot.Name) (values, references field.PolicyResult) {
	p := t.Routes.Get(c, n)
	return p.invalid, p.resolved
}
