package southbound

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	agentv1 "fairlead.dev/proto/agent/v1"
)

// proves calls the plane from an address, with the machine's certificate.
func (a *agent) proves(from string) (*agentv1.ProveResponse, error) {
	a.r.t.Helper()
	a.r.callFrom(from)
	conn := a.r.dial(a.cert)
	answer, err := agentv1.NewObserverClient(conn).Prove(a.r.ctx(), &agentv1.ProveRequest{})
	_ = conn.Close()
	return answer, err
}

func (r *rig) callFrom(address string) {
	r.from.Store(&net.TCPAddr{IP: net.ParseIP(address), Port: 40000})
}

func addresses(texts ...string) (list []netip.Addr) {
	for _, text := range texts {
		list = append(list, netip.MustParseAddr(text))
	}
	return list
}

// What a machine says proves nothing; where it calls from does.
func TestAddressesAreProven(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Endpoints = func() []string { return []string{"[2001:db8::1]:7443"} } })
	r.callFrom("10.0.0.1")
	a := r.join("edge-1")
	_, err := a.proves("10.0.0.1")
	wantStatus(t, err, codes.FailedPrecondition, "no stream")

	r.callFrom("10.0.0.1")
	a.conn = r.dial(a.cert)
	o := a.observe()
	o.report(&agentv1.Report{Addresses: []string{"10.0.0.1", "10.0.0.2", "2001:db8::9"}, Proved: true})
	state := r.wait("the report", "edge-1", func(m MachineState) bool { return len(m.Addresses) == 3 })
	if !slices.Equal(state.Proven, addresses("10.0.0.1")) || !state.Proved {
		t.Errorf("a connection proves %v", state.Proven)
	}
	answer, err := a.proves("2001:db8::9")
	if err != nil || !slices.Equal(answer.GetEndpoints(), []string{"[2001:db8::1]:7443"}) || !slices.Equal(answer.GetAddress(), netip.MustParseAddr("2001:db8::9").AsSlice()) {
		t.Errorf("answered %v, %v", answer, err)
	}
	if _, err := a.proves("::ffff:10.0.0.2"); err != nil {
		t.Error(err)
	}
	for _, nobodys := range []string{"127.0.0.1", "::1"} {
		if _, err := a.proves(nobodys); err != nil {
			t.Error(err)
		}
	}
	state, _ = r.server.Machine("edge-1")
	if want := addresses("10.0.0.1", "10.0.0.2", "2001:db8::9"); !slices.Equal(state.Proven, want) {
		t.Errorf("proven are %v, want %v", state.Proven, want)
	}

	// Who has not the machine's key proves nothing of it.
	_, err = r.impostor("edge-1").proves("10.0.0.3")
	wantStatus(t, err, codes.AlreadyExists, "another key")
	r.callFrom("10.0.0.3")
	_, err = agentv1.NewObserverClient(r.dial(nil)).Prove(r.ctx(), &agentv1.ProveRequest{})
	wantStatus(t, err, codes.Unauthenticated, "no client certificate")
	if provers := r.server.Provers(netip.MustParseAddr("10.0.0.3")); len(provers) != 0 {
		t.Errorf("10.0.0.3 was proven by %v", provers)
	}

	// Another machine that comes from there, too, is told apart; all who report the address hear of it.
	b := r.join("edge-2")
	other := b.observe()
	r.wait("the other machine", "edge-2", func(m MachineState) bool { return m.Name != "" })
	heard := make(chan string, 16)
	r.server.Watch(func(machine string) { heard <- machine })
	if _, err := b.proves("10.0.0.2"); err != nil {
		t.Fatal(err)
	}
	if told := []string{<-heard, <-heard}; !slices.Contains(told, "edge-1") || !slices.Contains(told, "edge-2") {
		t.Errorf("told were %v", told)
	}
	if provers := r.server.Provers(netip.MustParseAddr("10.0.0.2")); !slices.Equal(provers, []string{"edge-1"}) {
		t.Errorf("10.0.0.2 was proven by %v: one does not report it", provers)
	}
	other.report(&agentv1.Report{Addresses: []string{"10.0.0.2"}})
	r.wait("its report", "edge-2", func(m MachineState) bool { return len(m.Addresses) == 1 })
	// It is told apart once more when it ceases to: edge-1 may have what it reports now.
	for len(heard) > 0 {
		<-heard
	}
	other.report(&agentv1.Report{})
	for name := ""; name != "edge-1"; name = <-heard {
	}
	other.report(&agentv1.Report{Addresses: []string{"10.0.0.2"}})
	r.wait("its report", "edge-2", func(m MachineState) bool { return len(m.Addresses) == 1 })
	if provers := r.server.Provers(netip.MustParseAddr("10.0.0.2")); !slices.Equal(provers, []string{"edge-1", "edge-2"}) {
		t.Errorf("10.0.0.2 was proven by %v", provers)
	}

	r.leader.set(1, false, "192.0.2.1:7443")
	_, err = a.proves("10.0.0.4")
	wantStatus(t, err, codes.Unavailable, "does not lead")
}

// TestStreamsComeBeforeProofs holds that a machine proves nothing once its streams have ended: another may get its name.
func TestStreamsComeBeforeProofs(t *testing.T) {
	r := newRig(t)
	r.callFrom("10.0.0.1")
	a := r.join("edge-1")
	o := a.observe()
	o.report(&agentv1.Report{Addresses: []string{"10.0.0.1", "10.0.0.2"}})
	r.wait("the report", "edge-1", func(m MachineState) bool { return len(m.Addresses) == 2 })
	o.cancel()
	r.wait("the end of the stream", "edge-1", func(MachineState) bool {
		r.server.mu.Lock()
		defer r.server.mu.Unlock()
		return !r.server.machines["edge-1"].open()
	})
	_, err := a.proves("10.0.0.2")
	wantStatus(t, err, codes.FailedPrecondition, "no stream")
	if provers := r.server.Provers(netip.MustParseAddr("10.0.0.2")); len(provers) != 0 {
		t.Errorf("10.0.0.2 was proven by %v", provers)
	}
}

