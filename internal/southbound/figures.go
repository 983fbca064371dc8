package southbound

import (
	"context"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/wire"
	agentv1 "fairlead.dev/proto/agent/v1"
)

const (
	// Patience is how long a request waits for answers of machines: longer than any data
	// plane takes to count.
	Patience = 2500 * time.Millisecond
	// maxFigures is of how many groups, and of how many routes, one machine may tell.
	maxFigures = 100_000
	// maxTotals is of how many names one machine may tell totals, and maxBuckets how many buckets a histogram may have.
	maxTotals, maxBuckets = 2_000, 512
	// maxMeasured is of how many measured groups one machine may tell.
	maxMeasured = 10_000
	// maxReasons is how many reasons of drops one machine may know.
	maxReasons = 256
)

// Figures are the counters of one machine.
type Figures struct {
	Requests  []model.RequestFigures // sorted
	Totals    []model.TrafficTotal
	Frontends []model.FrontendFigures
	Loads     []model.GroupLoad
	// Drops are packets, by the name of the reason.
	Drops map[string]uint64
}

// Flows are the flows of one machine that a question selects.
type Flows struct {
	Flows []model.Flow
	// Truncated: there are more.
	Truncated bool
}

// question is one call of Figures or of Flows.
type question struct {
	number uint64
	query  *agentv1.FlowQuery                      // nil: it is about figures
	waits  map[string]bool                         // machines that have not answered
	take   func(machine string, r *agentv1.Report) // keeps what is wanted of it
	done   chan struct{}                           // closed when nobody is waited for
}

// Figures asks every machine that reports for its counters, and returns the answers that
// came in time, by machine. Each of several concurrent calls is a question of its own.
func (s *Server) Figures(ctx context.Context) map[string]Figures {
	told := map[string]*agentv1.Figures{}
	s.ask(ctx, &question{take: func(machine string, r *agentv1.Report) { told[machine] = r.GetFigures() }}, "")
	answers := make(map[string]Figures, len(told))
	for machine, f := range told {
		requests := wire.RequestFiguresOf(f.GetRequests())
		slices.SortFunc(requests, model.RequestFigures.Compare) // as machines of ours send them
		answers[machine] = Figures{Requests: requests, Totals: wire.TotalsOf(f.GetTotals()), Frontends: wire.FrontendFiguresOf(f.GetFrontends()), Loads: wire.GroupLoadsOf(f.GetLoads()), Drops: f.GetDrops()}
	}
	return answers
}

// Flows asks every machine that reports for flows, or one if it is named, and returns the
// answers that came in time, by machine, and the names of those that were asked and did not
// answer, sorted. A machine answers one such question at a time: of calls side by side, only
// the last may be answered by all.
func (s *Server) Flows(ctx context.Context, machine string, q model.FlowQuery) (answers map[string]Flows, silent []string) {
	told := map[string]*agentv1.Flows{}
	asked := &question{query: wire.FlowQuery(0, q), take: func(machine string, r *agentv1.Report) { told[machine] = r.GetFlows() }}
	s.ask(ctx, asked, machine)
	answers = make(map[string]Flows, len(told))
	for machine, list := range told {
		flows, truncated := wire.FlowsOf(list)
		answers[machine] = Flows{Flows: flows, Truncated: truncated}
	}
	return answers, slices.Sorted(maps.Keys(asked.waits)) // nobody else has it after ask
}

