package envoytest

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	loadv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	runtimev3 "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
)

// typeOrder is the order in which changes of several types are sent: what is named
// comes before what names it.
var typeOrder = [...]string{
	clusterURL,
	"type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
	"type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
	"type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration",
	"type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
	"type.googleapis.com/envoy.config.listener.v3.Listener",
}

// Nack is one response that Envoy refused.
type Nack struct {
	TypeURL string
	Names   []string // resources of the response
	Message string
}

// ADS is a delta ADS server over an in-memory set of resources. Its methods may be
// called from any goroutine.
type ADS struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced at every change of anything below
	types    map[string]map[string]*discoveryv3.Resource
	history  map[string][]string // names of a type in the order in which they changed
	withheld map[string]bool     // type URL + "\x00" + name: neither sent nor said to be missing
	acked    map[string]map[string]string
	asked    map[string]map[string]bool
	nacks    []Nack
	server   *grpc.Server

	Samples *Samples
}

// clusterURL is the type of which each change makes the load assignments travel again.
const clusterURL = "type.googleapis.com/envoy.config.cluster.v3.Cluster"

// NewADS makes a server without resources.
func NewADS() *ADS {
	return &ADS{
		changed:  make(chan struct{}),
		types:    map[string]map[string]*discoveryv3.Resource{},
		history:  map[string][]string{},
		withheld: map[string]bool{},
		acked:    map[string]map[string]string{},
		asked:    map[string]map[string]bool{},
		Samples:  newSamples(),
	}
}

// Serve answers Envoys at l until Close. It does not block.
func (a *ADS) Serve(l net.Listener) {
	a.server = grpc.NewServer(grpc.MaxRecvMsgSize(64 << 20))
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(a.server, a)
	runtimev3.RegisterRuntimeDiscoveryServiceServer(a.server, a.Samples)
	accesslogv3.RegisterAccessLogServiceServer(a.server, a.Samples)
	loadv3.RegisterLoadReportingServiceServer(a.server, a.Samples)
	go func() { _ = a.server.Serve(l) }()
}

// Close ends every stream.
func (a *ADS) Close() {
	if a.server != nil {
		a.server.Stop()
	}
}

func (a *ADS) broadcast() {
	close(a.changed)
	a.changed = make(chan struct{})
}

// Set adds or replaces resources, by their name or, for a ClusterLoadAssignment,
// its cluster name.
func (a *ADS) Set(resources ...proto.Message) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, m := range resources {
		body, err := (proto.MarshalOptions{Deterministic: true}).Marshal(m)
		if err != nil {
			return fmt.Errorf("marshal %T: %w", m, err)
		}
		url := TypeURL(m)
		sum := sha256.Sum256(body)
		if a.types[url] == nil {
			a.types[url] = map[string]*discoveryv3.Resource{}
		}
		name := Name(m)
		a.types[url][name] = &discoveryv3.Resource{
			Name: name, Version: hex.EncodeToString(sum[:8]), Resource: &anypb.Any{TypeUrl: url, Value: body},
		}
		a.history[url] = append(a.history[url], name)
	}
	a.broadcast()
	return nil
}

// Remove takes resources away.
func (a *ADS) Remove(typeURL string, names ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, n := range names {
		delete(a.types[typeURL], n)
	}
	a.history[typeURL] = append(a.history[typeURL], names...)
	a.broadcast()
}

// Withhold leaves a name unanswered, as a slow server would, or ends that.
func (a *ADS) Withhold(typeURL, name string, on bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.withheld[typeURL+"\x00"+name] = on
	a.history[typeURL] = append(a.history[typeURL], name)
	a.broadcast()
}

// Nacks are the refusals so far, oldest first.
func (a *ADS) Nacks() []Nack {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.nacks)
}

