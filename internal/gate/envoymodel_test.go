package gate

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/gate/gatetest"
)

// envoyModel behaves towards a relay as Envoy 1.40 was seen to: it takes the good
// part of clusters it refuses, refuses route configurations whole, answers about
// clusters only when all are warm once it has started up, and asks for endpoints
// once. It asks for scopes with its first listener, a refused one too, drops them with its last
// one and does not ask for them again. Everything that it holds is checked at every step.
type envoyModel struct {
	t      testing.TB
	random *rand.Rand
	relay  *relay
	stream *delta.Stream

	clusters  map[string]*modelCluster // in use
	warming   map[string]*modelCluster
	endpoints map[string]string // version
	listeners map[string]string
	scopes    map[string]string // scope -> route configuration
	routes    map[string]*routev3.RouteConfiguration
	versions  map[delta.Type]map[string]string // accepted, as initial_resource_versions

	asked     map[delta.Type]map[string]bool // by name
	opened    map[delta.Type]bool
	outbox    []*discoveryv3.DeltaDiscoveryRequest
	inbox     []*discoveryv3.DeltaDiscoveryResponse
	held      *discoveryv3.DeltaDiscoveryRequest // an answer about clusters that waits
	greeted   bool                               // a first response about clusters was taken
	booted    bool
	scoped    bool            // it asked for scopes, and takes them for subscribed to for ever
	slow      map[string]bool // clusters whose health checks take their time
	nacks     int
	mends     int
	unchecked bool                               // do not look at everything at every step
	opens     int                                // streams that the relay has heard of
	listen    *discoveryv3.DeltaDiscoveryRequest // that the relay holds back
}

type modelCluster struct {
	version string
	set     string
	checks  bool // has health checks
	fed     bool
	checked bool
}

func newEnvoyModel(t testing.TB, random *rand.Rand, r *relay) *envoyModel {
	e := &envoyModel{t: t, random: random, relay: r}
	e.boot()
	return e
}

// boot is a new process.
func (e *envoyModel) boot() {
	e.clusters, e.warming = map[string]*modelCluster{}, map[string]*modelCluster{}
	e.endpoints, e.listeners, e.scopes = map[string]string{}, map[string]string{}, map[string]string{}
	e.routes = map[string]*routev3.RouteConfiguration{}
	e.versions = map[delta.Type]map[string]string{}
	for _, t := range Types {
		e.versions[t] = map[string]string{}
	}
	e.booted, e.greeted, e.scoped = false, false, false
	e.connect()
}

// connect opens a stream, as a new process or after the stream was lost.
func (e *envoyModel) connect() {
	e.outbox, e.inbox, e.held, e.listen = nil, nil, nil, nil
	e.asked, e.opened = map[delta.Type]map[string]bool{}, map[delta.Type]bool{}
	e.stream = e.relay.Connect(func() {})
	e.open(typeCluster)
	for _, name := range slices.Sorted(maps.Keys(e.sets())) {
		e.ask(typeEndpoint, name)
	}
	if e.booted {
		e.open(typeListener)
		if e.scoped {
			e.open(typeScope)
			e.askRoutes()
		}
	}
}

func (e *envoyModel) sets() map[string]bool {
	sets := map[string]bool{}
	for _, m := range []map[string]*modelCluster{e.clusters, e.warming} {
		for _, c := range m {
			sets[c.set] = true
		}
	}
	return sets
}

func (e *envoyModel) open(t delta.Type) {
	if !e.opened[t] {
		e.opened[t] = true
		e.outbox = append(e.outbox, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: string(t), InitialResourceVersions: maps.Clone(e.versions[t])})
	}
}

func (e *envoyModel) ask(t delta.Type, name string) {
	if e.asked[t] == nil {
		e.asked[t] = map[string]bool{}
	}
	if e.asked[t][name] {
		return
	}
	e.asked[t][name] = true
	req := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: string(t), ResourceNamesSubscribe: []string{name}}
	if !e.opened[t] {
		e.opened[t] = true
		req.InitialResourceVersions = maps.Clone(e.versions[t])
	}
	e.outbox = append(e.outbox, req)
}

func (e *envoyModel) forgo(t delta.Type, name string) {
	if e.asked[t][name] {
		delete(e.asked[t], name)
		delete(e.versions[t], name)
		e.outbox = append(e.outbox, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: string(t), ResourceNamesUnsubscribe: []string{name}})
	}
}

func (e *envoyModel) askRoutes() {
	want := map[string]bool{}
	for _, rc := range e.scopes {
		want[rc] = true
	}
	for _, rc := range slices.Sorted(maps.Keys(want)) {
		e.ask(typeRoute, rc)
	}
	for _, rc := range slices.Sorted(maps.Keys(e.asked[typeRoute])) {
		if !want[rc] {
			e.forgo(typeRoute, rc)
			delete(e.routes, rc)
		}
	}
}

