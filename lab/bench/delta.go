package bench

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"fairlead.dev/internal/delta"
)

// DeltaOptions choose the sizes of the delta benchmark. The zero value is the one
// whose figures are published.
type DeltaOptions struct {
	Resources   []int // default 200, 2,000 and 20,000
	Subscribers []int // default 1, 100 and 1,000
	Rounds      int   // changes per row, default 200
}

// DeltaResult is what it costs to bring one changed resource to those who follow it.
type DeltaResult struct {
	Rows []DeltaRow `json:"rows"`
}

// DeltaRow is one combination of sizes; times are medians over the rounds.
type DeltaRow struct {
	Resources   int `json:"resources"`
	Subscribers int `json:"subscribers"`
	// From the change to the encoded responses, divided by the subscribers of the
	// changed resource.
	MicrosPerSubscriber float64 `json:"us_per_subscriber"`
	// Length of one encoded response.
	BytesPerSubscriber int `json:"bytes_per_subscriber"`
	// What each of UnconcernedSubscribers adds to a change: the difference between
	// rounds with and without them, divided by their number; not below zero, which
	// would be noise.
	UnconcernedMicros      float64 `json:"unconcerned_us"`
	UnconcernedSubscribers int     `json:"unconcerned_subscribers"`
	// How often one of them was woken, over all rounds.
	UnconcernedWakes int `json:"unconcerned_wakes"`
}

const (
	endpointType delta.Type = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
	// Names that a subscriber follows next to the one that changes or does not.
	deltaOthers        = 20
	deltaUnconcerned   = 1000
	deltaDefaultRounds = 200
)

// Delta measures the engine and the encoding of its responses, without a network.
func Delta(ctx context.Context, o DeltaOptions) (DeltaResult, error) {
	if len(o.Resources) == 0 {
		o.Resources = []int{200, 2_000, 20_000}
	}
	if len(o.Subscribers) == 0 {
		o.Subscribers = []int{1, 100, 1_000}
	}
	if o.Rounds <= 0 {
		o.Rounds = deltaDefaultRounds
	}
	var result DeltaResult
	for _, resources := range o.Resources {
		for _, subscribers := range o.Subscribers {
			row, err := deltaRow(ctx, resources, subscribers, o.Rounds)
			if err != nil {
				return DeltaResult{}, fmt.Errorf("measure %d resources with %d subscribers: %w", resources, subscribers, err)
			}
			result.Rows = append(result.Rows, row)
		}
	}
	return result, nil
}

func deltaRow(ctx context.Context, resources, subscribers, rounds int) (DeltaRow, error) {
	with, err := newDeltaWorld(resources, subscribers, deltaUnconcerned)
	if err != nil {
		return DeltaRow{}, err
	}
	without, err := newDeltaWorld(resources, subscribers, 0)
	if err != nil {
		return DeltaRow{}, err
	}
	// Rounds alternate, so that both worlds see the same machine.
	var took, alone []time.Duration
	for round := range rounds {
		if err := ctx.Err(); err != nil {
			return DeltaRow{}, err
		}
		for _, w := range []struct {
			world *deltaWorld
			times *[]time.Duration
		}{{with, &took}, {without, &alone}} {
			d, err := w.world.round(round)
			if err != nil {
				return DeltaRow{}, err
			}
			*w.times = append(*w.times, d)
		}
	}
	extra := max(0, median(took)-median(alone))
	return DeltaRow{
		Resources:              resources,
		Subscribers:            subscribers,
		MicrosPerSubscriber:    micros(median(took), subscribers),
		BytesPerSubscriber:     with.bytes,
		UnconcernedMicros:      micros(extra, deltaUnconcerned),
		UnconcernedSubscribers: deltaUnconcerned,
		UnconcernedWakes:       with.strayWakes,
	}, nil
}

func median(ds []time.Duration) time.Duration {
	slices.Sort(ds)
	return ds[len(ds)/2]
}

func micros(d time.Duration, per int) float64 {
	return math.Round(float64(d.Nanoseconds())/float64(per)) / 1e3
}

// deltaWorld is a Set whose first resource changes each round.
type deltaWorld struct {
	set        *delta.Set
	concerned  []*delta.Stream
	woken      []*delta.Stream
	strayWakes int
	buffer     []byte
	bytes      int
}

