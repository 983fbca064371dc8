package policy

import (
	"cmp"
	"math"
	"reflect"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/backend"
	"fairlead.dev/internal/translate/field"
)

// Client is a ClientPolicy judged for itself. What cannot be read is left out.
type Client struct {
	Settings ClientSettings
	Groups   []model.BackendGroup // that settings name
	invalid  field.PolicyResult
	resolved field.PolicyResult
}

// ClientSettings are what one policy says: nil is that it says nothing, so that another
// may.
type ClientSettings struct {
	trustedHops   *uint32
	proxyProtocol *bool
	http3         *bool
	escaped       v1alpha1.EscapedSlashesAction
	keepSlashes   *bool
	forwardedHost *bool
	forwardedPort *bool
	errorPages    []model.ErrorPage
	limits        v1alpha1.ClientLimits
	headers       time.Duration
	request       time.Duration
	idle          time.Duration
	MinTLS        model.TLSVersion
	accessLog     *model.AccessLog
	tracing       *model.Tracing
}

func (t *Tables) makeClientPolicy(ctx *memo.Context, n snapshot.Name) (*Client, bool) {
	o := t.in.ClientPolicies.Get(ctx, n)
	if o == nil {
		return nil, false
	}
	c := policyCompiler{t: t, ctx: ctx, key: snapshot.Key{Kind: snapshot.KindClientPolicy, Name: n}}
	f := &Client{}
	s, spec := &f.Settings, &o.Spec
	if spec.TrustedHops != nil {
		if hops := *spec.TrustedHops; hops < 0 || hops > 16 {
			c.Fail("spec.trustedHops", strconv.Itoa(int(hops))+" must be in the range 0-16")
		} else {
			s.trustedHops = new(uint32)
			*s.trustedHops = uint32(hops)
		}
	}
	s.proxyProtocol, s.http3 = spec.AcceptProxyProtocol, spec.HTTP3
	if p := spec.Path; p != nil {
		s.keepSlashes = p.DisableMergeSlashes
		if _, known := escapedSlashes[p.EscapedSlashesAction]; known {
			s.escaped = p.EscapedSlashesAction
		} else if p.EscapedSlashesAction != "" {
			c.Fail("spec.path.escapedSlashesAction", field.Quote(string(p.EscapedSlashesAction))+" must be UnescapeAndRedirect, UnescapeAndForward, RejectRequest or KeepUnchanged")
		}
	}
	if w := spec.Forwarded; w != nil {
		s.forwardedHost, s.forwardedPort = w.Host, w.Port
	}
	s.errorPages = c.errorPages(spec.ErrorPages, "spec.errorPages")
	if spec.Limits != nil {
		s.limits = c.clientLimits(spec.Limits, "spec.limits")
	}
	if t := spec.Timeouts; t != nil {
		const least = 10 * time.Millisecond
		s.headers = c.Duration(field.Deref(t.Headers), least, time.Hour, 0, "spec.timeouts.headers")
		s.request = c.Duration(field.Deref(t.Request), least, 24*time.Hour, 0, "spec.timeouts.request")
		s.idle = c.Duration(field.Deref(t.Idle), 100*time.Millisecond, 24*time.Hour, 0, "spec.timeouts.idle")
	}
	if t := spec.TLS; t != nil && t.MinVersion != "" {
		if slices.Contains([]string{"1.0", "1.1", "1.2", "1.3"}, t.MinVersion) {
			s.MinTLS = model.TLSVersion(t.MinVersion)
		} else {
			c.Fail("spec.tls.minVersion", field.Quote(t.MinVersion)+" must be 1.0, 1.1, 1.2 or 1.3")
		}
	}
	if spec.AccessLog != nil {
		log, group := c.accessLog(spec.AccessLog, "spec.accessLog")
		s.accessLog = log
		if group != nil {
			f.Groups = backend.AddGroup(f.Groups, *group)
		}
	}
	if spec.Tracing != nil {
		tracing, group := c.tracing(spec.Tracing, "spec.tracing")
		s.tracing = tracing
		if group != nil {
			f.Groups = backend.AddGroup(f.Groups, *group)
		}
	}
	f.invalid, f.resolved = c.Invalid, c.resolved
	return f, true
}

var escapedSlashes = map[v1alpha1.EscapedSlashesAction]model.EscapedSlashes{
	v1alpha1.UnescapeAndRedirect: model.SlashesRedirect, v1alpha1.UnescapeAndForward: model.SlashesUnescape,
	v1alpha1.RejectRequest: model.SlashesReject, v1alpha1.KeepUnchanged: model.SlashesKeep,
}

