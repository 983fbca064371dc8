package envoytest

import (
	"sync/atomic"
	"time"

	datav3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	loadv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	runtimev3 "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"fairlead.dev/internal/model"
)

// Samples says what Envoy's layer of the runtime for samples has, and takes the records that Envoy sends.
type Samples struct {
	runtimev3.UnimplementedRuntimeDiscoveryServiceServer
	accesslogv3.UnimplementedAccessLogServiceServer
	loadv3.UnimplementedLoadReportingServiceServer

	// Loads are Envoy's reports of the clusters that Measure names. Those that nobody reads are lost.
	Loads chan *loadv3.LoadStatsRequest
	loads chan []string
	// Records are those of model.TapLayer's log, and Exemplars those of model.ExemplarLog. Those that nobody reads are lost.
	Records, Exemplars chan *datav3.HTTPAccessLogEntry

	asked  atomic.Int32
	layers chan map[string]any
}

func newSamples() *Samples {
	return &Samples{
		Loads: make(chan *loadv3.LoadStatsRequest, 1024), loads: make(chan []string),
		Records: make(chan *datav3.HTTPAccessLogEntry, 1024), Exemplars: make(chan *datav3.HTTPAccessLogEntry, 1024), layers: make(chan map[string]any),
	}
}

// Set replaces what the layer has. It waits for Envoy to ask.
func (s *Samples) Set(layer map[string]any) { s.layers <- layer }

// Measure has Envoy report the loads of clusters. It waits for Envoy to ask.
func (s *Samples) Measure(clusters ...string) { s.loads <- clusters }

// StreamLoadStats takes Envoy's reports.
func (s *Samples) StreamLoadStats(st loadv3.LoadReportingService_StreamLoadStatsServer) error {
	go func() {
		for {
			m, err := st.Recv()
			if err != nil {
				return
			}
			select {
			case s.Loads <- m:
			default:
			}
		}
	}()
	for {
		select {
		case clusters := <-s.loads:
			if err := st.Send(&loadv3.LoadStatsResponse{
				Clusters: clusters, ReportEndpointGranularity: true, LoadReportingInterval: durationpb.New(200 * time.Millisecond),
			}); err != nil {
				return err
			}
		case <-st.Context().Done():
			return nil
		}
	}
}

// DeltaRuntime serves one stream of Envoy.
func (s *Samples) DeltaRuntime(st runtimev3.RuntimeDiscoveryService_DeltaRuntimeServer) error {
	first, err := st.Recv()
	if err != nil {
		return err
	}
	go func() {
		for {
			if _, err := st.Recv(); err != nil {
				return
			}
		}
	}()
	for layer := map[string]any{}; ; {
		fields, err := structpb.NewStruct(layer)
		if err != nil {
			return err
		}
		for _, name := range first.GetResourceNamesSubscribe() {
			body, err := anypb.New(&runtimev3.Runtime{Name: name, Layer: fields})
			if err != nil {
				return err
			}
			version := string(rune('a' + s.asked.Add(1)%26))
			if err := st.Send(&discoveryv3.DeltaDiscoveryResponse{
				TypeUrl: body.GetTypeUrl(), Nonce: version, Resources: []*discoveryv3.Resource{{Name: name, Version: version, Resource: body}},
			}); err != nil {
				return err
			}
		}
		select {
		case layer = <-s.layers:
		case <-st.Context().Done():
			return nil
		}
	}
}

// StreamAccessLogs takes the records of one thread of Envoy.
func (s *Samples) StreamAccessLogs(st accesslogv3.AccessLogService_StreamAccessLogsServer) error {
	records := s.Records
	for {
		m, err := st.Recv()
		if err != nil {
			return err
		}
		if m.GetIdentifier().GetLogName() == model.ExemplarLog { // the first message has it
			records = s.Exemplars
		}
		for _, entry := range m.GetHttpLogs().GetLogEntry() {
			select {
			case records <- entry:
			default:
			}
		}
	}
}
