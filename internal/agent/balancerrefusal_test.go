package agent

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/gate/gatetest"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/wire"
)

func TestBalancingThatCannotBeRead(t *testing.T) {
	t.Parallel()
	a := newBalancing(t)
	for _, c := range []delta.Change{
		{Type: typeFrontend, Name: "nonsense", Resource: gatetest.Pack(t, "nonsense", wire.FrontendBackends(nil))},
		{Type: typeFrontendBackends, Name: "http://192.0.2.1:80", Resource: gatetest.Pack(t, "x", wire.FrontendBackends(nil))},
	} {
		if err := a.agent.desired.receive(responseOf(t, at(1, 1), c)); !errors.Is(err, errUnreadable) {
			t.Errorf("%s is taken: %v", c.Name, err)
		}
	}
}

// TestRefusedChangeLeavesBalancing: a change that cannot be read is refused, and flows go where they went.
func TestRefusedChangeLeavesBalancing(t *testing.T) {
	t.Parallel()
	xdp := &fakePlane{kind: model.DataPlaneXDP}
	a := newBalancing(t, xdp)
	f := frontendOn(web, "edge-1")
	f.Check, f.Panic = &model.HealthCheck{Kind: model.CheckTCP}, 50
	first, second := ready(pod, "", 1), ready(netip.MustParseAddrPort("10.0.0.10:8080"), "", 1)
	first.Health, second.Health = model.HealthUnknown, model.HealthUnknown
	checker := &fakeChecker{}
	for _, b := range []model.FrontendBackend{first, second} {
		checker.results = append(checker.results, model.CheckResult{ID: model.NewCheck(b.Address, *f.Check).ID, Health: model.Unhealthy})
	}
	a.agent.checks.drivers.Checker = checker
	a.gives(append(frontendChanges(t, f, first, second), nodeChange(t, model.Node{Name: "edge-2"}))...)
	a.whole()
	weights := func() (list []uint32) {
		a.balancer.reassess()
		a.balancer.apply()
		for _, b := range xdp.has().Frontends[web].Backends {
			list = append(list, b.Weight)
		}
		return list
	}
	if got := weights(); !slices.Equal(got, []uint32{1, 1}) {
		t.Fatalf("weights are %d before: where too few are healthy, health does not count", got)
	}
	told := a.balancer.progress.told
	for _, typ := range []delta.Type{typeNode, typeFrontendBackends, typeFrontend, typeVIP} {
		name := web.String()
		unreadable := gatetest.Pack(t, name, wire.Check(model.NewCheck(pod, *f.Check)))
		if err := a.balancer.receive(delta.Change{Type: typ, Name: name, Resource: unreadable}); !errors.Is(err, errUnreadable) {
			t.Errorf("an unreadable %s is accepted: %v", typ, err)
		}
		if a.balancer.nodesNew || a.balancer.progress.told != told {
			t.Errorf("an unreadable %s is refused, and counts as received", typ)
		}
		if got := weights(); !slices.Equal(got, []uint32{1, 1}) {
			t.Errorf("weights are %d after a refused %s", got, typ)
		}
	}
}

func TestFiguresAndFlowsAreBounded(t *testing.T) {
	t.Parallel()
	some := []model.Flow{{Frontend: web}, {Frontend: web}, {Frontend: web}}
	xdp := &fakePlane{kind: model.DataPlaneXDP, recorded: some, dropped: map[string]uint64{"loop": 2}, counted: []model.FrontendFigures{{FrontendKey: web, Packets: 5}}}
	nft := &fakePlane{kind: model.DataPlaneNFTables, recorded: some, dropped: map[string]uint64{"loop": 3}}
	a := newBalancing(t, xdp, nft)
	for limit, want := range map[int]int{0: 6, 2: 2, 4: 4, 100: 6} {
		flows, more, err := a.balancer.flows(model.FlowQuery{Limit: limit})
		if len(flows) != want || more != (want < 6) || err != nil {
			t.Errorf("limit %d: %d flows, more %v, %v", limit, len(flows), more, err)
		}
	}
	frontends, short, drops, err := a.balancer.figures()
	if len(frontends) != 1 || len(short) != 0 || drops["loop"] != 5 || err != nil {
		t.Errorf("figures are %v %v %v %v", frontends, short, drops, err)
	}
	nft.broken = errors.New("no")
	if frontends, _, drops, err = a.balancer.figures(); len(frontends) != 1 || drops["loop"] != 5 || err == nil {
		t.Errorf("with one that does not count: %v %v %v", frontends, drops, err)
	}
	if got := a.balancer.answer(wire.FlowQuery(7, model.FlowQuery{Limit: 1})); got.GetAsked() != 7 || len(got.GetFlows()) != 1 || !got.GetTruncated() {
		t.Errorf("the answer is %v", got)
	}
	bad := wire.FlowQuery(8, model.FlowQuery{})
	bad.Client = "everybody"
	if got := a.balancer.answer(bad); got.GetAsked() != 8 || len(got.GetFlows()) != 0 {
		t.Errorf("a question that cannot be read is answered with %d flows", len(got.GetFlows()))
	}
}
