package agent

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
)

// TestAgentEndsWithoutADataPlaneThatHangs: a kernel that never comes back must not keep the
// agent from ending, however it is to end; it says what it left, and that it left it.
func TestAgentEndsWithoutADataPlaneThatHangs(t *testing.T) {
	t.Parallel()
	for name, drains := range map[string]bool{"leaves": false, "drains": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlane(t, newAuthority(t))
			m := newMachine(t, "node-1", p)
			stuck := &stuckPlane{fakePlane: &fakePlane{kind: model.DataPlaneXDP}, entered: make(chan struct{}, 1), release: make(chan struct{})}
			var log lockedLog
			m.config.Proxy, m.config.DrainOnStop, m.config.Log = NoProxy{}, drains, slog.New(slog.NewTextHandler(&log, nil))
			m.config.Balancing = Balancing{Planes: []BalancingPlane{{stuck.kind, stuck}, {model.DataPlaneNFTables, &fakePlane{}}}}
			a, stop := m.start()
			t.Cleanup(func() { close(stuck.release) })
			c, _ := p.call()
			for _, change := range append([]delta.Change{nodeChange(t, model.Node{Name: "edge-1", Decaps: true})}, frontendChanges(t, frontendOn(web, "edge-1"), ready(pod, "node-1", 100))...) {
				c.must(t, responseOf(t, at(1, 1), change))
			}
			c.must(t, responseOf(t, at(1, 1), checkpointAt(t, at(1, 1))))
			<-stuck.entered
			stop()
			if !a.KernelStays() {
				t.Error("it does not say that the data plane is to be left as it is")
			}
			if said := log.String(); !strings.Contains(said, "the agent ends without them") || !strings.Contains(said, "data_planes=[XDP]") {
				t.Errorf("it says:\n%s", said)
			}
		})
	}
}

// lockedLog is what was logged.
type lockedLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lockedLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// countingPlane is a data plane that counts what comes, and says so once it is let go.
type countingPlane struct {
	*fakePlane
	counted uint64
	held    chan struct{} // nil: it says it at once
}

func (p countingPlane) Arrived() (uint64, error) {
	if p.held != nil {
		<-p.held
	}
	return p.counted, nil
}

// TestEvidenceIsOfWhoSeesIt: whether routers have followed is told by the data plane that
// balances the frontends, if it counts; else by the proxy. One that has nothing to balance
// sees nothing come, whatever does, and one that hangs says nothing.
func TestEvidenceIsOfWhoSeesIt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		by    model.DataPlaneKind
		hangs bool
		want  uint64
	}{
		"XDP balances":        {by: model.DataPlaneXDP, want: 42},
		"nftables balances":   {by: model.DataPlaneNFTables, want: 7},
		"XDP balances, stuck": {by: model.DataPlaneXDP, hangs: true, want: 7},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			xdp, nft := &fakePlane{kind: model.DataPlaneXDP}, &fakePlane{kind: model.DataPlaneNFTables}
			a := newBalancing(t, xdp, nft)
			counts := countingPlane{fakePlane: xdp, counted: 42}
			if c.hangs {
				counts.held = make(chan struct{})
				t.Cleanup(func() { close(counts.held) })
			}
			a.balancer.drivers.Planes[0].DataPlane = counts
			f := frontendOn(web, "edge-1", "edge-2")
			f.Listener, f.DataPlane = "http-80", c.by
			a.gives(frontendChanges(t, f, proxies(web, "edge-1", "edge-2")...)...)
			a.whole()
			a.balancer.apply()
			d := &drainer{proxy: &busyProxy{taken: 7}, balancer: a.balancer, log: slog.New(slog.DiscardHandler)}
			if n, known := d.coming(t.Context()); !known || n != c.want {
				t.Errorf("%d came, and that is known: %t; want %d", n, known, c.want)
			}
		})
	}
}

// TestDrainOfAnEdgeWhoseDataPlaneCannotTell: a cordoned machine with nftables is out of the
// traffic although nothing counts there; one whose data plane fails is so within a bound.
func TestDrainOfAnEdgeWhoseDataPlaneCannotTell(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]bool{"it counts nothing": false, "it fails for ever": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nft := &fakePlane{kind: model.DataPlaneNFTables, mode: model.ModeNAT}
			d := newDraining(t, false, time.Hour, nft)
			vip := bgpVIP(one)
			vip.Frontends = []model.FrontendKey{web}
			d.gives(append(frontendChanges(t, frontendOn(web, "edge-1", "edge-2"), ready(pod, "", 100)), vipChange(t, vip))...)
			eventually(t, "it announces what nftables balance", func() bool { return d.prefixes() == 1 && nft.has().Frontends[web] != nil })
			if fails {
				nft.mu.Lock()
				nft.broken = errUnreadable
				nft.mu.Unlock()
				d.gives(frontendChanges(t, frontendOn(mail, "edge-1"), ready(pod, "", 100))...)
				eventually(t, "the data plane fails", func() bool { return !d.balancer.isCarried() })
			}
			d.busy.has(0)
			d.cordon(true, time.Hour)
			eventually(t, "it is out", d.withdrawn)
		})
	}
}
