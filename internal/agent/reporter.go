package agent

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"fairlead.dev/internal/wire"
	agentv1 "fairlead.dev/proto/agent/v1"
)

const (
	// reportGather is how long a change waits for others before it is reported.
	reportGather = 50 * time.Millisecond
	// urgentGap is how far what must be reported at once is from the last report, at least:
	// many backends may fail together.
	urgentGap = 20 * time.Millisecond
	// reportAgain is how long a broken report stream waits for the next try.
	reportAgain = time.Second
	// firstLook is how long the first report waits until the data planes have said what they
	// do, at most: other machines ask what this one says of its tunnels.
	firstLook = time.Second
	// defaultTTL is taken until a plane says another.
	defaultTTL = 15 * time.Second
)

// reporter tells a plane what the machine looks like, and answers its questions.
type reporter struct {
	version    string
	proxy      Proxy
	parts      []wiredPart
	balancer   *balancer
	membership *membership
	addresses  func() ([]string, error) // an error says that they are not known now
	told       atomic.Pointer[[]string] // addresses, when last they were known
	unknown    atomic.Bool              // they are not now
	unread     atomic.Bool              // figures of frontends could not be read the last time
	proved     atomic.Bool              // each was tried, to the plane that there is
	log        *slog.Logger
	changed    signal // a report may differ
	urgent     signal // the same, in something that others wait for
	meter      *meter // nil: the proxy counts nothing
	loads      *loads
	ttl        atomic.Int64
}

func newReporter(c Config, parts []wiredPart, b *balancer, membership *membership, m *meter, l *loads) *reporter {
	return &reporter{
		version: c.Version, proxy: c.Proxy, parts: parts, balancer: b, membership: membership, meter: m, loads: l, log: c.Log,
		addresses: func() ([]string, error) { return machineAddresses(c.Addresses) },
		changed:   newSignal(), urgent: newSignal(),
	}
}

// setProved notes whether each address was tried, to the plane that there is. It reports whether
// that has changed.
func (r *reporter) setProved(proved bool) (changed bool) { return r.proved.Swap(proved) != proved }

// run reports over a connection until ctx is done.
func (r *reporter) run(ctx context.Context, conn grpc.ClientConnInterface) {
	for ctx.Err() == nil {
		if err := r.stream(ctx, conn); err != nil && ctx.Err() == nil {
			r.log.Debug("report stream ended", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(reportAgain):
		}
	}
}

func (r *reporter) stream(ctx context.Context, conn grpc.ClientConnInterface) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := agentv1.NewObserverClient(conn).Observe(ctx)
	if err != nil {
		return err
	}
	broken := make(chan error, 1)
	news, question := newSignal(), newSignal()
	var asked atomic.Uint64
	var query atomic.Pointer[agentv1.FlowQuery]
	go func() {
		for {
			instruction, err := stream.Recv()
			if err != nil {
				broken <- err
				return
			}
			if n := instruction.GetAskFigures(); n > asked.Load() {
				asked.Store(n)
				question.raise()
			}
			if q := instruction.GetAskFlows(); q.GetAsked() > query.Load().GetAsked() {
				query.Store(q)
				question.raise()
			}
			if n := instruction.GetLeft(); n > 0 {
				r.balancer.noticed(n)
			}
			if t := instruction.GetTrust(); t != nil {
				r.membership.offer(t)
			}
			if ttl := instruction.GetTimeToLive().AsDuration(); ttl > 0 {
				r.ttl.Store(int64(ttl))
				news.raise()
			}
		}
	}()
	select {
	case err := <-broken:
		return err
	case <-r.balancer.known:
	case <-time.After(firstLook): // what was reported before holds
	}
	// Who answers a question may have to wait, for the proxy or the kernel: the reports go on.
	var last *agentv1.Report
	var told, shown uint64
	var counting, looking bool
	counted, looked := make(chan *agentv1.Figures, 1), make(chan *agentv1.Flows, 1)
	var figures *agentv1.Figures
	var flows *agentv1.Flows
	answer := func() {
		if n := asked.Load(); n > told && !counting {
			told, counting = n, true
			go func() { counted <- r.figures(ctx, n) }()
		}
		if q := query.Load(); q.GetAsked() > shown && !looking {
			shown, looking = q.GetAsked(), true
			go func() { looked <- r.balancer.answer(q) }()
		}
	}
	for {
		answer()
		report := r.report()
		report.Figures, report.Flows = figures, flows
		if err := stream.Send(report); err != nil {
			return <-broken
		}
		last, figures, flows = report, nil, nil
		sent := time.Now()
		again := time.NewTimer(r.every())
		for same := true; same; {
			select {
			case err := <-broken:
				again.Stop()
				return err
			case <-news:
				again.Reset(r.every())
			case <-again.C:
				same = false
			case <-question:
				answer()
			case figures = <-counted:
				counting, same = false, false
			case flows = <-looked:
				looking, same = false, false
			case <-r.changed:
				select {
				case err := <-broken:
					again.Stop()
					return err
				case <-r.urgent:
				case <-time.After(reportGather):
				}
				same = steady(last, r.report())
			case <-r.urgent:
				select {
				case err := <-broken:
					again.Stop()
					return err
				case <-time.After(urgentGap - time.Since(sent)):
				}
				same = steady(last, r.report())
			}
		}
		again.Stop()
	}
}

