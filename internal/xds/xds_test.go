package xds_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	matcherxds "github.com/cncf/xds/go/xds/type/matcher/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares a message with testdata/name.json.
func golden(t *testing.T, name string, m proto.Message) {
	t.Helper()
	body, err := protojson.Marshal(m)
	must(t, err)
	var out bytes.Buffer
	must(t, json.Indent(&out, body, "", "  ")) // protojson varies its spaces on purpose
	out.WriteByte('\n')
	file := filepath.Join("testdata", name+".json")
	if *update {
		must(t, os.WriteFile(file, out.Bytes(), 0o644))
		return
	}
	want, err := os.ReadFile(file)
	must(t, err)
	if !bytes.Equal(out.Bytes(), want) {
		t.Errorf("%s differs; run with -update and read the difference. Got:\n%s", file, out.Bytes())
	}
}

func TestGoldenRouteConfiguration(t *testing.T) {
	app := host("http-80", "app.example.com",
		model.Route{
			Name:  "HTTPRoute/team/app/rules/0/matches/0",
			Match: model.Match{Path: prefix("/api"), Method: "GET", Headers: []model.ValueMatch{{Name: "env", Value: "canary"}}},
			Forward: &model.Forward{
				Backends: []model.WeightedGroup{{Group: "team/app/80", Weight: 60}, {Group: "team/next/80", Weight: 40}},
				Timeout:  3 * time.Second, Path: &model.PathRewrite{Kind: model.RewritePrefix, Value: "/"},
			},
		},
		model.Route{
			Name:    "IngressRoute/team/app/routes/0",
			Match:   model.Match{Path: model.PathMatch{Kind: model.PathPrefix, Value: "/"}},
			Forward: &model.Forward{Backends: []model.WeightedGroup{{Group: "team/app/80", Weight: 1}, {Weight: 1}}, WebSocket: true},
		})
	golden(t, "route_configuration", xds.RouteConfiguration("http-80", xds.Shard("http-80", app.Host), []model.VirtualHost{app}))
}

// TestGoldenVirtualHost is also what the agent is held to: it must find every cluster that
// is named here.
func TestGoldenVirtualHost(t *testing.T) {
	everything := forward("HTTPRoute/team/app/rules/0/matches/0", "/all", "team/app/80", 1, "team/next/80", 1)
	everything.Forward.Mirrors = []model.Mirror{{Group: "team/mirror/80", Numerator: 1, Denominator: 2}}
	everything.Forward.Backends[1].RequestHeaders = &model.HeaderEdits{Set: []model.Header{{Name: "x-next", Value: "1"}}}
	everything.Policy = &model.RoutePolicy{
		Authorization: &model.Authorization{Service: "team/auth/9000", Timeout: time.Second},
		GlobalRateLimit: &model.GlobalRateLimit{
			Service: "team/limit/8081", Domain: "edge", Timeout: time.Second,
			Descriptors: []model.RateLimitSource{{Key: "client", ClientAddress: true}},
		},
	}
	h := host("http-80", "app.example.com", everything, forward("HTTPRoute/team/app/rules/1/matches/0", "/", "team/rest/80", 1))
	h.Policy = &model.RoutePolicy{Authorization: &model.Authorization{Service: "team/http-auth/80", HTTP: true, Timeout: time.Second}}
	golden(t, "virtual_host", xds.VirtualHost(h))

	tree := host("http-80", "tree.example.com")
	for i := range 40 {
		tree.Routes = append(tree.Routes, forward(fmt.Sprint("r", i), fmt.Sprintf("/%d", i), fmt.Sprintf("team/app%d/80", i%3), 1))
	}
	tree.Routes[39] = everything
	v := xds.VirtualHost(tree)
	v.GetMatcher().GetMatcherTree().GetPrefixMatchMap().Map = map[string]*matcherxds.Matcher_OnMatch{ // two leaves say how it is written
		"/1":   v.GetMatcher().GetMatcherTree().GetPrefixMatchMap().GetMap()["/1"],
		"/all": v.GetMatcher().GetMatcherTree().GetPrefixMatchMap().GetMap()["/all"],
	}
	golden(t, "virtual_host_tree", v)
}

func TestGoldenCluster(t *testing.T) {
	g := model.BackendGroup{ID: "team/app/80", Set: "team/app/80", HealthCheck: &model.HealthCheck{
		Path: "/status.html", Interval: 5 * time.Second, Timeout: 2 * time.Second, Unhealthy: 3, Healthy: 2,
	}}
	golden(t, "cluster", xds.Cluster(g))
	golden(t, "cluster_tls", xds.Cluster(model.BackendGroup{
		ID: "team/secure/443", Set: "team/secure/443", Protocol: model.BackendAuto, TLS: &model.BackendTLS{ServerName: "www.example.com"},
	}))
	golden(t, "load_assignment", xds.LoadAssignment(g, model.BackendSet{ID: g.Set, Backends: []model.Backend{
		{Address: netip.MustParseAddrPort("10.0.0.2:80"), State: model.BackendUnready},
		{Address: netip.MustParseAddrPort("[fd00::1]:80"), Zone: "b"},
		{Address: netip.MustParseAddrPort("10.0.0.1:80"), State: model.BackendDraining},
	}}, nil))
	judged := model.BackendSet{ID: g.Set}
	health := map[netip.AddrPort]model.Health{}
	for i, h := range []model.Health{model.HealthUnchecked, model.HealthUnknown, model.Healthy, model.Unhealthy} {
		for state := range model.BackendUnready + 1 {
			b := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i), byte(state)}), 80)
			judged.Backends, health[b] = append(judged.Backends, model.Backend{Address: b, State: state}), h
		}
	}
	golden(t, "load_assignment_health", xds.LoadAssignment(g, judged, func(b netip.AddrPort) (model.Health, string) {
		if health[b] == model.HealthUnchecked {
			return health[b], ""
		}
		return health[b], "of " + b.String()
	}))
}

