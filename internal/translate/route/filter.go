package route

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/translate/field"
)

// filterSet is what the filters of a rule, or of one backend, ask for.
type filterSet struct {
	request, response *model.HeaderEdits
	redirect          *model.Redirect
	path              *model.PathRewrite
	host              string // of the rewrite
	mirrors           []mirrorTo
	cors              *model.CORS
	// broken says that a filter is of a kind that nobody here knows: requests must not be
	// served without it.
	broken bool
	// lifted says that the redirect was a backend's.
	lifted bool

	types []gatewayv1.HTTPRouteFilterType // that stand there
}

type mirrorTo struct {
	mirror model.Mirror
	group  model.BackendGroup
}

// first is the type of a filter that works for whole rules only; empty when there is none.
func (s *filterSet) first() gatewayv1.HTTPRouteFilterType {
	for _, t := range s.types {
		switch t {
		case gatewayv1.HTTPRouteFilterRequestHeaderModifier, gatewayv1.HTTPRouteFilterResponseHeaderModifier, gatewayv1.HTTPRouteFilterExtensionRef:
		default:
			return t
		}
	}
	return ""
}

// grpcFilters are the types that a GRPCRoute may have.
var grpcFilters = []gatewayv1.HTTPRouteFilterType{
	gatewayv1.HTTPRouteFilterRequestHeaderModifier, gatewayv1.HTTPRouteFilterResponseHeaderModifier,
	gatewayv1.HTTPRouteFilterRequestMirror, gatewayv1.HTTPRouteFilterExtensionRef,
}

// filters reads a list of filters.
func (c *compiler) filters(list []gatewayv1.HTTPRouteFilter, path string, prefixes bool) filterSet {
	var s filterSet
	for i := range list {
		filter := &list[i]
		fieldName := field.At(path, i)
		if c.grpc && !slices.Contains(grpcFilters, filter.Type) {
			c.refuse(fieldName+".type", "filter "+field.Quote(string(filter.Type))+" is unknown")
			continue
		}
		repeats := filter.Type == gatewayv1.HTTPRouteFilterRequestMirror || filter.Type == gatewayv1.HTTPRouteFilterExtensionRef
		if slices.Contains(s.types, filter.Type) && !repeats {
			c.refuse(fieldName, "filter "+field.Quote(string(filter.Type))+" is there already")
			continue
		}
		s.types = append(s.types, filter.Type)
		c.filter(&s, filter, fieldName, prefixes)
	}
	if s.redirect != nil && slices.Contains(s.types, gatewayv1.HTTPRouteFilterURLRewrite) {
		c.refuseFor(gatewayv1.RouteReasonIncompatibleFilters, path, "RequestRedirect and URLRewrite must not be together")
	}
	return s
}

func (c *compiler) filter(s *filterSet, filter *gatewayv1.HTTPRouteFilter, path string, prefixes bool) {
	missing := func(field string) { c.refuse(path+"."+field, "must be set with type "+string(filter.Type)) }
	switch filter.Type {
	case gatewayv1.HTTPRouteFilterRequestHeaderModifier:
		if filter.RequestHeaderModifier == nil {
			missing("requestHeaderModifier")
			return
		}
		s.request = c.headerEdits(filter.RequestHeaderModifier, path+".requestHeaderModifier", instructs)
	case gatewayv1.HTTPRouteFilterResponseHeaderModifier:
		if filter.ResponseHeaderModifier == nil {
			missing("responseHeaderModifier")
			return
		}
		s.response = c.headerEdits(filter.ResponseHeaderModifier, path+".responseHeaderModifier", nobodys)
	case gatewayv1.HTTPRouteFilterRequestMirror:
		if filter.RequestMirror == nil {
			missing("requestMirror")
			return
		}
		c.mirror(s, filter.RequestMirror, path+".requestMirror")
	case gatewayv1.HTTPRouteFilterRequestRedirect:
		if filter.RequestRedirect == nil {
			missing("requestRedirect")
			return
		}
		s.redirect = c.redirect(filter.RequestRedirect, path+".requestRedirect", prefixes)
	case gatewayv1.HTTPRouteFilterURLRewrite:
		if filter.URLRewrite == nil {
			missing("urlRewrite")
			return
		}
		s.host = c.preciseHost(filter.URLRewrite.Hostname, path+".urlRewrite.hostname")
		s.path = c.pathModifier(filter.URLRewrite.Path, path+".urlRewrite.path", prefixes)
	case gatewayv1.HTTPRouteFilterCORS:
		if filter.CORS == nil {
			missing("cors")
			return
		}
		s.cors = c.cors(filter.CORS, path+".cors")
	case gatewayv1.HTTPRouteFilterExtensionRef:
		if filter.ExtensionRef == nil {
			missing("extensionRef")
			return
		}
		// Not to be skipped (HTTPRouteFilter.type): requests are answered with an error.
		s.broken = true
		c.resolved.Fail(gatewayv1.RouteReasonInvalidKind, path+".extensionRef: "+field.KindText(string(filter.ExtensionRef.Group), string(filter.ExtensionRef.Kind))+
			" is not a kind of filter here; requests are answered "+strconv.Itoa(int(c.brokenStatus())))
	default:
		c.refuse(path+".type", "filter "+field.Quote(string(filter.Type))+" is not supported")
	}
}

