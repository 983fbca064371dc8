package router

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"fairlead.dev/lab"
)

const (
	// startTime is how long a process may take to answer: a busy host takes its time.
	startTime = time.Minute
	// stopGrace is how long it may take to end: it says goodbye to its peers.
	stopGrace = 10 * time.Second
	// queryTime is how long it may take to answer a question.
	queryTime = 20 * time.Second
	tick      = 20 * time.Millisecond
	// subdirectory of the machine's own is the daemon's, and record the file in it
	// that says what runs there.
	subdirectory = "router"
	record       = "router.json"
	// temporary is the directory below it that FRR's programs see at /var/tmp.
	temporary = "tmp"
)

// Router is a router that runs in a machine. Its methods may be called concurrently.
type Router struct {
	kind      Kind
	daemon    daemon
	machine   *lab.Machine
	dir       string
	processes []*lab.Process // in the order of their start; empty in one that was opened
}

// Start configures a router of the kind, runs it in the machine, which has no other,
// and returns once it answers. When it fails, none of its processes is left.
func Start(ctx context.Context, k Kind, m *lab.Machine, c Config) (*Router, error) {
	r, err := start(ctx, k, m, c)
	if err != nil {
		return nil, fmt.Errorf("start %s in machine %s: %w", k, m.Name(), err)
	}
	return r, nil
}

func start(ctx context.Context, k Kind, m *lab.Machine, c Config) (*Router, error) {
	s, err := c.complete(m.Name())
	if err != nil {
		return nil, err
	}
	r, err := at(k, m)
	if err != nil {
		return nil, err
	}
	if err := own(r.dir, r.daemon.user()); err != nil {
		return nil, err
	}
	raw, err := json.Marshal(map[string]Kind{"kind": k})
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(r.dir, record), raw, 0o600); err != nil {
		return nil, err
	}
	for _, p := range r.daemon.processes(s) {
		err := r.run(ctx, p, s)
		if err != nil {
			r.Kill()
			return nil, err
		}
	}
	return r, nil
}

// at returns the router of a machine, whether it runs or not.
func at(k Kind, m *lab.Machine) (*Router, error) {
	d, err := k.locate()
	if err != nil {
		return nil, err
	}
	dir, err := m.Dir(subdirectory)
	if err != nil {
		return nil, err
	}
	return &Router{kind: k, daemon: d, machine: m, dir: dir}, nil
}

// Recorded reports whether a router was started in the machine.
func Recorded(m lab.MachineState) bool {
	_, err := os.Stat(filepath.Join(m.Dir, subdirectory, record))
	return err == nil
}

// Open returns the router that somebody else started in the machine: it can be asked,
// not ended. The error wraps fs.ErrNotExist when there was none.
func Open(m *lab.Machine) (*Router, error) {
	dir, err := m.Dir(subdirectory)
	if err != nil {
		return nil, err
	}
	raw, err := os.ReadFile(filepath.Join(dir, record))
	if err != nil {
		return nil, fmt.Errorf("open the router of machine %s: %w", m.Name(), err)
	}
	var recorded struct{ Kind Kind }
	if err := json.Unmarshal(raw, &recorded); err != nil {
		return nil, fmt.Errorf("open the router of machine %s: %w", m.Name(), err)
	}
	return at(recorded.Kind, m)
}

// own gives the directory and what is in it to a user.
func own(dir, name string) error {
	if name == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Join(dir, temporary), 0o700); err != nil {
		return fmt.Errorf("make its directory: %w", err)
	}
	u, err := user.Lookup(name)
	if err != nil {
		return fmt.Errorf("find the user that it runs as: %w", err)
	}
	uid, uidErr := strconv.Atoi(u.Uid)
	gid, gidErr := strconv.Atoi(u.Gid)
	if err := errors.Join(uidErr, gidErr); err != nil {
		return fmt.Errorf("find the user that it runs as: %w", err)
	}
	return filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, uid, gid)
	})
}