// Acked waits until Envoy has acknowledged the present version of a resource, or
// has refused any response meanwhile.
func (a *ADS) Acked(ctx context.Context, typeURL, name string) error {
	return a.wait(ctx, "acknowledgement of "+typeURL+" "+name, func() (bool, error) {
		if len(a.nacks) > 0 {
			n := a.nacks[len(a.nacks)-1]
			return false, fmt.Errorf("envoy refused %s %v: %s", n.TypeURL, n.Names, n.Message)
		}
		r := a.types[typeURL][name]
		return r != nil && a.acked[typeURL][name] == r.Version, nil
	})
}

// Refused waits until Envoy has refused a response with the named resource.
func (a *ADS) Refused(ctx context.Context, typeURL, name string) (n Nack, err error) {
	err = a.wait(ctx, "refusal of "+typeURL+" "+name, func() (bool, error) {
		for _, n = range a.nacks {
			if n.TypeURL == typeURL && slices.Contains(n.Names, name) {
				return true, nil
			}
		}
		return false, nil
	})
	return n, err
}

func (a *ADS) wait(ctx context.Context, what string, done func() (bool, error)) error {
	for {
		a.mu.Lock()
		ok, err := done()
		changed := a.changed
		a.mu.Unlock()
		if ok || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, ctx.Err())
		}
	}
}

// stream is what one Envoy wants of one type and has been sent.
type stream struct {
	wildcard bool
	names    map[string]bool // wanted by name
	sent     map[string]string
	missing  map[string]bool // answered with removed_resources
	greeted  bool            // a wildcard is answered even when there is nothing
	todo     []string        // names to look at
	seen     int             // how much of the type's history was looked at
}

// DeltaAggregatedResources serves one Envoy.
func (a *ADS) DeltaAggregatedResources(st discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	requests := make(chan *discoveryv3.DeltaDiscoveryRequest)
	recv := make(chan error, 1)
	go func() {
		for {
			q, err := st.Recv()
			if err != nil {
				recv <- err
				return
			}
			select {
			case requests <- q:
			case <-st.Context().Done():
				return
			}
		}
	}()
	streams := map[string]*stream{}
	outstanding := map[string]*discoveryv3.DeltaDiscoveryResponse{}
	nonce := 0
	for {
		a.mu.Lock()
		changed := a.changed
		var out []*discoveryv3.DeltaDiscoveryResponse
		for _, url := range typeOrder {
			if s := streams[url]; s != nil {
				r := a.response(url, s)
				if r == nil {
					continue
				}
				out = append(out, r)
				if eds := streams[typeOrder[1]]; url == clusterURL && eds != nil {
					// Envoy does not ask again for the endpoints of a cluster that it replaces.
					for _, c := range r.Resources {
						delete(eds.sent, endpointsOf(c))
						eds.todo = append(eds.todo, endpointsOf(c))
					}
				}
			}
		}
		a.mu.Unlock()
		for _, r := range out {
			nonce++
			r.Nonce = fmt.Sprint(nonce)
			outstanding[r.Nonce] = r
			if err := st.Send(r); err != nil {
				return fmt.Errorf("send %s: %w", r.TypeUrl, err)
			}
		}
		select {
		case err := <-recv:
			return err
		case <-changed:
		case q := <-requests:
			if !slices.Contains(typeOrder[:], q.TypeUrl) {
				return fmt.Errorf("unknown type %s: %w", q.TypeUrl, errors.ErrUnsupported)
			}
			a.request(streams, q)
			if r := outstanding[q.ResponseNonce]; r != nil {
				delete(outstanding, q.ResponseNonce)
				a.answered(r, q)
			}
		}
	}
}