func TestScopesAreUnique(t *testing.T) {
	names := map[string]bool{}
	for _, id := range []model.ListenerID{"http-80", "http-8080"} {
		scopes := xds.Scopes(id)
		if len(scopes) != xds.Shards(id)+1 {
			t.Fatalf("%d scopes", len(scopes))
		}
		for _, s := range scopes {
			key := s.GetKey().GetFragments()[0].GetStringKey()
			if names[s.GetName()] || key != s.GetName() || s.GetRouteConfigurationName() != s.GetName() {
				t.Fatalf("scope %v is not its own", s)
			}
			names[s.GetName()] = true
		}
	}
}

// TestOrderDoesNotMatter holds that shuffled hosts, backends and equal input give equal
// bytes.
func TestOrderDoesNotMatter(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for round := range 50 {
		var hosts []model.VirtualHost
		var set model.BackendSet
		for i := range 1 + r.IntN(20) {
			h := host("http-80", fmt.Sprintf("h%d.test", i))
			for j := range 1 + r.IntN(3) {
				h.Routes = append(h.Routes, forward(fmt.Sprint(j), fmt.Sprintf("/%d", r.IntN(9)), "a", 1+r.IntN(9), "b", r.IntN(9)))
			}
			hosts = append(hosts, h)
			set.Backends = append(set.Backends, model.Backend{
				Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 80), Zone: string('a' + rune(r.IntN(3))),
			})
		}
		g := model.BackendGroup{ID: "g"}
		rc, la := bytesOf(t, xds.RouteConfiguration("http-80", 1, hosts)), bytesOf(t, xds.LoadAssignment(g, set, nil))
		r.Shuffle(len(hosts), func(i, j int) {
			hosts[i], hosts[j] = hosts[j], hosts[i]
			set.Backends[i], set.Backends[j] = set.Backends[j], set.Backends[i]
		})
		if !bytes.Equal(rc, bytesOf(t, xds.RouteConfiguration("http-80", 1, hosts))) {
			t.Fatalf("round %d: route configuration depends on the order of hosts", round)
		}
		if !bytes.Equal(la, bytesOf(t, xds.LoadAssignment(g, set, nil))) {
			t.Fatalf("round %d: load assignment depends on the order of backends", round)
		}
	}
	l := model.Listener{ID: "http-80", Port: 80}
	o := xds.Options{AccessLog: "/dev/stdout"}
	want := bytesOf(t, xds.Listener(l, nil, o))
	for range 20 {
		if !bytes.Equal(want, bytesOf(t, xds.Listener(l, nil, o))) {
			t.Fatal("equal listeners differ in bytes")
		}
	}
}

func bytesOf(t *testing.T, m proto.Message) []byte {
	t.Helper()
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	must(t, err)
	return b
}

// TestInputIsLeftAlone holds that a conversion does not sort or change what it was given.
func TestInputIsLeftAlone(t *testing.T) {
	hosts := []model.VirtualHost{host("l", "b"), host("l", "a")}
	set := model.BackendSet{Backends: []model.Backend{
		{Address: netip.MustParseAddrPort("10.0.0.2:1")}, {Address: netip.MustParseAddrPort("10.0.0.1:1")},
	}}
	xds.RouteConfiguration("l", 1, hosts)
	xds.LoadAssignment(model.BackendGroup{}, set, nil)
	if hosts[0].Host != "b" || set.Backends[0].Address.Addr() != netip.MustParseAddr("10.0.0.2") {
		t.Error("input was reordered")
	}
}

// TestLargeWeights holds that Envoy can count the sum of weights, and that none becomes zero: it refuses
// the host otherwise.
func TestLargeWeights(t *testing.T) {
	many := []model.WeightedGroup{{Group: "a", Weight: math.MaxUint32}, {Group: "b", Weight: math.MaxUint32 - 126}}
	for i := range 127 { // in all just below twice the limit, and each of these is rounded up
		many = append(many, model.WeightedGroup{Group: model.GroupID(fmt.Sprintf("g%d", i)), Weight: 1})
	}
	for _, groups := range [][]model.WeightedGroup{{{Group: "a", Weight: math.MaxUint32}, {Group: "b", Weight: math.MaxUint32}, {Group: "c", Weight: 1}}, many} {
		v := xds.VirtualHost(host("l", "h", model.Route{Name: "r", Match: model.Match{Path: prefix("/")}, Forward: &model.Forward{Backends: groups}}))
		var sum uint64
		clusters := v.GetRoutes()[0].GetAction().(*routev3.Route_Route).Route.GetWeightedClusters().GetClusters()
		for _, c := range clusters {
			sum += uint64(c.GetWeight().GetValue())
			if c.GetWeight().GetValue() == 0 {
				t.Errorf("weight of %s became 0", c.GetName())
			}
		}
		if len(clusters) != len(groups) || sum > math.MaxUint32 {
			t.Errorf("%d clusters of %d with a sum of %d; envoy takes 32 bits", len(clusters), len(groups), sum)
		}
	}
}
