package agent

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	datav3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	runtimev3 "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"fairlead.dev/internal/model"
)

const (
	// sampleLife is how long the proxy samples on without its agent, and sampleAgain how often the agent renews that.
	sampleLife  = 9 * time.Second
	sampleAgain = 3 * time.Second
	// wholeSample is all requests, in percent.
	wholeSample = 100
	runtimeType = "type.googleapis.com/envoy.service.runtime.v3.Runtime"
)

// sampler has the proxy send records of requests while somebody wants them, and hands them on. The proxy stops by
// itself when the agent is gone: what asks for records has a short life (ADR 59).
type sampler struct {
	mu      sync.Mutex
	wanted  map[*sampling]uint32 // and how many percent of the requests
	version uint64               // of what the proxy is told
	streams map[signal]bool

	exemplars func(*datav3.HTTPAccessLogEntry) // takes traced requests, like sampling.take; nil: nobody
}

// sampling is what one consumer takes. take is called by several goroutines at once and must not block.
type sampling struct {
	take func(*datav3.HTTPAccessLogEntry)
}

func newSampler() *sampler {
	return &sampler{wanted: map[*sampling]uint32{}, streams: map[signal]bool{}}
}

// want has records handed to a consumer, of so many percent of the requests; 0 ends that. Where several consumers want
// records, each gets those that are sampled for the most demanding.
func (s *sampler) want(c *sampling, fraction uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.fraction()
	if fraction == 0 {
		delete(s.wanted, c)
	} else {
		s.wanted[c] = fraction
	}
	if s.fraction() == before {
		return
	}
	s.version++
	for wake := range s.streams {
		wake.raise()
	}
}

// fraction is the largest that is wanted. s.mu is held.
func (s *sampler) fraction() uint32 {
	most := uint32(0)
	for _, f := range s.wanted {
		most = max(most, f)
	}
	return most
}

// able says whether the proxy has asked what to sample. One that an earlier agent started does not.
func (s *sampler) able() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.streams) > 0
}

// register adds the services by which the proxy asks what to sample, and sends it.
func (s *sampler) register(g grpc.ServiceRegistrar) {
	runtimev3.RegisterRuntimeDiscoveryServiceServer(g, runtimeServer{sampler: s})
	accesslogv3.RegisterAccessLogServiceServer(g, recordServer{sampler: s})
}

// runtimeServer tells the proxy what to sample.
type runtimeServer struct {
	runtimev3.UnimplementedRuntimeDiscoveryServiceServer
	*sampler
}

// DeltaRuntime serves one stream of the proxy.
func (s runtimeServer) DeltaRuntime(st runtimev3.RuntimeDiscoveryService_DeltaRuntimeServer) error {
	first, err := st.Recv()
	if err != nil {
		return err
	}
	if names := first.GetResourceNamesSubscribe(); !slices.Contains(names, model.TapLayer) {
		return fmt.Errorf("the proxy asks for %d layers, and not for %s", len(names), model.TapLayer)
	}
	ctx, cancel := context.WithCancel(st.Context())
	defer cancel()
	go func() { // acknowledgements say nothing new
		defer cancel()
		for {
			if _, err := st.Recv(); err != nil {
				return
			}
		}
	}()
	wake := newSignal()
	s.mu.Lock()
	s.streams[wake] = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.streams, wake)
	}()
	renew := time.NewTicker(sampleAgain)
	defer renew.Stop()
	for sent := uint64(1); ; sent++ {
		response, on := s.layer(sent)
		if err := st.Send(response); err != nil {
			return fmt.Errorf("tell the proxy what to sample: %w", err)
		}
		var again <-chan time.Time
		if on {
			again = renew.C
		}
		select {
		case <-wake:
		case <-again:
		case <-ctx.Done():
			return nil
		}
	}
}

// layer is what the proxy is told, and whether that must be renewed.
func (s *sampler) layer(nonce uint64) (_ *discoveryv3.DeltaDiscoveryResponse, on bool) {
	s.mu.Lock()
	fraction, version := s.fraction(), s.version
	s.mu.Unlock()
	layer := &runtimev3.Runtime{Name: model.TapLayer, Layer: &structpb.Struct{Fields: map[string]*structpb.Value{}}}
	resource := &discoveryv3.Resource{Name: model.TapLayer, Version: strconv.FormatUint(version, 10)}
	if fraction > 0 {
		// Envoy 1.40 takes a whole number for percent, and no notice of a struct with numerator and denominator.
		layer.Layer.Fields[model.TapKey] = structpb.NewNumberValue(float64(min(fraction, wholeSample)))
		resource.Ttl = durationpb.New(sampleLife)
		resource.Version += "+" + strconv.FormatUint(nonce, 10)
	}
	packed, err := anypb.New(layer)
	if err != nil {
		panic("bug: pack a runtime layer: " + err.Error())
	}
	resource.Resource = packed
	return &discoveryv3.DeltaDiscoveryResponse{
		TypeUrl: runtimeType, Nonce: strconv.FormatUint(nonce, 10), Resources: []*discoveryv3.Resource{resource}, SystemVersionInfo: resource.GetVersion(),
	}, fraction > 0
}

// recordServer takes what the proxy sends.
type recordServer struct {
	accesslogv3.UnimplementedAccessLogServiceServer
	*sampler
}

// StreamAccessLogs takes the records of one thread of the proxy.
func (s recordServer) StreamAccessLogs(st accesslogv3.AccessLogService_StreamAccessLogsServer) error {
	for first := true; ; first = false {
		m, err := st.Recv()
		if err != nil {
			return err
		}
		if first && m.GetIdentifier().GetLogName() == model.ExemplarLog {
			return s.takeExemplars(m, st)
		}
		s.mu.Lock()
		consumers := slices.Collect(maps.Keys(s.wanted))
		s.mu.Unlock()
		for _, entry := range m.GetHttpLogs().GetLogEntry() {
			for _, c := range consumers {
				c.take(entry)
			}
		}
	}
}
