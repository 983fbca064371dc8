package southbound

import (
	"context"
	"fmt"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"fairlead.dev/internal/delta"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// maxEpochStep bounds by how much a machine's claim may raise the epoch, so that a
// hostile one cannot use the numbers up. raisePause and raiseAgain keep it from having every
// machine answered anew all the time: once it was raised for a machine, nothing that this plane
// publishes is behind what that machine has accepted, unless it is restored, and so starts, again.
const (
	maxEpochStep = 1 << 20
	raisePause   = 10 * time.Second
	raiseAgain   = 24 * time.Hour // for the same machine
)

// DeltaAggregatedResources serves one machine's view.
func (s *Server) DeltaAggregatedResources(g discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	ctx, who, done, err := s.begin(g.Context(), discovery)
	if err != nil {
		return err
	}
	defer done()
	// Receiving and sending end by themselves when this function has returned: a
	// client that does not read cannot hold it.
	go func() { who.end(s.receive(ctx, who, g)) }()
	<-ctx.Done()
	return ended(ctx)
}

// receive takes requests until the stream ends. The first one starts the sender.
func (s *Server) receive(ctx context.Context, who *session, g discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	var f *feed
	for {
		req, err := g.Recv()
		if err != nil {
			return err
		}
		all := func() int { return s.config.Views.count(who.Machine, delta.Type(req.GetTypeUrl())) }
		if who.pace.waitNames(ctx, req, all) != nil {
			return ended(ctx)
		}
		if f == nil {
			floor, err := s.floor(ctx, who, req)
			if err != nil {
				return err
			}
			f = s.config.Views.open(who.Machine, floor)
			defer f.close()
			go func() { who.end(s.send(ctx, who, f, g)) }()
		}
		o, err := f.receive(req)
		if err != nil {
			return status.Error(codes.InvalidArgument, err.Error())
		}
		s.progress(who, o)
	}
}

// send sends what there is until the stream ends.
func (s *Server) send(ctx context.Context, who *session, f *feed, g discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	for {
		epoch, leads := s.config.Leader.Leading()
		if !leads {
			return s.standby()
		}
		resp, o := f.next(epoch)
		s.progress(who, o)
		if resp != nil {
			if err := g.Send(resp); err != nil {
				return err
			}
			continue
		}
		select {
		case <-f.wake:
		case <-ctx.Done():
			return ended(ctx)
		}
	}
}

// floor reads what the machine has accepted before. If that is ahead of this plane,
// the plane is older than the machine and must raise its epoch first.
func (s *Server) floor(ctx context.Context, who *session, req *discoveryv3.DeltaDiscoveryRequest) (delta.Revision, error) {
	text := req.GetNode().GetMetadata().GetFields()[agentv1.RevisionField].GetStringValue()
	if text == "" {
		return delta.Revision{}, nil
	}
	floor, err := delta.ParseRevision(text)
	if err != nil {
		return delta.Revision{}, status.Error(codes.InvalidArgument, err.Error())
	}
	epoch, leads := s.config.Leader.Leading()
	if !leads {
		return delta.Revision{}, s.standby()
	}
	published := s.config.Views.Revision()
	ahead := floor.Epoch > epoch || (floor.Epoch == epoch && published.Epoch == epoch && floor.Compare(published) > 0)
	if !ahead {
		return floor, nil
	}
	if floor.Epoch-epoch > maxEpochStep {
		return delta.Revision{}, status.Errorf(codes.InvalidArgument, "impossible epoch %d: this plane is at %d", floor.Epoch, epoch)
	}
	if last, may := s.mayRaise(who.Machine, floor.Epoch); !last.IsZero() {
		return delta.Revision{}, status.Errorf(codes.Unavailable, "this plane is behind %s, and raised its epoch for this machine at %s: it does so again after %s, or when it restarts", floor, last.UTC().Format(time.RFC3339), raiseAgain)
	} else if !may {
		return delta.Revision{}, status.Errorf(codes.Unavailable, "this plane is behind %s; it has just raised its epoch, and can raise it again within %s", floor, raisePause)
	}
	s.config.Log.Warn("a machine is ahead of this plane; raising the epoch", "machine", who.Machine, "accepted", floor, "published", published)
	if err := s.config.Leader.Exceed(ctx, floor.Epoch); err != nil {
		s.config.Log.Error("cannot raise the epoch", "machine", who.Machine, "error", err)
		return delta.Revision{}, status.Error(codes.Unavailable, fmt.Sprintf("this plane is behind %s and could not raise its epoch", floor))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if floor.Epoch > s.raised.above || s.raised.at.IsZero() {
		s.raised.above, s.raised.at = floor.Epoch, s.config.Now()
		if m := s.machines[who.Machine]; m != nil {
			m.raised = s.raised.at
		}
	}
	return floor, nil
}

// mayRaise says whether a machine's claim may raise the epoch now. The machines of a
// restored plane that claim the same come at once, and cost one raise. last is when the
// epoch was raised for the machine, if that was too short a while ago.
func (s *Server) mayRaise(machine string, above uint64) (last time.Time, may bool) {
	now := s.config.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	since := now.Sub(s.raised.at)
	if s.raised.at.IsZero() || above <= s.raised.above {
		return last, true
	}
	if m := s.machines[machine]; m != nil && !m.raised.IsZero() && now.Sub(m.raised) < raiseAgain && now.Sub(m.raised) >= raisePause {
		return m.raised, false
	}
	return last, since < 0 || since >= raisePause
}
