package demo

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/lab/load"
	"fairlead.dev/lab/rig"
)

// disturb has steady traffic run while something happens to the edges.
func (d *demo) disturb(ctx context.Context, s *Step, what func(*traffic) error) error {
	st := d.stage
	t, err := st.steady(ctx, st.flows(st.routes[:2]...))
	if err != nil {
		return err
	}
	defer t.stop()
	s.traffic = t
	if err := st.awaitCount(ctx, t, time.Time{}, 1000); err != nil {
		return err
	}
	s.event = d.Now()
	if err := what(t); err != nil {
		return err
	}
	r := t.report()
	s.count(r)
	s.why(r)
	s.NextHops, err = st.nextHops(ctx)
	return err
}

// ms is the time since the step's event.
func (s *Step) ms(at time.Time) float64 { return float64(at.Sub(s.event).Microseconds()) / 1000 }

// without returns the names of all edges but one.
func (st *stage) without(edge string) []string {
	return slices.DeleteFunc(st.edgeNames(), func(name string) bool { return name == edge })
}

func (d *demo) killEnvoy(ctx context.Context, s *Step) error {
	st := d.stage
	s.Lost = true
	edge := st.agents["edge-1"]
	name := edge.Machine.Name()
	victim, err := edge.Envoy()
	if err != nil {
		return err
	}
	return d.disturb(ctx, s, func(t *traffic) error {
		// Whether Envoy is back is asked where it runs: the router sends it nothing.
		probe, served, err := st.probe(ctx, edge, t.flows[0])
		if err != nil {
			return err
		}
		defer probe.Stop()
		if err := st.Await(ctx, "an answer of "+name, func(context.Context) error { return served(probeRun) }); err != nil {
			return err
		}
		s.event = d.Now()
		if err := victim.Kill9(); err != nil {
			return err
		}
		gone, err := t.followed(ctx, s.event, st.without(name)...)
		if err != nil {
			return err
		}
		back, err := t.followed(ctx, gone, st.edgeNames()...)
		if err != nil {
			return err
		}
		if err := st.Await(ctx, name+" to serve again", func(context.Context) error { return served(probeRun) }); err != nil {
			return err
		}
		serves, seen := probe.Stop().Back(s.event)
		if seen = seen && serves > 0; !seen {
			serves = back.Sub(s.event) // nobody asked meanwhile: a busy machine. Routers lead to one that serves.
		}
		if seen {
			s.figure("back_ms", float64(serves.Microseconds())/1000)
		}
		s.figure("withdrawn_ms", s.ms(gone))
		s.figure("routed_ms", s.ms(back))
		answered := fmt.Sprintf("its next Envoy answered after %.0f ms", s.ms(s.event.Add(serves)))
		if !seen {
			answered = "no request came until its next Envoy answered"
		}
		s.fact("the router removed %s after %.0f ms; %s; the router used it again after %.0f ms", name, s.Figures["withdrawn_ms"], answered, s.Figures["routed_ms"])
		if limit := d.within(s, d.BackWithin, time.Second); serves > limit {
			s.wrong("%s was back after %s, the limit is %s", name, serves.Round(time.Millisecond), limit)
		}
		next, err := edge.Envoy()
		if err != nil {
			return err
		}
		if next.Pid == victim.Pid {
			s.wrong("Envoy was not killed: process %d is still the one", victim.Pid.ID)
		}
		if err := st.awaitCount(ctx, t, d.Now(), 1000); err != nil {
			return err
		}
		t.report()
		return s.reckon(ctx, t, name, gone)
	})
}

// probeRun is how many answers in a row show that an edge serves.
const probeRun = 50

// probe asks an edge on its own machine, over new connections. The function it returns
// is nil once so many answers came in a row, and none failed since.
func (st *stage) probe(ctx context.Context, edge *rig.Agent, f flow) (*load.Run, func(n int64) error, error) {
	var run atomic.Int64
	probe, err := load.Start(ctx, load.Config{
		Address: f.address().String(), Host: f.route.host, Dial: edge.Machine.Dial, Now: st.Now,
		Rate: 200, Concurrency: 4, NewConnections: true,
		OnResult: func(r load.Result) {
			if r.Kind != "" {
				run.Store(0)
			} else {
				run.Add(1)
			}
		},
	})
	return probe, func(n int64) error {
		if got := run.Load(); got < n {
			return fmt.Errorf("%d requests answered in a row", got)
		}
		return nil
	}, err
}