func newDeltaWorld(resources, subscribers, unconcerned int) (*deltaWorld, error) {
	w := &deltaWorld{set: delta.NewSet()}
	var changes []delta.Change
	for i := range resources {
		c, err := endpointChange(i, 0)
		if err != nil {
			return nil, err
		}
		changes = append(changes, c)
	}
	w.set.Update(delta.Revision{Epoch: 1, Number: 1}, changes)
	for i := range subscribers + unconcerned {
		var st *delta.Stream
		concerned := i < subscribers
		st = delta.NewStream(delta.Options{Wake: func() {
			if !concerned {
				w.strayWakes++
			}
			w.woken = append(w.woken, st)
		}}, w.set)
		var names []string
		for k := range min(deltaOthers, resources-1) {
			names = append(names, endpointName(1+(i*deltaOthers+k)%(resources-1)))
		}
		if concerned {
			names = append(names, endpointName(0))
			w.concerned = append(w.concerned, st)
		}
		if err := st.Receive(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: string(endpointType), ResourceNamesSubscribe: names}); err != nil {
			return nil, err
		}
	}
	if _, err := w.deliver(); err != nil {
		return nil, err
	}
	w.strayWakes = 0
	return w, nil
}

// round changes one resource and returns how long it took until all responses were
// encoded. The acks are not part of it.
func (w *deltaWorld) round(n int) (time.Duration, error) {
	change, err := endpointChange(0, n+1)
	if err != nil {
		return 0, err
	}
	return w.timed([]delta.Change{change}, delta.Revision{Epoch: 1, Number: uint64(n) + 2})
}

func (w *deltaWorld) timed(changes []delta.Change, rev delta.Revision) (time.Duration, error) {
	begin := time.Now()
	if n := w.set.Update(rev, changes); n != len(changes) {
		return 0, fmt.Errorf("%d of %d changes were real", n, len(changes))
	}
	responses, err := w.encode()
	took := time.Since(begin)
	if err != nil {
		return 0, err
	}
	if len(responses) != len(w.concerned) {
		return 0, fmt.Errorf("%d responses for %d subscribers", len(responses), len(w.concerned))
	}
	return took, w.ack(responses)
}

type deltaResponse struct {
	stream *delta.Stream
	nonce  string
}

// encode takes and encodes what every woken stream has to send.
func (w *deltaWorld) encode() ([]deltaResponse, error) {
	responses := make([]deltaResponse, 0, len(w.woken))
	for _, st := range w.woken {
		for resp := st.Next(); resp != nil; resp = st.Next() {
			var err error
			if w.buffer, err = (proto.MarshalOptions{}).MarshalAppend(w.buffer[:0], resp); err != nil {
				return nil, err
			}
			w.bytes = len(w.buffer)
			responses = append(responses, deltaResponse{st, resp.GetNonce()})
		}
	}
	w.woken = w.woken[:0]
	return responses, nil
}

func (w *deltaWorld) ack(responses []deltaResponse) error {
	for _, r := range responses {
		if err := r.stream.Receive(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: string(endpointType), ResponseNonce: r.nonce}); err != nil {
			return err
		}
		r.stream.Events()
	}
	return nil
}

// deliver brings everything to everyone.
func (w *deltaWorld) deliver() (int, error) {
	total := 0
	for {
		responses, err := w.encode()
		if err != nil || len(responses) == 0 {
			return total, err
		}
		total += len(responses)
		if err := w.ack(responses); err != nil {
			return total, err
		}
	}
}

func endpointName(i int) string { return fmt.Sprintf("team-%02d/service-%05d/http", i%50, i) }

// endpointChange is a service of four endpoints, one of which differs by round.
func endpointChange(i, round int) (delta.Change, error) {
	locality := &endpointv3.LocalityLbEndpoints{}
	for k := range 4 {
		host := fmt.Sprintf("10.%d.%d.%d", i/250%250, i%250, k+1)
		if k == 0 {
			host = fmt.Sprintf("10.250.%d.%d", round/250, round%250)
		}
		locality.LbEndpoints = append(locality.LbEndpoints, &endpointv3.LbEndpoint{
			LoadBalancingWeight: wrapperspb.UInt32(100),
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
				Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
					Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 8080},
				}}},
			}},
		})
	}
	r, err := delta.NewResource(endpointName(i), &endpointv3.ClusterLoadAssignment{
		ClusterName: endpointName(i), Endpoints: []*endpointv3.LocalityLbEndpoints{locality},
	})
	if err != nil {
		return delta.Change{}, err
	}
	return delta.Change{Type: endpointType, Name: r.Name, Resource: &r}, nil
}
