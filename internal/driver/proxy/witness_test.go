package proxy

import (
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"fairlead.dev/internal/xds/envoytest"
)

// TestWitness: a listener waits for its routes, and is said to; then it serves, and the
// routes that requests find are those. An Envoy that is to be replaced is.
func TestWitness(t *testing.T) {
	dir := runDir(t)
	c := configure(t, dir)
	c.ADSSocket = filepath.Join(dir, "own.sock")
	l, err := net.Listen("unix", c.ADSSocket)
	if err != nil {
		t.Fatal(err)
	}
	ads := envoytest.NewADS()
	const routesURL = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
	ads.Withhold(routesURL, "front/7.x", true)
	pack := func(m proto.Message) *anypb.Any {
		a, err := anypb.New(m)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	manager := &hcmv3.HttpConnectionManager{
		StatPrefix: "front",
		RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{
			RouteConfigName: "front/7.x", ConfigSource: envoytest.Source(),
		}},
		HttpFilters: []*hcmv3.HttpFilter{{Name: "router", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: pack(&routerv3.Router{})}}},
	}
	err = ads.Set(&routev3.RouteConfiguration{Name: "front/7.x"}, &listenerv3.Listener{
		Name: "front", Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
			Address: "127.0.0.1", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 0},
		}}},
		FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{
			Name: "http", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: pack(manager)},
		}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ads.Serve(l)
	t.Cleanup(ads.Close)
	r := begin(t, c)
	var serving map[string]struct{}
	var warming map[string][]string
	look := func() {
		t.Helper()
		if serving, warming, err = r.s.Listeners(t.Context()); err != nil {
			serving, warming = nil, nil
		}
	}
	eventually(t, "the listener to wait", func() bool { look(); return len(warming["front"]) > 0 })
	if _, is := serving["front"]; is || !strings.Contains(strings.Join(warming["front"], " "), "front/7.x") {
		t.Errorf("serving %v, warming %v", serving, warming)
	}
	routes, err := r.s.Routes(t.Context(), []string{"front/7.x"})
	if err != nil || len(routes) != 0 {
		t.Errorf("routes %v, %v; want none", routes, err)
	}
	ads.Withhold(routesURL, "front/7.x", false)
	eventually(t, "the listener to serve", func() bool { look(); _, is := serving["front"]; return is && len(warming) == 0 })
	routes, err = r.s.Routes(t.Context(), []string{"front/7.x", "front/7yx", "other"})
	if err != nil || len(routes) != 1 || routes["front/7.x"] == "" {
		t.Errorf("routes %v, %v", routes, err)
	}
	if routes, err = r.s.Routes(t.Context(), []string{"front/7"}); err != nil || len(routes) != 0 {
		t.Errorf("routes of another name: %v, %v", routes, err)
	}
	old := r.ready(1)
	r.s.Replace("the test wants it")
	if now := r.ready(2); now == old {
		t.Error("the same process")
	}
	gone(t, old)
	if slices.Contains(holders(t, dir), old) {
		t.Error("the old process holds the lock")
	}
}
