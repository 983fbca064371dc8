package rig

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"

	"fairlead.dev/internal/console"
	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/lab"
)

// Where planes and agents answer. Each machine has its own loopback addresses.
const (
	apiPort      = "6443"
	agentPort    = "7443"
	planeConsole = "127.0.0.1:7080"
	agentConsole = "127.0.0.1:7081"
)

// Plane is a plane that runs on a machine.
type Plane struct {
	rig *Rig
	// Machine that it runs on, and the process.
	Machine *lab.Machine
	Process *lab.Process
	// Dir is its data directory.
	Dir string

	name, agentPort, console string
	args                     []string
}

// PlaneOptions make a plane differ from the usual.
type PlaneOptions struct {
	// Name of the process and of its data directory; default "plane".
	Name string
	// AgentPort and Console replace the usual ones where a machine has two planes.
	AgentPort, Console string
	// Args are further arguments of `fairlead plane`.
	Args []string
}

// StartPlane starts a plane and returns when it is ready.
func (r *Rig) StartPlane(ctx context.Context, m *lab.Machine, o PlaneOptions) (*Plane, error) {
	p := &Plane{rig: r, Machine: m, name: o.Name, agentPort: o.AgentPort, console: o.Console, args: o.Args}
	if p.name == "" {
		p.name = "plane"
	}
	if p.agentPort == "" {
		p.agentPort = agentPort
	}
	if p.console == "" {
		p.console = planeConsole
	}
	var err error
	if p.Dir, err = m.Dir(p.name); err != nil {
		return nil, err
	}
	return p, p.Start(ctx)
}

// Start starts the plane again after it has ended, with the same data, and
// returns when it is ready.
func (p *Plane) Start(ctx context.Context) error {
	argv := append([]string{
		p.rig.Binary, "plane", "--data-dir", p.Dir, "--advertise-address", p.Machine.Addr4().String(),
		"--api-port", apiPort, "--agent-port", p.agentPort, "--console-address", p.console,
	}, p.args...)
	if p.agentPort != agentPort {
		argv = append(argv, "--read-address", ":0") // the usual port is the other plane's
	}
	var err error
	if p.Process, err = p.rig.start(ctx, p.Machine, p.name, argv...); err != nil {
		return err
	}
	return p.rig.awaitProcess(ctx, p.Process, p.Machine, "http://"+p.console+"/readyz")
}

// Kubeconfig is the file that makes kubectl an administrator of the plane's API.
func (p *Plane) Kubeconfig() string { return filepath.Join(p.Dir, "admin.kubeconfig") }

// Answers is nil while something answers at the plane's console.
func (p *Plane) Answers(ctx context.Context) error {
	return p.rig.Get(ctx, p.Machine, "http://"+p.console+"/healthz")
}

// Status is what `fairlead status` shows.
func (p *Plane) Status(ctx context.Context) (v1.Status, error) {
	return console.Client{URL: "http://" + p.console, HTTP: p.rig.client(p.Machine)}.Status(ctx)
}

// Backends are what `fairlead backends` shows of a frontend, a VIP or an owner.
func (p *Plane) Backends(ctx context.Context, of string) ([]v1.BackendStatus, error) {
	return console.Client{URL: "http://" + p.console, HTTP: p.rig.client(p.Machine)}.Backends(ctx, of)
}

// Flows are what `fairlead flows` shows of the machines' flow tables.
func (p *Plane) Flows(ctx context.Context, f console.FlowFilter) (v1.FlowList, error) {
	return console.Client{URL: "http://" + p.console, HTTP: p.rig.client(p.Machine)}.Flows(ctx, f)
}

// Upstreams are what `fairlead upstreams` shows, of all or of one.
func (p *Plane) Upstreams(ctx context.Context, name string) ([]v1.Upstream, error) {
	return console.Client{URL: "http://" + p.console, HTTP: p.rig.client(p.Machine)}.Upstreams(ctx, name)
}

// Metrics are the plane's, as text. The caller closes them.
func (p *Plane) Metrics(ctx context.Context) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.console+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	answer, err := p.rig.client(p.Machine).Do(request)
	if err != nil {
		return nil, fmt.Errorf("read the plane's metrics: %w", err)
	}
	return answer.Body, nil
}

// Token creates a one-time token for a machine, with further arguments of `fairlead token create`.
func (p *Plane) Token(ctx context.Context, machine string, args ...string) (string, error) {
	argv := append([]string{p.rig.Binary, "token", "create", "--kubeconfig", p.Kubeconfig(), "--machine", machine}, args...)
	out, err := p.rig.run(ctx, p.Machine, "", argv...)
	if err != nil {
		return "", fmt.Errorf("create a token for %s: %w", machine, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// AwaitConnected waits until the plane sees the agents of these machines.
func (p *Plane) AwaitConnected(ctx context.Context, machines ...*lab.Machine) error {
	return p.rig.Await(ctx, "the plane to see the agents", func(ctx context.Context) error {
		status, err := p.Status(ctx)
		if err != nil {
			return err
		}
		for _, m := range machines {
			if !slices.ContainsFunc(status.Machines, func(s v1.MachineStatus) bool { return s.Name == m.Name() && s.Connected }) {
				return fmt.Errorf("%s is not connected", m.Name())
			}
		}
		return nil
	})
}

// Endpoint is where agents find the plane: host:port.
func (p *Plane) Endpoint() string {
	return net.JoinHostPort(p.Machine.Addr4().String(), p.agentPort)
}
