package southbound

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
	agentv1 "fairlead.dev/proto/agent/v1"
)

type observing struct {
	*agent
	client grpc.BidiStreamingClient[agentv1.Report, agentv1.Instruction]
	cancel context.CancelFunc
}

func (a *agent) observe() *observing {
	a.r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	a.r.t.Cleanup(cancel)
	client, err := agentv1.NewObserverClient(a.conn).Observe(ctx)
	if err != nil {
		a.r.t.Fatal(err)
	}
	first, err := client.Recv()
	if err != nil {
		a.r.t.Fatal(err)
	}
	if first.GetTimeToLive().AsDuration() != 15*time.Second {
		a.r.t.Fatalf("time-to-live %v", first.GetTimeToLive())
	}
	return &observing{a, client, cancel}
}

func (o *observing) report(r *agentv1.Report) {
	o.r.t.Helper()
	if err := o.client.Send(r); err != nil {
		o.r.t.Fatal(err)
	}
}

func (o *observing) fails(code codes.Code, text string) {
	o.r.t.Helper()
	_, err := o.client.Recv()
	wantStatus(o.r.t, err, code, text)
}

func TestReports(t *testing.T) {
	r := newRig(t)
	r.publish(1, 5, Update{Shared: map[ViewID][]delta.Change{"pool": changes(typeA, "a=1")}, Placement: place("edge-1", "pool")})
	o := r.join("edge-1").observe()
	o.report(&agentv1.Report{
		AgentVersion: "v0.1", Addresses: []string{"10.0.0.1", "fd00::1"},
		Proxy: &agentv1.Proxy{State: agentv1.Proxy_STATE_READY, Starts: 1},
		Applied: &agentv1.Applied{Epoch: 1, Revision: 5, Problems: []*agentv1.Problem{
			{Kind: agentv1.Problem_KIND_WAITING, TypeUrl: string(typeA), Name: "r/h", Version: "1", Message: strings.Repeat("é", 1000)},
		}},
	})
	state := r.wait("the report", "edge-1", func(m MachineState) bool { return m.Applied.Number == 5 })
	p := state.Problems[0]
	if state.AgentVersion != "v0.1" || !slices.Equal(state.Addresses, []string{"10.0.0.1", "fd00::1"}) || state.Proxy.GetStarts() != 1 ||
		!state.LastReport.Equal(r.clock.Now()) || state.Lost || state.Connected ||
		len(state.Problems) != 1 || p.Name != "r/h" || p.Kind != agentv1.Problem_KIND_WAITING || len(p.Message) != 1024 || !strings.HasSuffix(p.Message, "é") {
		t.Fatalf("state %+v", state)
	}
	// Nobody has applied what was never published.
	o.report(&agentv1.Report{Applied: &agentv1.Applied{Epoch: 9, Revision: 9}})
	state = r.wait("the second report", "edge-1", func(m MachineState) bool { return m.AgentVersion == "" })
	if state.Applied != (delta.Revision{Epoch: 1, Number: 5}) || len(state.Problems) != 0 {
		t.Fatalf("state %+v", state)
	}
	// A flood of problems is cut.
	many := make([]*agentv1.Problem, maxProblems+10)
	for i := range many {
		many[i] = &agentv1.Problem{Name: "p"}
	}
	o.report(&agentv1.Report{Applied: &agentv1.Applied{Problems: many}})
	r.wait("the third report", "edge-1", func(m MachineState) bool { return len(m.Problems) == maxProblems })
}

