package southbound

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/wire"
	agentv1 "fairlead.dev/proto/agent/v1"
)

const (
	// tapReportRate is how many reports a machine may send a second.
	tapReportRate  = 20
	tapReportBurst = 40
	// tapQueue is how many records wait for a viewer.
	tapQueue = 4096
	// maxTapHeaders is how many headers a record may have.
	maxTapHeaders = 64
)

// taps are those that somebody looks at.
type taps struct {
	mu    sync.Mutex
	last  uint64
	open  map[uint64]*Tap
	flows map[uint64]*FlowTap
}

// Tap is what machines show to one viewer.
type Tap struct {
	// Records come in no order, and without an owner. What a machine sends is not trusted to match the filter.
	Records chan model.TapRecord
	dropped atomic.Uint64

	id     uint64
	filter model.TapFilter
	enough uint32
	server *Server

	mu    sync.Mutex
	state map[string]TapState
}

// TapState is how far a machine is with a tap.
type TapState struct {
	// Unable is why its proxy records nothing; empty: it does.
	Unable string
	// Percent of its requests are recorded; 0: it has not answered yet.
	Percent uint32
}

// Tap has every machine that can show requests, until it is closed. So many records a second are enough of each; 0: all, within bounds.
func (s *Server) Tap(f model.TapFilter, enough uint32) *Tap {
	s.taps.mu.Lock()
	s.taps.last++
	t := &Tap{Records: make(chan model.TapRecord, tapQueue), id: s.taps.last, filter: f, enough: enough, server: s, state: map[string]TapState{}}
	s.taps.open[t.id] = t
	s.taps.mu.Unlock()
	s.orderTaps()
	return t
}

// Close ends the tap.
func (t *Tap) Close() {
	t.server.taps.mu.Lock()
	delete(t.server.taps.open, t.id)
	t.server.taps.mu.Unlock()
	t.server.orderTaps()
}

// Dropped is how many records were beyond a bound, at machines or because the viewer does not read, since the last call.
func (t *Tap) Dropped() uint64 { return t.dropped.Swap(0) }

// Machines are those that run a proxy, with how far they are.
func (t *Tap) Machines() map[string]TapState {
	t.server.mu.Lock()
	able := map[string]bool{}
	for name, m := range t.server.machines {
		state := m.report.GetProxy().GetState()
		if m.sessions[discovery] == nil || m.report == nil || state == agentv1.Proxy_STATE_OFF || state == agentv1.Proxy_STATE_NONE {
			continue
		}
		able[name] = m.sessions[tapping] != nil
	}
	t.server.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	states := make(map[string]TapState, len(able))
	for name, is := range able {
		states[name] = t.state[name]
		if !is {
			states[name] = TapState{Unable: "its agent is of an earlier version, or has just connected"}
		}
	}
	return states
}

// orderTaps has every machine be told of the taps.
func (s *Server) orderTaps() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.machines {
		if who := m.sessions[tapping]; who != nil {
			select {
			case who.ask <- struct{}{}:
			default: // it is about to be told
			}
		}
	}
}

// order is what machines are told.
func (t *taps) order() *agentv1.TapOrder {
	t.mu.Lock()
	defer t.mu.Unlock()
	order := &agentv1.TapOrder{}
	for id, one := range t.open {
		order.Taps = append(order.Taps, &agentv1.Tap{Id: id, Filter: wire.TapFilter(one.filter), Enough: one.enough})
	}
	slices.SortFunc(order.Taps, func(a, b *agentv1.Tap) int { return int(a.GetId()) - int(b.GetId()) }) //nolint:gosec // a plane counts no so many
	order.Flows = t.orderFlows()
	return order
}

func (t *taps) find(id uint64) *Tap {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.open[id]
}

// tapServer is the service of a Server.
type tapServer struct {
	agentv1.UnimplementedTapperServer
	*Server
}

// Tap takes records of a machine while somebody looks.
func (s tapServer) Tap(g grpc.BidiStreamingServer[agentv1.TapReport, agentv1.TapOrder]) error {
	ctx, who, done, err := s.begin(g.Context(), tapping)
	if err != nil {
		return err
	}
	defer done()
	go func() {
		if err := s.order(ctx, who, g.Send); err != nil {
			who.end(err)
		}
	}()
	go func() { who.end(s.takeRecords(ctx, who, g.Recv)) }()
	<-ctx.Done()
	return ended(ctx)
}

// order tells a machine of the taps: at the beginning, where there are any, and whenever they change.
func (s tapServer) order(ctx context.Context, who *session, send func(*agentv1.TapOrder) error) error {
	for none := true; ; {
		order := s.taps.order()
		some := len(order.GetTaps())+len(order.GetFlows()) > 0
		if !none || some {
			if err := send(order); err != nil {
				return err
			}
		}
		none = !some
		select {
		case <-ctx.Done():
			return nil
		case <-who.ask:
		}
	}
}

func (s tapServer) takeRecords(ctx context.Context, who *session, receive func() (*agentv1.TapReport, error)) error {
	pace := rate.NewLimiter(tapReportRate, tapReportBurst)
	for {
		report, err := receive()
		if err != nil {
			return err
		}
		if pace.Wait(ctx) != nil || ctx.Err() != nil {
			return ended(ctx)
		}
		s.taken(who.Machine, report)
	}
}

// taken hands a report to those who look.
func (s tapServer) taken(machine string, report *agentv1.TapReport) {
	state := TapState{Unable: cut(report.GetUnable(), maxMessage), Percent: min(report.GetPercent(), 100)}
	for _, id := range first(report.GetTaps(), 1024) {
		if t := s.taps.find(id); t != nil {
			t.mu.Lock()
			t.state[machine] = state
			t.mu.Unlock()
		}
	}
	for _, m := range first(report.GetRecords(), model.MaxTapRecords) {
		m.Headers, m.ResponseHeaders = first(m.GetHeaders(), maxTapHeaders), first(m.GetResponseHeaders(), maxTapHeaders)
		slices.Sort(m.GetTaps())
		for _, id := range first(slices.Compact(m.GetTaps()), 64) {
			t := s.taps.find(id)
			if t == nil {
				continue
			}
			r := wire.TapRecordOf(m) // each has its own
			r.Machine = machine
			select {
			case t.Records <- r:
			default:
				t.dropped.Add(1)
			}
		}
	}
	s.takenFlows(machine, report)
	for id, n := range report.GetDropped() {
		if t := s.taps.find(id); t != nil {
			t.dropped.Add(min(n, 1<<32))
		}
	}
}
