package xds

import (
	"hash/fnv"
	"strconv"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	sessionv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/stateful_session/v3"
	cookiev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/stateful_session/cookie/v3"
	headerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/stateful_session/header/v3"
	httptypev3 "github.com/envoyproxy/go-control-plane/envoy/type/http/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"fairlead.dev/internal/model"
)

const sessionFilter = "envoy.filters.http.stateful_session"

// session keeps a client at its backend as long as that takes requests. The cookie or
// header holds the backend's address; a client that makes one up reaches no more than the
// backends of the route.
func session(s *model.Sticky) *sessionv3.StatefulSessionPerRoute {
	state := &corev3.TypedExtensionConfig{
		Name:        "envoy.http.stateful_session.header",
		TypedConfig: pack(&headerv3.HeaderBasedSessionState{Name: s.Name}),
	}
	if !s.Header {
		cookie := &httptypev3.Cookie{Name: s.Name, Path: s.Path}
		if s.Lifetime > 0 {
			cookie.Ttl = durationpb.New(s.Lifetime)
		}
		state = &corev3.TypedExtensionConfig{
			Name:        "envoy.http.stateful_session.cookie",
			TypedConfig: pack(&cookiev3.CookieBasedSessionState{Cookie: cookie}),
		}
	}
	return &sessionv3.StatefulSessionPerRoute{Override: &sessionv3.StatefulSessionPerRoute_StatefulSession{
		StatefulSession: &sessionv3.StatefulSession{SessionState: state},
	}}
}

// shareCookie is the cookie that keeps a client at one share of a route, so that its session
// outlives the dice (Gateway API, GEP-1619: a session goes before weights). A session in a
// header has no such companion: clients send back what they know.
func shareCookie(s *model.Sticky) string { return s.Name + "-share" }

// shareID names a share in the cookie without saying what it is.
func shareID(g model.GroupID) string {
	h := fnv.New64a()
	h.Write([]byte(g))
	return strconv.FormatUint(h.Sum64(), 36)
}

// pinned are the routes of clients that have a share already.
func pinned(r model.Route, groups []model.WeightedGroup) []*routev3.Route {
	s := r.Forward.Sticky
	if s == nil || s.Header || len(groups) < 2 {
		return nil
	}
	var out []*routev3.Route
	for _, g := range groups {
		one := forward(r, []model.WeightedGroup{g}, uint64(g.Weight))
		one.Match.Cookies = []*routev3.CookieMatcher{{Name: shareCookie(s), StringMatch: stringMatch(shareID(g.Group), false)}}
		out = append(out, one)
	}
	return out
}

// remember has the answers of each share tell the client which share it got.
func remember(s *model.Sticky, w *routev3.WeightedCluster) {
	if s == nil || s.Header || len(w.GetClusters()) < 2 {
		return
	}
	attributes := "; HttpOnly"
	if s.Path != "" {
		attributes += "; Path=" + s.Path
	}
	if s.Lifetime > 0 {
		attributes += "; Max-Age=" + strconv.Itoa(int(s.Lifetime/time.Second))
	}
	for _, c := range w.GetClusters() {
		cookie := shareCookie(s) + "=" + shareID(model.GroupID(c.GetName())) + attributes
		c.ResponseHeadersToAdd = append(c.ResponseHeadersToAdd,
			headerOption("set-cookie", literal(cookie), corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD))
	}
}