func TestSteadyReportsAreSilent(t *testing.T) {
	r := newRig(t)
	o := r.join("edge-1").observe()
	report := func(requests uint64, message string) {
		o.report(&agentv1.Report{Proxy: &agentv1.Proxy{Requests: requests, Message: message}})
	}
	report(1, "first")
	r.wait("the report", "edge-1", func(m MachineState) bool { return m.Proxy.GetMessage() == "first" })
	seen := make(chan uint64, 100)
	r.server.Watch(func(string) {
		m, _ := r.server.Machine("edge-1")
		seen <- m.Proxy.GetRequests()
	})
	for i := range uint64(10) {
		report(2+i, "first")
	}
	report(100, "second")
	r.wait("the last report", "edge-1", func(m MachineState) bool { return m.Proxy.GetMessage() == "second" })
	if m, _ := r.server.Machine("edge-1"); m.Proxy.GetRequests() != 100 {
		t.Fatalf("%d requests", m.Proxy.GetRequests())
	}
	if at := <-seen; at != 100 {
		t.Fatalf("watchers were called at %d requests, want first at 100", at)
	}
}

func TestLostMachine(t *testing.T) {
	r := newRig(t)
	r.publish(1, 1, Update{Placement: place("edge-1", "pool")})
	a := r.join("edge-1")
	o := a.observe()
	o.report(&agentv1.Report{AgentVersion: "1"})
	r.wait("the report", "edge-1", func(m MachineState) bool { return m.AgentVersion == "1" })
	r.clock.advance(15 * time.Second)
	r.server.Sweep()
	if m, _ := r.server.Machine("edge-1"); m.Lost {
		t.Fatal("lost at the time-to-live, not after it")
	}
	told := make(chan bool, 100)
	r.server.Watch(func(name string) {
		m, _ := r.server.Machine(name)
		told <- m.Lost
	})
	r.clock.advance(time.Second)
	r.server.Sweep()
	r.server.Sweep()
	if m, _ := r.server.Machine("edge-1"); !m.Lost || len(told) != 1 || !<-told {
		t.Fatalf("lost %v, told %d times more", m.Lost, len(told))
	}
	o.report(&agentv1.Report{AgentVersion: "1"})
	r.wait("the machine to be back", "edge-1", func(m MachineState) bool { return !m.Lost })

	// Placed machines are remembered, others are forgotten when lost.
	o.cancel()
	r.wait("the end of the stream", "edge-1", func(MachineState) bool {
		r.server.mu.Lock()
		defer r.server.mu.Unlock()
		return !r.server.machines["edge-1"].open()
	})
	r.clock.advance(time.Minute)
	r.server.Sweep()
	if state, known := r.server.Machine("edge-1"); !known || !state.Lost {
		t.Fatalf("the machine is known: %v, %+v", known, state)
	}
	r.publish(1, 2, Update{Placement: place("edge-1", "")})
	r.server.Sweep()
	if state, known := r.server.Machine("edge-1"); known {
		t.Fatalf("the machine is known: %+v", state)
	}
}

func TestExpiredCertificateEndsStreams(t *testing.T) {
	r := newRig(t)
	a := r.join("edge-1")
	o := a.observe()
	r.clock.advance(MachineLife - time.Second)
	r.server.Sweep()
	o.report(&agentv1.Report{AgentVersion: "alive"})
	r.wait("the report", "edge-1", func(m MachineState) bool { return m.AgentVersion == "alive" })
	r.clock.advance(2 * time.Second)
	r.server.Sweep()
	o.fails(codes.Unauthenticated, "expired")
	// Nor does it get in again.
	_, err := agentv1.NewEnrollmentClient(r.dial(a.cert)).Renew(r.ctx(), &agentv1.RenewRequest{Csr: request(t, a.key)})
	wantStatus(t, err, codes.Unauthenticated, "machine:edge-1 expired at 2030-01-09T")
}

