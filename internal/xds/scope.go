package xds

import (
	_ "embed" // scope.lua
	"fmt"
	"strconv"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	luav3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/lua/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"fairlead.dev/internal/model"
)

const (
	// WildShard is the shard that holds "*" and every "*.suffix".
	WildShard = -1

	// How many shards hold the exact hosts of a listener that all share, and of one that is a
	// Gateway's own. Both are powers of two.
	sharedShards = 1024
	ownShards    = 64

	// scopeHeader carries the scope from the normaliser to the route lookup. What a client
	// sends in it is removed first, and no backend sees it.
	scopeHeader = "x-fairlead-scope"
	// retryHeader is the normaliser's word to Envoy that a request may be sent again.
	retryHeader = "x-envoy-retry-on"
	// scopeFilter names the normaliser and the metadata that it reads from a route.
	scopeFilter = "fairlead.scope"
	// unknownHost marks the route of hosts that a shard does not know.
	unknownHost = "unknown_host"
	// hostSection says of a virtual host which server names it is served under.
	hostSection = "section"
	// hostName says of a virtual host which host it is, for counters of requests.
	hostName = "host"
	// noUpgrade marks hosts that take no WebSockets.
	noUpgrade = "no_upgrade"
)

//go:embed scope.lua
var scopeSource string

// Shards is how many shards hold the exact hosts of a listener.
func Shards(listener model.ListenerID) int {
	if listener.Own() {
		return ownShards
	}
	return sharedShards
}

// AllShards are the shards of a listener, WildShard the last.
func AllShards(listener model.ListenerID) []int {
	all := make([]int, Shards(listener), Shards(listener)+1)
	for i := range all {
		all[i] = i
	}
	return append(all, WildShard)
}