// lift makes filters of a rule's only backend the rule's.
func (c *compiler) lift(rule, backend *filterSet, path string) {
	for _, t := range backend.types {
		repeats := t == gatewayv1.HTTPRouteFilterRequestMirror || t == gatewayv1.HTTPRouteFilterExtensionRef
		edits := t == gatewayv1.HTTPRouteFilterRequestHeaderModifier || t == gatewayv1.HTTPRouteFilterResponseHeaderModifier
		if !repeats && !edits && slices.Contains(rule.types, t) {
			c.refuse(path, "filter "+field.Quote(string(t))+" is there already, for the rule")
		}
	}
	if backend.redirect != nil {
		rule.redirect, rule.lifted = backend.redirect, true
		if slices.Contains(rule.types, gatewayv1.HTTPRouteFilterURLRewrite) {
			c.refuseFor(gatewayv1.RouteReasonIncompatibleFilters, path, "RequestRedirect and URLRewrite must not be together")
		}
	}
	if slices.Contains(backend.types, gatewayv1.HTTPRouteFilterURLRewrite) {
		rule.path, rule.host = backend.path, backend.host
		if rule.redirect != nil {
			c.refuseFor(gatewayv1.RouteReasonIncompatibleFilters, path, "RequestRedirect and URLRewrite must not be together")
		}
	}
	if backend.cors != nil {
		rule.cors = backend.cors
	}
	if rule.mirrors = append(rule.mirrors, backend.mirrors...); len(rule.mirrors) > maxMirrors {
		rule.mirrors = rule.mirrors[:maxMirrors]
		c.leaveOutMirror(path, ", with those of its only backend")
	}
}

