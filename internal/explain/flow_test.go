package explain

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"fairlead.dev/internal/lookup"
	"fairlead.dev/internal/model"
)

func flowRequest(t *testing.T, url, from string) FlowRequest {
	t.Helper()
	r, err := NewFlowRequest(url, from, "")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func balanced(n int) *model.Balanced {
	k, err := model.ParseFrontend("tcp://192.0.2.1:80")
	if err != nil {
		panic(err)
	}
	b := &model.Balanced{Frontend: &model.Frontend{FrontendKey: k, Owner: model.Object{Kind: "Service", Namespace: "team", Name: "app"}}}
	for i := range n {
		b.Backends = append(b.Backends, model.FrontendBackend{
			Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), 8080), Machine: fmt.Sprintf("node-%d", i%3), Weight: 100, HopWeight: 100,
		})
	}
	return b
}

func TestFlowGoesToTheFirstOfItsRow(t *testing.T) {
	b := balanced(5)
	for port := range 200 {
		r := flowRequest(t, "tcp://192.0.2.1:80", fmt.Sprintf("198.51.100.7:%d", 40000+port))
		e := Flow(r, FlowWorld{Balanced: b})
		members, which := lookup.Members(b.Frontend.FrontendKey, b.Backends)
		table := lookup.New(lookup.Rows(5), members)
		row := table.Row(int(lookup.Hash("", r.Client, r.Frontend) % uint64(table.Len())))
		var want netip.AddrPort
		for i, m := range members {
			if m == table.Members()[row[0]] {
				want = b.Backends[which[i]].Address
			}
		}
		if e.Backend == nil || e.Backend.Address != want || len(e.Asked) != 3 {
			t.Fatalf("port %d: %+v, want %s", port, e.Backend, want)
		}
		if !strings.Contains(e.Answer, "a new flow goes to "+want.String()) {
			t.Fatalf("the answer is %q", e.Answer)
		}
	}
}

// TestFlowOfAServerThatIsThereTwice holds that a server that is listed twice is one backend, the first, as to data planes.
func TestFlowOfAServerThatIsThereTwice(t *testing.T) {
	b := balanced(5)
	r := flowRequest(t, "tcp://192.0.2.1:80", "198.51.100.7:40000")
	want := Flow(r, FlowWorld{Balanced: b})
	for _, again := range b.Backends[:5] {
		again.Machine, again.Weight = "elsewhere", 1
		b.Backends = append(b.Backends, again)
	}
	if got := Flow(r, FlowWorld{Balanced: b}); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestFlowAnswers(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*model.Balanced, *FlowRequest, *FlowWorld)
		want   string
	}{
		{"no frontend", func(_ *model.Balanced, _ *FlowRequest, w *FlowWorld) { w.Balanced = nil }, "nothing balances tcp://192.0.2.1:80: no AddressPool has assigned 192.0.2.1"},
		{"another port", func(b *model.Balanced, r *FlowRequest, w *FlowWorld) {
			w.Balanced, w.Others = nil, []model.FrontendKey{b.Frontend.FrontendKey}
			r.Frontend.Port = 81
		}, "nothing balances tcp://192.0.2.1:81; this VIP has the frontends tcp://192.0.2.1:80"},
		{"source", func(b *model.Balanced, _ *FlowRequest, _ *FlowWorld) {
			b.Frontend.Sources = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
		}, "dropped (source-denied): 198.51.100.7 is in none of the source ranges of Service team/app"},
		{"martian", func(_ *model.Balanced, r *FlowRequest, _ *FlowWorld) {
			r.Client = netip.MustParseAddrPort("127.0.0.1:40000")
		}, "dropped (martian-source): 127.0.0.1 is not an address of a client"},
		{"from a VIP", func(_ *model.Balanced, _ *FlowRequest, w *FlowWorld) { w.FromVIP = true }, "dropped (martian-source): 198.51.100.7 is a VIP, from which no client sends"},
		{"nobody", func(b *model.Balanced, _ *FlowRequest, _ *FlowWorld) { b.Backends = nil }, "dropped (no-backend): there is no backend that works"},
		{"drains", func(b *model.Balanced, _ *FlowRequest, _ *FlowWorld) {
			b.Backends = b.Backends[:1]
			b.Backends[0].State, b.Backends[0].Weight = model.BackendDraining, 0
		}, "a new flow is dropped (no-backend): no backend takes new flows; an older one is asked for at 10.0.0.1:8080 on machine node-0"},
		{"local", func(b *model.Balanced, _ *FlowRequest, _ *FlowWorld) { b.Frontend.LocalOnly = true }, "new flows stay at the machine at which they arrive (externalTrafficPolicy: Local): say which with --machine"},
		{"local elsewhere", func(b *model.Balanced, r *FlowRequest, _ *FlowWorld) {
			b.Frontend.LocalOnly, r.Machine, b.Backends = true, "edge-9", b.Backends[:1]
		}, "a new flow is dropped (no-backend): machine edge-9 has no backend of its own (externalTrafficPolicy: Local), and does not announce the VIP; an older one is asked for at 10.0.0.1:8080 on machine node-0"},
		{"known", func(_ *model.Balanced, _ *FlowRequest, w *FlowWorld) {
			w.Flows = []FlowAt{{At: "edge-1", Flow: model.Flow{Backend: netip.MustParseAddrPort("10.0.0.9:1")}}}
		}, "the flow is in the table of edge-1: its packets go to 10.0.0.9:1"},
	} {
		b, r := balanced(3), flowRequest(t, "tcp://192.0.2.1:80", "198.51.100.7:40000")
		w := FlowWorld{Balanced: b}
		c.change(b, &r, &w)
		if e := Flow(r, w); e.Answer != c.want {
			t.Errorf("%s: %q, want %q", c.name, e.Answer, c.want)
		}
	}
}