// Shard is the shard of a host at a listener: WildShard for "*" and "*.suffix", else
// FNV-1a (32 bits) of the host modulo the number of shards. A host is taken as a Host
// header carries it: upper case, a port and one trailing dot make no difference.
func Shard(listener model.ListenerID, host string) int {
	if strings.HasPrefix(host, "*") {
		return WildShard
	}
	if i := strings.LastIndexByte(host, ':'); i >= 0 && strings.Trim(host[i+1:], "0123456789") == "" {
		host = host[:i]
	}
	host = strings.TrimSuffix(host, ".")
	hash := uint32(2166136261)
	for i := range len(host) {
		c := host[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		hash = (hash ^ uint32(c)) * 16777619
	}
	return int(hash % uint32(Shards(listener)))
}

// RouteConfigurationName names the route configuration of a listener's shard:
// "http-80/417", "http-80/wild".
func RouteConfigurationName(listener model.ListenerID, shard int) string {
	if shard == WildShard {
		return string(listener) + "/wild"
	}
	return string(listener) + "/" + strconv.Itoa(shard)
}

// Scopes are the scopes of a listener. They depend on its ID alone, so they never
// change while it exists. A scope has the name and the key of its route configuration.
func Scopes(listener model.ListenerID) []*routev3.ScopedRouteConfiguration {
	scopes := make([]*routev3.ScopedRouteConfiguration, 0, Shards(listener)+1)
	for _, shard := range AllShards(listener) {
		name := RouteConfigurationName(listener, shard)
		scopes = append(scopes, &routev3.ScopedRouteConfiguration{
			Name:                   name,
			RouteConfigurationName: name,
			Key: &routev3.ScopedRouteConfiguration_Key{Fragments: []*routev3.ScopedRouteConfiguration_Key_Fragment{{
				Type: &routev3.ScopedRouteConfiguration_Key_Fragment_StringKey{StringKey: name},
			}}},
		})
	}
	return scopes
}

// scopedRoutes makes a listener look its routes up by the scope header. Every listener
// has the same subscription to scopes, so Envoy holds them once.
func scopedRoutes() *hcmv3.HttpConnectionManager_ScopedRoutes {
	return &hcmv3.HttpConnectionManager_ScopedRoutes{ScopedRoutes: &hcmv3.ScopedRoutes{
		Name: "scopes",
		ScopeKeyBuilder: &hcmv3.ScopedRoutes_ScopeKeyBuilder{Fragments: []*hcmv3.ScopedRoutes_ScopeKeyBuilder_FragmentBuilder{{
			Type: &hcmv3.ScopedRoutes_ScopeKeyBuilder_FragmentBuilder_HeaderValueExtractor_{
				HeaderValueExtractor: &hcmv3.ScopedRoutes_ScopeKeyBuilder_FragmentBuilder_HeaderValueExtractor{
					Name:        scopeHeader,
					ExtractType: &hcmv3.ScopedRoutes_ScopeKeyBuilder_FragmentBuilder_HeaderValueExtractor_Index{},
				},
			},
		}}},
		RdsConfigSource: ads(shardFetch),
		ConfigSpecifier: &hcmv3.ScopedRoutes_ScopedRds{ScopedRds: &hcmv3.ScopedRds{ScopedRdsConfigSource: ads(shardFetch)}},
	}}
}

// scopeNormaliser is the filter that sets the scope header and, where clients come by
// TLS, answers 421 to requests for hosts of another section than their server name's. To
// requests with too many headers it answers 431.
func scopeNormaliser(l model.Listener, c chain) *hcmv3.HttpFilter {
	section := "nil"
	if c.section != "" {
		section = fmt.Sprintf("%q", c.section)
	}
	below := make([]string, len(c.below))
	for i, wild := range c.below {
		below[i] = fmt.Sprintf("%q", strings.TrimPrefix(wild, "*"))
	}
	count, kib := headerLimits(l)
	source := strings.NewReplacer(
		"HEADERS, BYTES", fmt.Sprintf("%d, %d, %d", count, ownHeaders, kib*1024+ownHeaderBytes),
		"LISTENER, TLS, SECTION", fmt.Sprintf("%q, %t, %s", string(l.ID), l.Protocol == model.ProtocolHTTPS, section),
		"{BELOW}", "{"+strings.Join(below, ", ")+"}",
		"MASK", strconv.Itoa(Shards(l.ID)-1),
	).Replace(bare(scopeSource))
	return httpFilter(scopeFilter, &luav3.Lua{
		DefaultSourceCode: &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: source}},
		ClearRouteCache:   wrapperspb.Bool(false), // the script says when
	})
}

// bare is a script without what only people read: every chain of every listener has it.
func bare(source string) string {
	var b strings.Builder
	for line := range strings.Lines(source) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "--") {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

// notesOfHost is what the normaliser is told of a virtual host; nil is nothing.
func notesOfHost(h model.VirtualHost, refuses bool) *corev3.Metadata {
	fields := map[string]*structpb.Value{hostName: structpb.NewStringValue(h.Host)}
	if h.Section != "" {
		fields[hostSection] = structpb.NewStringValue(h.Section)
	}
	if refuses {
		fields[noUpgrade] = structpb.NewBoolValue(true)
	}
	return withLogShare(notes(fields), h.Policy)
}

func notes(fields map[string]*structpb.Value) *corev3.Metadata {
	if len(fields) == 0 {
		return nil
	}
	return &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{scopeFilter: {Fields: fields}}}
}

// unknownHosts takes the hosts that a shard does not know and tells the normaliser so.
// A shard that has not arrived has no such virtual host: its hosts are answered 404 and
// not handed to a wildcard host, which may be another team's.
func unknownHosts() *routev3.VirtualHost {
	return &routev3.VirtualHost{
		Name:    "unknown host", // no host has a space
		Domains: []string{"*"},
		Routes: []*routev3.Route{{
			Metadata: notes(map[string]*structpb.Value{unknownHost: structpb.NewBoolValue(true)}),
			Match:    &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
			Action:   directResponse(404, ""),
		}},
	}
}
