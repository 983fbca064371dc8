package southbound

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"

	"fairlead.dev/internal/delta"
	agentv1 "fairlead.dev/proto/agent/v1"
)

func place(machine string, view ViewID) map[string]ViewID { return map[string]ViewID{machine: view} }

func TestViewThenCheckpoint(t *testing.T) {
	r := newRig(t)
	r.publish(1, 1, Update{
		Shared:    map[ViewID][]delta.Change{"pool": append(changes(typeA, "a=1", "b=1"), changes(typeB, "x=1")...)},
		Machine:   map[string][]delta.Change{"edge-1": changes(typeB, "mine=1")},
		Placement: place("edge-1", "pool"),
	})
	s := r.join("edge-1").discover()
	s.follow("", nil, typeA, typeB, checkpointType)
	s.expect("a a=1 b=1@1/1", "b mine=1 x=1@1/1", "Checkpoint 1/1@1/1")
	state := r.wait("the first checkpoint", "edge-1", func(m MachineState) bool { return m.Delivered == delta.Revision{Epoch: 1, Number: 1} })
	if !state.Connected || state.Role != "edge" || state.View != "pool" || state.Wanted != state.Delivered || state.Lost {
		t.Fatalf("state %+v", state)
	}

	r.publish(1, 2, Update{Shared: map[ViewID][]delta.Change{"pool": changes(typeA, "a=2")}})
	resp, text := s.next()
	if text != "a a=2@1/2" {
		t.Fatalf("received %s", text)
	}
	// The checkpoint waits for the ack, and then says the revision that is reached: the next
	// change is under way already.
	r.publish(1, 3, Update{Machine: map[string][]delta.Change{"edge-1": changes(typeA, "c=1")}})
	s.ack(resp)
	resp, text = s.next()
	if text != "a c=1@1/3" {
		t.Fatalf("received %s", text)
	}
	s.expect("Checkpoint 1/2@1/3")
	r.wait("what is reached", "edge-1", func(m MachineState) bool { return m.Delivered == delta.Revision{Epoch: 1, Number: 2} })
	s.ack(resp)
	s.expect("Checkpoint 1/3@1/3")
	r.wait("the checkpoint", "edge-1", func(m MachineState) bool { return m.Delivered == delta.Revision{Epoch: 1, Number: 3} })
}

func TestPublishTouchesOnlyThoseConcerned(t *testing.T) {
	r := newRig(t)
	r.publish(1, 1, Update{
		Shared:    map[ViewID][]delta.Change{"north": changes(typeA, "n=1"), "south": changes(typeA, "s=1")},
		Placement: map[string]ViewID{"edge-1": "north", "edge-2": "south"},
	})
	north, south := r.join("edge-1").discover(), r.join("edge-2").discover()
	for _, s := range []*ads{north, south} {
		s.follow("", nil, typeA, checkpointType)
	}
	north.expect("a n=1@1/1", "Checkpoint 1/1@1/1")
	south.expect("a s=1@1/1", "Checkpoint 1/1@1/1")
	r.publish(1, 2, Update{Shared: map[ViewID][]delta.Change{"north": changes(typeA, "n=2"), "south": changes(typeA, "s=1")}})
	north.expect("a n=2@1/2", "Checkpoint 1/2@1/2")
	if state, _ := r.server.Machine("edge-2"); state.Wanted != (delta.Revision{Epoch: 1, Number: 1}) {
		t.Fatalf("the other view wants %v", state.Wanted)
	}
	// Whatever comes next to the south, revision 2 brought it nothing.
	r.publish(1, 3, Update{Shared: map[ViewID][]delta.Change{"south": changes(typeA, "s=3")}})
	south.expect("a s=3@1/3", "Checkpoint 1/3@1/3")

	// A move sends the differences only.
	r.publish(1, 4, Update{
		Shared:    map[ViewID][]delta.Change{"both": changes(typeA, "n=2", "s=3")},
		Placement: map[string]ViewID{"edge-1": "both", "edge-2": "both"},
	})
	north.expect("a s=3@1/4", "Checkpoint 1/4@1/4")
	south.expect("a n=2@1/4", "Checkpoint 1/4@1/4")
}