// A machine that proves without end fills nothing, and keeps what it reports.
func TestProofsAreBounded(t *testing.T) {
	p, begin := newProofs(), time.Unix(1000, 0)
	reported := []string{"10.0.0.1", "10.0.0.2"}
	for _, text := range reported {
		p.add("a", netip.MustParseAddr(text), reported, begin)
	}
	for i := range 3 * maxAddresses {
		p.add("a", netip.MustParseAddr(fmt.Sprintf("10.1.%d.%d", i/256, i%256)), reported, begin)
	}
	if n := len(p.of["a"]); n > maxAddresses || n != len(p.by) {
		t.Errorf("it has %d proofs, %d in all", n, len(p.by))
	}
	for _, text := range reported {
		if !slices.Equal(p.by[netip.MustParseAddr(text)], []string{"a"}) {
			t.Errorf("%s is forgotten", text)
		}
	}
	p.forget("a")
	if len(p.of)+len(p.by) != 0 {
		t.Errorf("left are %v and %v", p.of, p.by)
	}
}

// A proof ends a while after the reports of its address.
func TestProofsAreOfNow(t *testing.T) {
	p, now := newProofs(), time.Unix(1000, 0)
	a := netip.MustParseAddr("10.0.0.1")
	p.add("edge-1", a, nil, now)
	for range 5 {
		now = now.Add(proofKept)
		p.reported("edge-1", []string{"10.0.0.1"}, now)
	}
	p.reported("edge-1", nil, now.Add(proofKept))
	if !p.has("edge-1", "10.0.0.1") {
		t.Error("a proof ended too soon")
	}
	p.reported("edge-1", nil, now.Add(proofKept+1))
	if p.has("edge-1", "10.0.0.1") || len(p.by) != 0 {
		t.Error("it has what it does not report any more")
	}
}

// What a machine has proven ends when this plane leads no more, and when another key takes its name.
func TestProofsAreOfOneTermAndKey(t *testing.T) {
	r := newRig(t)
	r.callFrom("10.0.0.1")
	a := r.join("edge-1")
	report := &agentv1.Report{Addresses: []string{"10.0.0.1", "10.0.0.9"}, Proved: true}
	begin := func(a *agent, from string) {
		r.callFrom(from)
		a.conn = r.dial(a.cert)
		a.observe().report(report)
		r.wait("the report", "edge-1", func(m MachineState) bool { return m.Proved })
	}
	closed := func() {
		for open := true; open; {
			r.server.mu.Lock()
			open = r.server.machines["edge-1"].open()
			r.server.mu.Unlock()
		}
	}
	begin(a, "10.0.0.1")
	r.leader.set(1, false, "192.0.2.1:7443")
	r.server.StepDown()
	if state, _ := r.server.Machine("edge-1"); state.Proved || len(state.Proven) != 0 {
		t.Errorf("after the term it has proven %v", state.Proven)
	}
	closed()
	r.leader.set(2, true, "")
	begin(a, "10.0.0.1")
	if state, _ := r.server.Machine("edge-1"); !slices.Equal(state.Proven, addresses("10.0.0.1")) {
		t.Errorf("in the next term it has proven %v", state.Proven)
	}
	_ = a.conn.Close()
	closed()
	begin(r.impostor("edge-1"), "10.0.0.9")
	if state, _ := r.server.Machine("edge-1"); !slices.Equal(state.Proven, addresses("10.0.0.9")) {
		t.Errorf("another key has proven %v", state.Proven)
	}
}

// An address has one spelling, or others' would not be found beside it.
func TestReportedAddressesAreCanonical(t *testing.T) {
	got := canonical([]string{"::ffff:10.0.0.1", "10.0.0.1", "FD00:0::2", "fe80::1%\x1b[2J", "here", ""})
	if want := []string{"10.0.0.1", "fd00::2"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestReporters holds that who reports an address is known without a look at all machines, and that
// nothing is left of what is reported no more.
func TestReporters(t *testing.T) {
	r := newRig(t)
	a, b := r.join("edge-1"), r.join("edge-2")
	one, two := a.observe(), b.observe()
	reports := func(o *observing, machine string, addresses ...string) {
		t.Helper()
		o.report(&agentv1.Report{Addresses: addresses})
		r.wait("a report", machine, func(m MachineState) bool { return slices.Equal(m.Addresses, addresses) })
	}
	reports(one, "edge-1", "10.0.0.1", "10.0.0.2")
	reports(two, "edge-2", "10.0.0.2", "10.0.0.3")
	reported := func(address string) []string {
		r.server.mu.Lock()
		defer r.server.mu.Unlock()
		return r.server.reporters.but("", []string{address})
	}
	for address, want := range map[string][]string{"10.0.0.1": {"edge-1"}, "10.0.0.2": {"edge-1", "edge-2"}, "10.0.0.3": {"edge-2"}, "10.0.0.4": nil} {
		if got := reported(address); !slices.Equal(got, want) {
			t.Errorf("%s is reported by %v, want %v", address, got, want)
		}
	}
	reports(one, "edge-1", "10.0.0.1")
	reports(two, "edge-2")
	if got := reported("10.0.0.2"); got != nil {
		t.Errorf("10.0.0.2 is reported by %v", got)
	}
	if n := len(r.server.reporters); n != 1 {
		t.Errorf("%d addresses are kept, want 1", n)
	}
}
