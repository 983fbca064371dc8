// Package demo tells the story of Fairlead in two minutes, with the real binary, a
// real Envoy, real kubectl and a real router in a lab: a plane, three edges that
// announce VIPs by BGP, two clusters of backends; routes by IngressRoute and by
// HTTPRoute; weights that shift, a plane, an Envoy and an edge that are killed, an edge
// that is cordoned; and a Service that the kernel balances, whose connections outlive an
// edge. All while requests run.
//
// It refuses to look good: every request is counted, every share is held against
// its weight by statistics, and one wrong check makes the whole demo FAIL. What may be
// lost is what a router cannot help: requests on an edge that was killed, and on
// connections that its hash leads elsewhere when the number of next hops changes. It
// knows these one by one, and allows no other. It leaves nothing behind, and checks that
// too.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"fairlead.dev/lab"
	"fairlead.dev/lab/load"
	"fairlead.dev/lab/report"
	"fairlead.dev/lab/rig"
)

// ErrFailed is wrapped by Run's error when the demo ran and was not passed.
var ErrFailed = errors.New("demo: FAIL")

var errInterrupted = errors.New("interrupted")

// Options say what to run and where to write. Zero values have defaults.
type Options struct {
	// Binary is fairlead itself; default: this program.
	Binary string
	// Kubectl and Envoy are found by rig.FindKubectl and rig.FindEnvoy when empty.
	Kubectl, Envoy string
	// Name of the lab; default "demo".
	Name string
	// Lab says where the lab keeps its state.
	Lab lab.Options
	// Requests of the big step; default 10,000.
	Requests int
	// BackWithin is how soon an edge must serve again after its Envoy was killed;
	// default 1 s, on a busy machine 5.
	BackWithin time.Duration
	// FollowWithin is how soon the router must send nothing more to an edge that was
	// killed; default 2 s, of which BFD takes 0.9, on a busy machine 10.
	FollowWithin time.Duration
	// Alone says that edges pass nothing on to each other, as stand-ins for them do not.
	Alone bool
	// Out gets the story; default: standard output.
	Out io.Writer
	// OutDir takes demo.json and, after a failure, the logs; default bench/out.
	OutDir string
	// Picture, if set, is the SVG file that a run that passed is drawn into.
	Picture string
	// Now is the clock; default time.Now.
	Now func() time.Time
}