func TestReconnectSendsDifferences(t *testing.T) {
	r := newRig(t)
	r.publish(1, 1, Update{Shared: map[ViewID][]delta.Change{"pool": changes(typeA, "same=1", "changed=1", "gone=1")}, Placement: place("edge-1", "pool")})
	a := r.join("edge-1")
	s := a.discover()
	s.follow("", nil, typeA, checkpointType)
	s.expect("a changed=1 gone=1 same=1@1/1", "Checkpoint 1/1@1/1")
	s.cancel()
	r.wait("the end of the stream", "edge-1", func(m MachineState) bool { return !m.Connected })
	r.publish(1, 2, Update{Shared: map[ViewID][]delta.Change{"pool": changes(typeA, "changed=2", "gone-")}})
	s = a.discover()
	s.follow("1/1", map[string]string{"same": "1", "changed": "1", "gone": "1"}, typeA, checkpointType)
	s.expect("a changed=2 gone-@1/2", "Checkpoint 1/2@1/2")
}

func TestUnplacedMachineIsSentNothing(t *testing.T) {
	r := newRig(t)
	r.publish(1, 1, Update{Machine: map[string][]delta.Change{"edge-1": changes(typeA, "mine=1")}})
	s := r.join("edge-1").discover()
	// It holds something: an empty answer would take that away.
	s.follow("", map[string]string{"old": "1", "same": "1"}, typeA, checkpointType)
	r.wait("the stream", "edge-1", func(m MachineState) bool { return m.Connected })
	r.publish(1, 2, Update{Shared: map[ViewID][]delta.Change{"pool": changes(typeA, "same=1", "new=1")}, Placement: place("edge-1", "pool")})
	s.expect("a mine=1 new=1 old-@1/2", "Checkpoint 1/2@1/2")
	// Off every view it keeps what it has.
	r.publish(1, 3, Update{Placement: place("edge-1", "")})
	r.publish(1, 4, Update{Shared: map[ViewID][]delta.Change{"pool": changes(typeA, "new=2")}})
	r.publish(1, 5, Update{Placement: place("edge-1", "pool")})
	s.expect("a new=2@1/5", "Checkpoint 1/5@1/5")
}

func TestNackIsAProblem(t *testing.T) {
	r := newRig(t)
	r.publish(1, 1, Update{Shared: map[ViewID][]delta.Change{"pool": changes(typeA, "good=1", "bad=1")}, Placement: place("edge-1", "pool")})
	s := r.join("edge-1").discover()
	s.follow("", nil, typeA, checkpointType)
	resp, _ := s.next()
	s.nack(resp, "one of two")
	resp, text := s.next()
	if text != "a bad=1@1/1" {
		t.Fatalf("received %s, want the first half", text)
	}
	s.nack(resp, "port in use")
	s.expect("a good=1@1/1", "Checkpoint 1/1@1/1")
	state := r.wait("a problem", "edge-1", func(m MachineState) bool { return len(m.Problems) > 0 && m.Delivered.Number == 1 })
	want := Problem{Kind: agentv1.Problem_KIND_REFUSED, Type: typeA, Name: "bad", Version: "1", Message: "port in use"}
	if len(state.Problems) != 1 || state.Problems[0] != want {
		t.Fatalf("problems %+v", state.Problems)
	}
	r.publish(1, 2, Update{Shared: map[ViewID][]delta.Change{"pool": changes(typeA, "bad=2")}})
	s.expect("a bad=2@1/2", "Checkpoint 1/2@1/2")
	r.wait("no problem", "edge-1", func(m MachineState) bool { return len(m.Problems) == 0 && m.Delivered.Number == 2 })
}

func TestSlowClientHoldsUpNobody(t *testing.T) {
	r := newRig(t)
	r.publish(1, 1, Update{
		Shared:    map[ViewID][]delta.Change{"pool": changes(typeA, "big=0")},
		Placement: map[string]ViewID{"slow": "pool", "quick": "pool"},
	})
	slow, quick := r.join("slow").discover(), r.join("quick").discover()
	slow.follow("", nil, typeA, checkpointType)
	quick.follow("", nil, typeA, checkpointType)
	quick.expect("a big=0@1/1", "Checkpoint 1/1@1/1")
	first, _ := slow.next() // and then it reads nothing for a long time
	slow.ack(first)
	big := strings.Repeat("x", 1<<20)
	for i := range uint64(30) {
		r.publish(1, i+2, Update{Shared: map[ViewID][]delta.Change{"pool": {{Type: typeA, Name: "big", Resource: &delta.Resource{
			Version: fmt.Sprint(i + 1), Body: changes(typeA, "big="+big)[0].Resource.Body,
		}}}}})
		quick.expect(fmt.Sprintf("a big=%d@1/%d", i+1, i+2), fmt.Sprintf("Checkpoint 1/%d@1/%d", i+2, i+2))
	}
	// What it missed has coalesced: a few responses, the last with the newest.
	for seen := 0; ; seen++ {
		resp, text := slow.next()
		slow.ack(resp)
		if text == "Checkpoint 1/31@1/31" {
			break
		}
		if seen > 6 {
			t.Fatalf("the slow client still gets %s after %d responses", text, seen)
		}
	}
}

