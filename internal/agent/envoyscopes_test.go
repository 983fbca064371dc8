package agent

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/gate/gatetest"
)

// shardFetch is how long Envoy waits for what a listener's requests need, as our translation
// has it.
const shardFetch = 2 * time.Second

// scopeHeader carries the scope in these tests, where no normaliser sets it.
const scopeHeader = "x-scope"

// fetched says that a resource comes by ADS, within shardFetch.
func fetched() *corev3.ConfigSource {
	return &corev3.ConfigSource{
		ResourceApiVersion: corev3.ApiVersion_V3, InitialFetchTimeout: durationpb.New(shardFetch),
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
	}
}

// scopedListener finds its routes by scope, as the listeners of our translation do.
func (b *bench) scopedListener(name string, port int, salt string, options ...func(*listenerv3.Listener)) delta.Change {
	manager := &hcmv3.HttpConnectionManager{
		StatPrefix: name,
		ServerName: salt,
		RouteSpecifier: &hcmv3.HttpConnectionManager_ScopedRoutes{ScopedRoutes: &hcmv3.ScopedRoutes{
			Name: "scopes",
			ScopeKeyBuilder: &hcmv3.ScopedRoutes_ScopeKeyBuilder{Fragments: []*hcmv3.ScopedRoutes_ScopeKeyBuilder_FragmentBuilder{{
				Type: &hcmv3.ScopedRoutes_ScopeKeyBuilder_FragmentBuilder_HeaderValueExtractor_{
					HeaderValueExtractor: &hcmv3.ScopedRoutes_ScopeKeyBuilder_FragmentBuilder_HeaderValueExtractor{
						Name:        scopeHeader,
						ExtractType: &hcmv3.ScopedRoutes_ScopeKeyBuilder_FragmentBuilder_HeaderValueExtractor_Index{},
					},
				},
			}}},
			RdsConfigSource: fetched(),
			ConfigSpecifier: &hcmv3.ScopedRoutes_ScopedRds{ScopedRds: &hcmv3.ScopedRds{ScopedRdsConfigSource: fetched()}},
		}},
		HttpFilters: []*hcmv3.HttpFilter{{
			Name: "router", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: gatetest.AnyOf(b.t, &routerv3.Router{})},
		}},
	}
	l := &listenerv3.Listener{
		Name: name, Address: socket("127.0.0.1", port),
		FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{
			Name:       "envoy.filters.network.http_connection_manager",
			ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: gatetest.AnyOf(b.t, manager)},
		}}}},
	}
	for _, o := range options {
		o(l)
	}
	return delta.Change{Type: typeListener, Name: name, Resource: gatetest.Pack(b.t, name, l)}
}

// scope leads the header's value of its name to the routes of its name.
func (b *bench) scope(name string) delta.Change {
	return delta.Change{Type: typeScope, Name: name, Resource: gatetest.Pack(b.t, name, &routev3.ScopedRouteConfiguration{
		Name: name, RouteConfigurationName: name,
		Key: &routev3.ScopedRouteConfiguration_Key{Fragments: []*routev3.ScopedRouteConfiguration_Key_Fragment{{
			Type: &routev3.ScopedRouteConfiguration_Key_Fragment_StringKey{StringKey: name},
		}}},
	})}
}

// askScope sends one request for a host by a scope on a connection of its own.
func askScope(port int, scope, host string) (status int, body string, err error) {
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	req, err := http.NewRequest(http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/", port), nil)
	if err != nil {
		return 0, "", err
	}
	req.Host = host + ".example"
	req.Header.Set(scopeHeader, scope)
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// TestEnvoyAsksForScopesAgain: the only listener of a new Envoy is refused, since another
// process has its port, and Envoy forgets that it asked for scopes. When the port is free,
// the listener routes.
func TestEnvoyAsksForScopesAgain(t *testing.T) {
	b := newBench(t)
	b.plane(
		b.cluster("c", "s"), b.endpoints("s", b.backend("one")), b.scopedListener(listenerName, b.port, ""),
		b.scope(routesName), gatetest.Routes(t, routesName, hosts(0, 1)...),
	)
	b.stop()
	b.startAgent()
	other, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", b.port))
	if err != nil {
		t.Fatal(err)
	}
	e := b.startEnvoy()
	b.applies(listenerName)
	said := func(what string) {
		t.Helper()
		var lines []string
		eventually(t, "a line that says "+what, func() bool {
			lines = append(lines, b.log.lines()...)
			return len(lines) > 0
		})
		if len(lines) != 1 || !strings.HasPrefix(lines[0], what) {
			t.Errorf("logged %q, want %s", lines, what)
		}
	}
	said(fmt.Sprintf(`level=WARN msg="the proxy refuses a listener" listener=front reason="port %d is in use by another process`, b.port))
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	b.skip(10 * time.Second)
	b.applies()
	eventually(t, "the listener to route", func() bool {
		status, body, err := askScope(b.port, routesName, "h0")
		if err == nil && status != http.StatusOK {
			t.Fatalf("answered %d; Envoy said %s", status, e.Log())
		}
		return err == nil && body == "one"
	})
	said(`level=INFO msg="the proxy accepted the listener" listener=front`)
}