// run starts one program and returns once it answers.
func (r *Router) run(ctx context.Context, p process, s settings) error {
	if err := write(r.dir, p, s); err != nil {
		return err
	}
	for _, name := range p.leftovers {
		_ = os.Remove(filepath.Join(r.dir, name))
	}
	if err := own(r.dir, r.daemon.user()); err != nil {
		return err
	}
	if err := r.check(ctx, p); err != nil {
		return err
	}
	process, err := r.machine.Start(ctx, lab.ProcessSpec{Name: p.name, Argv: p.argv, Dir: r.dir, Mounts: r.mounts()})
	if err != nil {
		return err
	}
	r.processes = append(r.processes, process)
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for {
		_, err := r.ask(ctx, p.ready)
		if err == nil {
			return nil
		}
		select {
		case <-process.Done():
			return fmt.Errorf("%s has ended: %s", p.name, lastLines(process.Log()))
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w (%w)", p.name, ctx.Err(), err)
		case <-time.After(tick):
		}
	}
}

// mounts keep FRR's programs from leaving files in /var/tmp, where all of them make a
// directory, dry runs too, and leave it when they are killed.
func (r *Router) mounts() map[string]string {
	if r.daemon.user() == "" {
		return nil
	}
	return map[string]string{"/var/tmp": filepath.Join(r.dir, temporary)}
}

// check asks a program what it thinks of its configuration file.
func (r *Router) check(ctx context.Context, p process) error {
	var out []byte
	err := lab.WithMounts(r.mounts(), func() (err error) {
		out, err = r.ask(ctx, r.daemon.check(p.name))
		return err
	})
	if err == nil {
		err = r.daemon.refusal(out)
	}
	if err != nil {
		return fmt.Errorf("%s refuses its configuration %s: %w", p.name, filepath.Join(r.dir, p.name+".conf"), err)
	}
	return nil
}

// ask runs a client program in the daemon's directory. Sockets are files: which
// network it is in does not matter.
func (r *Router) ask(ctx context.Context, argv []string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	c := exec.CommandContext(ctx, argv[0], argv[1:]...)
	c.Dir = r.dir
	out, err := c.Output()
	if err == nil {
		return out, nil
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		out = append(out, exit.Stderr...)
	}
	return nil, fmt.Errorf("%s: %w: %.300s", filepath.Base(argv[0]), err, bytes.TrimSpace(out))
}

func lastLines(path string) string {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], "; ")
}

// Kind of the router.
func (r *Router) Kind() Kind { return r.kind }

// Machine that it runs in.
func (r *Router) Machine() *lab.Machine { return r.machine }

// Processes are those of the router, in the order of their start; the last one
// speaks BGP. One that was opened has none.
func (r *Router) Processes() []*lab.Process { return slices.Clone(r.processes) }

// Pid names the process that speaks BGP.
func (r *Router) Pid() lab.Pid {
	if len(r.processes) == 0 {
		return lab.Pid{}
	}
	return r.processes[len(r.processes)-1].Pid()
}

// Log is the file with what the process that speaks BGP says.
func (r *Router) Log() string {
	if len(r.processes) == 0 {
		return ""
	}
	return r.processes[len(r.processes)-1].Log()
}

// Stop ends the router in good order: it says goodbye to its peers and takes its
// routes out of the kernel. It may be started again.
func (r *Router) Stop(ctx context.Context) error {
	var errs []error
	for _, p := range slices.Backward(r.processes) {
		if p.Running() {
			errs = append(errs, p.Stop(ctx, stopGrace))
		}
	}
	return errors.Join(errs...)
}

// Kill kills the router's processes. Its routes stay in the kernel until it is
// started again.
func (r *Router) Kill() {
	for _, p := range slices.Backward(r.processes) {
		p.Kill9()
	}
}

// Sessions are the router's peers as it sees them, by address. Peers of a range are
// there while they are connected.
func (r *Router) Sessions(ctx context.Context) ([]Session, error) {
	var outputs [][]byte
	for _, q := range r.daemon.queries() {
		out, err := r.ask(ctx, q)
		if err != nil {
			return nil, fmt.Errorf("sessions of %s in machine %s: %w", r.kind, r.machine.Name(), err)
		}
		outputs = append(outputs, out)
	}
	found, err := r.daemon.sessions(outputs)
	if err != nil {
		return nil, fmt.Errorf("sessions of %s in machine %s: %w", r.kind, r.machine.Name(), err)
	}
	slices.SortFunc(found, func(a, b Session) int { return a.Neighbor.Compare(b.Neighbor) })
	return found, nil
}