func (o Options) complete() (Options, error) {
	if o.Binary == "" {
		self, err := os.Executable()
		if err != nil {
			return o, fmt.Errorf("find this program: %w", err)
		}
		o.Binary = self
	}
	var err error
	if o.Kubectl == "" {
		if o.Kubectl, err = rig.FindKubectl(o.Binary); err != nil {
			return o, err
		}
	}
	if o.Envoy == "" {
		if o.Envoy, err = rig.FindEnvoy(); err != nil {
			return o, err
		}
	}
	if o.Name == "" {
		o.Name = "demo"
	}
	if o.Requests == 0 {
		o.Requests = 10_000
	}
	if o.OutDir == "" {
		o.OutDir = report.DefaultDir
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o, nil
}

// Step is one step of the story.
type Step struct {
	Title string  `json:"title"`
	Took  float64 `json:"took_s"`
	// Requests that were sent during the step, and how many of them failed. Lost
	// marks a step in which requests may fail.
	Requests int  `json:"requests"`
	Failed   int  `json:"failed"`
	Lost     bool `json:"may_fail,omitempty"`
	// Observations of the step, in order.
	Observations []string `json:"facts,omitempty"`
	// Wrong is what was not as it should be; empty when all was.
	Wrong []string `json:"wrong,omitempty"`
	// Shares of the routes, where the step held them against their weights.
	Shares []RouteShares `json:"shares,omitempty"`
	// NextHops of the VIPs in the router's kernel at the end of the step.
	NextHops []NextHops `json:"next_hops,omitempty"`
	// Answers over each edge by cluster, in the same steps.
	Answers map[string]map[string]int `json:"answers,omitempty"`
	// Figures that others may want to compare, by name with unit.
	Figures map[string]float64 `json:"figures,omitempty"`

	screen  []string // what a command of fairlead showed
	excused int      // of those that failed
	traffic *traffic // for the picture
	event   time.Time
}

// RouteShares is how one route's requests were split.
type RouteShares struct {
	Route    string       `json:"route"`
	Host     string       `json:"host"`
	Clusters []load.Share `json:"clusters"`
	Backends []load.Share `json:"backends"`
}

// Result is what demo.json holds.
type Result struct {
	Passed bool     `json:"passed"`
	Why    []string `json:"why,omitempty"`
	// Waiting is how much of the ten seconds before some program of the machine waited for a processor, percent.
	Waiting float64 `json:"cpu_waiting_percent"`
	Steps   []Step  `json:"steps"`
}

// demo is one run.
type demo struct {
	Options
	frame  *report.Frame
	result Result
	stage  *stage
}

// Run tells the story and returns its result. The error wraps ErrFailed when a
// check failed, and ctx's error when it was interrupted. Either way the lab is
// gone when it returns, or the error says what is left.
func Run(ctx context.Context, o Options) (Result, error) {
	if o.Out == nil {
		o.Out = os.Stdout
	}
	o, err := o.complete()
	if err != nil {
		d := &demo{Options: o}
		d.say("  - %v", err)
		d.say("demo: FAIL")
		return Result{}, fmt.Errorf("%w: %w", ErrFailed, err)
	}
	d := &demo{Options: o, frame: report.Begin("demo", o.Now), result: Result{Waiting: pressure()}}
	err = d.story(ctx)
	if err != nil {
		d.result.Why = append(d.result.Why, err.Error())
	}
	if d.stage != nil {
		if len(d.result.Why) > 0 && ctx.Err() == nil {
			d.keepLogs(context.WithoutCancel(ctx))
		}
		d.leave(context.WithoutCancel(ctx))
	}
	d.result.Passed = len(d.result.Why) == 0
	d.conclude(context.WithoutCancel(ctx))
	switch {
	case ctx.Err() != nil:
		return d.result, fmt.Errorf("%w: %w: %w", ErrFailed, errInterrupted, ctx.Err())
	case !d.result.Passed:
		return d.result, fmt.Errorf("%w: %s", ErrFailed, strings.Join(d.result.Why, "; "))
	}
	return d.result, nil
}

// story runs the steps in order. An error ends it; a check that failed does not.
func (d *demo) story(ctx context.Context) error {
	d.say("Fairlead demo: a client, a router, three edges, two clusters of backends and a plane, each a network namespace of its own.")
	for _, step := range []struct {
		title string
		run   func(context.Context, *Step) error
	}{
		{"Build the lab", d.buildLab},
		{"Start the backends", d.startBackends},
		{"Start the router", d.startRouter},
		{"Start the plane", d.startPlane},
		{"Let the edges join, each with a one-time token", d.joinEdges},
		{"Apply a pool of addresses, the router as a peer, and the routes with kubectl", d.applyRoutes},
		{fmt.Sprintf("Send %s requests to the VIPs", thousands(d.Requests)), d.sendMany},
		{"Shift the weights while requests run", d.shiftWeights},
		{"Kill the plane (kill -9) while requests run", d.killPlane},
		{"Start the plane again while requests run", d.restartPlane},
		{"Kill Envoy of edge-1 (kill -9) while requests run", d.killEnvoy},
		{"Kill all of edge-3 (kill -9) while requests run", d.killEdge},
		{"Start edge-3 again while requests run", d.restartEdge},
		{"Cordon edge-2 with kubectl while requests run", d.cordon},
		{"Uncordon edge-2 while requests run", d.uncordon},
		{"Let machines with backends join, and balance a Service in the kernel", d.balance},
		{"Let edge-3 vanish from the network while connections through the kernel stand", d.killBalancer},
		{"Let edge-3 come back while connections through the kernel stand", d.reviveBalancer},
	} {
		if err := d.step(ctx, step.title, step.run); err != nil {
			return err
		}
	}
	return nil
}

// step runs one step and prints what came of it.
func (d *demo) step(ctx context.Context, title string, run func(context.Context, *Step) error) error {
	s := Step{Title: title, Figures: map[string]float64{}}
	began := d.Now()
	d.say("")
	d.say("%2d  %s", len(d.result.Steps)+1, title)
	err := run(ctx, &s)
	s.Took = d.Now().Sub(began).Seconds()
	if err == nil && s.Failed > s.excused && !s.Lost {
		s.Wrong = append(s.Wrong, fmt.Sprintf("%d of %d requests failed, want none", s.Failed, s.Requests))
	}
	if err != nil && ctx.Err() != nil {
		err = errInterrupted
	}
	if err != nil {
		s.Wrong = append(s.Wrong, err.Error())
	}
	d.printStep(s)
	d.result.Steps = append(d.result.Steps, s)
	if err != nil {
		return fmt.Errorf("%s: %w", title, err)
	}
	for _, w := range s.Wrong {
		d.result.Why = append(d.result.Why, fmt.Sprintf("%s: %s", title, w))
	}
	return nil
}

// leave takes the lab away and checks that nothing of it is left.
func (d *demo) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	// The story is over either way: what is wrong here is one more reason.
	_ = d.step(ctx, "Remove everything", func(ctx context.Context, s *Step) error {
		state := d.stage.Lab.State()
		if err := d.stage.Lab.Down(ctx); err != nil {
			s.Wrong = append(s.Wrong, err.Error())
		}
		left, err := lab.Leftovers(state)
		if err != nil {
			s.Wrong = append(s.Wrong, err.Error())
		}
		for _, l := range left {
			s.Wrong = append(s.Wrong, "left behind: "+l)
		}
		if len(s.Wrong) == 0 {
			s.Observations = append(s.Observations, "nothing left behind: no process, namespace, mount, BPF pin or file")
		}
		return nil
	})
}

// conclude writes what was measured and prints the verdict.
func (d *demo) conclude(ctx context.Context) {
	d.say("")
	if path, err := d.frame.Write(ctx, d.OutDir, d.result); err != nil {
		d.fail(err)
	} else {
		d.say("Figures are in %s.", path)
	}
	if d.Picture != "" && d.result.Passed {
		if err := d.draw(); err != nil {
			d.fail(err)
		} else {
			d.say("The picture is %s.", d.Picture)
		}
	}
	if d.result.Passed {
		d.say("demo: PASS (%.0f s)", d.Now().Sub(d.frame.When).Seconds())
		return
	}
	for _, why := range d.result.Why {
		d.say("  - %s", why)
	}
	d.say("demo: FAIL")
}

func (d *demo) fail(err error) {
	d.result.Passed = false
	d.result.Why = append(d.result.Why, err.Error())
}
