package xds

import (
	"cmp"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"fairlead.dev/internal/model"
)

var redirectCodes = map[uint32]routev3.RedirectAction_RedirectResponseCode{
	301: routev3.RedirectAction_MOVED_PERMANENTLY,
	302: routev3.RedirectAction_FOUND,
	303: routev3.RedirectAction_SEE_OTHER,
	307: routev3.RedirectAction_TEMPORARY_REDIRECT,
	308: routev3.RedirectAction_PERMANENT_REDIRECT,
}

// redirects are the routes of one redirect. The port that the client wrote into Host says
// nothing about where the redirect leads, and Envoy keeps it unless another is set. The host
// of the key takes its place where it is exact; a wildcard host has a second route, in front,
// for the clients that wrote a port.
func redirects(k model.HostKey, r model.Route) []*routev3.Route {
	to := r.Redirect
	port, usual := redirectPort(k.Listener, to)
	a := &routev3.RedirectAction{
		HostRedirect: to.Host,
		ResponseCode: redirectCodes[to.Status],
	}
	if to.Scheme != "" {
		a.SchemeRewriteSpecifier = &routev3.RedirectAction_SchemeRedirect{SchemeRedirect: to.Scheme}
	}
	rewriteRedirect(a, r.Match.Path, to.Path)
	wild := strings.HasPrefix(k.Host, "*")
	if a.HostRedirect == "" && !wild {
		a.HostRedirect = k.Host
	}
	one := func(m *routev3.RouteMatch, port uint16) *routev3.Route {
		action := cloneOf(a)
		action.PortRedirect = uint32(port)
		return &routev3.Route{Name: r.Name, Match: m, Action: &routev3.Route_Redirect{Redirect: action}}
	}
	if !usual {
		return []*routev3.Route{one(match(r.Match), port)}
	}
	plain := one(match(r.Match), 0)
	if a.HostRedirect != "" {
		return []*routev3.Route{plain}
	}
	written := match(r.Match)
	written.Headers = append(written.Headers, headerMatch(model.ValueMatch{Name: ":authority", Value: `.*:[0-9]+`, Regex: true}))
	return []*routev3.Route{one(written, port), plain}
}

// redirectPort is the port of the location, and whether it is the usual one of the scheme,
// which a location leaves out.
func redirectPort(id model.ListenerID, r *model.Redirect) (port uint16, usual bool) {
	protocol, port := id.Entry()
	scheme := cmp.Or(r.Scheme, strings.ToLower(string(protocol)))
	standard := uint16(80)
	if scheme == "https" {
		standard = 443
	}
	switch {
	case r.Port != 0:
		port = r.Port
	case r.Scheme != "" || port == 0:
		port = standard
	}
	return port, port == standard
}
