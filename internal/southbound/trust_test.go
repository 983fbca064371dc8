package southbound

import (
	"bytes"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	agentv1 "fairlead.dev/proto/agent/v1"
)

// rotating is a rig whose plane may have two authorities.
func rotating(t *testing.T) (*rig, *Authorities) {
	t.Helper()
	var trust *Authorities
	r := newRig(t, func(c *Config) {
		trust = NewAuthorities(c.Authority.(*CA), nil)
		c.Authority = trust
	})
	return r, trust
}

func newCA(t *testing.T, r *rig) *CA {
	t.Helper()
	ca, err := NewCA(r.clock.Now)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// told waits until a machine is told that a certificate comes with these authorities.
func (o *observing) told(signs *CA, all ...*CA) {
	o.r.t.Helper()
	want := trustOf(signs, all...)
	for {
		instruction, err := o.client.Recv()
		if err != nil {
			o.r.t.Fatal(err)
		}
		got := instruction.GetTrust()
		if bytes.Equal(got.GetIssuer(), want.issuer) && slices.EqualFunc(got.GetAuthorities(), want.authorities, bytes.Equal) {
			return
		}
	}
}

// ends waits for the end of the stream, whatever is said before.
func (o *observing) ends(code codes.Code, text string) {
	o.r.t.Helper()
	for {
		if _, err := o.client.Recv(); err != nil {
			wantStatus(o.r.t, err, code, text)
			return
		}
	}
}

func (a *agent) renew() (*agentv1.Certificate, error) {
	a.r.t.Helper()
	return agentv1.NewEnrollmentClient(a.conn).Renew(a.r.ctx(), &agentv1.RenewRequest{Csr: request(a.r.t, a.key)})
}

// TestRotation: while there is a next authority, machines of either are served and know the plane;
// once the first is retired, its certificates are refused, and streams of them end.
func TestRotation(t *testing.T) {
	r, trust := rotating(t)
	first, next := r.ca, newCA(t, r)
	a, b := r.join("edge-1"), r.join("edge-2")
	oa, ob := a.observe(), b.observe()
	if !trust.Set(first, next) {
		t.Fatal("a next authority is no change")
	}
	r.server.TrustChanged()
	oa.told(next, first, next)
	ob.told(next, first, next)

	// Machines get certificates of the next one, with both to trust; planes show the first.
	answer, err := a.renew()
	if err != nil {
		t.Fatal(err)
	}
	if string(answer.GetAuthorities()) != string(first.Roots())+string(next.Roots()) {
		t.Errorf("the authorities that came with it are\n%s", answer.GetAuthorities())
	}
	renewed := r.agent(a.key, answer.GetChain()) // it trusts the first alone
	oa = renewed.observe()
	if got := r.server.Issuers(); got["edge-1"] != next.Pin() || got["edge-2"] != first.Pin() {
		t.Errorf("they keep certificates of %v; the authorities are %s and %s", got, first.Pin(), next.Pin())
	}

	trust.Set(next, nil)
	r.ca = next // what is dialled from now on trusts it alone
	r.server.TrustChanged()
	oa.told(next, next)
	ob.ends(codes.Aborted, "no longer trusted")
	_, err = b.renew()
	wantStatus(t, err, codes.Unauthenticated, "unknown authority")
	b.conn = r.dial(b.cert)
	_, err = b.renew()
	wantStatus(t, err, codes.Unauthenticated, "unknown authority")
	renewed.conn = r.dial(renewed.cert)
	if answer, err = renewed.renew(); err != nil || string(answer.GetAuthorities()) != string(next.Roots()) {
		t.Errorf("the renewed machine: %v, with\n%s", err, answer.GetAuthorities())
	}
}

// turning is a Leader that has something happen when it is asked for the next time.
type turning struct {
	*term
	next atomic.Pointer[func()]
}

func (l *turning) Leading() (uint64, bool) {
	if next := l.next.Swap(nil); next != nil {
		(*next)()
	}
	return l.term.Leading()
}

// TestRetiredMeanwhile: a stream whose certificate was good when it began, and is not when it is let in, ends: nobody
// else would end it, since it was not there when the authority was retired.
func TestRetiredMeanwhile(t *testing.T) {
	var trust *Authorities
	leader := &turning{}
	r := newRig(t, func(c *Config) {
		trust = NewAuthorities(c.Authority.(*CA), nil)
		leader.term = c.Leader.(*term)
		c.Authority, c.Leader = trust, leader
	})
	a, next := r.join("edge-1"), newCA(t, r)
	if _, err := a.renew(); err != nil { // its connection is there
		t.Fatal(err)
	}
	for _, open := range []func() (grpc.ClientStream, error){
		func() (grpc.ClientStream, error) { return agentv1.NewObserverClient(a.conn).Observe(r.ctx()) },
		func() (grpc.ClientStream, error) {
			return discoveryv3.NewAggregatedDiscoveryServiceClient(a.conn).DeltaAggregatedResources(r.ctx())
		},
	} {
		trust.Set(r.ca, nil)
		retire := func() {
			trust.Set(next, nil)
			r.server.TrustChanged()
		}
		leader.next.Store(&retire)
		stream, err := open()
		if err != nil {
			t.Fatal(err)
		}
		if _, is := stream.(grpc.BidiStreamingClient[agentv1.Report, agentv1.Instruction]); is {
			wantStatus(t, stream.RecvMsg(&agentv1.Instruction{}), codes.Aborted, "no longer trusted")
		} else {
			wantStatus(t, stream.RecvMsg(&discoveryv3.DeltaDiscoveryResponse{}), codes.Aborted, "no longer trusted")
		}
	}
}

// TestIssuerIsAsReported: a machine that has renewed its certificate says so on the stream that it
// opened with the one before. It is believed only what can be, and not against what it has shown.
func TestIssuerIsAsReported(t *testing.T) {
	r, trust := rotating(t)
	first, next := r.ca, newCA(t, r)
	a := r.join("edge-1")
	o := a.observe()
	trust.Set(first, next)
	reports := func(version string, says []byte, want *CA) {
		t.Helper()
		o.report(&agentv1.Report{AgentVersion: version, Issuer: says})
		r.wait("the report", "edge-1", func(m MachineState) bool { return m.AgentVersion == version })
		if got := r.server.Issuers()["edge-1"]; got != want.Pin() {
			t.Errorf("%s: its certificate is of %s, want %s", version, got, want.Pin())
		}
	}
	reports("older", nil, first)
	reports("renewed", pinOf(next.cert), next)
	reports("garbled", []byte("x"), first)
	reports("another's", pinOf(newCA(t, r).cert), first)
	reports("again", pinOf(next.cert), next)
	answer, err := a.renew()
	if err != nil {
		t.Fatal(err)
	}
	o = r.agent(a.key, answer.GetChain()).observe()
	reports("shown", pinOf(first.cert), next)
	// The word of a stream that has ended does not count.
	o.cancel()
	r.wait("the end of the stream", "edge-1", func(MachineState) bool { return len(r.server.Issuers()) == 0 })
}

// TestOlderAgentsShowWhatTheyGot: an agent that does not report what it keeps has to come back when it has
// renewed its certificate; one that comes back with the one before is left alone.
func TestOlderAgentsShowWhatTheyGot(t *testing.T) {
	r, trust := rotating(t)
	first, next := r.ca, newCA(t, r)
	old, reporting := r.join("edge-1"), r.join("edge-2")
	o, or := old.observe(), reporting.observe()
	pass := func(d time.Duration) {
		r.clock.advance(d)
		r.server.Sweep()
	}
	for _, a := range []*agent{old, reporting} { // of the same authority: nothing new to show
		if _, err := a.renew(); err != nil {
			t.Fatal(err)
		}
	}
	pass(2 * showTime)
	trust.Set(first, next)
	for _, a := range []*agent{old, reporting} {
		if _, err := a.renew(); err != nil {
			t.Fatal(err)
		}
	}
	or.report(&agentv1.Report{AgentVersion: "reports", Issuer: pinOf(next.cert)})
	r.wait("the report", "edge-2", func(m MachineState) bool { return m.AgentVersion == "reports" })
	pass(showTime)
	o.report(&agentv1.Report{AgentVersion: "there"})
	r.wait("the report", "edge-1", func(m MachineState) bool { return m.AgentVersion == "there" })
	pass(time.Second)
	o.ends(codes.Aborted, "reconnect with the newer one")
	r.wait("the end of the stream", "edge-1", func(MachineState) bool {
		r.server.mu.Lock()
		defer r.server.mu.Unlock()
		return !r.server.machines["edge-1"].open()
	})
	o = old.observe() // it did not store what it got
	pass(2 * showTime)
	o.report(&agentv1.Report{AgentVersion: "still there"})
	r.wait("the report", "edge-1", func(m MachineState) bool { return m.AgentVersion == "still there" })
	or.report(&agentv1.Report{AgentVersion: "still there", Issuer: pinOf(next.cert)})
	r.wait("the report", "edge-2", func(m MachineState) bool { return m.AgentVersion == "still there" })
}

// TestAuthoritiesKeepWhatTheyMade: the same authorities, read once more, are no change, and the
// certificate that planes show stays until another authority is shown.
func TestAuthoritiesKeepWhatTheyMade(t *testing.T) {
	r, trust := rotating(t)
	first, next := r.ca, newCA(t, r)
	again := func(ca *CA) *CA {
		data, err := ca.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		read, err := ParseCA(data, r.clock.Now)
		if err != nil {
			t.Fatal(err)
		}
		return read
	}
	serial := func() string {
		cert, err := trust.Serving()
		if err != nil {
			t.Fatal(err)
		}
		return cert.Leaf.SerialNumber.String()
	}
	shown := serial()
	if trust.Set(again(first), nil) {
		t.Error("the same authority, read again, is a change")
	}
	if !trust.Set(again(first), next) || trust.Set(again(first), again(next)) || trust.Pin() != first.Pin() || serial() != shown {
		t.Error("a next authority changes what planes show")
	}
	if since := trust.RotatingSince(); !since.Equal(r.clock.Now()) {
		t.Errorf("the rotation is under way since %s", since)
	}
	if !trust.Set(again(next), nil) || trust.Pin() != next.Pin() || serial() == shown {
		t.Error("planes show the retired authority still")
	}
	if since := trust.RotatingSince(); !since.IsZero() {
		t.Errorf("after it, a rotation is under way since %s", since)
	}
}

// TestAuthorityIsGoodForItsTime: a clock that is less than a day behind takes it.
func TestAuthorityIsGoodForItsTime(t *testing.T) {
	r := newRig(t)
	made := r.clock.Now()
	for _, c := range []struct {
		at   time.Time
		good bool
	}{
		{made.Add(-authorityBackdate - time.Second), false},
		{made.Add(-authorityBackdate), true},
		{made, true},
		{made.Add(AuthorityLife - time.Second), true},
		{made.Add(AuthorityLife), false},
	} {
		if r.ca.Good(c.at) != c.good {
			t.Errorf("at %s it is good: %v", c.at, !c.good)
		}
	}
}
