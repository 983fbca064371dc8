package southbound

import (
	"cmp"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// MachineState is the server's knowledge of one machine, from its open and earlier streams. It
// is a copy, except for Problems and the contents of reports, which nobody changes.
type MachineState struct {
	Name string
	Role string
	// Connected: a discovery stream is open, since Since. When it is not, Since is
	// when the last one ended.
	Connected bool
	Since     time.Time
	// LastReport is zero before the first one. Lost: there was none within the
	// time-to-live, nor, before the first, a stream.
	LastReport time.Time
	Lost       bool

	View ViewID // empty: the plane has not placed the machine
	// Wanted is the last revision that concerned the machine; Delivered what its
	// agent has acknowledged on this stream, Applied what its proxy runs.
	Wanted, Delivered, Applied delta.Revision
	// Problems are the resources that the agent or its proxy does not run as desired,
	// sorted. Nobody may change them.
	Problems []Problem

	Proxy        *agentv1.Proxy // nil before the first report
	Addresses    []string
	AgentVersion string
	// Proven are the addresses that it has connected from, sorted. Proved: all that it reports are,
	// or it has tried to prove them.
	Proven []netip.Addr
	Proved bool

	Sessions []model.Session     // with BGP peers, by peer
	VIPs     []model.VIPObserved // by address

	// Carried is the last checkpoint of which the machine's kernel carries out everything; zero
	// where TellsCarried is false: its agent does not say. Leaving is a number: it leaves, and is to hear (Left) when no
	// other machine sends new flows to its proxy; 0: it does not. Left is the last number of
	// which that was said.
	Carried      delta.Revision
	TellsCarried bool
	Leaving      uint64
	Left         uint64

	Frontends []model.FrontendObserved // by key
	Checks    []model.CheckResult      // in the order of the report
	Ejected   []model.Ejection         // by its proxy, sorted
	Tunnel    *agentv1.Tunnel          // nil: it does not decapsulate
	// TunnelUnknown says that no report has told that yet.
	TunnelUnknown bool
}

// Problem is one resource that a machine does not run as the plane requires.
type Problem struct {
	Kind    agentv1.Problem_Kind
	Type    delta.Type
	Name    string
	Version string
	Message string
}

func (p Problem) compare(o Problem) int {
	return cmp.Or(cmp.Compare(p.Type, o.Type), cmp.Compare(p.Name, o.Name), cmp.Compare(p.Kind, o.Kind), cmp.Compare(p.Version, o.Version), cmp.Compare(p.Message, o.Message))
}

// streamKind tells the streams of a machine apart.
type streamKind int

const (
	discovery streamKind = iota
	observation
	tapping
	streamKinds
)

// machine is the server's memory of one machine, guarded by Server.mu.
type machine struct {
	name     string
	role     string
	key      KeyID // of the last stream
	nextKey  KeyID // renewed to, not used yet
	sessions [streamKinds]*session

	since      time.Time
	seen       time.Time // last sign of life: a report or the begin or end of a stream
	lastReport time.Time
	lost       bool // as last told to watchers

	raised time.Time // when the epoch was, for its claim
	pace   pace

	left atomic.Uint64 // the last leaving that all others have noticed, read without Server.mu

	issuer    []byte    // pin of the authority of its certificate, as it reports on the open stream; nil: it does not say
	got       []byte    // that of the certificate which it got last and has not shown yet
	renewed   time.Time // when
	report    *agentv1.Report
	proved    bool      // as it reported since this plane leads: see MachineState
	problems  []Problem // of the report
	bgp       []model.Session
	vips      []model.VIPObserved
	frontends []model.FrontendObserved
	checks    []model.CheckResult
	ejected   []model.Ejection
	refusals  *refusals // on the discovery stream; nil: there was none
	refused   uint64    // the version of refusals that watchers were told of
	step      uint64    // of the discovery stream's last outcome
	delivered delta.Revision
	applied   delta.Revision
}

func (m *machine) open() bool {
	return slices.ContainsFunc(m.sessions[:], func(s *session) bool { return s != nil })
}

func (m *machine) isLost(now time.Time, ttl time.Duration) bool {
	last := m.lastReport
	if last.IsZero() {
		last = m.seen
	}
	return now.Sub(last) > ttl
}

// alive says whether somebody holds the name: with a stream, or not long ago.
func (m *machine) alive(now time.Time, ttl time.Duration) bool {
	return m.open() || now.Sub(m.seen) <= ttl
}

// Machine returns the state of one machine.
func (s *Server) Machine(name string) (MachineState, bool) {
	now := s.config.Now()
	s.mu.Lock()
	m := s.machines[name]
	if m == nil {
		s.mu.Unlock()
		return MachineState{}, false
	}
	state, problems := m.state(now, s.config.TTL), m.listed()
	state.Proven = s.proofs.sorted(name)
	s.mu.Unlock()
	state.Problems = problems.all()
	state.View, state.Wanted = s.config.Views.Placed(name)
	return state, true
}

// problems are those of one machine, to be listed without Server.mu.
type problems struct {
	refusals *refusals
	reported []Problem
}

func (m *machine) listed() problems { return problems{m.refusals, m.problems} }

func (p problems) all() []Problem {
	if p.refusals == nil {
		return slices.SortedFunc(slices.Values(p.reported), Problem.compare)
	}
	return p.refusals.all(p.reported)
}

// state is all but the problems, which take longer.
func (m *machine) state(now time.Time, ttl time.Duration) MachineState {
	state := MachineState{
		Name: m.name, Role: m.role,
		Connected: m.sessions[discovery] != nil, Since: m.since,
		LastReport: m.lastReport, Lost: m.isLost(now, ttl),
		Delivered: m.delivered, Applied: m.applied, Left: m.left.Load(), Proved: m.proved,
	}
	if m.report != nil {
		state.Proxy = m.report.GetProxy()
		state.Addresses = slices.Clone(m.report.GetAddresses())
		state.AgentVersion = m.report.GetAgentVersion()
		state.Sessions, state.VIPs = m.bgp, m.vips
		state.Frontends, state.Checks, state.Ejected = m.frontends, m.checks, m.ejected
		state.Tunnel, state.TunnelUnknown = m.report.GetTunnel(), m.report.GetTunnelUnknown()
		state.Carried = delta.Revision{Epoch: m.report.GetCarried().GetEpoch(), Number: m.report.GetCarried().GetRevision()}
		state.TellsCarried = m.report.GetCarried() != nil
		state.Leaving = m.report.GetLeaving()
	}
	return state
}

// Watch has f called with a machine's name whenever it connects or disconnects, is
// lost or back, its delivered or applied revision moves, or anything of its reports
// changes but figures, flows and what its proxy counts. f is called without locks, from many goroutines, and must not
// block.
func (s *Server) Watch(f func(machine string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchers = append(s.watchers, f)
}

func (s *Server) notify(names ...string) {
	s.mu.Lock()
	watchers := slices.Clone(s.watchers)
	s.mu.Unlock()
	for _, name := range names {
		for _, f := range watchers {
			f(name)
		}
	}
}

// claim gives a stream its machine's name. A newer stream replaces the older one of
// the same kind if it has the same key, or the one that this machine renewed to;
// any other key is refused while a stream is open.
func (s *Server) claim(who *session, kind streamKind) error {
	concerned, err := s.enter(who, kind)
	if err != nil {
		return err
	}
	s.notify(concerned...)
	return nil
}

// enter lets a stream in, and returns the machines that it concerns.
func (s *Server) enter(who *session, kind streamKind) (concerned []string, _ error) {
	now := s.config.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.machines[who.Machine]
	if m == nil {
		if len(s.machines) >= s.config.MaxMachines {
			return nil, status.Errorf(codes.ResourceExhausted, "this plane serves at most %d machines", s.config.MaxMachines)
		}
		m = &machine{name: who.Machine, pace: newPace()}
		s.machines[who.Machine] = m
	}
	if m.open() && who.key != m.key && who.key != m.nextKey {
		return nil, status.Errorf(codes.AlreadyExists, "machine %s is connected with another key", who.Machine)
	}
	var others []string
	if m.key != "" && who.key != m.key && who.key != m.nextKey {
		others = s.disprove(m)
	}
	if !m.pace.streams.Allow() {
		return nil, status.Errorf(codes.ResourceExhausted, "machine %s opens more than %d streams a second", who.Machine, streamRate)
	}
	if old := m.sessions[kind]; old != nil {
		old.end(status.Error(codes.Aborted, "a newer stream of this machine has taken over"))
	}
	if who.key == m.nextKey {
		m.nextKey = ""
	}
	m.key, m.role, m.seen = who.key, who.Role, now
	if !m.open() {
		m.got = nil // it shows what it keeps
	}
	m.sessions[kind], who.pace = who, m.pace
	s.admission.callers.note(m.name, networkFrom(who.from))
	if concerned = append(s.prove(m, who.from), others...); !slices.Contains(concerned, m.name) {
		concerned = append(concerned, m.name)
	}
	s.sessions[who] = struct{}{}
	if kind == observation {
		m.issuer = nil
	}
	if kind == discovery {
		m.since, m.delivered = now, delta.Revision{}
		m.refusals, m.refused, m.step = nil, 0, 0
		s.config.Log.Info("machine connected", "machine", m.name)
	}
	return concerned, nil
}

// release takes a stream's claim back, unless a newer one has it.
func (s *Server) release(who *session, kind streamKind) {
	now := s.config.Now()
	s.mu.Lock()
	delete(s.sessions, who)
	m := s.machines[who.Machine]
	mine := m != nil && m.sessions[kind] == who
	if mine {
		m.sessions[kind], m.seen = nil, now
		if kind == observation {
			m.issuer = nil
		}
		if kind == discovery {
			m.since = now
			s.config.Log.Info("machine disconnected", "machine", m.name)
		}
	}
	s.mu.Unlock()
	if mine {
		s.notify(who.Machine)
	}
}

// progress takes what the discovery stream of a machine came to. Outcomes of its receiver and
// its sender may come in any order.
func (s *Server) progress(who *session, o outcome) {
	if o.closed {
		return
	}
	o.refusals.trim()
	s.mu.Lock()
	m := s.machines[who.Machine]
	var changed bool
	if m != nil && m.sessions[discovery] == who && o.step > m.step {
		changed = m.delivered != o.delivered || m.refused != o.refused
		m.step, m.delivered, m.refusals, m.refused = o.step, o.delivered, o.refusals, o.refused
	}
	s.mu.Unlock()
	if changed {
		s.notify(who.Machine)
	}
}

// Sweep notices changes that come with time: machines that are lost, streams whose certificate has
// expired or was renewed, and machines to forget, which were lost and belong to no view. The owner
// calls it every second or so.
func (s *Server) Sweep() {
	now := s.config.Now()
	var changed []string
	s.mu.Lock()
	s.begun(now)
	for name, m := range s.machines {
		if lost := m.isLost(now, s.config.TTL); lost != m.lost {
			m.lost = lost
			changed = append(changed, name)
			if lost {
				s.config.Log.Warn("machine lost", "machine", name, "last_report", m.lastReport)
			} else {
				s.config.Log.Info("machine is back", "machine", name)
			}
		}
		if m.lost { // nobody else ends its proofs
			changed = append(changed, s.reporters.but(name, s.proofs.reported(name, nil, now))...)
		}
	}
	for session := range s.sessions {
		switch {
		case now.After(session.notAfter):
			session.end(status.Error(codes.Unauthenticated, "the certificate has expired"))
		case s.shows(session, now):
			session.end(errRenewed)
		}
	}
	var gone []string
	for name, m := range s.machines {
		if m.lost && !m.alive(now, s.config.TTL) {
			gone = append(gone, name)
		}
	}
	s.mu.Unlock()
	for _, name := range gone {
		if view, _ := s.config.Views.Placed(name); view == "" {
			changed = append(changed, s.forget(name)...)
		}
	}
	s.notify(changed...)
}

// forget drops a machine, and returns those that report addresses which it has proven.
func (s *Server) forget(name string) (concerned []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.machines[name]
	if m == nil || m.open() {
		return nil
	}
	delete(s.machines, name)
	s.reporters.replace(name, m.report.GetAddresses(), nil)
	s.admission.callers.forget(name)
	return s.disprove(m)
}