// step does one thing, if there is one to do.
func (e *envoyModel) step() bool {
	type move func()
	var moves []move
	if e.relay.Ends(e.stream) {
		e.relay.Disconnect(e.stream)
		e.connect()
		return true
	}
	if len(e.outbox) > 0 {
		moves = append(moves, e.send)
	}
	if len(e.inbox) > 0 {
		moves = append(moves, e.receive)
	}
	if e.listen != nil {
		if ok, _ := e.relay.Warm(e.relay.now()); ok {
			moves = append(moves, func() {
				req := e.listen
				e.listen = nil
				e.pass(req)
			})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e.warming)) {
		c := e.warming[name]
		if c.fed && !c.checked && !e.slow[name] {
			moves = append(moves, func() { c.checked = true; e.useWarm() })
			break
		}
	}
	moves = append(moves, func() {
		if resp := e.relay.Next(e.stream); resp != nil {
			e.inbox = append(e.inbox, proto.CloneOf(resp))
		}
	})
	if look, wanted, _, _ := e.relay.Looks(e.relay.now()); wanted && e.booted {
		seen := e.see(look)
		moves = append(moves, func() { e.looked(e.relay.saw(look, seen)) })
	}
	if wanted, seq := e.relay.Polling(); wanted {
		names := slices.Sorted(maps.Keys(e.warming))
		moves = append(moves, func() { e.relay.polled(seq, names) })
	}
	before := fmt.Sprint(len(e.outbox), len(e.inbox), e.nacks, e.relay.seq, e.listen != nil)
	moves[e.random.IntN(len(moves))]()
	e.check()
	return before != fmt.Sprint(len(e.outbox), len(e.inbox), e.nacks, e.relay.seq, e.listen != nil)
}

// send lets the first request travel, as the relay takes them.
func (e *envoyModel) send() {
	req := e.outbox[0]
	e.outbox = e.outbox[1:]
	switch t := delta.Type(req.GetTypeUrl()); {
	case t == typeCluster && req.GetResponseNonce() == "":
		e.opens++
		var active map[string]struct{}
		if e.relay.AsksActive(req.GetInitialResourceVersions()) {
			active = map[string]struct{}{}
			for name := range e.clusters {
				active[name] = struct{}{}
			}
		}
		req = e.relay.open(e.stream, req, active)
	case t == typeListener && req.GetResponseNonce() == "" && len(req.GetInitialResourceVersions()) == 0:
		e.listen = req
		return
	}
	e.pass(req)
}

func (e *envoyModel) trace(what string, m proto.Message) {
	if *traceModel {
		e.t.Log(what, brief(m))
	}
}

var traceModel = flag.Bool("trace-model", false, "log what the model Envoy does")

func (e *envoyModel) pass(req *discoveryv3.DeltaDiscoveryRequest) {
	e.trace("-> ", req)
	served, err := e.relay.request(e.stream, req)
	if err != nil || !served {
		e.t.Fatalf("request %v: served %v, %v", req, served, err)
	}
}

// receive processes the first response.
func (e *envoyModel) receive() {
	resp := e.inbox[0]
	e.inbox = e.inbox[1:]
	t := delta.Type(resp.GetTypeUrl())
	e.trace("<- ", resp)
	answer := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: resp.GetTypeUrl(), ResponseNonce: resp.GetNonce()}
	var refused []string
	fed := map[string]bool{}
	for _, r := range resp.GetResources() {
		if !e.apply(t, r) {
			refused = append(refused, r.GetName())
			continue
		}
		e.versions[t][r.GetName()] = r.GetVersion()
		fed[r.GetName()] = true
	}
	for _, name := range resp.GetRemovedResources() {
		fed[name] = true // known not to exist
		e.remove(t, name)
		delete(e.versions[t], name)
	}
	if t == typeEndpoint {
		e.feed(fed)
	}
	if len(refused) > 0 {
		e.nacks++
		answer.ErrorDetail = &rpcstatus.Status{Code: 13, Message: fmt.Sprintf("bad resources: %v", refused)}
	}
	if t == typeCluster {
		e.greeted = true
		e.held = answer
		if !e.booted {
			e.outbox = append(e.outbox, answer)
			e.held = nil
		}
	} else {
		e.outbox = append(e.outbox, answer)
	}
	e.useWarm()
}

// useWarm moves warm clusters into use, and what waits for that.
func (e *envoyModel) useWarm() {
	if len(e.warming) == 0 {
		e.warming = map[string]*modelCluster{}
	}
	for name, c := range e.warming {
		if c.fed && (!c.checks || c.checked) {
			delete(e.warming, name)
			e.clusters[name] = c
		}
	}
	if len(e.warming) > 0 {
		return
	}
	if e.held != nil {
		e.outbox = append(e.outbox, e.held)
		e.held = nil
	}
	if e.greeted && !e.booted {
		e.booted = true
		e.open(typeListener)
	}
}

