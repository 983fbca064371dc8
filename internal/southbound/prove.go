package southbound

import (
	"context"
	"maps"
	"net"
	"net/netip"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	agentv1 "fairlead.dev/proto/agent/v1"
)

// proofKept is how long a proof outlives the reports that name its address: an address that comes back
// within it need not be proven anew, and who had one long ago has it no more.
const proofKept = 10 * time.Minute

// proofs are the addresses that machines have connected from, each with its certificate: a peer
// that answers there has the address. They are forgotten with the machine, when another key takes its name,
// and when this plane leads no more: what follows, another one hears. Guarded by Server.mu.
type proofs struct {
	of map[string]map[netip.Addr]time.Time // by machine: when it was proven, or reported since
	by map[netip.Addr][]string             // machines, sorted
}

func newProofs() proofs {
	return proofs{of: map[string]map[netip.Addr]time.Time{}, by: map[netip.Addr][]string{}}
}

// reporters are the machines by the addresses that they report, as texts: who is concerned by a proof is
// found without a look at every machine. Guarded by Server.mu.
type reporters map[string]map[string]struct{}

// replace has a machine report other addresses than before.
func (r reporters) replace(machine string, before, after []string) {
	for _, a := range before {
		if delete(r[a], machine); len(r[a]) == 0 {
			delete(r, a)
		}
	}
	for _, a := range after {
		if r[a] == nil {
			r[a] = map[string]struct{}{}
		}
		r[a][machine] = struct{}{}
	}
}

