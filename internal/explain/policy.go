package explain

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"fairlead.dev/internal/model"
)

// Says is a RoutePolicy, and what it asks.
type Says struct {
	model.Object
	Policy model.RoutePolicy
}

// PolicyKind is the matter of a policy.
type PolicyKind string

// The matters, in the order in which proxies look at them.
const (
	PolicyGRPCWeb       PolicyKind = "grpcWeb"
	PolicyAddresses     PolicyKind = "addresses"
	PolicyRateLimit     PolicyKind = "rateLimit"
	PolicyBody          PolicyKind = "maxRequestBytes"
	PolicyAuthorization PolicyKind = "authorization"
	PolicyGlobalLimit   PolicyKind = "globalRateLimit"
	PolicyCompression   PolicyKind = "compression" // of the answer
	PolicyErrorPages    PolicyKind = "errorPages"
	PolicyAccessLog     PolicyKind = "accessLog"
)

// Policy is what a request must pass before the route does what it does.
type Policy struct {
	Kind PolicyKind `json:"kind"`
	By   []Source   `json:"by,omitempty"`
	// Text says it in words.
	Text string `json:"text"`
	// Service that is asked, with the number of its backends that take requests.
	Service model.GroupID `json:"service,omitempty"`
	Ready   int           `json:"ready,omitempty"`
	// Status of the answer to the request when it does not pass, and why. 0 is that it
	// passes, or that this cannot be known from here.
	Status uint32 `json:"status,omitempty"`
	Why    string `json:"why,omitempty"`
}

// policies are what a route asks of the request, in order. direct says that the proxy
// answers by itself: then no service counts it.
func (x *explainer) policies(h *model.VirtualHost, r *model.Route, p *model.RoutePolicy, s seen, direct bool) []Policy {
	if p == nil {
		return nil
	}
	var list []Policy
	add := func(kind PolicyKind, says func(model.RoutePolicy) bool, one Policy) {
		one.Kind, one.By = kind, x.decides(h, r, kind, says)
		if x.world.PoliciesOf != nil && len(one.By) == 0 && (kind == PolicyGRPCWeb || kind == PolicyCompression) {
			one.Text += " (every IngressRoute has this unless a policy says otherwise)"
		}
		list = append(list, one)
	}
	if is := p.GRPCWeb; is != nil {
		one := Policy{Text: "requests of gRPC-Web go to the backend as they are"}
		if *is {
			one.Text = "requests of gRPC-Web (application/grpc-web, application/grpc-web-text) go to the backend as gRPC"
		}
		add(PolicyGRPCWeb, func(q model.RoutePolicy) bool { return q.GRPCWeb != nil }, one)
	}
	if a := p.Addresses; a != nil && len(a.Allow)+len(a.Deny) > 0 {
		one := Policy{Text: addressText(a)}
		switch {
		case !s.client.IsValid():
			one.Text += "; give --from to know"
		default:
			if one.Why = addressRefusal(a, s.client); one.Why != "" {
				one.Status = 403
			}
		}
		add(PolicyAddresses, func(q model.RoutePolicy) bool { return q.Addresses != nil }, one)
	}
	if l := p.RateLimit; l != nil {
		add(PolicyRateLimit, func(q model.RoutePolicy) bool { return q.RateLimit != nil }, Policy{
			Text: "each machine lets " + strconv.Itoa(int(l.Requests)) + " requests in " + l.Per.String() + " pass, " +
				strconv.Itoa(int(l.Burst)) + " at once, and answers 429 to others",
		})
	}
	if p.MaxRequestBytes > 0 {
		add(PolicyBody, func(q model.RoutePolicy) bool { return q.MaxRequestBytes > 0 }, Policy{
			Text: "bodies of more than " + strconv.FormatUint(p.MaxRequestBytes, 10) + " bytes are answered 413",
		})
	}
	authorization, limit := p.Authorization, p.GlobalRateLimit
	if r != nil && r.Policy != nil && h.Policy != nil {
		// What cannot be asked and lets pass leaves the host's in its place.
		if a := h.Policy.Authorization; authorization != nil && authorization.Service == "" && authorization.FailOpen && a != nil && a.Service != "" {
			authorization = a
		}
		if g := h.Policy.GlobalRateLimit; limit != nil && limit.Service == "" && limit.FailOpen && g != nil && g.Service != "" {
			limit = g
		}
	}
	if a := authorization; a != nil {
		how := "by gRPC"
		if a.HTTP {
			how = "by HTTP at " + a.PathPrefix + s.path
		}
		add(PolicyAuthorization, func(q model.RoutePolicy) bool { return q.Authorization != nil },
			x.asks(a.Service, "asks "+string(a.Service)+" "+how+" whether the request may pass", a.Timeout, time.Second, a.FailOpen))
	}
	if g := limit; g != nil {
		one := x.asks(g.Service, "asks "+string(g.Service)+" about domain "+g.Domain+", by "+descriptorText(g), g.Timeout, 100*time.Millisecond, g.FailOpen)
		if why := unasked(g, s, direct); why != "" && g.Service != "" {
			one.Text, one.Status, one.Why = "does not ask "+string(g.Service)+": "+why, 0, ""
		}
		add(PolicyGlobalLimit, func(q model.RoutePolicy) bool { return q.GlobalRateLimit != nil }, one)
	}
	if c := p.Compression; c != nil {
		add(PolicyCompression, func(q model.RoutePolicy) bool { return q.Compression != nil }, Policy{Text: compressionText(c)})
	}
	if e := p.ErrorPages; e != nil {
		add(PolicyErrorPages, func(q model.RoutePolicy) bool { return q.ErrorPages != nil }, Policy{Text: pagesText(e.Pages)})
	}
	if l := p.AccessLog; l != nil {
		text := "of requests that do not fail " + strconv.FormatFloat(l.Percent, 'g', -1, 64) + " % have a line in the access log, and all that fail"
		if l.None {
			text = "requests have no line in the access log"
		}
		add(PolicyAccessLog, func(q model.RoutePolicy) bool { return q.AccessLog != nil }, Policy{Text: text})
	}
	return list
}