// Machines are asked for figures when somebody wants them; one that does not answer is
// left out.
func TestFigures(t *testing.T) {
	r := newRig(t)
	if got := r.server.Figures(t.Context()); len(got) != 0 {
		t.Errorf("without machines: %v", got)
	}
	answering, silent := r.join("edge-1").observe(), r.join("edge-2").observe()
	for name, o := range map[string]*observing{"edge-1": answering, "edge-2": silent} {
		o.report(&agentv1.Report{AgentVersion: "v1"})
		r.wait("the report", name, func(m MachineState) bool { return m.AgentVersion == "v1" })
	}
	go func() {
		for {
			instruction, err := answering.client.Recv()
			if err != nil {
				return
			}
			_ = answering.client.Send(&agentv1.Report{AgentVersion: "v1", Figures: &agentv1.Figures{
				Asked:     instruction.GetAskFigures(),
				Requests:  []*agentv1.RequestFigures{{Listener: "http-80", Group: "team/app/80", Classes: []uint64{0, 0, 7}}},
				Frontends: []*agentv1.FrontendFigures{{Name: "tcp://192.0.2.1:80", Packets: 5}},
				Loads: []*agentv1.GroupLoad{
					{Group: "team/app/80", Age: durationpb.New(time.Second), Backends: []*agentv1.BackendLoad{{Address: []byte{10, 0, 0, 1}, Port: 80, Requests: 3}}},
					{Group: strings.Repeat("x", maxName+1)},
				},
				Drops: map[string]uint64{"no-backend": 9, strings.Repeat("x", maxName+1): 1},
			}})
		}
	}()
	for range 2 {
		got := r.server.Figures(t.Context())
		want := model.RequestFigures{Listener: "http-80", Group: "team/app/80", Classes: [model.StatusClasses]uint64{2: 7}}
		if len(got) != 1 || len(got["edge-1"].Requests) != 1 || got["edge-1"].Requests[0] != want || got["edge-1"].Drops["no-backend"] != 9 ||
			len(got["edge-1"].Frontends) != 1 || got["edge-1"].Frontends[0].Packets != 5 {
			t.Errorf("figures %+v", got)
		}
		if loads := got["edge-1"].Loads; len(loads) != 1 || loads[0].Age != time.Second || len(loads[0].Backends) != 1 || loads[0].Backends[0].Requests != 3 {
			t.Errorf("loads %+v", loads)
		}
	}
	if len(r.server.questions) != 0 {
		t.Error("questions are left over")
	}
}

// TestFlows asks machines for flows, and one of them alone.
func TestFlows(t *testing.T) {
	r := newRig(t)
	for _, name := range []string{"edge-1", "edge-2"} {
		o := r.join(name).observe()
		o.report(&agentv1.Report{AgentVersion: "v1"})
		r.wait("the report", name, func(m MachineState) bool { return m.AgentVersion == "v1" })
		go func() {
			for {
				instruction, err := o.client.Recv()
				if err != nil {
					return
				}
				q := instruction.GetAskFlows()
				if q == nil || q.GetFrontend() != "tcp://192.0.2.1:80" || q.GetLimit() != 5 {
					continue
				}
				// An answer to another question is none to this one.
				_ = o.client.Send(&agentv1.Report{AgentVersion: "v1", Flows: &agentv1.Flows{Asked: q.GetAsked() + 1}})
				_ = o.client.Send(&agentv1.Report{AgentVersion: "v1", Flows: &agentv1.Flows{Asked: q.GetAsked(), Truncated: true, Flows: []*agentv1.Flow{
					{Frontend: q.GetFrontend(), Client: []byte{10, 0, 0, 1}, ClientPort: 4000, Machine: name},
				}}})
			}
		}()
	}
	q := model.FlowQuery{Frontend: model.FrontendKey{VIP: netip.MustParseAddr("192.0.2.1"), Transport: model.TCP, Port: 80}, Limit: 5}
	for only, want := range map[string][]string{"": {"edge-1", "edge-2"}, "edge-2": {"edge-2"}, "edge-9": nil} {
		got, silent := r.server.Flows(t.Context(), only, q)
		if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, want) || len(silent) > 0 {
			t.Errorf("asked %q, there answer %v, want %v", only, names, want)
		}
		for name, answer := range got {
			if !answer.Truncated || len(answer.Flows) != 1 || answer.Flows[0].Machine != name || answer.Flows[0].Client != netip.MustParseAddrPort("10.0.0.1:4000") {
				t.Errorf("%s answers %+v", name, answer)
			}
		}
	}
}