func TestTwoStreams(t *testing.T) {
	r := newRig(t)
	r.publish(1, 1, Update{Shared: map[ViewID][]delta.Change{"pool": changes(typeA, "a=1")}, Placement: place("edge-1", "pool")})
	a := r.join("edge-1")
	first := a.discover()
	first.follow("", nil, typeA)
	first.expect("a a=1@1/1")

	impostor := r.impostor("edge-1")
	_, err := agentv1.NewEnrollmentClient(impostor.conn).Renew(r.ctx(), &agentv1.RenewRequest{Csr: request(t, impostor.key)})
	wantStatus(t, err, codes.AlreadyExists, "connected with another key")
	other := impostor.discover()
	other.follow("", nil, typeA)
	other.fails(codes.AlreadyExists, "connected with another key")

	second := a.discover()
	second.follow("", nil, typeA)
	second.expect("a a=1@1/1")
	first.fails(codes.Aborted, "taken over")
	if state, _ := r.server.Machine("edge-1"); !state.Connected {
		t.Fatal("the end of the old stream disconnected the new one")
	}

	// A renewed key is the machine's own.
	key := newKey(t)
	answer, err := agentv1.NewEnrollmentClient(a.conn).Renew(r.ctx(), &agentv1.RenewRequest{Csr: request(t, key)})
	if err != nil || answer.GetMachine() != "edge-1" {
		t.Fatalf("renew: %v, %v", answer.GetMachine(), err)
	}
	third := r.agent(key, answer.GetChain()).discover()
	third.follow("", nil, typeA)
	third.expect("a a=1@1/1")
	second.fails(codes.Aborted, "taken over")
	// And the old key is no longer.
	late := a.discover()
	late.follow("", nil, typeA)
	late.fails(codes.AlreadyExists, "another key")
}

// What a replaced stream still says is not the machine's state any more.
func TestReplacedStreamSaysNothing(t *testing.T) {
	r := newRig(t)
	old := &session{caller: caller{Identity: Identity{Machine: "edge-1"}}, end: func(error) {}}
	fresh := &session{caller: old.caller, end: func(error) {}}
	for _, who := range []*session{old, fresh} {
		if err := r.server.claim(who, discovery); err != nil {
			t.Fatal(err)
		}
	}
	r.server.progress(old, outcome{step: 1, refusals: &refusals{}, delivered: delta.Revision{Epoch: 1, Number: 9}})
	r.server.release(old, discovery)
	if m, _ := r.server.Machine("edge-1"); m.Delivered != (delta.Revision{}) || !m.Connected {
		t.Fatalf("state %+v", m)
	}
	r.server.progress(fresh, outcome{step: 1, refusals: &refusals{}, delivered: delta.Revision{Epoch: 1, Number: 2}})
	if m, _ := r.server.Machine("edge-1"); m.Delivered.Number != 2 {
		t.Fatalf("state %+v", m)
	}
}

func TestStandby(t *testing.T) {
	r := newRig(t)
	r.publish(1, 1, Update{Shared: map[ViewID][]delta.Change{"pool": changes(typeA, "a=1")}, Placement: place("edge-1", "pool")})
	a := r.join("edge-1")
	s := a.discover()
	s.follow("", nil, typeA)
	s.expect("a a=1@1/1")
	o := a.observe()

	r.leader.set(1, false, "10.0.0.2:7443")
	r.server.StepDown()
	hint := func(details []any) string {
		if len(details) != 1 {
			t.Fatalf("details %v", details)
		}
		h, ok := details[0].(*agentv1.LeaderHint)
		if !ok {
			t.Fatalf("details %v", details)
		}
		return h.GetAddress()
	}
	if got := hint(s.fails(codes.Unavailable, "does not lead").Details()); got != "10.0.0.2:7443" {
		t.Fatalf("hint %q", got)
	}
	o.fails(codes.Unavailable, "10.0.0.2:7443")
	again := a.discover()
	again.follow("", nil, typeA)
	again.fails(codes.Unavailable, "10.0.0.2:7443")
	for name, call := range map[string]func() error{
		"join": func() error {
			_, err := agentv1.NewEnrollmentClient(r.dial(nil)).Join(r.ctx(), &agentv1.JoinRequest{Token: r.token("edge-2"), Csr: request(t, newKey(t))})
			return err
		},
		"renew": func() error {
			_, err := agentv1.NewEnrollmentClient(a.conn).Renew(r.ctx(), &agentv1.RenewRequest{Csr: request(t, a.key)})
			return err
		},
	} {
		st := wantStatus(t, call(), codes.Unavailable, "does not lead")
		if got := hint(st.Details()); got != "10.0.0.2:7443" {
			t.Fatalf("%s: hint %q", name, got)
		}
	}
}

