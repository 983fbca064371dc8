package agent

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/wire"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// tellingPlane is a data plane that tells of flows.
type tellingPlane struct {
	DataPlane
	mu   sync.Mutex
	of   []model.FrontendKey // that are watched now
	tell func(model.FlowEvent)
	lost func(model.FrontendKey, uint64)
	err  error
}

func (*tellingPlane) FlowLimits() string { return "it tells all" }

func (p *tellingPlane) Observed() []model.FrontendObserved {
	return []model.FrontendObserved{{FrontendKey: shopFlows, State: model.FrontendBalanced}}
}

func (p *tellingPlane) WatchFlows(ctx context.Context, of []model.FrontendKey, tell func(model.FlowEvent), lost func(model.FrontendKey, uint64)) error {
	p.mu.Lock()
	if p.err != nil {
		defer p.mu.Unlock()
		return p.err
	}
	p.of, p.tell, p.lost = of, tell, lost
	p.mu.Unlock()
	<-ctx.Done()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.of = nil
	return nil
}

func (p *tellingPlane) watched() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.of)
}

var (
	shopFlows = model.FrontendKey{VIP: netip.MustParseAddr("192.0.2.1"), Transport: model.TCP, Port: 443}
	newsFlows = model.FrontendKey{VIP: netip.MustParseAddr("192.0.2.2"), Transport: model.TCP, Port: 443}
)

func flowTaps(taps ...model.FlowTap) (list []*agentv1.FlowTap) {
	for i, one := range taps {
		list = append(list, wire.FlowTap(uint64(i+1), one))
	}
	return list
}

// Nothing is watched while nobody looks. Nobody is shown what is beyond the bound, and everybody is told how much that is.
func TestFlowTapIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &tellingPlane{}
		tapper := &flowTapper{
			planes: func() []BalancingPlane { return []BalancingPlane{{Kind: model.DataPlaneXDP, DataPlane: p}} }, now: time.Now, log: slog.New(slog.DiscardHandler),
			why:  func(model.FrontendKey, *model.FlowEvent) model.FlowCause { return model.FlowDrained },
			taps: map[uint64]*flowTapped{}, troubles: map[model.DataPlaneKind]string{}, stop: func() {},
		}
		synctest.Wait()
		if tapper.set(nil) || p.watched() != 0 {
			t.Error("it is watched, and nobody looks")
		}
		client := netip.MustParseAddrPort("198.51.100.7:40000")
		tapper.set(flowTaps(model.FlowTap{Frontends: []model.FrontendKey{shopFlows}}, model.FlowTap{Frontends: []model.FrontendKey{newsFlows}, Client: netip.MustParsePrefix("203.0.113.0/24")}))
		synctest.Wait()
		if p.watched() != 2 {
			t.Fatalf("%d frontends are watched", p.watched())
		}
		event := model.FlowEvent{At: time.Now(), Kind: model.FlowMove, Reason: model.FlowUnready, Frontend: shopFlows, Client: client, Backend: client, From: client}
		for range flowTapRate + 20 {
			p.tell(event)
		}
		event.Frontend = newsFlows
		p.tell(event) // of another client
		p.lost(shopFlows, 5)
		r := &agentv1.TapReport{}
		if !tapper.report(r) {
			t.Error("nothing is reported")
		}
		if n := len(r.GetFlows()); n != flowTapRate || r.GetFlowTaps()[0].GetDropped() != 25 || r.GetFlowTaps()[1].GetDropped() != 0 {
			t.Errorf("%d events, %v", n, r.GetFlowTaps())
		}
		got, err := wire.FlowEventOf(r.GetFlows()[0])
		if err != nil || got.Reason != model.FlowDrained || got.From != client || got.Frontend != shopFlows {
			t.Errorf("%+v, %v", got, err)
		}
		if note := r.GetFlowTaps()[0].GetNotes()[0]; note != "XDP: it tells all" {
			t.Error(note)
		}
		if note := r.GetFlowTaps()[1].GetNotes()[0]; !strings.Contains(note, "none of these frontends") {
			t.Error(note)
		}
		tapper.set(nil)
		synctest.Wait()
		if p.watched() != 0 || tapper.report(&agentv1.TapReport{}) {
			t.Error("it is watched on, and nobody looks")
		}
		p.err = errors.New("no ring buffer")
		tapper.set(flowTaps(model.FlowTap{Frontends: []model.FrontendKey{shopFlows}}))
		synctest.Wait()
		tapper.notesAt = time.Time{}
		r = &agentv1.TapReport{}
		tapper.report(r)
		if note := r.GetFlowTaps()[0].GetNotes()[0]; note != "XDP: no ring buffer" {
			t.Error(note)
		}
		tapper.set(nil)
	})
}

