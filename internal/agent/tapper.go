package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	datav3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/tap"
	"fairlead.dev/internal/traffic"
	"fairlead.dev/internal/wire"
	agentv1 "fairlead.dev/proto/agent/v1"
)

const (
	// tapRate is how many records of a tap the machine sends a second, and tapsRate how many of all taps.
	tapRate, tapsRate = 100, 1000
	// sampleRate is how many records a second the agent lets the proxy send it, if a tap needs as many. The fraction of the requests that
	// the proxy records is such that there are about as many.
	sampleRate = 5000
	// maxTaps is how many taps a machine serves.
	maxTaps = 64
	// tapPause is how far two reports are from each other.
	tapPause = 100 * time.Millisecond
	// unableAfter is how long the proxy may take to ask what to sample, before it is said that it does not.
	unableAfter = 3 * time.Second
)

// unableToTap is what a machine says whose proxy does not ask what to sample.
const unableToTap = "this machine's proxy must be restarted before it can be tapped: an earlier version of the agent started it, or it does not run"

// tapper shows requests to a plane while somebody looks.
type tapper struct {
	sampler  *sampler
	sampling *sampling
	flows    *flowTapper
	log      *slog.Logger
	now      func() time.Time

	mu      sync.Mutex
	taps    map[uint64]*tapped
	all     *tap.Bound
	records []*agentv1.TapRecord
	dropped map[uint64]uint64
	began   time.Time // when there was nobody who looked last

	percent uint32 // that is sampled
	seen    int    // since counted
	counted time.Time
}

// tapped is one tap.
type tapped struct {
	filter model.TapFilter
	enough float64 // records a second
	bound  *tap.Bound
}

func newTapper(s *sampler, flows *flowTapper, now func() time.Time, log *slog.Logger) *tapper {
	t := &tapper{sampler: s, flows: flows, now: now, log: log, taps: map[uint64]*tapped{}, dropped: map[uint64]uint64{}}
	t.sampling = &sampling{take: t.take}
	return t
}

// run shows requests over a connection until ctx is done, or the plane cannot tap.
func (t *tapper) run(ctx context.Context, conn grpc.ClientConnInterface) {
	for ctx.Err() == nil {
		err := t.stream(ctx, conn)
		t.set(nil)
		t.flows.set(nil)
		if status.Code(err) == codes.Unimplemented {
			return
		}
		if err != nil && ctx.Err() == nil {
			t.log.Debug("tap stream ended", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(reportAgain):
		}
	}
}

func (t *tapper) stream(ctx context.Context, conn grpc.ClientConnInterface) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := agentv1.NewTapperClient(conn).Tap(ctx)
	if err != nil {
		return err
	}
	broken, orders := make(chan error, 1), make(chan *agentv1.TapOrder, 1)
	go func() {
		for {
			order, err := stream.Recv()
			if err != nil {
				broken <- err
				return
			}
			select {
			case orders <- order:
			case <-ctx.Done():
				return
			}
		}
	}()
	ticker := time.NewTicker(tapPause)
	defer ticker.Stop()
	ticker.Stop()
	said := ""
	for {
		select {
		case err := <-broken:
			return err
		case order := <-orders:
			some, flows := t.set(order.GetTaps()), t.flows.set(order.GetFlows())
			if some || flows {
				ticker.Reset(tapPause)
			} else {
				ticker.Stop()
			}
			said = ""
		case <-ticker.C:
		}
		report := t.report()
		news := t.flows.report(report)
		state := fmt.Sprint(report.GetUnable(), report.GetTaps(), report.GetPercent(), report.GetFlowTaps())
		if state == said && !news && len(report.GetRecords()) == 0 && len(report.GetDropped()) == 0 {
			continue
		}
		said = state
		if err := stream.Send(report); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
	}
}

// set replaces the taps, and says whether there are any.
func (t *tapper) set(list []*agentv1.Tap) bool {
	now := t.now()
	t.mu.Lock()
	taps := map[uint64]*tapped{}
	for _, m := range list[:min(len(list), maxTaps)] {
		old := t.taps[m.GetId()]
		if old == nil {
			old = &tapped{bound: tap.NewBound(tapRate, now)}
		}
		old.filter, old.enough = wire.TapFilterOf(m.GetFilter()), sampleRate
		if n := m.GetEnough(); n > 0 {
			old.enough = min(float64(n), sampleRate)
		}
		taps[m.GetId()] = old
	}
	if len(t.taps) == 0 {
		t.began, t.counted, t.seen, t.all, t.percent = now, now, 0, tap.NewBound(tapsRate, now), wholeSample
	}
	t.taps = taps
	if len(taps) == 0 {
		t.records, t.percent = nil, 0
		clear(t.dropped)
	}
	percent := t.percent
	t.mu.Unlock()
	t.sampler.want(t.sampling, percent)
	return len(taps) > 0
}

// take takes a record of the proxy.
func (t *tapper) take(e *datav3.HTTPAccessLogEntry) {
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seen++
	if len(t.taps) == 0 || t.seen > 2*sampleRate { // more than was asked for: the proxy is told to send less
		return
	}
	r, redacted := tapRecord(e), false
	var takers []uint64
	for id, one := range t.taps {
		if !tap.Matches(one.filter, &r, traffic.Owner) {
			continue
		}
		// What is not shown may not select either: the number of records would tell of it.
		if !redacted {
			redacted = true
			if tap.Redact(&r); !tap.Matches(one.filter, &r, traffic.Owner) {
				continue
			}
		}
		if !one.bound.Allow(now) || !t.all.Allow(now) || len(t.records) >= model.MaxTapRecords {
			t.dropped[id]++
			continue
		}
		one.bound.Take()
		takers = append(takers, id)
	}
	if len(takers) == 0 {
		return
	}
	t.all.Take()
	slices.Sort(takers)
	t.records = append(t.records, wire.TapRecord(r, takers))
}

// report is what has come since the last one.
func (t *tapper) report() *agentv1.TapReport {
	now, able := t.now(), t.sampler.able()
	t.mu.Lock()
	r := &agentv1.TapReport{Records: t.records, Dropped: map[uint64]uint64{}}
	t.records = nil
	for id, n := range t.dropped {
		r.Dropped[id] = n
	}
	clear(t.dropped)
	for id := range t.taps {
		r.Taps = append(r.Taps, id)
	}
	slices.Sort(r.Taps)
	if len(t.taps) > 0 && !able && now.Sub(t.began) >= unableAfter {
		r.Unable = unableToTap
	}
	if passed := now.Sub(t.counted); passed >= time.Second && len(t.taps) > 0 {
		t.percent = percentFor(t.percent, float64(t.seen)/passed.Seconds(), t.enough())
		t.seen, t.counted = 0, now
	}
	r.Percent = t.percent
	percent := t.percent
	t.mu.Unlock()
	t.sampler.want(t.sampling, percent)
	return r
}

// enough is how many records a second the taps need. t.mu is held.
func (t *tapper) enough() (most float64) {
	for _, one := range t.taps {
		most = max(most, one.enough)
	}
	return most
}

// percentFor is how many percent of the requests to record, where so many percent gave so many records a second, and so many are enough. A
// small difference changes nothing.
func percentFor(percent uint32, rate, enough float64) uint32 {
	if percent == 0 || rate > enough/2 && rate <= enough {
		return percent
	}
	requests := rate * wholeSample / float64(percent)
	if requests <= enough {
		return wholeSample
	}
	return uint32(max(1, enough*3/4*wholeSample/requests))
}