// Awaited are the machines that questions for flows wait for, sorted.
func (s *Server) Awaited() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := map[string]bool{}
	for q := range s.questions {
		if q.query != nil {
			maps.Copy(names, q.waits)
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// ask puts a question to one machine, or to all, and waits for the answers. take is called
// for each under s.mu, and not after ask has returned.
func (s *Server) ask(ctx context.Context, q *question, only string) {
	s.mu.Lock()
	s.asked++
	q.number, q.waits, q.done = s.asked, map[string]bool{}, make(chan struct{})
	if q.query != nil {
		q.query.Asked = q.number
	}
	for name, m := range s.machines {
		who := m.sessions[observation]
		if who == nil || m.report == nil || only != "" && name != only {
			continue
		}
		q.waits[name] = true
		if q.query != nil {
			who.query.Store(q.query)
		} else {
			who.figures.Store(q.number)
		}
		select {
		case who.ask <- struct{}{}:
		default: // it is about to be asked, with the newest number
		}
	}
	if len(q.waits) == 0 {
		s.mu.Unlock()
		return
	}
	s.questions[q] = struct{}{}
	s.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	select {
	case <-q.done:
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.questions, q)
}

// answered hands a report to those who asked for what is in it. s.mu is held.
func (s *Server) answered(machine string, r *agentv1.Report) {
	for q := range s.questions {
		var answers bool
		if q.query == nil {
			// A larger number was asked later, so its answer is no older.
			answers = r.GetFigures() != nil && q.number <= r.GetFigures().GetAsked()
		} else {
			answers = r.GetFlows() != nil && q.number == r.GetFlows().GetAsked()
		}
		if !answers || !q.waits[machine] {
			continue
		}
		delete(q.waits, machine)
		q.take(machine, r)
		if len(q.waits) == 0 {
			close(q.done)
		}
	}
}

// instruct sends a machine its instructions: one at the beginning, and one for each
// question, for each leaving that all others have noticed, and when the trust changes.
func (s *Server) instruct(ctx context.Context, who *session, send func(*agentv1.Instruction) error) error {
	s.mu.Lock()
	m := s.machines[who.Machine] // not forgotten while the session is open
	s.mu.Unlock()
	if m == nil {
		return nil
	}
	for {
		if err := send(&agentv1.Instruction{
			TimeToLive: durationpb.New(s.config.TTL), AskFigures: who.figures.Load(), AskFlows: who.query.Load(),
			Left: m.left.Load(), Trust: s.config.Authority.Trust().message(s.renewWithin()),
		}); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-who.ask:
		}
	}
}

// Left tells a machine that all others have noticed that it leaves, by the number that it
// reports: now, or when it reconnects.
func (s *Server) Left(machine string, number uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.machines[machine]
	if m == nil || m.left.Swap(number) == number {
		return
	}
	if who := m.sessions[observation]; who != nil {
		select {
		case who.ask <- struct{}{}:
		default: // it is about to be told
		}
	}
}

// trimFigures cuts figures to what the plane is ready to remember.
func trimFigures(f *agentv1.Figures) {
	if f == nil {
		return
	}
	f.Frontends = slices.DeleteFunc(first(f.GetFrontends(), maxFrontends), func(g *agentv1.FrontendFigures) bool {
		return len(g.GetName()) > maxName
	})
	f.Requests = slices.DeleteFunc(first(f.GetRequests(), maxFigures), func(r *agentv1.RequestFigures) bool {
		return len(r.GetListener()) > maxName || len(r.GetHost()) > maxName || len(r.GetRoute()) > maxName || len(r.GetGroup()) > maxName || len(r.GetClasses()) > model.StatusClasses
	})
	f.Totals = slices.DeleteFunc(first(f.GetTotals(), maxTotals), func(t *agentv1.Total) bool {
		return len(t.GetBy()) > maxName || len(t.GetName()) > maxName || len(t.GetClasses()) > model.StatusClasses || len(t.GetBuckets()) > maxBuckets
	})
	backends := 0
	for _, g := range f.GetFrontends() {
		g.Backends = first(g.GetBackends(), maxFigures-backends)
		backends += len(g.GetBackends())
		for _, b := range g.GetBackends() {
			b.Address, b.Machine = raw(b.GetAddress()), cut(b.GetMachine(), maxName)
		}
	}
	trimLoads(f)
	if len(f.GetDrops()) > maxReasons {
		f.Drops = nil
	}
	maps.DeleteFunc(f.Drops, func(reason string, _ uint64) bool { return len(reason) > maxName })
}

// trimLoads cuts what a machine says of backends of measured groups.
func trimLoads(f *agentv1.Figures) {
	f.Loads = slices.DeleteFunc(first(f.GetLoads(), maxMeasured), func(g *agentv1.GroupLoad) bool { return len(g.GetGroup()) > maxName })
	left := maxFigures
	for _, g := range f.GetLoads() {
		g.Backends = first(g.GetBackends(), left)
		left -= len(g.GetBackends())
		for _, b := range g.GetBackends() {
			b.Address = raw(b.GetAddress())
		}
	}
}

// trimFlows cuts an answer to what the plane is ready to show.
func trimFlows(f *agentv1.Flows) {
	if f == nil {
		return
	}
	f.Flows = first(f.GetFlows(), maxFigures)
	for _, w := range f.GetFlows() {
		w.Frontend, w.Machine, w.State = cut(w.GetFrontend(), maxName), cut(w.GetMachine(), maxName), cut(w.GetState(), maxName)
		w.Client, w.Backend = raw(w.GetClient()), raw(w.GetBackend())
	}
}

// trimBalancing cuts what a report says of frontends and checks.
func trimBalancing(r *agentv1.Report) {
	r.Frontends = slices.DeleteFunc(first(r.GetFrontends(), maxFrontends), func(f *agentv1.FrontendState) bool {
		return len(f.GetName()) > maxName
	})
	for _, f := range r.GetFrontends() {
		f.State, f.Mode, f.DataPlane = cut(f.GetState(), maxName), cut(f.GetMode(), maxName), cut(f.GetDataPlane(), maxName)
		f.Message = cut(f.GetMessage(), maxMessage)
	}
	r.Checks = slices.DeleteFunc(first(r.GetChecks(), maxChecks), func(c *agentv1.CheckResult) bool {
		return len(c.GetName()) > maxName
	})
	for _, c := range r.GetChecks() {
		c.Health, c.Message = cut(c.GetHealth(), maxName), cut(c.GetMessage(), maxMessage)
	}
	left := maxFigures
	r.Ejected = first(r.GetEjected(), maxFigures)
	for _, e := range r.GetEjected() {
		e.Group, e.Backends = cut(e.GetGroup(), maxName), first(e.GetBackends(), left)
		left -= len(e.GetBackends())
		for i, b := range e.GetBackends() {
			e.Backends[i] = cut(b, maxName)
		}
	}
	r.Ejected = slices.DeleteFunc(r.GetEjected(), func(e *agentv1.Ejected) bool { return len(e.GetBackends()) == 0 })
	if t := r.GetTunnel(); t != nil {
		t.Message = cut(t.GetMessage(), maxMessage)
	}
}
