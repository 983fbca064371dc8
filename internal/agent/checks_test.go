package agent

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/gate/gatetest"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/wire"
)

// fakeChecker checks nobody.
type fakeChecker struct {
	mu      sync.Mutex
	checks  []model.Check
	results []model.CheckResult
	running bool
}

func (f *fakeChecker) with(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
}

func (f *fakeChecker) Run(ctx context.Context) error {
	f.with(func() { f.running = true })
	<-ctx.Done()
	return nil
}
func (f *fakeChecker) Set(c []model.Check) { f.with(func() { f.checks = c }) }
func (f *fakeChecker) Results() (r []model.CheckResult) {
	f.with(func() { r = slices.Clone(f.results) })
	return r
}

func (f *fakeChecker) Result(id string) (found model.CheckResult) {
	f.with(func() {
		for _, r := range f.results {
			if r.ID == id {
				found = r
			}
		}
	})
	return found
}

func TestChecksGoToTheChecker(t *testing.T) {
	f := &fakeChecker{}
	parts := Checking{Checker: f, Changed: make(chan struct{}, 1)}
	said, followed := newSignal(), newSignal()
	k := newChecks(Config{Checking: parts})
	k.found.wakes(said)
	k.changed.wakes(followed)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- k.run(ctx) }()
	check := model.NewCheck(netip.MustParseAddrPort("10.0.0.1:80"), model.HealthCheck{Kind: model.CheckTCP})
	if err := k.receive(delta.Change{Type: typeCheck, Name: check.ID, Resource: gatetest.Pack(t, check.ID, wire.Node(model.Node{}))}); err == nil || k.fresh {
		t.Errorf("a node is received as a check: %v, for the checker: %t", err, k.fresh)
	}
	if err := k.receive(delta.Change{Type: typeCheck, Name: check.ID, Resource: gatetest.Pack(t, check.ID, wire.Check(check))}); err != nil {
		t.Fatal(err)
	}
	k.commit(received{})
	eventually(t, "the checker to be told", func() (is bool) {
		f.with(func() { is = f.running && len(f.checks) == 1 && f.checks[0].ID == check.ID })
		return is
	})
	f.with(func() {
		f.results = []model.CheckResult{{ID: check.ID, Health: model.Unhealthy, Message: "refused"}, {ID: "z", Health: model.HealthUnknown}}
	})
	signal(parts.Changed).raise()
	<-said
	<-followed
	if r := k.results(); len(r) != 1 || r[0].Message != "refused" {
		t.Errorf("results are %v", r)
	}
	if r := k.unhealthy(); len(r) != 1 || r[0].ID != check.ID {
		t.Errorf("unhealthy are %v", r)
	}
	for _, there := range []bool{true, false} {
		k.plane(there)
		if f := k.own(check.ID); f.Health != model.Unhealthy || f.Holds() == there {
			t.Errorf("a plane is there: %v; own is %+v", there, f)
		}
		if k.own("z").Holds() {
			t.Error("what is not known holds")
		}
	}
	<-followed
	if err := k.receive(delta.Change{Type: typeCheck, Name: check.ID}); err != nil {
		t.Fatal(err)
	}
	k.commit(received{})
	eventually(t, "the check to go", func() (is bool) {
		f.with(func() { is = len(f.checks) == 0 })
		return is
	})
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
