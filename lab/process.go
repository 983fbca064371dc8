package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ProcessSpec says what to run. Name and Argv are required.
type ProcessSpec struct {
	// Name of the process, one running at a time per machine. Starting it again
	// after it ended appends to its log.
	Name string
	Argv []string
	// Env is added to this process's environment.
	Env []string
	// Dir is where it runs; default: the machine's directory.
	Dir string
	// Mounts are directories that it sees at paths of the host, in place of what is
	// there: for programs that cannot be told where to keep their files.
	Mounts map[string]string
	// Log is the file that takes its standard output and error; default: a file in
	// the lab's directory, which goes with the lab.
	Log string
}

// Process is a process that a lab started in a machine, in a session of its own.
// It ends with the lab at the latest.
type Process struct {
	machine *Machine
	spec    ProcessSpec
	cmd     *exec.Cmd
	pid     Pid
	done    chan struct{}
	err     error // valid when done is closed
}

// Start runs a process until it ends by itself, is stopped, or the lab goes
// down. The ctx bounds only the start.
func (m *Machine) Start(ctx context.Context, spec ProcessSpec) (*Process, error) {
	p, err := m.start(ctx, spec)
	if err != nil {
		return nil, fmt.Errorf("start %s in machine %s: %w", spec.Name, m.state.Name, err)
	}
	return p, nil
}

func (m *Machine) start(ctx context.Context, spec ProcessSpec) (*Process, error) {
	l := m.lab
	switch {
	case !l.owner:
		return nil, ErrNotOwner
	case spec.Name == "" || len(spec.Argv) == 0:
		return nil, fmt.Errorf("%w process: it needs a name and arguments", ErrInvalid)
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	if spec.Log == "" {
		spec.Log = filepath.Join(l.state.dir, "logs", m.state.Name+"-"+spec.Name+".log")
	}
	if spec.Dir == "" {
		spec.Dir = m.state.Dir
	}
	logFile, err := os.OpenFile(spec.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open its log: %w", err)
	}
	defer func() { _ = logFile.Close() }()

	p := &Process{machine: m, spec: spec, done: make(chan struct{})}
	p.cmd = exec.Command(spec.Argv[0], spec.Argv[1:]...)
	p.cmd.Env = append(os.Environ(), spec.Env...)
	p.cmd.Dir = spec.Dir
	p.cmd.Stdout, p.cmd.Stderr = logFile, logFile
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C is for the owner, who stops in good order

	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down {
		return nil, fmt.Errorf("lab %s is down", l.state.Name)
	}
	for _, q := range l.processes {
		if q.machine == m && q.spec.Name == spec.Name && q.Running() {
			return nil, fmt.Errorf("it runs already (process %d)", q.pid.ID)
		}
	}
	// Until it is on record, the process is found by the namespace it is in.
	if err := m.launch(p.cmd.Start, spec.Mounts); err != nil {
		return nil, err
	}
	p.pid, err = PidOf(p.cmd.Process.Pid)
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	if err != nil {
		_ = p.cmd.Process.Kill()
		return nil, err
	}
	same := func(machine, name string) bool { return machine == m.state.Name && name == spec.Name }
	l.processes = slices.DeleteFunc(l.processes, func(q *Process) bool { return same(q.machine.state.Name, q.spec.Name) })
	l.processes = append(l.processes, p)
	l.state.Processes = slices.DeleteFunc(slices.Clone(l.state.Processes), func(s ProcessState) bool { return same(s.Machine, s.Name) })
	l.state.Processes = append(l.state.Processes, ProcessState{
		Name: spec.Name, Machine: m.state.Name, Pid: p.pid, Argv: spec.Argv, Log: spec.Log,
	})
	if err := l.state.write(); err != nil {
		_ = p.cmd.Process.Kill()
		return nil, err
	}
	return p, nil
}

// launch runs the start of a process in the machine.
func (m *Machine) launch(start func() error, mounts map[string]string) error {
	if len(mounts) == 0 {
		return m.inside(start)
	}
	fd, err := m.descriptor()
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	return WithMounts(mounts, func() error {
		if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter network namespace: %w", err)
		}
		return start()
	})
}

// Name of the process.
func (p *Process) Name() string { return p.spec.Name }

// Pid of the process.
func (p *Process) Pid() Pid { return p.pid }

// Log is the file that takes its output.
func (p *Process) Log() string { return p.spec.Log }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Running reports whether the process has not ended yet.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Wait blocks until the process has ended and returns how, as exec.Cmd.Wait does.
func (p *Process) Wait(ctx context.Context) error {
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return fmt.Errorf("wait for %s in machine %s: %w", p.spec.Name, p.machine.state.Name, ctx.Err())
	}
}

// Signal sends a signal. The error wraps os.ErrProcessDone when the process has ended.
func (p *Process) Signal(sig unix.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("signal %s in machine %s: %w", p.spec.Name, p.machine.state.Name, err)
	}
	return nil
}

// Stop asks the process to end (SIGTERM) and kills it when grace or ctx is over.
// It returns when the process has ended; the error is nil only if it ended by
// itself with status 0 or by the SIGTERM.
func (p *Process) Stop(ctx context.Context, grace time.Duration) error {
	if err := p.Signal(unix.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	limit := time.NewTimer(grace)
	defer limit.Stop()
	select {
	case <-p.done:
	case <-limit.C:
	case <-ctx.Done():
	}
	if p.Running() {
		_ = p.cmd.Process.Kill()
		<-p.done
		return fmt.Errorf("stop %s in machine %s: it did not end within %s and was killed", p.spec.Name, p.machine.state.Name, grace)
	}
	var exit *exec.ExitError
	if errors.As(p.err, &exit) {
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() && ws.Signal() == unix.SIGTERM {
			return nil
		}
	}
	return p.err
}

// Kill9 kills the process (not its children) and returns when it has ended.
func (p *Process) Kill9() {
	_ = p.cmd.Process.Kill()
	<-p.done
}