// Where a data plane tells nothing, differences of its flow table do, and no more than they can.
func TestFlowsByDifference(t *testing.T) {
	a, b := netip.MustParseAddrPort("10.0.0.1:80"), netip.MustParseAddrPort("10.0.0.2:80")
	flow := func(port uint16, backend netip.AddrPort, state string) model.Flow {
		return model.Flow{Client: netip.AddrPortFrom(netip.MustParseAddr("198.51.100.7"), port), Backend: backend, State: state}
	}
	tableOf := func(list []model.Flow) flowTable {
		t := flowTable{}
		for _, f := range list {
			t[f.Client] = f
		}
		return t
	}
	before := tableOf([]model.Flow{flow(1, a, "established"), flow(2, a, "established"), flow(3, a, "established"), flow(4, a, "closing"), flow(5, a, "closing"), flow(6, a, "new")})
	after := tableOf([]model.Flow{flow(1, a, "established"), flow(2, b, "established"), flow(3, a, "closing"), flow(5, b, "new"), flow(7, b, "new"), flow(8, b, "closing")})
	got := map[uint16]string{}
	for _, e := range before.until(after, false) {
		got[e.Client.Port()] += e.Kind + " " + string(e.Reason) + ";"
	}
	want := map[uint16]string{2: "move backend-unready;", 3: "end closed;", 5: "begin again;", 6: "end forgotten;", 7: "begin ;", 8: "begin ;end closed;"}
	for port := range uint16(9) {
		if got[port] != want[port] {
			t.Errorf("port %d: %q, want %q", port, got[port], want[port])
		}
	}
	if n := len(before.until(after, true)); n != 6 {
		t.Errorf("%d events where the table was cut", n)
	}
	if watcherOf(BalancingPlane{DataPlane: struct{ DataPlane }{}}) != nil {
		t.Error("a data plane without a flow table tells of flows")
	}
}

// tablePlane is a data plane with a flow table.
type tablePlane struct {
	DataPlane
	tables [][]model.Flow
	asked  []model.FlowQuery
}

func (*tablePlane) Figures() ([]model.FrontendFigures, map[string]uint64, error) {
	return nil, nil, nil
}

func (p *tablePlane) Flows(q model.FlowQuery) (list []model.Flow, more bool, err error) {
	p.asked = append(p.asked, q)
	if len(p.tables) == 0 {
		return nil, false, errors.New("no table")
	}
	list, p.tables = p.tables[0], p.tables[1:]
	return list, false, nil
}

// One look at a flow table a second serves all frontends, and those of others are not told.
func TestFlowTablesAreCompared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := netip.MustParseAddrPort("198.51.100.7:40000")
		of := func(key model.FrontendKey) model.Flow {
			return model.Flow{Frontend: key, Client: client, Backend: client, State: "established"}
		}
		others := model.FrontendKey{VIP: shopFlows.VIP, Transport: model.UDP, Port: 53}
		p := &tablePlane{tables: [][]model.Flow{{of(shopFlows)}, {of(shopFlows), of(newsFlows), of(others)}, {of(newsFlows)}}}
		var told []string
		began := time.Now()
		err := watcherOf(BalancingPlane{Kind: model.DataPlaneIPVS, DataPlane: p}).WatchFlows(t.Context(), []model.FrontendKey{shopFlows, newsFlows}, func(e model.FlowEvent) {
			told = append(told, e.Kind+" "+e.Frontend.String()+" "+string(e.DataPlane))
		}, func(model.FrontendKey, uint64) { t.Error("something is lost") })
		if err == nil || len(p.asked) != 4 || time.Since(began) != 3*flowDiffEvery {
			t.Errorf("%v after %d looks in %s", err, len(p.asked), time.Since(began))
		}
		if want := "begin tcp://192.0.2.2:443 IPVS, end tcp://192.0.2.1:443 IPVS"; strings.Join(told, ", ") != want {
			t.Errorf("told %v, want %s", told, want)
		}
	})
}
