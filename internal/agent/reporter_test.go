package agent

import (
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// stuckPlane is a data plane whose kernel never comes back: its Set waits until it is let go,
// and so does whoever asks it anything meanwhile.
type stuckPlane struct {
	*fakePlane
	entered, release chan struct{}
	busy             sync.Mutex
}

func (p *stuckPlane) Set(b model.Balancing) error {
	p.busy.Lock()
	defer p.busy.Unlock()
	select {
	case p.entered <- struct{}{}:
	default:
	}
	<-p.release
	return p.fakePlane.Set(b)
}

func (p *stuckPlane) wait() { p.busy.Lock(); p.busy.Unlock() } //nolint:staticcheck // nothing is to be done there

func (p *stuckPlane) Observed() []model.FrontendObserved { p.wait(); return p.fakePlane.Observed() }

func (p *stuckPlane) Tunnel() (uint32, string, bool) { p.wait(); return 1500, "", true }

func (p *stuckPlane) Interfaces() []model.InterfaceObserved {
	p.wait()
	return []model.InterfaceObserved{{Name: "eth0"}}
}

func (p *stuckPlane) Figures() ([]model.FrontendFigures, map[string]uint64, error) {
	p.wait()
	return p.fakePlane.Figures()
}

func (p *stuckPlane) Flows(q model.FlowQuery) ([]model.Flow, bool, error) {
	p.wait()
	return p.fakePlane.Flows(q)
}

// TestReportsGoOnWhileADataPlaneHangs holds that a machine whose kernel is slow, as while it
// verifies programs, is not taken for a lost one: it reports, acknowledges and says who it is,
// also when the plane asks for figures and flows, which only that kernel knows.
func TestReportsGoOnWhileADataPlaneHangs(t *testing.T) {
	t.Parallel()
	p := newPlane(t, newAuthority(t))
	p.instruct = &agentv1.Instruction{TimeToLive: durationpb.New(time.Second), AskFigures: 7, AskFlows: &agentv1.FlowQuery{Asked: 3}}
	m := newMachine(t, "node-1", p)
	stuck := &stuckPlane{fakePlane: &fakePlane{kind: model.DataPlaneXDP}, entered: make(chan struct{}, 1), release: make(chan struct{})}
	m.config.Proxy = NoProxy{}
	m.config.Balancing = Balancing{Planes: []BalancingPlane{{stuck.kind, stuck}}}
	a, _ := m.start()
	t.Cleanup(func() { close(stuck.release) })
	c, _ := p.call()
	c.must(t, responseOf(t, at(1, 1), checkpointAt(t, at(1, 1))))
	for _, change := range append([]delta.Change{nodeChange(t, model.Node{Name: "edge-1", Decaps: true})}, frontendChanges(t, frontendOn(web, "edge-1"), ready(pod, "node-1", 100))...) {
		c.must(t, responseOf(t, at(1, 2), change))
	}
	<-stuck.entered
	c.must(t, responseOf(t, at(1, 3), checkpointAt(t, at(1, 3))))
	said := func() int {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.reports
	}
	first := said()
	eventually(t, "it goes on reporting", func() bool { return said() > first+3 })
	if r := a.planeLink.report.report(); r.GetTunnel().GetMtu() != 1500 {
		t.Errorf("it says that its tunnel is %v", r.GetTunnel())
	}
	if s := a.Status(); s.Accepted != "1/3" || len(s.Interfaces) != 1 {
		t.Errorf("it says of itself %+v", s)
	}
}
