package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"fairlead.dev/lab"
	"fairlead.dev/lab/rig"
)

// StartOptions say what is started. Binary and Envoy are required.
type StartOptions struct {
	// Binary is fairlead itself.
	Binary, Envoy string
	// Rounds is how often a plane is started; default 5.
	Rounds int
	// Lab says where the lab keeps its state.
	Lab lab.Options
	Now func() time.Time
	// Progress is told what is measured next.
	Progress func(what string)
}

// StartResult is how soon Fairlead's processes are ready and what they take.
type StartResult struct {
	// Ready is the median time from exec of `fairlead plane` with an empty data
	// directory to its /readyz; ReadyAgain the same with data that is there.
	Ready      float64   `json:"ready_s"`
	ReadyAll   []float64 `json:"ready_all_s"`
	ReadyAgain float64   `json:"ready_again_s"`
	// Resident memory, once it has settled: of a plane with its API server and etcd,
	// of a plane that uses the first one's API server, of an agent (its Envoy apart).
	PlaneRSS    float64 `json:"plane_rss_mb"`
	ExternalRSS float64 `json:"plane_external_rss_mb"`
	AgentRSS    float64 `json:"agent_rss_mb"`
	EnvoyRSS    float64 `json:"envoy_rss_mb"`
	// ExternalLeads says whether the plane with an outside API led; a standby does less.
	ExternalLeads bool `json:"plane_external_leads"`
}

// stopTime is how long a plane may take to end.
const stopTime = 30 * time.Second

// Start measures in a lab of its own.
func Start(ctx context.Context, o StartOptions) (r StartResult, err error) {
	if o.Rounds == 0 {
		o.Rounds = 5
	}
	l, err := lab.Up(ctx, lab.Topology{Name: "bench-start", Machines: []lab.MachineSpec{
		{Name: "plane", Role: lab.RolePlane}, {Name: "edge-1", Role: lab.RoleEdge},
	}}, o.Lab)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, l.Down(context.WithoutCancel(ctx))) }()
	s := &starting{StartOptions: o, rig: &rig.Rig{Lab: l, Binary: o.Binary, Envoy: o.Envoy, Now: o.Now}, machine: l.Machine("plane")}
	plane, err := s.planes(ctx, &r)
	if err != nil {
		return r, err
	}
	return r, s.memory(ctx, plane, &r)
}

type starting struct {
	StartOptions
	rig     *rig.Rig
	machine *lab.Machine
}

func (s *starting) progress(format string, args ...any) {
	if s.Progress != nil {
		s.Progress(fmt.Sprintf(format, args...))
	}
}

// planes starts planes, each with a data directory of its own and once more with
// the same, and leaves the last one running.
func (s *starting) planes(ctx context.Context, r *StartResult) (*rig.Plane, error) {
	var fresh, again []float64
	for round := 1; ; round++ {
		s.progress("start of a plane, %d of %d", round, s.Rounds)
		began := s.Now()
		plane, err := s.rig.StartPlane(ctx, s.machine, rig.PlaneOptions{Name: fmt.Sprintf("plane-%d", round)})
		if err != nil {
			return nil, err
		}
		fresh = append(fresh, s.Now().Sub(began).Seconds())
		if err := plane.Process.Stop(ctx, stopTime); err != nil {
			return nil, err
		}
		began = s.Now()
		if err := plane.Start(ctx); err != nil {
			return nil, err
		}
		again = append(again, s.Now().Sub(began).Seconds())
		if round == s.Rounds {
			r.Ready, r.ReadyAll, r.ReadyAgain = middle(fresh), rounded(fresh), middle(again)
			return plane, nil
		}
		if err := plane.Process.Stop(ctx, stopTime); err != nil {
			return nil, err
		}
	}
}

// memory measures the plane that runs, an agent that joins it, and a second plane
// on the first one's API server.
func (s *starting) memory(ctx context.Context, plane *rig.Plane, r *StartResult) error {
	agent, err := s.rig.StartAgent(ctx, s.rig.Lab.Machine("edge-1"), plane)
	if err != nil {
		return err
	}
	if err := agent.AwaitReady(ctx); err != nil {
		return err
	}
	s.progress("memory of an agent")
	if r.AgentRSS, err = settled(ctx, s.Now, agent.Process.Pid().ID); err != nil {
		return err
	}
	envoy, err := agent.Envoy()
	if err != nil {
		return err
	}
	if r.EnvoyRSS, err = rss(envoy.Pid.ID); err != nil {
		return err
	}
	s.progress("memory of a plane")
	if r.PlaneRSS, err = settled(ctx, s.Now, plane.Process.Pid().ID); err != nil {
		return err
	}
	s.progress("memory of a plane with an outside API")
	external, err := s.rig.StartPlane(ctx, s.machine, rig.PlaneOptions{
		Name: "plane-external", AgentPort: "7444", Console: "127.0.0.1:7090", Args: []string{"--kubeconfig", plane.Kubeconfig()},
	})
	if err != nil {
		return err
	}
	if r.ExternalRSS, err = settled(ctx, s.Now, external.Process.Pid().ID); err != nil {
		return err
	}
	status, err := external.Status(ctx)
	if err != nil {
		return err
	}
	r.ExternalLeads = status.Plane.Leading
	return nil
}

// Memory has settled when it has not grown or shrunk by more than this share of
// itself for that long.
const (
	settledShare = 0.01
	settledTime  = 15 * time.Second
	settleLimit  = 60 * time.Second
)

// settled returns a process's resident memory in MB once it has settled, or as it
// is when settleLimit is over.
func settled(ctx context.Context, clock func() time.Time, pid int) (float64, error) {
	began := clock()
	since, reference := began, -1.0
	for {
		now, err := rss(pid)
		if err != nil {
			return 0, err
		}
		if math.Abs(now-reference) > settledShare*now {
			since, reference = clock(), now
		}
		if clock().Sub(since) >= settledTime || clock().Sub(began) >= settleLimit {
			return now, nil
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// rss returns a process's resident memory in MB (2^20 bytes).
func rss(pid int) (float64, error) { return statusMB(pid, "VmRSS:") }

// statusMB returns a line of /proc/PID/status that is in kB, in MB (2^20 bytes).
func statusMB(pid int, line string) (float64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("read the memory of process %d: %w", pid, err)
	}
	for l := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(l, line); ok {
			kb, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return math.Round(kb/102.4) / 10, err
		}
	}
	return 0, fmt.Errorf("read the memory of process %d: it has none", pid)
}

// middle returns the median, rounded to milliseconds.
func middle(seconds []float64) float64 {
	sorted := slices.Sorted(slices.Values(rounded(seconds)))
	return sorted[len(sorted)/2]
}

func rounded(seconds []float64) []float64 {
	out := make([]float64, len(seconds))
	for i, s := range seconds {
		out[i] = math.Round(s*1000) / 1000
	}
	return out
}