// request folds subscriptions into the stream's state.
func (a *ADS) request(streams map[string]*stream, q *discoveryv3.DeltaDiscoveryRequest) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := streams[q.TypeUrl]
	if s == nil {
		s = &stream{names: map[string]bool{}, sent: map[string]string{}, missing: map[string]bool{}}
		s.wildcard = len(q.ResourceNamesSubscribe) == 0
		maps.Copy(s.sent, q.InitialResourceVersions)
		s.todo = slices.Concat(slices.Collect(maps.Keys(s.sent)), slices.Collect(maps.Keys(a.types[q.TypeUrl])))
		s.seen = len(a.history[q.TypeUrl])
		streams[q.TypeUrl] = s
	}
	if a.asked[q.TypeUrl] == nil {
		a.asked[q.TypeUrl] = map[string]bool{}
	}
	for _, n := range q.ResourceNamesSubscribe {
		if n == "*" {
			s.wildcard = true
			s.todo = append(s.todo, slices.Collect(maps.Keys(a.types[q.TypeUrl]))...)
			continue
		}
		a.asked[q.TypeUrl][n] = true
		s.names[n] = true
		delete(s.sent, n) // a repeated subscription asks for the resource again
		delete(s.missing, n)
		s.todo = append(s.todo, n)
	}
	for _, n := range q.ResourceNamesUnsubscribe {
		if n == "*" {
			s.wildcard = false
		}
		delete(s.names, n)
		if !s.wildcard {
			delete(s.sent, n)
		}
	}
}

// response is the difference between what the stream wants and has, or nil.
func (a *ADS) response(url string, s *stream) *discoveryv3.DeltaDiscoveryResponse {
	todo := append(s.todo, a.history[url][s.seen:]...)
	s.todo, s.seen = nil, len(a.history[url])
	slices.Sort(todo)
	r := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: url}
	for _, name := range slices.Compact(todo) {
		if a.withheld[url+"\x00"+name] || !s.wildcard && !s.names[name] {
			continue
		}
		res, sent := a.types[url][name], s.sent[name]
		switch {
		case res != nil && sent != res.Version:
			r.Resources = append(r.Resources, res)
			s.sent[name] = res.Version
			delete(s.missing, name)
		case res == nil && (sent != "" || s.names[name] && !s.missing[name]):
			r.RemovedResources = append(r.RemovedResources, name)
			delete(s.sent, name)
			s.missing[name] = true
		}
	}
	first := s.wildcard && !s.greeted
	s.greeted = true
	if len(r.Resources) == 0 && len(r.RemovedResources) == 0 && !first {
		return nil
	}
	return r
}

func (a *ADS) answered(r *discoveryv3.DeltaDiscoveryResponse, q *discoveryv3.DeltaDiscoveryRequest) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if q.ErrorDetail != nil {
		n := Nack{TypeURL: q.TypeUrl, Message: q.ErrorDetail.Message}
		for _, res := range r.Resources {
			n.Names = append(n.Names, res.Name)
		}
		a.nacks = append(a.nacks, n)
	} else {
		if a.acked[q.TypeUrl] == nil {
			a.acked[q.TypeUrl] = map[string]string{}
		}
		for _, res := range r.Resources {
			a.acked[q.TypeUrl][res.Name] = res.Version
		}
	}
	a.broadcast()
}

// endpointsOf is the name of the load assignment of a cluster.
func endpointsOf(r *discoveryv3.Resource) string {
	var c clusterv3.Cluster
	if err := r.Resource.UnmarshalTo(&c); err != nil {
		return ""
	}
	return cmp.Or(c.GetEdsClusterConfig().GetServiceName(), c.GetName())
}

// TypeURL is the type URL under which a resource is served.
func TypeURL(m proto.Message) string {
	return "type.googleapis.com/" + string(m.ProtoReflect().Descriptor().FullName())
}

// Name is the name under which a resource is served.
func Name(m proto.Message) string {
	r := m.ProtoReflect()
	for _, field := range []protoreflect.Name{"name", "cluster_name"} {
		if f := r.Descriptor().Fields().ByName(field); f != nil {
			return r.Get(f).String()
		}
	}
	return ""
}

// Source is the config source "this ADS stream".
func Source() *corev3.ConfigSource {
	return &corev3.ConfigSource{
		ResourceApiVersion:    corev3.ApiVersion_V3,
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
	}
}