// framing are headers that say where a message ends and what becomes of its connection;
// the proxy writes them itself.
var framing = []string{"connection", "content-length", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"}

// instructs says that a header of a request tells the proxy what to do: how often to try, how long to wait.
func instructs(lower string) bool {
	return strings.HasPrefix(lower, "x-envoy-") || strings.HasPrefix(lower, "x-fairlead-")
}

func nobodys(string) bool { return false }

// headerEdits reads edits; some names are the proxy's own. One name may stand there once (HTTPHeaderFilter).
func (c *compiler) headerEdits(filter *gatewayv1.HTTPHeaderFilter, path string, own func(name string) bool) *model.HeaderEdits {
	seen := map[string]bool{}
	name := func(text, fieldName string) (string, bool) {
		lower := strings.ToLower(text)
		switch {
		case !field.IsToken(lower):
			c.refuse(fieldName, field.Quote(text)+" is not a valid header name")
		case lower == "host":
			c.refuse(fieldName, "the Host header is changed by the filter URLRewrite")
		case slices.Contains(framing, lower) || lower == model.LoopHeader || own(lower):
			c.refuse(fieldName, field.Quote(text)+" is the proxy's own")
		case seen[lower]:
			c.refuse(fieldName, field.Quote(text)+" is there already: one header can be changed once")
		default:
			seen[lower] = true
			return lower, true
		}
		return "", false
	}
	headers := func(list []gatewayv1.HTTPHeader, path string) []model.Header {
		var out []model.Header
		for i, h := range list {
			lower, ok := name(string(h.Name), field.At(path, i)+".name")
			switch {
			case h.Value == "" || len(h.Value) > valueLimit || !field.IsFieldValue(h.Value):
				c.refuse(field.At(path, i)+".value", field.Quote(h.Value)+" must have 1 to "+strconv.Itoa(valueLimit)+" characters, and no control characters")
			case ok:
				out = append(out, model.Header{Name: lower, Value: h.Value})
			}
		}
		slices.SortFunc(out, func(a, b model.Header) int { return strings.Compare(a.Name, b.Name) })
		return out
	}
	e := &model.HeaderEdits{Set: headers(filter.Set, path+".set"), Add: headers(filter.Add, path+".add")}
	for i, text := range filter.Remove {
		if lower, ok := name(text, field.At(path+".remove", i)); ok {
			e.Remove = append(e.Remove, lower)
		}
	}
	slices.Sort(e.Remove)
	if len(e.Set)+len(e.Add)+len(e.Remove) == 0 {
		return nil
	}
	return e
}

// maxMirrors bounds what one request becomes, should its mirrors lead to an edge again: at each
// turn as many more.
const maxMirrors = 4

// leaveOutMirror notes that a rule has too many mirrors. Requests are answered all the same, and nobody else gets
// the host of a rule that was refused.
func (c *compiler) leaveOutMirror(path, which string) {
	c.resolved.Fail(gatewayv1.RouteReasonUnsupportedValue, path+": left out: a rule has at most "+strconv.Itoa(maxMirrors)+" mirrors"+which)
}

// mirror adds a mirror. A broken reference leaves it out, and is noted in resolved.
func (c *compiler) mirror(s *filterSet, filter *gatewayv1.HTTPRequestMirrorFilter, path string) {
	m := model.Mirror{Numerator: 1, Denominator: 1}
	switch {
	case filter.Percent != nil && filter.Fraction != nil:
		c.refuse(path, "only one of percent and fraction can be specified")
	case filter.Percent != nil:
		if *filter.Percent < 0 || *filter.Percent > 100 {
			c.refuse(path+".percent", strconv.Itoa(int(*filter.Percent))+" must be in the range 0-100")
			return
		}
		m.Numerator, m.Denominator = uint32(*filter.Percent), 100
	case filter.Fraction != nil:
		denominator := int32(100)
		if filter.Fraction.Denominator != nil {
			denominator = *filter.Fraction.Denominator
		}
		if filter.Fraction.Numerator < 0 || denominator < 1 || filter.Fraction.Numerator > denominator {
			c.refuse(path+".fraction", strconv.Itoa(int(filter.Fraction.Numerator))+"/"+strconv.Itoa(int(denominator))+" must be from 0 to 1")
			return
		}
		m.Numerator, m.Denominator = uint32(filter.Fraction.Numerator), uint32(denominator)
	}
	if len(s.mirrors) == maxMirrors {
		c.leaveOutMirror(path, "")
		return
	}
	group, _, ok := c.backend(&filter.BackendRef, path+".backendRef")
	if ok && m.Numerator > 0 {
		m.Group = group.ID
		s.mirrors = append(s.mirrors, mirrorTo{m, group})
	}
}

func (c *compiler) redirect(filter *gatewayv1.HTTPRequestRedirectFilter, path string, prefixes bool) *model.Redirect {
	r := &model.Redirect{Scheme: field.Deref(filter.Scheme), Status: 302}
	if r.Scheme != "" && r.Scheme != "http" && r.Scheme != "https" {
		c.refuse(path+".scheme", field.Quote(r.Scheme)+" must be http or https")
	}
	r.Host = c.preciseHost(filter.Hostname, path+".hostname")
	r.Path = c.pathModifier(filter.Path, path+".path", prefixes)
	if filter.Port != nil {
		if *filter.Port < 1 || *filter.Port > 65535 {
			c.refuse(path+".port", strconv.Itoa(int(*filter.Port))+" must be in the range 1-65535")
		}
		r.Port = uint16(*filter.Port)
	}
	if filter.StatusCode != nil {
		switch *filter.StatusCode {
		case 301, 302, 303, 307, 308:
			r.Status = uint32(*filter.StatusCode)
		default:
			c.refuse(path+".statusCode", strconv.Itoa(*filter.StatusCode)+" must be 301, 302, 303, 307 or 308")
		}
	}
	return r
}

func (c *compiler) preciseHost(h *gatewayv1.PreciseHostname, path string) string {
	host := strings.ToLower(string(field.Deref(h)))
	if host != "" {
		if problem := field.HostProblem(host, false); problem != "" {
			c.refuse(path, problem)
		}
	}
	return host
}

// pathModifier reads the new path; nil when it stays. A trailing slash of a prefix means
// nothing: the rest of the path brings its own.
func (c *compiler) pathModifier(m *gatewayv1.HTTPPathModifier, path string, prefixes bool) *model.PathRewrite {
	if m == nil {
		return nil
	}
	switch m.Type {
	case gatewayv1.FullPathHTTPPathModifier:
		if m.ReplaceFullPath == nil {
			c.refuse(path+".replaceFullPath", "must be set with type "+string(m.Type))
			return nil
		}
		if problem := field.PathProblem(*m.ReplaceFullPath); problem != "" {
			c.refuse(path+".replaceFullPath", problem)
		}
		return &model.PathRewrite{Kind: model.RewriteFull, Value: *m.ReplaceFullPath}
	case gatewayv1.PrefixMatchHTTPPathModifier:
		if m.ReplacePrefixMatch == nil {
			c.refuse(path+".replacePrefixMatch", "must be set with type "+string(m.Type))
			return nil
		}
		value := *m.ReplacePrefixMatch
		if value != "" {
			if problem := field.PathProblem(value); problem != "" {
				c.refuse(path+".replacePrefixMatch", problem)
			}
		}
		if !prefixes {
			c.refuse(path+".replacePrefixMatch", "every match of the rule must be of type PathPrefix")
		}
		return &model.PathRewrite{Kind: model.RewritePrefix, Value: strings.TrimRight(value, "/")}
	default:
		c.refuse(path+".type", field.Quote(string(m.Type))+" is unknown")
		return nil
	}
}

// corsMaxAge is what browsers are told when nothing is said (HTTPCORSFilter.maxAge).
const corsMaxAge = 5 * time.Second

func (c *compiler) cors(filter *gatewayv1.HTTPCORSFilter, path string) *model.CORS {
	o := &model.CORS{Credentials: field.Deref(filter.AllowCredentials), MaxAge: time.Duration(filter.MaxAge) * time.Second}
	switch {
	case filter.MaxAge < 0:
		c.refuse(path+".maxAge", strconv.Itoa(int(filter.MaxAge))+" must be at least 1")
	case filter.MaxAge == 0:
		o.MaxAge = corsMaxAge
	}
	for i, text := range filter.AllowOrigins {
		origin, ok := corsOrigin(string(text))
		if !ok {
			c.refuse(field.At(path+".allowOrigins", i), field.Quote(string(text))+` is not an origin like "https://www.example.com", "https://*.example.com" or "*"`)
		}
		o.Origins = append(o.Origins, origin)
	}
	for i, m := range filter.AllowMethods {
		if !field.IsToken(string(m)) {
			c.refuse(field.At(path+".allowMethods", i), field.Quote(string(m))+" is not a valid method")
		}
		o.Methods = append(o.Methods, string(m))
	}
	names := func(list []gatewayv1.HTTPHeaderName, path string) []string {
		var out []string
		for i, h := range list {
			if !field.IsToken(string(h)) {
				c.refuse(field.At(path, i), field.Quote(string(h))+" is not a valid header name")
			}
			out = append(out, string(h))
		}
		return out
	}
	o.Headers, o.Expose = names(filter.AllowHeaders, path+".allowHeaders"), names(filter.ExposeHeaders, path+".exposeHeaders")
	if o.Credentials && slices.Contains(o.Expose, "*") {
		// With credentials "*" is the name of a header (Fetch, 3.3.3), and must not be sent.
		o.Expose = slices.DeleteFunc(o.Expose, func(h string) bool { return h == "*" })
	}
	return o
}

// corsOrigin reads an origin, as browsers write it: lower case, and without the port that
// the scheme implies.
func corsOrigin(text string) (string, bool) {
	text = strings.ToLower(text)
	if text == "*" {
		return text, true
	}
	scheme, rest, found := strings.Cut(text, "://")
	if !found || scheme != "http" && scheme != "https" {
		return text, false
	}
	host, port, hasPort := strings.Cut(rest, ":")
	if host != "*" && field.HostProblem(host, true) != "" {
		return text, false
	}
	if hasPort {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return text, false
		} else if port = strconv.Itoa(int(n)); scheme == "http" && n == 80 || scheme == "https" && n == 443 {
			hasPort = false
		}
	}
	u := url.URL{Scheme: scheme, Host: host}
	if hasPort {
		u.Host += ":" + port
	}
	return u.Scheme + "://" + u.Host, true
}
