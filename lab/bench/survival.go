package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.dev/internal/model"
	"fairlead.dev/lab/load"
	"fairlead.dev/lab/router"
)

// SurvivalOptions say what is measured.
type SurvivalOptions struct {
	NetworkOptions
	Router router.Kind // default BIRD
	// Connections that are held open, default 10,000; each asks once in Every, default 10 s.
	Connections int
	Every       time.Duration
	// Modes; default all that this kernel can.
	Modes []SurvivalMode
}

// SurvivalMode is what the held connections lead to.
type SurvivalMode string

// The modes: the proxies of the edges, or backends behind a load balancer.
const (
	SurvivalProxies SurvivalMode = "Proxies"
	SurvivalGeneve               = SurvivalMode(model.ModeDSRGeneve)
	SurvivalL2                   = SurvivalMode(model.ModeDSRL2)
	SurvivalNAT                  = SurvivalMode(model.ModeNAT)
)

// SurvivalModes are all modes, those first that promise everything.
var SurvivalModes = []SurvivalMode{SurvivalGeneve, SurvivalProxies, SurvivalL2, SurvivalNAT}

// whole says that a mode promises that nothing breaks but what was at a dead backend.
func (m SurvivalMode) whole() bool { return m == SurvivalGeneve || m == SurvivalProxies }

// SurvivalResult is what connections survive.
type SurvivalResult struct {
	Router      router.Kind    `json:"router"`
	Connections int            `json:"connections"`
	Edges       int            `json:"load_balancers"`
	Backends    int            `json:"backends"`
	NewRate     float64        `json:"new_connections_per_s"`
	Rows        []SurvivalStep `json:"steps"`
	Goal        string         `json:"goal"`
	Met         bool           `json:"met"`
}

// SurvivalStep is one thing that happens while the connections are open.
type SurvivalStep struct {
	Mode SurvivalMode `json:"mode"`
	Step string       `json:"step"`
	// Broken connections, and those of them whose own backend died with the step.
	Broken int `json:"broken"`
	Own    int `json:"broken_with_their_backend"`
	// Unserved are requests on open connections that were answered with an error, as a proxy
	// does for one that was under way at a backend that dies.
	Unserved int `json:"requests_unserved"`
	// Failed are new connections that failed while it happened.
	Failed int `json:"new_connections_failed"`
	// Seconds until every connection was answered again.
	Whole float64 `json:"whole_after_s"`
	// Kinds of what broke.
	Kinds map[load.Kind]int `json:"kinds,omitempty"`
}

const (
	// survivalRate is how many new connections a second ask one thing each.
	survivalRate = 100
	// settleTime is how long a step may take until everything is answered again.
	settleTime = 90 * time.Second
)

// Survival holds connections open while load balancers and backends come, drain, die and
// change their weights, and counts those that break.
func Survival(ctx context.Context, o SurvivalOptions) (r SurvivalResult, err error) {
	o.Router = cmp.Or(o.Router, router.BIRD)
	o.Connections = cmp.Or(o.Connections, 10_000)
	o.Every = cmp.Or(o.Every, 10*time.Second)
	if o.Modes == nil {
		o.Modes = SurvivalModes
	}
	if err := o.Router.Find(); err != nil {
		return r, err
	}
	if err := openFiles(uint64(o.Connections + 5000)); err != nil {
		return r, err
	}
	r = SurvivalResult{
		Router: o.Router, Connections: o.Connections, Edges: survivalEdges, Backends: survivalNodes, NewRate: survivalRate,
		Goal: "DSRGeneve and Proxies: none broken but those whose own backend died", Met: true,
	}
	for _, mode := range o.Modes {
		if !slices.Contains(SurvivalModes, mode) {
			return r, fmt.Errorf("mode %q: want one of %v", mode, SurvivalModes)
		}
		steps, err := survivalOf(ctx, o, mode)
		r.Rows = append(r.Rows, steps...)
		if err != nil {
			return r, fmt.Errorf("mode %s: %w", mode, err)
		}
	}
	for _, s := range r.Rows {
		if s.Mode.whole() && s.Broken > s.Own {
			r.Met = false
		}
	}
	return r, nil
}