func TestFlowToAVIPThatNobodyAnnounces(t *testing.T) {
	r := flowRequest(t, "tcp://192.0.2.1:80", "198.51.100.7:40000")
	v := vip("192.0.2.1", model.AnnounceBGP, at("edge-1", model.VIPWithheld, "no session"))
	e := Flow(r, FlowWorld{Balanced: balanced(1), VIP: &v})
	const want = "no machine announces 192.0.2.1, so that no connection gets to one: nobody can (`fairlead bgp` shows the sessions); once one does, a new flow goes to 10.0.0.1:8080 on machine node-0"
	if e.Answer != want {
		t.Errorf("%q, want %q", e.Answer, want)
	}
	v = vip("192.0.2.1", model.AnnounceBGP, at("edge-1", model.VIPWithheld, "no session"), at("edge-2", model.VIPAnnounced, ""))
	if e := Flow(r, FlowWorld{Balanced: balanced(1), VIP: &v}); e.Answer != "a new flow goes to 10.0.0.1:8080 on machine node-0" {
		t.Errorf("one announces it: %q", e.Answer)
	}
	v.At = nil
	if e := Flow(r, FlowWorld{Balanced: balanced(1), VIP: &v, Offline: true}); e.Answer != "a new flow goes to 10.0.0.1:8080 on machine node-0" {
		t.Errorf("nobody was asked: %q", e.Answer)
	}
}

func TestFlowToBackendsThatAllFail(t *testing.T) {
	const note = "the backends all fail their checks, so all are used"
	r := flowRequest(t, "tcp://192.0.2.1:80", "198.51.100.7:40000")
	b := balanced(2)
	b.Backends[0].Health = model.Unhealthy
	if e := Flow(r, FlowWorld{Balanced: b}); slices.Contains(e.Notes, note) {
		t.Errorf("one is well: %q", e.Notes)
	}
	b.Backends[1].Health = model.Unhealthy
	if e := Flow(r, FlowWorld{Balanced: b}); !slices.Contains(e.Notes, note) {
		t.Errorf("%q, want %q", e.Notes, note)
	}
}