func (c *policyCompiler) clientLimits(o *v1alpha1.ClientLimits, path string) v1alpha1.ClientLimits {
	var limits v1alpha1.ClientLimits
	read := func(n *int32, least, most int32, name string) *int32 {
		if n == nil || field.Number(&c.Policy, n, least, most, path+"."+name) == 0 {
			return nil
		}
		return n
	}
	limits.MaxConnections = read(o.MaxConnections, 1, 10_000_000, "maxConnections")
	limits.MaxHeaderBytes = read(o.MaxHeaderBytes, 1024, 8<<20, "maxHeaderBytes")
	limits.MaxHeaders = read(o.MaxHeaders, 10, 10_000, "maxHeaders")
	limits.MaxRequestsPerConnection = read(o.MaxRequestsPerConnection, 1, math.MaxInt32, "maxRequestsPerConnection")
	limits.MaxStreams = read(o.MaxStreams, 1, 100_000, "maxStreams")
	return limits
}

func (c *policyCompiler) tracing(o *v1alpha1.Tracing, path string) (*model.Tracing, *model.BackendGroup) {
	group, ok := c.service(&o.Collector, model.BackendHTTP2, path+".collector")
	t := &model.Tracing{Collector: group.ID, Percent: 100, ServiceName: cmp.Or(o.ServiceName, "fairlead")}
	if len(t.ServiceName) > 255 || !utf8.ValidString(t.ServiceName) {
		c.Fail(path+".serviceName", field.Quote(t.ServiceName)+" must be a text of at most 255 bytes")
		t.ServiceName = "fairlead"
	}
	if p := o.SamplePercent; p != nil {
		if percent, ok := c.percent(p, path+".samplePercent"); ok {
			t.Percent = percent
		}
	}
	if !ok {
		return nil, nil
	}
	return t, &group
}

// Under fills in what a policy leaves out by one of a larger target.
func (s ClientSettings) Under(o ClientSettings) ClientSettings {
	s.trustedHops = cmp.Or(s.trustedHops, o.trustedHops)
	s.proxyProtocol = cmp.Or(s.proxyProtocol, o.proxyProtocol)
	s.http3 = cmp.Or(s.http3, o.http3)
	s.escaped, s.keepSlashes = cmp.Or(s.escaped, o.escaped), cmp.Or(s.keepSlashes, o.keepSlashes)
	s.forwardedHost, s.forwardedPort = cmp.Or(s.forwardedHost, o.forwardedHost), cmp.Or(s.forwardedPort, o.forwardedPort)
	if len(s.errorPages) == 0 {
		s.errorPages = o.errorPages
	}
	s.limits.MaxConnections = cmp.Or(s.limits.MaxConnections, o.limits.MaxConnections)
	s.limits.MaxHeaderBytes = cmp.Or(s.limits.MaxHeaderBytes, o.limits.MaxHeaderBytes)
	s.limits.MaxHeaders = cmp.Or(s.limits.MaxHeaders, o.limits.MaxHeaders)
	s.limits.MaxRequestsPerConnection = cmp.Or(s.limits.MaxRequestsPerConnection, o.limits.MaxRequestsPerConnection)
	s.limits.MaxStreams = cmp.Or(s.limits.MaxStreams, o.limits.MaxStreams)
	s.headers, s.request, s.idle = cmp.Or(s.headers, o.headers), cmp.Or(s.request, o.request), cmp.Or(s.idle, o.idle)
	s.MinTLS = cmp.Or(s.MinTLS, o.MinTLS)
	s.accessLog, s.tracing = cmp.Or(s.accessLog, o.accessLog), cmp.Or(s.tracing, o.tracing)
	return s
}

// At is what the settings are at a listener of a protocol; nil is the defaults.
func (s ClientSettings) At(protocol model.Protocol) *model.ClientSettings {
	m := &model.ClientSettings{
		TrustedHops: s.trustedHops, AcceptProxyProtocol: field.Deref(s.proxyProtocol),
		EscapedSlashes: escapedSlashes[s.escaped], KeepSlashes: field.Deref(s.keepSlashes),
		ForwardedHost: field.Deref(s.forwardedHost), ForwardedPort: field.Deref(s.forwardedPort), ErrorPages: s.errorPages,
		MaxConnections: uint32(field.Deref(s.limits.MaxConnections)), MaxHeaderBytes: uint32(field.Deref(s.limits.MaxHeaderBytes)),
		MaxHeaders: uint32(field.Deref(s.limits.MaxHeaders)), MaxRequestsPerConnection: uint32(field.Deref(s.limits.MaxRequestsPerConnection)),
		MaxStreams: uint32(field.Deref(s.limits.MaxStreams)), HeadersTimeout: s.headers, RequestTimeout: s.request, IdleTimeout: s.idle,
		AccessLog: s.accessLog, Tracing: s.tracing,
	}
	if m.KeepSlashes && m.EscapedSlashes == model.SlashesRedirect {
		m.EscapedSlashes = model.SlashesReject // "/%2Fother.example" would be sent to "//other.example", another host
	}
	if protocol == model.ProtocolHTTPS {
		m.HTTP3, m.MinTLS = field.Deref(s.http3), s.MinTLS
	}
	if reflect.ValueOf(*m).IsZero() {
		return nil
	}
	return m
}

func (t *Tables) clientOutcome(c *memo.Context, n snapshot.Name) (values, references field.PolicyResult) {
	p := t.Clients.Get(c, n)
	return p.invalid, p.resolved
}