func (d *demo) killEdge(ctx context.Context, s *Step) error {
	st := d.stage
	s.Lost = true
	edge := st.agents["edge-3"]
	name := edge.Machine.Name()
	envoy, err := edge.Envoy()
	if err != nil {
		return err
	}
	return d.disturb(ctx, s, func(t *traffic) error {
		s.event = d.Now()
		edge.Process.Kill9()
		if err := envoy.Kill9(); err != nil {
			return err
		}
		gone, err := t.followed(ctx, s.event, st.without(name)...)
		if err != nil {
			return err
		}
		s.figure("withdrawn_ms", s.ms(gone))
		s.fact("the router removed %s after %.0f ms; BFD takes up to %s", name, s.Figures["withdrawn_ms"], bfdInterval*bfdMultiplier)
		if took, limit := gone.Sub(s.event), d.within(s, d.FollowWithin, 2*time.Second); took > limit {
			s.wrong("the router followed after %s, the limit is %s", took.Round(time.Millisecond), limit)
		}
		if err := st.awaitCount(ctx, t, gone, 2000); err != nil {
			return err
		}
		t.report()
		if err := t.settled(st.without(name)...); err != nil {
			s.wrong("%v", err)
		}
		if left, err := edge.Envoy(); err == nil {
			return fmt.Errorf("an Envoy runs on %s: process %d", name, left.Pid.ID)
		}
		return s.reckon(ctx, t, name, gone)
	})
}

func (d *demo) restartEdge(ctx context.Context, s *Step) error {
	st := d.stage
	s.Lost = true
	edge := st.agents["edge-3"]
	return d.disturb(ctx, s, func(t *traffic) error {
		if err := edge.Start(ctx); err != nil {
			return err
		}
		if err := edge.AwaitReady(ctx); err != nil {
			return err
		}
		return d.joined(ctx, s, t, edge.Machine.Name())
	})
}

// joined waits until the router spreads over all edges again, and tells what that cost.
func (d *demo) joined(ctx context.Context, s *Step, t *traffic, name string) error {
	st := d.stage
	back, err := t.followed(ctx, s.event, st.edgeNames()...)
	if err != nil {
		return err
	}
	s.figure("routed_ms", s.ms(back))
	// Connections stay where they are: only new ones come to an edge that comes back.
	if err := st.Await(ctx, "answers of "+name, func(ctx context.Context) error {
		c := t.config(t.flows[0])
		c.Requests, c.Concurrency, c.NewConnections = 20, 2, true
		_, err := load.Do(ctx, c)
		if n := len(t.since(back, func(x sample) bool { return x.edge == name })); err == nil && n < 10 {
			err = fmt.Errorf("%d so far", n)
		}
		return err
	}); err != nil {
		return err
	}
	if err := st.awaitCount(ctx, t, back, 2000); err != nil {
		return err
	}
	t.report()
	if err := t.settled(st.edgeNames()...); err != nil {
		s.wrong("%v", err)
	}
	s.fact("the router spreads connections over %s again after %.1f s", inProse(st.edgeNames()), back.Sub(s.event).Seconds())
	return s.reckon(ctx, t, "", s.event)
}

// drainTime is how long the connections of a cordoned edge may take to end. An Envoy
// that lost connections to the router's hash still has its end of them, so that all of
// it is used.
const drainTime = 3 * time.Second

func (d *demo) patchEdge(ctx context.Context, name, patch string) error {
	_, err := d.stage.plane.Kubectl(ctx, "", "patch", "machines.fairlead.dev/"+name, "--type=merge", "-p", patch)
	return err
}

func (d *demo) cordon(ctx context.Context, s *Step) error {
	st := d.stage
	const name = "edge-2"
	return d.disturb(ctx, s, func(t *traffic) error {
		if err := d.patchEdge(ctx, name, fmt.Sprintf(`{"spec":{"cordoned":true,"drainTime":"%s"}}`, drainTime)); err != nil {
			return err
		}
		gone, err := t.followed(ctx, s.event, st.without(name)...)
		if err != nil {
			return err
		}
		s.figure("withdrawn_ms", s.ms(gone))
		s.fact("the router removed %s %.1f s after the start of kubectl, and the others forward its connections to it until they end", name, gone.Sub(s.event).Seconds())
		ended := gone.Add(drainTime + time.Second)
		if err := st.awaitCount(ctx, t, ended, 1000); err != nil {
			return err
		}
		t.report()
		if n := len(t.since(ended, func(x sample) bool { return x.edge == name })); n > 0 {
			s.wrong("%s answered %d requests after the end of its drain time", name, n)
		}
		return s.reckon(ctx, t, "", gone)
	})
}

func (d *demo) uncordon(ctx context.Context, s *Step) error {
	s.Lost = true
	const name = "edge-2"
	return d.disturb(ctx, s, func(t *traffic) error {
		if err := d.patchEdge(ctx, name, `{"spec":{"cordoned":false}}`); err != nil {
			return err
		}
		return d.joined(ctx, s, t, name)
	})
}

// allIsWell checks that at the end of the story the plane reports no problem.
func (d *demo) allIsWell(ctx context.Context, s *Step) error {
	if err := d.stage.Await(ctx, "the plane to report no problem", func(ctx context.Context) error {
		status, err := d.stage.plane.Status(ctx)
		if err != nil {
			return err
		}
		if i := slices.IndexFunc(status.Problems, func(p v1.Problem) bool { return p.Severity == v1.SeverityError }); i >= 0 {
			return fmt.Errorf("%s: %s: %s", status.Problems[i].Subject, status.Problems[i].Reason, status.Problems[i].Message)
		}
		return nil
	}); err != nil {
		return err
	}
	s.fact("the plane reports no problem")
	return nil
}