func unpack[M proto.Message](t testing.TB, r *discoveryv3.Resource, m M) M {
	if err := r.GetResource().UnmarshalTo(m); err != nil {
		t.Fatal(err)
	}
	return m
}

func (e *envoyModel) apply(t delta.Type, r *discoveryv3.Resource) bool {
	switch t {
	case typeCluster:
		c := unpack(e.t, r, &clusterv3.Cluster{})
		if c.GetAltStatName() == gatetest.Bad {
			return false
		}
		set := c.GetEdsClusterConfig().GetServiceName()
		e.warming[c.GetName()] = &modelCluster{version: r.GetVersion(), set: set, checks: len(c.GetHealthChecks()) > 0}
		e.ask(typeEndpoint, set)
	case typeEndpoint:
		c := unpack(e.t, r, &endpointv3.ClusterLoadAssignment{})
		if c.GetPolicy().GetDropOverloads() != nil {
			return false
		}
		e.endpoints[r.GetName()] = r.GetVersion()
	case typeListener:
		l := unpack(e.t, r, &listenerv3.Listener{})
		e.scoped = true
		e.open(typeScope)
		if l.GetStatPrefix() == gatetest.Bad {
			e.unscope()
			return false
		}
		e.listeners[r.GetName()] = r.GetVersion()
		e.askRoutes()
	case typeScope:
		if len(e.listeners) == 0 {
			return true // it answers for nobody
		}
		s := unpack(e.t, r, &routev3.ScopedRouteConfiguration{})
		e.scopes[r.GetName()] = s.GetRouteConfigurationName()
		e.askRoutes()
	case typeRoute:
		rc := unpack(e.t, r, &routev3.RouteConfiguration{})
		for _, v := range rc.GetVirtualHosts() {
			if len(v.GetRequestHeadersToRemove()) > 0 {
				return false
			}
		}
		e.routes[r.GetName()] = rc
	}
	return true
}

// feed gives endpoints to the clusters that wait for them.
func (e *envoyModel) feed(sets map[string]bool) {
	for _, c := range e.warming {
		c.fed = c.fed || sets[c.set]
	}
}

func (e *envoyModel) remove(t delta.Type, name string) {
	switch t {
	case typeCluster:
		delete(e.clusters, name)
		delete(e.warming, name)
		sets := e.sets()
		for _, set := range slices.Sorted(maps.Keys(e.asked[typeEndpoint])) {
			if !sets[set] {
				e.forgo(typeEndpoint, set)
				delete(e.endpoints, set)
			}
		}
	case typeListener:
		delete(e.listeners, name)
		e.unscope()
	case typeScope:
		delete(e.scopes, name)
		e.askRoutes()
	}
}

// see is what the admin interface would say.
func (e *envoyModel) see(look Look) Seen {
	seen := Seen{Serving: map[string]struct{}{}, Warming: map[string][]string{}, Routes: map[string]string{}}
	for name := range e.listeners {
		seen.Serving[name] = struct{}{}
	}
	for _, name := range look.Routes {
		if e.routes[name] != nil {
			seen.Routes[name] = e.versions[typeRoute][name]
		}
	}
	return seen
}

// looked counts what is done about what is not used.
func (e *envoyModel) looked(m Mend) {
	if m.Step != MendNothing {
		e.trace("mend "+m.Describe()+": "+m.Reason, &rpcstatus.Status{})
		e.mends++
	}
}

// unscope drops the scopes if no listener is left to use them, and says nothing of it.
func (e *envoyModel) unscope() {
	if len(e.listeners) == 0 {
		clear(e.scopes)
		e.askRoutes()
	}
}

// check holds what Envoy has against the gate's promise.
func (e *envoyModel) check() {
	if e.unchecked {
		return
	}
	for name, rc := range e.routes {
		for _, v := range rc.GetVirtualHosts() {
			for _, c := range clustersOf(v) {
				if e.clusters[c] == nil {
					e.t.Logf("gate: %+v", e.relay.clusters[c])
					e.t.Fatalf("%s/%s names cluster %s, which Envoy does not have warm", name, v.GetName(), c)
				}
			}
		}
	}
}

// brief is a message on one line.
func brief(m proto.Message) string {
	text := prototext.MarshalOptions{}.Format(m)
	if resp, ok := m.(*discoveryv3.DeltaDiscoveryResponse); ok {
		var names []string
		for _, r := range resp.GetResources() {
			names = append(names, r.GetName()+"@"+r.GetVersion())
		}
		text = fmt.Sprintf("%s %v removed %v nonce %s", resp.GetTypeUrl(), names, resp.GetRemovedResources(), resp.GetNonce())
	}
	return strings.ReplaceAll(text, "type.googleapis.com/envoy.config.", "")
}
