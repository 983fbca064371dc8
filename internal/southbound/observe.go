package southbound

import (
	"context"
	"crypto/sha256"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/wire"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// What one report may make the plane remember.
const (
	maxProblems  = 4096
	maxAddresses = 64 // as many as a Machine shows
	maxMessage   = 1024
	maxName      = 512
	maxSessions  = 256
	maxVIPs      = 16384
	maxFrontends = 65536
	maxChecks    = 100_000
)

// Observe takes a machine's reports.
func (s *Server) Observe(g grpc.BidiStreamingServer[agentv1.Report, agentv1.Instruction]) error {
	ctx, who, done, err := s.begin(g.Context(), observation)
	if err != nil {
		return err
	}
	defer done()
	go func() {
		if err := s.instruct(ctx, who, g.Send); err != nil {
			who.end(err)
		}
	}()
	go func() { who.end(s.observe(ctx, who, g)) }()
	<-ctx.Done()
	return ended(ctx)
}

func (s *Server) observe(ctx context.Context, who *session, g grpc.BidiStreamingServer[agentv1.Report, agentv1.Instruction]) error {
	for {
		report, err := g.Recv()
		if err != nil {
			return err
		}
		if who.pace.reports.Wait(ctx) != nil || ctx.Err() != nil {
			return ended(ctx)
		}
		s.observed(who, trim(report))
	}
}

// observed stores a report and tells the watchers if it says anything new. What a report makes to do is
// done without s.mu, which is everybody's: a machine has one session at a time, so that nobody else
// replaces its last report meanwhile.
func (s *Server) observed(who *session, report *agentv1.Report) {
	now := s.config.Now()
	problems := make([]Problem, 0, len(report.GetApplied().GetProblems()))
	for _, p := range report.GetApplied().GetProblems() {
		problems = append(problems, Problem{
			Kind: p.GetKind(), Type: delta.Type(p.GetTypeUrl()), Name: p.GetName(), Version: p.GetVersion(), Message: p.GetMessage(),
		})
	}
	applied := delta.Revision{Epoch: report.GetApplied().GetEpoch(), Number: report.GetApplied().GetRevision()}
	// A machine cannot have applied what it was never sent.
	if _, wanted := s.config.Views.Placed(who.Machine); applied.Compare(wanted) > 0 {
		applied = wanted
	}
	s.mu.Lock()
	m := s.machines[who.Machine]
	if m == nil || m.sessions[observation] != who {
		s.mu.Unlock()
		return
	}
	s.answered(who.Machine, report)
	last, before, beforeApplied, proved := m.report, m.problems, m.applied, m.proved
	s.mu.Unlock()
	if report.GetTunnelUnknown() && last != nil {
		report.Tunnel, report.TunnelUnknown = last.GetTunnel(), last.GetTunnelUnknown()
	}
	report.Figures, report.Flows = nil, nil // nobody else wants them
	changed := last == nil || proved != report.GetProved() || applied != beforeApplied || !slices.Equal(problems, before) || !steady(last, report)
	var read func(m *machine)
	if changed { // else they say the same, and there may be thousands
		bgp, vips := wire.SessionsOf(report.GetSessions()), wire.VIPStatesOf(report.GetVips())
		frontends, checks, ejected := wire.FrontendStatesOf(report.GetFrontends()), wire.CheckResultsOf(report.GetChecks()), wire.EjectedOf(report.GetEjected())
		read = func(m *machine) {
			m.bgp, m.vips, m.frontends, m.checks, m.ejected = bgp, vips, frontends, checks, ejected
		}
	}
	s.mu.Lock()
	if m = s.machines[who.Machine]; m == nil || m.sessions[observation] != who {
		s.mu.Unlock()
		return
	}
	if m.lost {
		m.lost, changed = false, true
		s.config.Log.Info("machine is back", "machine", m.name)
	}
	m.report, m.problems, m.applied, m.issuer, m.proved = report, problems, applied, report.GetIssuer(), report.GetProved()
	if read != nil {
		read(m)
	}
	m.lastReport, m.seen = now, now
	concerned := s.swayed(m, last.GetAddresses(), report.GetAddresses())
	s.proofs.reported(m.name, report.GetAddresses(), now)
	s.mu.Unlock()
	if changed {
		concerned = append(concerned, who.Machine)
	}
	s.notify(concerned...)
}

// steady says that two reports differ in figures that always move, at most.
func steady(a, b *agentv1.Report) bool {
	p, q := a.GetProxy(), b.GetProxy()
	return a.GetAgentVersion() == b.GetAgentVersion() && slices.Equal(a.GetAddresses(), b.GetAddresses()) &&
		p.GetState() == q.GetState() && p.GetVersion() == q.GetVersion() && p.GetStarts() == q.GetStarts() && p.GetMessage() == q.GetMessage() &&
		slices.EqualFunc(a.GetSessions(), b.GetSessions(), equal) && slices.EqualFunc(a.GetVips(), b.GetVips(), equal) &&
		slices.EqualFunc(a.GetFrontends(), b.GetFrontends(), equal) && slices.EqualFunc(a.GetChecks(), b.GetChecks(), equal) &&
		equal(a.GetTunnel(), b.GetTunnel()) && a.GetTunnelUnknown() == b.GetTunnelUnknown() && equal(a.GetCarried(), b.GetCarried()) && a.GetLeaving() == b.GetLeaving() && slices.EqualFunc(a.GetEjected(), b.GetEjected(), equal)
}

func equal[M proto.Message](a, b M) bool { return proto.Equal(a, b) }

// trim cuts a report, in place, to what the plane is ready to remember.
func trim(r *agentv1.Report) *agentv1.Report {
	r.AgentVersion = cut(r.GetAgentVersion(), maxName)
	if len(r.GetIssuer()) != sha256.Size {
		r.Issuer = nil
	}
	r.Addresses = canonical(first(r.GetAddresses(), maxAddresses))
	if p := r.GetProxy(); p != nil {
		p.Version, p.Message = cut(p.GetVersion(), maxName), cut(p.GetMessage(), maxMessage)
	}
	r.Sessions = first(r.GetSessions(), maxSessions)
	for _, s := range r.GetSessions() {
		s.Peer, s.State, s.Reason, s.Bfd = cut(s.GetPeer(), maxName), cut(s.GetState(), maxName), cut(s.GetReason(), maxName), cut(s.GetBfd(), maxName)
		s.Zone, s.Interface = cut(s.GetZone(), maxName), cut(s.GetInterface(), maxName)
		s.Address, s.RouterId, s.PeerRouterId = raw(s.GetAddress()), raw(s.GetRouterId()), raw(s.GetPeerRouterId())
		s.Message, s.Advertised = cut(s.GetMessage(), maxMessage), first(s.GetAdvertised(), maxVIPs)
		for i, prefix := range s.GetAdvertised() {
			s.Advertised[i] = cut(prefix, maxName)
		}
	}
	r.Vips = first(r.GetVips(), maxVIPs)
	for _, v := range r.GetVips() {
		v.Address, v.State, v.Message = raw(v.GetAddress()), cut(v.GetState(), maxName), cut(v.GetMessage(), maxMessage)
	}
	trimBalancing(r)
	trimFigures(r.GetFigures())
	trimFlows(r.GetFlows())
	if a := r.GetApplied(); a != nil {
		a.Problems = first(a.GetProblems(), maxProblems)
		for _, p := range a.GetProblems() {
			p.TypeUrl, p.Name = cut(p.GetTypeUrl(), maxName), cut(p.GetName(), maxName)
			p.Version, p.Message = cut(p.GetVersion(), maxName), cut(p.GetMessage(), maxMessage)
		}
	}
	return r
}