// openFiles lets this process have so many.
func openFiles(n uint64) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("read the limit of open files: %w", err)
	}
	if limit.Cur >= n {
		return nil
	}
	limit.Cur, limit.Max = n, max(limit.Max, n)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("open %d files: %w (ulimit -Hn)", n, err)
	}
	return nil
}

// survivalOf measures one mode, in a lab of its own.
func survivalOf(ctx context.Context, o SurvivalOptions, mode SurvivalMode) (steps []SurvivalStep, err error) {
	o.progress("%s: start", mode)
	s, err := buildSurvival(ctx, o.NetworkOptions, "bench-survival", o.Router, mode, layout{balancers: survivalEdges, backends: survivalNodes, aside: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.down(ctx)) }()
	o.progress("%s: open %d connections", mode, o.Connections)
	opening, cancel := context.WithTimeout(ctx, 2*time.Minute+o.Every)
	defer cancel()
	s.held, err = load.Hold(opening, load.HoldConfig{
		Address: s.address, Dial: s.client.Dial, Host: vipHost, Connections: o.Connections, Every: o.Every, Timeout: 15 * time.Second, Now: o.Now,
	})
	if err != nil {
		return nil, err
	}
	defer s.held.Stop()
	for _, e := range s.events() {
		if e.only != "" && e.only != mode || e.not == mode && mode != "" {
			continue
		}
		step, err := s.step(ctx, o, e)
		if err != nil {
			return steps, fmt.Errorf("%s: %w", e.name, err)
		}
		o.progress("%s: %s: %d broken, %d of them with their backend, %d new ones failed", mode, e.name, step.Broken, step.Own, step.Failed)
		steps = append(steps, step)
	}
	return steps, nil
}

// step lets one thing happen and waits until all is well again.
func (s *survivalSite) step(ctx context.Context, o SurvivalOptions, e survivalEvent) (SurvivalStep, error) {
	ctx, cancel := context.WithTimeout(ctx, settleTime+2*o.Every)
	defer cancel()
	r := SurvivalStep{Mode: s.mode, Step: e.name, Kinds: map[load.Kind]int{}}
	began := o.Now()
	fresh, err := load.Start(ctx, load.Config{
		Address: s.address, Host: vipHost, Dial: s.client.Dial, Rate: survivalRate, NewConnections: true, Concurrency: 20 * survivalRate,
		Timeout: 15 * time.Second, Now: o.Now,
	})
	if err != nil {
		return r, err
	}
	dead, err := e.do(ctx)
	if err != nil {
		fresh.Stop()
		return r, err
	}
	happened := o.Now()
	// Twice: a connection may be answered on its old way before the routers have followed.
	for range 2 {
		if err := s.held.Whole(ctx, o.Now()); err != nil {
			fresh.Stop()
			return r, err
		}
	}
	r.Whole = o.Now().Sub(happened).Seconds()
	r.Failed, r.Unserved = fresh.Stop().Failed, s.held.Unserved(began)
	for _, b := range s.held.Broken(began) {
		r.Broken++
		r.Kinds[b.Kind]++
		if dead != "" && s.owner(b.Name) == dead {
			r.Own++
		}
	}
	if e.undo != nil {
		if err := e.undo(ctx); err != nil {
			return r, fmt.Errorf("undo it: %w", err)
		}
		if err := s.held.Whole(ctx, o.Now()); err != nil {
			return r, err
		}
	}
	return r, nil
}

// owner is who a connection belongs to, of what an answer says: the machine of the backend,
// or the proxy that asked it.
func (s *survivalSite) owner(name string) string {
	backend, peer, _ := strings.Cut(name, " ")
	if s.mode == SurvivalProxies {
		return peer
	}
	return backend
}