// figures answer the plane's question; without a proxy that answers there are none. A frontend whose
// flows are not all counted is left out: a small number would be taken for few flows.
func (r *reporter) figures(ctx context.Context, asked uint64) *agentv1.Figures {
	f := &agentv1.Figures{Asked: asked}
	if r.meter != nil {
		ctx, cancel := context.WithTimeout(ctx, answerTime)
		defer cancel()
		r.meter.read(ctx)
		if t, current := r.meter.latest(); current {
			f.Requests = wire.RequestFigures(t.Requests)
			f.Totals = wire.Totals(r.meter.totals())
		}
	}
	f.Loads = wire.GroupLoads(r.loads.all())
	frontends, _, drops, err := r.balancer.figures()
	if was := r.unread.Swap(err != nil); err != nil && !was {
		r.log.Warn("some figures of frontends cannot be read", "error", err)
	}
	f.Frontends, f.Drops = wire.FrontendFigures(frontends), drops
	return f
}

// every is a little less than a third of the time-to-live.
func (r *reporter) every() time.Duration {
	ttl := time.Duration(r.ttl.Load())
	if ttl <= 0 {
		ttl = defaultTTL
	}
	return max(ttl*3/10, 100*time.Millisecond)
}

// report is the machine as it is now.
func (r *reporter) report() *agentv1.Report {
	report := &agentv1.Report{AgentVersion: r.version, Addresses: r.own(), Issuer: r.membership.issuer(), Proved: r.proved.Load()}
	for _, p := range r.parts {
		p.report(report)
	}
	return report
}

// own are the machine's addresses; while they are not known, those of the last report: the plane
// would take away what a list lacks, and tell all machines of another end for tunnels.
func (r *reporter) own() []string {
	list, err := r.addresses()
	if was := r.unknown.Swap(err != nil); err != nil {
		if !was {
			r.log.Warn("cannot read the machine's addresses; reporting the previous ones", "error", err)
		}
		if told := r.told.Load(); told != nil {
			return *told
		}
		return list // better than nothing, and not to be kept
	}
	r.told.Store(&list)
	return list
}

// steady says that two reports differ at most in figures that always move.
func steady(a, b *agentv1.Report) bool {
	a, b = proto.CloneOf(a), proto.CloneOf(b)
	a.Figures, b.Figures, a.Flows, b.Flows = nil, nil, nil, nil
	for _, p := range []*agentv1.Proxy{a.GetProxy(), b.GetProxy()} {
		p.RssBytes, p.Requests = 0, 0
	}
	return proto.Equal(a, b)
}