func TestEpochs(t *testing.T) {
	r := newRig(t)
	r.leader.set(2, true, "")
	pool := func(texts ...string) Update {
		return Update{Shared: map[ViewID][]delta.Change{"pool": changes(typeA, texts...)}, Placement: place("edge-1", "pool")}
	}
	r.publish(1, 9, pool("a=1"))
	a := r.join("edge-1")
	s := a.discover()
	s.follow("1/9", nil, typeA, checkpointType)
	r.wait("the stream", "edge-1", func(m MachineState) bool { return m.Connected })
	// This plane leads in epoch 2 and has not published in it: nothing is sent.
	r.publish(2, 1, Update{})
	s.expect("a a=1@2/1", "Checkpoint 2/1@2/1") // all machines get the new epoch
	s.cancel()
	r.wait("the end of the stream", "edge-1", func(m MachineState) bool { return !m.Connected })

	// A machine that has seen more than this plane, which came out of a backup.
	s = a.discover()
	s.follow("7/3", map[string]string{"a": "1"}, typeA, checkpointType)
	r.wait("the stream", "edge-1", func(m MachineState) bool { return m.Connected })
	r.publish(2, 2, pool("a=2")) // still below what the machine has accepted
	r.publish(8, 1, Update{})
	s.expect("a a=2@8/1", "Checkpoint 8/1@8/1")
	r.leader.mu.Lock()
	exceeded := r.leader.exceeded
	r.leader.fail = errors.New("no API")
	r.leader.mu.Unlock()
	if len(exceeded) != 1 || exceeded[0] != 7 {
		t.Fatalf("asked to exceed %v", exceeded)
	}
	s.cancel()
	// Another such claim has to wait: each makes every machine answer.
	s = a.discover()
	s.follow("8/999", nil, typeA)
	s.fails(codes.Unavailable, "has just raised its epoch")
	// And for the same machine much longer.
	r.clock.advance(raisePause)
	s = a.discover()
	s.follow("8/999", nil, typeA)
	s.fails(codes.Unavailable, "raised its epoch for this machine at")
	r.clock.advance(raiseAgain)
	for _, c := range []struct {
		accepted string
		code     codes.Code
		text     string
	}{
		{"9/1", codes.Unavailable, "could not raise its epoch"},
		{"18446744073709551615/1", codes.InvalidArgument, "impossible epoch"},
		{"nonsense", codes.InvalidArgument, "parse revision"},
	} {
		s = a.discover()
		s.follow(c.accepted, nil, typeA)
		s.fails(c.code, c.text)
	}
}

// A feed is sent nothing below what its machine has accepted.
func TestFloor(t *testing.T) {
	v := NewViews()
	publish := func(rev delta.Revision, u Update) {
		if err := v.Publish(rev, u); err != nil {
			t.Fatal(err)
		}
	}
	f := v.open("edge-1", delta.Revision{Epoch: 9, Number: 5})
	defer f.close()
	if _, err := f.receive(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: string(typeA)}); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		rev  delta.Revision
		want string
	}{
		{delta.Revision{Epoch: 8, Number: 9}, ""},
		{delta.Revision{Epoch: 9, Number: 4}, ""},
		{delta.Revision{Epoch: 9, Number: 5}, "a a=9/5@9/5"},
	} {
		publish(step.rev, Update{
			Shared:    map[ViewID][]delta.Change{"pool": changes(typeA, "a="+step.rev.String())},
			Placement: place("edge-1", "pool"),
		})
		resp, _ := f.next(8)
		if got := describe(resp); (resp == nil) != (step.want == "") || (resp != nil && got != step.want) {
			t.Fatalf("at %s sent %s, want %q", step.rev, got, step.want)
		}
	}
}

