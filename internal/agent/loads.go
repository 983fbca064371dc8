package agent

import (
	"bytes"
	"context"
	"maps"
	"math"
	"net/netip"
	"slices"
	"sync"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/traffic"
)

const (
	// loadGap is how often the proxy reports the measured groups.
	loadGap = time.Second
	// maxMeasured bounds those groups, and mostBackends their backends. The plane measures no more groups; a group that comes before another
	// one goes waits for it.
	maxMeasured, mostBackends = model.MaxMeasuredGroups, 50_000
	// longestWait is more than any answer may take, in microseconds: what says more is no time.
	longestWait = 24 * 3600 * 1e6
)

// loads have the proxy report what it counts of each backend of the measured groups, and add it up (ADR 63). The proxy is told which
// groups those are by the plane's own resources: their clusters name the metric.
type loads struct {
	// assigned is the load assignment that the proxy has of a group.
	assigned func(group string) (delta.Resource, bool)
	now      func() time.Time

	mu      sync.Mutex
	names   map[string]bool // of the measured groups; false: there are too many, and it waits
	asked   int             // number of those that do not wait
	read    map[string]string
	streams map[signal]bool
	sums    *traffic.Loads
	reports uint64
}

func newLoads(assigned func(group string) (delta.Resource, bool), now func() time.Time) *loads {
	return &loads{
		assigned: assigned, now: now, names: map[string]bool{}, read: map[string]string{}, streams: map[signal]bool{}, sums: traffic.NewLoads(mostBackends, mostBackends/4, model.MaxNamedBackends),
	}
}

// isMeasured says whether a cluster is of a measured group. Texts of teams are in a cluster, too, so that the name of the metric is
// somewhere in it says nothing yet.
func isMeasured(body []byte) bool {
	if !bytes.Contains(body, []byte(model.FirstByteMetric)) {
		return false
	}
	var c clusterv3.Cluster
	return proto.Unmarshal(body, &c) == nil && len(c.GetLrsReportEndpointMetrics()) > 0
}

// see notes whether a group is measured.
func (l *loads) see(c delta.Change) {
	if c.Type != typeCluster {
		return
	}
	measured := c.Resource != nil && isMeasured(c.Resource.Body.GetValue())
	l.mu.Lock()
	defer l.mu.Unlock()
	read, known := l.names[c.Name]
	switch {
	case measured == known:
		return
	case measured:
		l.names[c.Name] = false
		l.fill()
	default:
		delete(l.names, c.Name)
		delete(l.read, c.Name)
		l.sums.Forget(model.GroupID(c.Name))
		if read {
			l.asked--
			l.fill()
		}
	}
	for wake := range l.streams {
		wake.raise()
	}
}

// fill measures the first groups, by name, of those that wait, while there is room.
func (l *loads) fill() {
	if l.asked >= maxMeasured || l.asked == len(l.names) {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(l.names)) {
		if !l.names[name] && l.asked < maxMeasured {
			l.names[name], l.asked = true, l.asked+1
		}
	}
}

// register adds the service by which the proxy reports.
func (l *loads) register(g grpc.ServiceRegistrar) {
	loadv3.RegisterLoadReportingServiceServer(g, loadServer{loads: l})
}

type loadServer struct {
	loadv3.UnimplementedLoadReportingServiceServer
	*loads
}

// StreamLoadStats serves one stream of the proxy.
func (s loadServer) StreamLoadStats(st loadv3.LoadReportingService_StreamLoadStatsServer) error {
	ctx, cancel := context.WithCancel(st.Context())
	defer cancel()
	wake := newSignal()
	s.follow(wake, true)
	defer s.follow(wake, false)
	go func() {
		defer cancel()
		for {
			m, err := st.Recv()
			if err != nil {
				return
			}
			s.take(m)
		}
	}()
	for told := []string(nil); ; {
		if names := s.wanted(); !slices.Equal(names, told) {
			err := st.Send(&loadv3.LoadStatsResponse{Clusters: names, ReportEndpointGranularity: true, LoadReportingInterval: durationpb.New(loadGap)})
			if err != nil {
				return err
			}
			told = names
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return nil
		}
	}
}

// follow begins or ends to tell a stream which groups are measured.
func (l *loads) follow(wake signal, on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if on {
		l.streams[wake] = true
		return
	}
	delete(l.streams, wake)
	if len(l.streams) == 0 {
		l.sums.Stop()
	}
}

// wanted are the measured groups, sorted.
func (l *loads) wanted() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	names := make([]string, 0, l.asked)
	for name, read := range l.names {
		if read {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// take adds a report.
func (l *loads) take(m *loadv3.LoadStatsRequest) {
	for _, c := range m.GetClusterStats() {
		name := c.GetClusterName()
		backends, changed, there := l.backends(name)
		l.mu.Lock()
		if l.names[name] && there {
			if changed != "" && l.sums.Keep(model.GroupID(name), backends) {
				l.read[name] = changed // else it is read again
			}
			l.sums.Add(l.now(), model.GroupID(name), backendLoads(c))
			l.reports++
		}
		l.mu.Unlock()
	}
}

// backends are those that the proxy has of a group, if they may be others than at the last call; changed is then their version.
func (l *loads) backends(group string) (list []netip.AddrPort, changed string, there bool) {
	r, there := l.assigned(group)
	if !there {
		return nil, "", false
	}
	l.mu.Lock()
	same := l.read[group] == r.Version
	l.mu.Unlock()
	if same {
		return nil, "", true
	}
	var m endpointv3.ClusterLoadAssignment
	if err := unmarshal(&r, &m); err != nil {
		return nil, "", false
	}
	for _, locality := range m.GetEndpoints() {
		for _, e := range locality.GetLbEndpoints() {
			at := e.GetEndpoint().GetAddress().GetSocketAddress()
			if address, err := netip.ParseAddr(at.GetAddress()); err == nil {
				list = append(list, netip.AddrPortFrom(address.Unmap(), uint16(at.GetPortValue())))
			}
		}
	}
	return list, r.Version, true
}

// backendLoads are what a report says of a group's backends.
func backendLoads(c *endpointv3.ClusterStats) []model.BackendLoad {
	var list []model.BackendLoad
	for _, locality := range c.GetUpstreamLocalityStats() {
		for _, e := range locality.GetUpstreamEndpointStats() {
			at := e.GetAddress().GetSocketAddress()
			address, err := netip.ParseAddr(at.GetAddress())
			if err != nil {
				continue
			}
			b := model.BackendLoad{
				Address: netip.AddrPortFrom(address.Unmap(), uint16(at.GetPortValue())), Requests: e.GetTotalIssuedRequests(),
				Succeeded: e.GetTotalSuccessfulRequests(), Failed: e.GetTotalErrorRequests(), InFlight: e.GetTotalRequestsInProgress(),
			}
			for _, load := range e.GetLoadMetricStats() {
				n, micros := load.GetNumRequestsFinishedWithMetric(), load.GetTotalMetricValue()
				if n > 0 && micros >= 0 && micros <= float64(n)*longestWait {
					b.Timed, b.Micros = n, uint64(math.Round(micros))
				}
			}
			list = append(list, b)
		}
	}
	return list
}

// all are the loads of the measured groups, for the plane.
func (l *loads) all() []model.GroupLoad {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sums.All(l.now())
}

// others are the sum of backends without metrics of their own, and how many those are; reports are those that were taken.
func (l *loads) others() (sum model.BackendLoad, backends int, reports uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	sum, backends = l.sums.Other()
	return sum, backends, l.reports
}
