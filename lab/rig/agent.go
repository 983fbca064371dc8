package rig

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"fairlead.dev/lab"
)

// Agent is an agent that runs on a machine.
type Agent struct {
	rig     *Rig
	Machine *lab.Machine
	Process *lab.Process

	argv []string
}

// RoleBackend are the arguments of StartAgent for a machine that has backends only. Its token has
// the role, too.
var RoleBackend = []string{"--role", "backend"}

// StartAgent lets a machine join the plane with a token of its own and starts its
// agent, with further arguments of `fairlead agent`. AwaitReady waits for it.
func (r *Rig) StartAgent(ctx context.Context, m *lab.Machine, p *Plane, args ...string) (*Agent, error) {
	var role []string
	if slices.Contains(args, RoleBackend[1]) {
		role = RoleBackend
	}
	token, err := p.Token(ctx, m.Name(), role...)
	if err != nil {
		return nil, err
	}
	dir, err := m.Dir("agent")
	if err != nil {
		return nil, err
	}
	run, err := m.Dir("run")
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		return nil, fmt.Errorf("hand %s its token: %w", m.Name(), err)
	}
	bpf, err := r.bpf(m)
	if err != nil {
		return nil, err
	}
	a := &Agent{rig: r, Machine: m, argv: append([]string{
		r.Binary, "agent", "--plane", p.Endpoint(), "--token-file", file, "--name", m.Name(),
		"--data-dir", dir, "--run-dir", run, "--bpf-dir", bpf, "--envoy", r.Envoy, "--console-address", agentConsole,
	}, args...)}
	return a, a.Start(ctx)
}

// bpf returns the machine's own directory for BPF objects that outlive processes; they go
// with the lab.
func (r *Rig) bpf(m *lab.Machine) (string, error) {
	dir, err := m.Dir("bpf")
	if err != nil {
		return "", err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mounted[m.Name()] {
		return dir, nil
	}
	if err := r.Lab.RecordMount(dir); err != nil {
		return "", err
	}
	// A kernel without BPF has other data planes.
	if err := unix.Mount("bpf", dir, "bpf", 0, ""); err != nil && !errors.Is(err, unix.ENODEV) {
		return "", fmt.Errorf("mount a bpffs for %s: %w", m.Name(), err)
	}
	if r.mounted == nil {
		r.mounted = map[string]bool{}
	}
	r.mounted[m.Name()] = true
	return dir, nil
}

// Start starts the agent again after it has ended, this time with some more arguments.
func (a *Agent) Start(ctx context.Context, args ...string) error {
	var err error
	a.Process, err = a.rig.start(ctx, a.Machine, "agent", append(slices.Clone(a.argv), args...)...)
	return err
}

// AwaitReady waits until the agent is ready.
func (a *Agent) AwaitReady(ctx context.Context) error {
	return a.rig.awaitProcess(ctx, a.Process, a.Machine, "http://"+agentConsole+"/readyz")
}

// Envoy returns the one Envoy of the agent's machine; two are an error.
func (a *Agent) Envoy() (lab.Resident, error) {
	program, err := filepath.EvalSymlinks(a.rig.Envoy)
	if err != nil {
		return lab.Resident{}, fmt.Errorf("find envoy: %w", err)
	}
	found, err := a.Machine.Residents()
	if err != nil {
		return lab.Resident{}, err
	}
	found = slices.DeleteFunc(found, func(r lab.Resident) bool { return r.Exe != program })
	if len(found) != 1 {
		return lab.Resident{}, fmt.Errorf("%s runs %d Envoys, want one", a.Machine.Name(), len(found))
	}
	return found[0], nil
}

// Backend is where one backend of a machine answers, with its name.
type Backend struct {
	Name string
	// Cluster is the machine's name.
	Cluster string
	Address netip.AddrPort
}

// StartBackends runs a backend at each of the machine's addresses given and
// returns when all of them answer. The one at the machine's first address of a
// family is called <machine>-a, the next one -b and so on.
func (r *Rig) StartBackends(ctx context.Context, m *lab.Machine, addresses []netip.Addr, port uint16) ([]Backend, error) {
	argv := []string{r.Binary, "lab", "backend"}
	var backends []Backend
	for _, a := range addresses {
		i := max(slices.Index(m.Addrs4(), a), slices.Index(m.Addrs6(), a))
		if i < 0 || i >= 26 {
			return nil, fmt.Errorf("%s is not one of the first 26 addresses of %s", a, m.Name())
		}
		b := Backend{fmt.Sprintf("%s-%c", m.Name(), 'a'+i), m.Name(), netip.AddrPortFrom(a, port)}
		argv = append(argv, "--serve", fmt.Sprintf("%s=%s", b.Name, b.Address))
		backends = append(backends, b)
	}
	p, err := r.start(ctx, m, "backends", argv...)
	if err != nil {
		return nil, err
	}
	for _, b := range backends {
		if err := r.awaitProcess(ctx, p, m, "http://"+b.Address.String()+"/"); err != nil {
			return nil, err
		}
	}
	return backends, nil
}