// asks is a question to a policy's service.
func (x *explainer) asks(service model.GroupID, text string, timeout, usual time.Duration, open bool) Policy {
	one := Policy{Service: service, Text: text}
	if service == "" {
		one.Text = "has no service that can be asked, and lets everybody pass"
		if !open {
			one.Text, one.Status, one.Why = "has no reachable service, and refuses every request", 500, "the policy's service does not exist, or the policy has a mistake"
		}
		return one
	}
	g := Group{Group: service}
	x.backends(&g)
	one.Ready = g.Ready
	if timeout <= 0 {
		timeout = usual
	}
	without := "503"
	if open {
		without = "the request passes"
	}
	one.Text += " (without an answer in " + timeout.String() + ": " + without + ")"
	if g.Ready == 0 && !open {
		one.Status, one.Why = 503, "the service "+string(service)+" has no backend that takes requests"
	}
	return one
}

func descriptorText(g *model.GlobalRateLimit) string {
	var parts []string
	for _, d := range g.Descriptors {
		switch {
		case d.Header != "":
			parts = append(parts, d.Key+" of the header "+d.Header)
		case d.ClientAddress:
			parts = append(parts, d.Key+" of the client's address")
		default:
			parts = append(parts, d.Key+"="+d.Value)
		}
	}
	return strings.Join(parts, ", ")
}

// unasked says why a rate limit service is not asked about a request.
func unasked(g *model.GlobalRateLimit, s seen, direct bool) string {
	if direct {
		return "the proxy answers by itself, and such answers are not counted"
	}
	for _, d := range g.Descriptors {
		if d.Header != "" && len(s.headers[d.Header]) == 0 {
			return "the header " + d.Header + " is missing"
		}
	}
	return ""
}

func pagesText(pages []model.ErrorPage) string {
	if len(pages) == 0 {
		return "has no page that can be shown"
	}
	var parts []string
	for _, p := range pages {
		whose := "the proxy's "
		if p.Backends {
			whose = "the proxy's and backends' "
		}
		parts = append(parts, whose+strings.Join(p.Statuses, ", "))
	}
	return "shows a page in place of errors: " + strings.Join(parts, "; ")
}

func compressionText(c *model.Compression) string {
	if len(c.Algorithms) == 0 {
		return "answers stay as the backend sends them"
	}
	var names []string
	for _, a := range c.Algorithms {
		names = append(names, string(a))
	}
	types := "text, JavaScript, JSON, XML and SVG"
	if len(c.ContentTypes) > 0 {
		types = strings.Join(c.ContentTypes, ", ")
	}
	return "answers of " + strconv.FormatUint(uint64(c.MinBytes), 10) + " bytes and more are compressed, by " + strings.Join(names, " or ") +
		" as the client accepts it: " + types
}

func addressText(a *model.AddressFilter) string {
	var parts []string
	if len(a.Deny) > 0 {
		parts = append(parts, "denies "+prefixText(a.Deny))
	}
	if len(a.Allow) > 0 {
		parts = append(parts, "lets only "+prefixText(a.Allow)+" pass")
	}
	return strings.Join(parts, ", ")
}

func prefixText(list []netip.Prefix) string {
	const most = 4
	var texts []string
	for _, p := range list[:min(len(list), most)] {
		texts = append(texts, p.String())
	}
	if more := len(list) - most; more > 0 {
		texts = append(texts, strconv.Itoa(more)+" more")
	}
	return strings.Join(texts, ", ")
}

// addressRefusal says why a client may not come; empty when it may.
func addressRefusal(a *model.AddressFilter, client netip.Addr) string {
	in := func(p netip.Prefix) bool { return p.Contains(client) }
	if i := slices.IndexFunc(a.Deny, in); i >= 0 {
		return client.String() + " is in " + a.Deny[i].String() + ", which is denied"
	}
	if len(a.Allow) > 0 && !slices.ContainsFunc(a.Allow, in) {
		return client.String() + " is not among those that are allowed"
	}
	return ""
}

// decides names the policy that says something of a matter: of the route before the host's,
// of these the one that goes first.
func (x *explainer) decides(h *model.VirtualHost, r *model.Route, kind PolicyKind, says func(model.RoutePolicy) bool) []Source {
	if x.world.PoliciesOf == nil {
		return nil
	}
	ofRoute, ofHost := x.world.PoliciesOf(h.HostKey, r)
	if r == nil || r.Policy == nil {
		ofRoute = nil
	}
	for _, one := range slices.Concat(ofRoute, ofHost) {
		if says(one.Policy) {
			return []Source{x.source(Source{Object: one.Object, Field: "spec." + string(kind)})}
		}
	}
	return nil
}

// refusal is the first policy that the request does not pass.
func refusal(list []Policy) *Policy {
	for i := range list {
		if list[i].Status != 0 {
			return &list[i]
		}
	}
	return nil
}

// unanswerable reports whether a policy asks a service that cannot be asked, so that no
// request may pass.
func unanswerable(p *model.RoutePolicy) bool {
	return p != nil && (p.Authorization != nil && p.Authorization.Service == "" && !p.Authorization.FailOpen ||
		p.GlobalRateLimit != nil && p.GlobalRateLimit.Service == "" && !p.GlobalRateLimit.FailOpen)
}
