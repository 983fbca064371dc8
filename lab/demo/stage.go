package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"fairlead.dev/lab"
	"fairlead.dev/lab/rig"
	"fairlead.dev/lab/router"
)

// stage is the lab with what runs in it.
type stage struct {
	*rig.Rig
	client   *lab.Machine
	edges    []*lab.Machine
	router   gateway
	plane    *rig.Plane
	agents   map[string]*rig.Agent
	vips     map[string][]netip.Addr // IPv4 and IPv6, by kind of the owner
	backends []rig.Backend
	routes   []*route
	kernel   *route // of the Service that the kernel balances; nil while none is
	alone    bool   // edges pass nothing on to each other
}

// clusters are the two clusters: the machine, how its backends are reached, and
// at which port. One is reached over IPv4, the other over IPv6.
var clusters = []struct {
	name string
	v6   bool
	port uint16
}{
	{"k8s1", true, 8080},
	{"os1", false, 80},
}

func (d *demo) buildLab(ctx context.Context, s *Step) error {
	topology := lab.RoutedTopology(d.Name)
	topology.Machines = slices.Insert(topology.Machines, 3, lab.MachineSpec{Name: "edge-3", Role: lab.RoleEdge})
	l, err := lab.Up(ctx, topology, d.Lab)
	if err != nil {
		return err
	}
	d.stage = &stage{
		Rig: &rig.Rig{
			Lab: l, Binary: d.Binary, Kubectl: d.Kubectl, Envoy: d.Envoy, Now: d.Now,
			Progress: func(what string, waited time.Duration, last error) {
				d.say("    ... %.0f s: waiting for %s (%.100s)", waited.Seconds(), what, last)
			},
		},
		client: l.Machine("client"), edges: l.Machines(lab.RoleEdge), agents: map[string]*rig.Agent{}, alone: d.Alone,
	}
	state := l.State()
	s.fact("%d machines; the client is behind the router", len(state.Machines))
	return nil
}

func (d *demo) startRouter(ctx context.Context, s *Step) error {
	st := d.stage
	r, err := st.StartRouter(ctx, st.Lab.Machine("router"), rig.RouterOptions{
		Kind: router.BIRD, BFD: &router.BFD{Interval: bfdInterval, Multiplier: bfdMultiplier},
	})
	if err != nil {
		return err
	}
	st.router = gateway{r}
	s.fact("BIRD speaks BGP with the edges; BFD ends the session of an edge that is silent for %s", bfdInterval*bfdMultiplier)
	s.fact("its kernel spreads connections over next hops by addresses and ports (ECMP)")
	return nil
}

func (d *demo) startBackends(ctx context.Context, s *Step) error {
	st := d.stage
	for _, c := range clusters {
		m := st.Lab.Machine(c.name)
		addresses := m.Addrs4()
		if c.v6 {
			addresses = m.Addrs6()
		}
		started, err := st.StartBackends(ctx, m, addresses, c.port)
		if err != nil {
			return err
		}
		st.backends = append(st.backends, started...)
		var of []string
		for _, b := range started {
			of = append(of, fmt.Sprintf("%s at %s", b.Name, b.Address))
		}
		s.fact("%s", strings.Join(of, ", "))
	}
	return nil
}

func (d *demo) startPlane(ctx context.Context, s *Step) error {
	began := d.Now()
	plane, err := d.stage.StartPlane(ctx, d.stage.Lab.Machine("plane"), rig.PlaneOptions{})
	if err != nil {
		return err
	}
	d.stage.plane = plane
	s.figure("plane_ready_s", d.Now().Sub(began).Seconds())
	s.fact("ready after %.1f s: API server, etcd and plane in one process", s.Figures["plane_ready_s"])
	return nil
}

func (d *demo) joinEdges(ctx context.Context, s *Step) error {
	st := d.stage
	for _, m := range st.edges {
		agent, err := st.StartAgent(ctx, m, st.plane)
		if err != nil {
			return err
		}
		st.agents[m.Name()] = agent
	}
	for _, m := range st.edges {
		if err := st.agents[m.Name()].AwaitReady(ctx); err != nil {
			return err
		}
	}
	if err := st.plane.AwaitConnected(ctx, st.edges...); err != nil {
		return err
	}
	s.fact("%s joined, agent and Envoy are ready", inProse(st.edgeNames()))
	return nil
}

// keepLogs copies the logs of a demo that failed to where people find them.
func (d *demo) keepLogs(ctx context.Context) {
	dir := filepath.Join(d.OutDir, "demo-logs")
	_ = os.RemoveAll(dir)
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(d.stage.Lab.State().Dir(), "logs"))); err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			d.say("    the logs could not be kept: %v", err)
		}
		return
	}
	if d.stage.plane != nil {
		if status, err := d.stage.plane.Status(ctx); err == nil {
			if raw, err := json.MarshalIndent(status, "", "  "); err == nil {
				_ = os.WriteFile(filepath.Join(dir, "status.json"), raw, 0o644)
			}
		}
	}
	d.say("")
	d.say("    The logs of all processes are in %s.", dir)
}
