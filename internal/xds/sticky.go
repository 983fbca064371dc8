package xds

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
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