func TestBadFlowRequests(t *testing.T) {
	for _, c := range [][3]string{
		{"http://192.0.2.1", "198.51.100.7:1", "tcp://VIP:PORT"},
		{"tcp://192.0.2.1", "198.51.100.7:1", "tcp://VIP:PORT"},
		{"tcp://192.0.2.1:80", "", "want IP:PORT"},
		{"tcp://192.0.2.1:80", "198.51.100.7", "want IP:PORT"},
		{"tcp://192.0.2.1:80", "[2001:db8::1]:5", "one is IPv4, the other IPv6"},
	} {
		if _, err := NewFlowRequest(c[0], c[1], ""); err == nil || !strings.Contains(err.Error(), c[2]) {
			t.Errorf("%q: %v, want something with %q", c[:2], err, c[2])
		}
	}
}

// Those who are asked next take new flows, as far as there are such, and only tunnels lead
// to them.
func TestFlowIsPassedOn(t *testing.T) {
	b := balanced(3)
	b.Backends[0].Weight, b.Backends[0].State = 0, model.BackendDraining
	modes := []model.ForwardMode{model.ModeAuto, model.ModeDSRGeneve, model.ModeNAT, model.ModeDSRIPIP, model.ModeDSRL2}
	for port := range 100 {
		r := flowRequest(t, "tcp://192.0.2.1:80", fmt.Sprintf("198.51.100.7:%d", 40000+port))
		for _, mode := range modes {
			b.Frontend.Mode = mode
			e := Flow(r, FlowWorld{Balanced: b})
			if want := map[bool]int{true: 3, false: 1}[mode == model.ModeAuto || mode == model.ModeDSRGeneve]; len(e.Asked) != want {
				t.Fatalf("port %d, mode %q: %d are asked, want %d", port, mode, len(e.Asked), want)
			}
		}
		b.Frontend.Mode = model.ModeAuto
		e := Flow(r, FlowWorld{Balanced: b})
		if e.Asked[2].State != model.BackendDraining {
			t.Fatalf("port %d: %+v", port, e.Asked)
		}
		at := []FrontendAt{{Machine: "edge-1", FrontendObserved: model.FrontendObserved{State: model.FrontendBalanced, DataPlane: model.DataPlaneXDP, Mode: model.ModeNAT, Available: 1}}}
		e = Flow(r, FlowWorld{Balanced: b, At: at})
		if len(e.Asked) != 1 || len(e.Notes) != 1 || e.Notes[0] != "machine edge-1 sends new flows to 1 of 2 backends only: there, another may be chosen" {
			t.Fatalf("port %d, by NAT at a machine that does not reach all: %+v", port, e)
		}
	}
}

// What stays at the machine is chosen among its own, in the table of all.
func TestFlowStaysAtTheMachine(t *testing.T) {
	b := balanced(20)
	b.Frontend.LocalOnly = true
	r := flowRequest(t, "tcp://192.0.2.1:80", "198.51.100.7:40000")
	r.Machine = "node-1"
	e := Flow(r, FlowWorld{Balanced: b})
	if e.Rows != lookup.Rows(20) || e.Backend == nil || e.Backend.Machine != "node-1" || e.Backend.Weight != 100 {
		t.Errorf("got %+v", e)
	}
}

// A server that is there twice, in two slices say, stands once, as in data planes.
func TestFlowToAServerThatIsThereTwice(t *testing.T) {
	b := balanced(2)
	b.Backends = append(b.Backends, b.Backends[0])
	if e := Flow(flowRequest(t, "tcp://192.0.2.1:80", "198.51.100.7:40000"), FlowWorld{Balanced: b}); e.Backend == nil {
		t.Errorf("nobody takes it: %s", e.Answer)
	}
}
