package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"fairlead.dev/lab/kubesim"
)

// restart kills the plane while the simulated clusters are down, and starts it again.
func (b *fleetBench) restart(ctx context.Context) (err error) {
	b.progress("scale: kill the plane and start it while the simulated clusters are down")
	if err := b.awaitRest(ctx); err != nil {
		return err
	}
	for _, c := range b.sims {
		c.SetDown(true)
	}
	b.plane.Process.Kill9()
	before := make([]kubesim.Counts, len(b.sims))
	for i, c := range b.sims {
		before[i] = c.Counts()
	}
	began := b.Now()
	if err := b.plane.Start(ctx); err != nil {
		return err
	}
	r := &b.result.Restart
	r.Ready = seconds(b.Now().Sub(began))
	fresh := *b.routesBench
	fresh.edge = b.Lab.Machine("edge-2")
	agent, err := b.StartAgent(ctx, fresh.edge, b.plane, "--envoy-threads", "1")
	if err != nil {
		return err
	}
	if err := agent.AwaitReady(ctx); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, programLimit)
	defer cancel()
	if err := inParallel(limited, sweepers, b.o.Routes, fresh.awaitServed()); err != nil {
		return fmt.Errorf("wait for every host to be served from what is stored: %w", err)
	}
	r.Served = seconds(b.Now().Sub(began))
	revision, err := b.revision(ctx)
	if err != nil {
		return err
	}
	b.progress("scale: all routes served after %.1f s; the clusters answer again", r.Served)
	began = b.Now()
	for _, c := range b.sims {
		c.SetDown(false)
	}
	most := func() (least, most int) {
		least = math.MaxInt
		for i, c := range b.sims {
			now := c.Counts()
			for _, resource := range []string{kubesim.Services, kubesim.EndpointSlices} {
				n := now.Lists[resource] - before[i].Lists[resource]
				least, most = min(least, n), max(most, n)
			}
		}
		return least, most
	}
	if err := pollFor(ctx, 50*time.Millisecond, func() (bool, error) {
		least, _ := most()
		return least > 0, errors.New("a cluster was not listed yet")
	}); err != nil {
		return err
	}
	if err := b.awaitCurrent(ctx); err != nil {
		return err
	}
	r.Current = seconds(b.Now().Sub(began))
	if err := b.awaitRest(ctx); err != nil {
		return err
	}
	_, r.Lists = most()
	after, err := b.revision(ctx)
	if err != nil {
		return err
	}
	r.Writes = int(after - revision)
	b.progress("scale: memory of the plane after its restart")
	b.result.PlaneAgain, err = settled(ctx, b.Now, b.plane.Process.Pid().ID)
	return err
}

// outside measures a plane on the API of another process, with the same data.
func (b *fleetBench) outside(ctx context.Context) error {
	b.progress("scale: a plane on an outside API")
	err := b.external(ctx)
	b.result.ExternalRSS = b.row.ExternalRSS
	return err
}