// A response carries the revision of its view, which a publication that comes out the
// same moves too. A machine that accepted such a one must be served when it returns.
func TestFloorAboveWhatConcerned(t *testing.T) {
	r := newRig(t)
	a := r.join("edge-1")
	u := Update{Shared: map[ViewID][]delta.Change{"pool": changes(typeA, "a=1")}, Placement: place("edge-1", "pool")}
	r.publish(1, 1, u)
	r.publish(1, 2, u) // nothing new
	s := a.discover()
	s.follow("1/1", nil, typeA, checkpointType)
	s.expect("a a=1@1/2", "Checkpoint 1/1@1/2")

	s = a.discover()
	s.follow("1/2", map[string]string{"a": "1"}, typeA, checkpointType)
	s.expect("Checkpoint 1/2@1/2")
	r.wait("all delivered", "edge-1", func(m MachineState) bool {
		return m.Delivered == delta.Revision{Epoch: 1, Number: 2} && m.Wanted == m.Delivered
	})
}

func TestStalePublication(t *testing.T) {
	v := NewViews()
	if err := v.Publish(delta.Revision{Epoch: 2, Number: 1}, Update{}); err != nil {
		t.Fatal(err)
	}
	for _, rev := range []delta.Revision{{Epoch: 2, Number: 1}, {Epoch: 1, Number: 9}} {
		u := Update{Shared: map[ViewID][]delta.Change{"pool": changes(typeA, "a=1")}}
		if err := v.Publish(rev, u); !errors.Is(err, ErrStale) || len(v.shared) != 0 {
			t.Fatalf("publish %v: %v, views %v", rev, err, v.shared)
		}
	}
}

// sent is a resource as a machine would be sent it.
func sent(v *Views, machine string, t delta.Type, name string) (delta.Resource, bool) {
	for _, set := range v.machines[machine].layers() {
		if r, ok := set.Get(t, name); ok {
			return r, true
		}
	}
	return delta.Resource{}, false
}

func TestViewsForget(t *testing.T) {
	v := NewViews()
	number := uint64(0)
	publish := func(u Update) {
		number++
		if err := v.Publish(delta.Revision{Epoch: 1, Number: number}, u); err != nil {
			t.Fatal(err)
		}
	}
	publish(Update{Shared: map[ViewID][]delta.Change{"pool": changes(typeA, "a=1")}, Placement: place("edge-1", "pool")})
	if r, ok := sent(v, "edge-1", typeA, "a"); !ok || r.Version != "1" {
		t.Fatalf("edge-1 has %v", r)
	}
	publish(Update{Placement: place("edge-1", "")})
	publish(Update{Shared: map[ViewID][]delta.Change{"pool": changes(typeA, "a-")}, Machine: map[string][]delta.Change{"edge-2": changes(typeA, "x-")}})
	if len(v.shared) != 0 || len(v.machines) != 0 {
		t.Fatalf("left: views %v, machines %v", v.shared, v.machines)
	}
}

func TestProtocolViolationEndsTheStream(t *testing.T) {
	r := newRig(t)
	s := r.join("edge-1").discover()
	s.send(&discoveryv3.DeltaDiscoveryRequest{})
	s.fails(codes.InvalidArgument, "without a type")
	s = r.join("edge-2").discover()
	if err := s.client.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.client.Recv(); err == nil || err.Error() != "EOF" {
		t.Fatalf("a stream that its client closed ends with %v", err)
	}
}

func TestMaxMachines(t *testing.T) {
	r := newRig(t, func(c *Config) { c.MaxMachines = 1 })
	a := r.join("edge-1").discover()
	a.follow("", nil, typeA)
	r.wait("the first", "edge-1", func(m MachineState) bool { return m.Connected })
	b := r.join("edge-2").discover()
	b.follow("", nil, typeA)
	b.fails(codes.ResourceExhausted, "at most 1")
	// The place is free once the first is lost and gone.
	a.cancel()
	r.wait("the end of the stream", "edge-1", func(m MachineState) bool { return !m.Connected })
	r.clock.advance(time.Minute)
	r.server.Sweep()
	b = b.discover()
	b.follow("", nil, typeA)
	r.wait("the second", "edge-2", func(m MachineState) bool { return m.Connected })
}