// TestReportsOfBalancing are kept, and watchers hear of every change in them.
func TestReportsOfBalancing(t *testing.T) {
	r := newRig(t)
	o := r.join("edge-1").observe()
	o.report(&agentv1.Report{AgentVersion: "v1"})
	r.wait("the report", "edge-1", func(m MachineState) bool { return m.AgentVersion == "v1" })
	report := &agentv1.Report{AgentVersion: "v1"}
	for what, step := range []struct {
		change func()
		is     func(MachineState) bool
	}{
		{
			func() {
				report.Frontends = []*agentv1.FrontendState{{Name: "tcp://192.0.2.1:80", State: "balanced", Message: strings.Repeat("é", 1000)}, {Name: strings.Repeat("x", maxName+1)}}
			},
			func(m MachineState) bool {
				return len(m.Frontends) == 1 && m.Frontends[0].State == model.FrontendBalanced && len(m.Frontends[0].Message) == maxMessage
			},
		},
		{
			func() { report.Checks = []*agentv1.CheckResult{{Name: "x", Health: "healthy"}} },
			func(m MachineState) bool { return len(m.Checks) == 1 && m.Checks[0].Health == model.Healthy },
		},
		{
			func() { report.Ejected = []*agentv1.Ejected{{Group: "a/b/80", Backends: []string{"10.0.0.1:80"}}} },
			func(m MachineState) bool {
				return slices.Equal(m.Ejected, []model.Ejection{{Group: "a/b/80", Backend: netip.MustParseAddrPort("10.0.0.1:80")}})
			},
		},
		{
			func() { report.Tunnel = &agentv1.Tunnel{Mtu: 1500} },
			func(m MachineState) bool { return m.Tunnel.GetMtu() == 1500 },
		},
		{
			func() { report.Tunnel, report.TunnelUnknown, report.AgentVersion = nil, true, "v2" },
			func(m MachineState) bool {
				return m.AgentVersion == "v2" && m.Tunnel.GetMtu() == 1500 && !m.TunnelUnknown
			},
		},
		{
			func() { report.TunnelUnknown = false },
			func(m MachineState) bool { return m.Tunnel == nil && !m.TunnelUnknown },
		},
	} {
		step.change()
		o.report(proto.CloneOf(report))
		r.wait(fmt.Sprint("change ", what), "edge-1", step.is)
	}
}

// TestLeftOutlivesStreams: a machine hears that the others have noticed also if its stream was
// down at that moment.
func TestLeftOutlivesStreams(t *testing.T) {
	r := newRig(t)
	a := r.join("edge-1")
	left := func(o *observing) uint64 {
		t.Helper()
		instruction, err := o.client.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return instruction.GetLeft()
	}
	o := a.observe()
	o.report(&agentv1.Report{Leaving: 7})
	r.wait("the report", "edge-1", func(m MachineState) bool { return m.Leaving == 7 })
	o.cancel()
	r.wait("the end of the stream", "edge-1", func(MachineState) bool {
		r.server.mu.Lock()
		defer r.server.mu.Unlock()
		return !r.server.machines["edge-1"].open()
	})
	r.server.Left("edge-1", 7)
	r.server.Left("edge-2", 7) // that nobody knows
	o = &observing{agent: a}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var err error
	if o.client, err = agentv1.NewObserverClient(a.conn).Observe(ctx); err != nil {
		t.Fatal(err)
	}
	if n := left(o); n != 7 {
		t.Errorf("after a reconnect the machine is told of %d, want 7", n)
	}
	r.server.Left("edge-1", 8)
	if n := left(o); n != 8 {
		t.Errorf("the machine is told of %d, want 8", n)
	}
}