// but are the machines but one that report one of some addresses, each once.
func (r reporters) but(machine string, addresses []string) (names []string) {
	for _, a := range addresses {
		for name := range r[a] {
			if name != machine {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// add notes that a machine has connected from an address, and says whether that is new. reported are
// the addresses that the machine reports: where there are too many proofs, others make room.
func (p *proofs) add(machine string, a netip.Addr, reported []string, now time.Time) bool {
	if !a.IsValid() || a.IsLoopback() {
		return false // everybody has it
	}
	if _, known := p.of[machine][a]; known {
		return false
	}
	if len(p.of[machine]) >= maxAddresses {
		for old := range p.of[machine] {
			if !slices.Contains(reported, old.String()) {
				p.drop(machine, old)
			}
		}
		if len(p.of[machine]) >= maxAddresses {
			return false
		}
	}
	if p.of[machine] == nil {
		p.of[machine] = map[netip.Addr]time.Time{}
	}
	p.of[machine][a] = now
	i, _ := slices.BinarySearch(p.by[a], machine)
	p.by[a] = slices.Insert(p.by[a], i, machine)
	return true
}

// has says whether a machine has connected from an address.
func (p *proofs) has(machine, text string) bool {
	a, err := netip.ParseAddr(text)
	_, is := p.of[machine][a]
	return err == nil && is
}

// reported ends the proofs of addresses that a machine has not reported for long, and returns these.
func (p *proofs) reported(machine string, addresses []string, now time.Time) (ended []string) {
	for a, at := range p.of[machine] {
		switch {
		case slices.Contains(addresses, a.String()):
			p.of[machine][a] = now
		case now.Sub(at) > proofKept:
			p.drop(machine, a)
			ended = append(ended, a.String())
		}
	}
	return ended
}

func (p *proofs) drop(machine string, a netip.Addr) {
	delete(p.of[machine], a)
	p.by[a] = slices.DeleteFunc(p.by[a], func(m string) bool { return m == machine })
	if len(p.by[a]) == 0 {
		delete(p.by, a)
	}
}

func (p *proofs) forget(machine string) {
	for a := range p.of[machine] {
		p.drop(machine, a)
	}
	delete(p.of, machine)
}

// sorted are the addresses that a machine has connected from.
func (p *proofs) sorted(machine string) []netip.Addr {
	return slices.SortedFunc(maps.Keys(p.of[machine]), netip.Addr.Compare)
}

// Provers are the machines that have connected from an address and report it, sorted. Who has been there
// and does not report it claims nothing: it had the address before, or comes through a translation.
func (s *Server) Provers(a netip.Addr) (machines []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range s.proofs.by[a] {
		if m := s.machines[name]; m != nil && slices.Contains(m.report.GetAddresses(), a.String()) {
			machines = append(machines, name)
		}
	}
	return machines
}

// Prove records that a machine has the address from which it calls.
func (s *Server) Prove(ctx context.Context, _ *agentv1.ProveRequest) (*agentv1.ProveResponse, error) {
	c, err := s.verifier.caller(ctx)
	if err != nil {
		return nil, err
	}
	if _, leads := s.config.Leader.Leading(); !leads {
		return nil, s.standby()
	}
	from := callsFrom(ctx)
	concerned, err := s.proved(c, from)
	if err != nil {
		return nil, err
	}
	s.notify(concerned...)
	return &agentv1.ProveResponse{Address: from.AsSlice(), Endpoints: s.config.Endpoints()}, nil
}

// proved notes what a call proves, and returns whom that concerns.
func (s *Server) proved(c caller, from netip.Addr) (concerned []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.machines[c.Machine]
	switch {
	case m == nil || !m.open():
		return nil, status.Errorf(codes.FailedPrecondition, "machine %s has no stream here", c.Machine)
	case c.key != m.key && c.key != m.nextKey:
		return nil, status.Errorf(codes.AlreadyExists, "machine %s is connected with another key", c.Machine)
	case !m.pace.proofs.Allow():
		return nil, status.Errorf(codes.ResourceExhausted, "machine %s proves more than %d addresses a second", c.Machine, proofRate)
	}
	return s.prove(m, from), nil
}

// prove notes that a machine has connected from an address, under s.mu, and returns whom that
// concerns: nobody, where it was known.
func (s *Server) prove(m *machine, from netip.Addr) (concerned []string) {
	if _, leads := s.config.Leader.Leading(); !leads { // since a moment: StepDown was here
		return nil
	}
	if !s.proofs.add(m.name, from, m.report.GetAddresses(), s.config.Now()) {
		return nil
	}
	return append(s.reporters.but(m.name, []string{from.String()}), m.name)
}

// disprove forgets what a machine has proven, under s.mu, and returns whom that concerns beside it: its
// name goes to somebody else, or to nobody.
func (s *Server) disprove(m *machine) (concerned []string) {
	concerned = s.reporters.but(m.name, texts(s.proofs.sorted(m.name)))
	s.proofs.forget(m.name)
	m.proved = false
	return concerned
}

func texts(addresses []netip.Addr) (list []string) {
	for _, a := range addresses {
		list = append(list, a.String())
	}
	return list
}

// swayed notes that a machine reports other addresses than before, and returns the machines to be judged
// anew because of that: those that report one which it has proven, and has begun or ceased to report. Under
// s.mu.
func (s *Server) swayed(m *machine, last, reported []string) (concerned []string) {
	if slices.Equal(last, reported) {
		return nil
	}
	s.reporters.replace(m.name, last, reported)
	moved := slices.DeleteFunc(slices.Concat(last, reported), func(a string) bool {
		return slices.Contains(last, a) == slices.Contains(reported, a) || !s.proofs.has(m.name, a)
	})
	return s.reporters.but(m.name, moved)
}

// canonical are the addresses among texts, each once and spelled in one way: they are compared as texts.
// One with a zone is an address of a link alone.
func canonical(texts []string) (list []string) {
	for _, text := range texts {
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" {
			continue
		}
		if text = a.Unmap().String(); !slices.Contains(list, text) {
			list = append(list, text)
		}
	}
	return list
}

// callsFrom is the address that a call comes from; not valid where it comes from none.
func callsFrom(ctx context.Context) netip.Addr {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return netip.Addr{}
	}
	tcp, ok := p.Addr.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return tcp.AddrPort().Addr().Unmap().WithZone("")
}
