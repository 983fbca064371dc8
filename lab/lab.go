package lab

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

var (
	// ErrInUse is wrapped when a lab of the name exists and its owner runs.
	ErrInUse = errors.New("lab is in use")
	// ErrNotOwner is wrapped when a lab that another process brought up is asked
	// for something that only its owner can do.
	ErrNotOwner = errors.New("lab belongs to another process")
	// ErrUnsupported is wrapped when this host cannot have labs.
	ErrUnsupported = errors.New("labs are not supported here")
)

// stopGrace is how long processes have to end by themselves when a lab goes down.
const stopGrace = 5 * time.Second

// Options say how a lab is kept. The zero value is usable.
type Options struct {
	// Dir is where labs keep their state; default DefaultDir.
	Dir string
	// Log gets what happens; default: nowhere.
	Log *slog.Logger
	// Now is the clock that dates the lab; default time.Now.
	Now func() time.Time
}

func (o Options) complete() Options {
	if o.Dir == "" {
		o.Dir = DefaultDir
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// Lab is a network of machines. Its methods may be called concurrently.
type Lab struct {
	options Options
	owner   bool
	growing sync.Mutex // machines come and go one at a time

	mu        sync.Mutex // guards what follows, and the state file
	machines  map[string]*Machine
	order     []string
	state     State
	processes []*Process
	janitor   *janitor
	down      bool
}

// Supported returns nil if labs can be made here, else why not. The error wraps
// ErrUnsupported.
func Supported() error {
	if unix.Geteuid() != 0 {
		return fmt.Errorf("%w: network namespaces need root", ErrUnsupported)
	}
	if _, err := os.Stat("/proc/sys/net/ipv6"); err != nil {
		return fmt.Errorf("%w: this kernel has no IPv6", ErrUnsupported)
	}
	if err := onThread(func() error { return unix.Unshare(unix.CLONE_NEWNET) }); err != nil {
		return fmt.Errorf("%w: make a network namespace: %w", ErrUnsupported, err)
	}
	return nil
}

// Up builds the topology and returns once every machine can be reached. What a
// dead owner left of the same name is swept first; a live owner is ErrInUse. When
// it fails, or ctx ends before it is done, nothing is left.
//
// The lab lasts until Down, or until this process ends.
func Up(ctx context.Context, t Topology, o Options) (*Lab, error) {
	o = o.complete()
	t, err := t.complete()
	if err != nil {
		return nil, fmt.Errorf("lab up: %w", err)
	}
	if err := Supported(); err != nil {
		return nil, fmt.Errorf("lab %s up: %w", t.Name, err)
	}
	l := &Lab{options: o, owner: true, machines: map[string]*Machine{}}
	if err := l.claim(t); err != nil {
		return nil, fmt.Errorf("lab %s up: %w", t.Name, err)
	}
	if err := l.build(ctx); err != nil {
		err = fmt.Errorf("lab %s up: %w", t.Name, err)
		return nil, errors.Join(err, l.Down(context.WithoutCancel(ctx)))
	}
	o.Log.Info("lab is up", "lab", t.Name, "machines", len(t.Machines))
	return l, nil
}

// claim makes the lab's directory and state and starts its janitor, after having
// swept what a dead owner left.
func (l *Lab) claim(t Topology) error {
	unlock, err := lockDir(l.options.Dir)
	if err != nil {
		return err
	}
	defer unlock()

	own := filepath.Join(l.options.Dir, t.Name)
	old, err := Read(l.options.Dir, t.Name)
	switch {
	case err == nil && old.OwnerAlive():
		return fmt.Errorf("%w: process %d brought it up at %s (end it, or `fairlead lab down --name %s`)",
			ErrInUse, old.Owner.ID, old.Created.Format(time.DateTime), t.Name)
	case err == nil:
		l.options.Log.Info("removing a lab whose owner is dead", "lab", t.Name)
		if err := sweep(old); err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrNotExist):
		l.options.Log.Warn("removing a lab whose state cannot be read", "lab", t.Name, "error", err)
		fallthrough
	default:
		if err := sweep(State{Name: t.Name, dir: own}); err != nil {
			return err
		}
	}

	self, err := PidOf(os.Getpid())
	if err != nil {
		return err
	}
	id := make([]byte, 8)
	if _, err := rand.Read(id); err != nil {
		return fmt.Errorf("draw an id: %w", err)
	}
	l.state = State{
		Name: t.Name, ID: hex.EncodeToString(id), Boot: bootID(), Created: l.options.Now().UTC(), Owner: self,
		Net4: t.Net4, Net6: t.Net6, Segments: t.Segments, MTU: t.MTU,
		Fabric: filepath.Join(own, "netns", fabricName), dir: own,
	}
	for i, m := range t.Machines {
		l.state.Machines = append(l.state.Machines, l.state.lay(m, i))
	}
	if err := os.Mkdir(own, 0o755); err != nil {
		return fmt.Errorf("make the lab's directory: %w", err)
	}
	if err := l.state.write(); err != nil {
		_ = os.RemoveAll(own)
		return err
	}
	if l.janitor, err = startJanitor(l.state); err != nil {
		_ = os.RemoveAll(own)
		return err
	}
	go l.mindJanitor(l.janitor)
	return l.update(func(s *State) { s.Janitor = l.janitor.pid })
}

func (l *Lab) build(ctx context.Context) error {
	for _, sub := range []string{"netns", "machines", "logs"} {
		if err := os.Mkdir(filepath.Join(l.state.dir, sub), 0o755); err != nil {
			return fmt.Errorf("make the lab's directory: %w", err)
		}
	}
	state := l.State()
	if err := buildFabric(state.Fabric, state.Segments, state.MTU); err != nil {
		return fmt.Errorf("build the segments: %w", err)
	}
	for _, m := range state.Machines {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("build machine %s: %w", m.Name, err)
		}
		if err := l.buildMachine(state, m); err != nil {
			return err
		}
	}
	for _, m := range l.Machines() {
		if err := m.awaitLinks(ctx); err != nil {
			return fmt.Errorf("build machine %s: %w", m.Name(), err)
		}
	}
	return nil
}

// buildMachine makes a machine that is on record.
func (l *Lab) buildMachine(s State, m MachineState) error {
	err := os.Mkdir(m.Dir, 0o755)
	if err == nil {
		err = buildMachine(s, m)
	}
	if err == nil {
		err = l.adopt(m)
	}
	if err != nil {
		return fmt.Errorf("build machine %s: %w", m.Name, err)
	}
	return nil
}

// adopt makes the handle of a machine whose namespace exists.
func (l *Lab) adopt(m MachineState) error {
	fd, err := openNamespace(m.Namespace)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.machines[m.Name] = &Machine{lab: l, state: m, namespace: fd}
	l.order = append(l.order, m.Name)
	return nil
}

// absent is a lab that does not exist.
type absent string

func (a absent) Error() string {
	return fmt.Sprintf("lab %q does not exist: create it with `fairlead lab up --name %s`", string(a), string(a))
}

func (absent) Is(target error) bool { return target == fs.ErrNotExist }

// Open returns a lab that another process brought up. Its machines can run
// commands and be talked to; Start and Down are its owner's. The caller closes it
// with Close.
func Open(name string, o Options) (*Lab, error) {
	o = o.complete()
	s, err := Read(o.Dir, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, absent(name)
	}
	if err != nil {
		return nil, fmt.Errorf("open lab %s: %w", name, err)
	}
	l := &Lab{options: o, state: s, machines: map[string]*Machine{}}
	for _, m := range s.Machines {
		if err := l.adopt(m); err != nil {
			l.Close()
			return nil, fmt.Errorf("open lab %s: %w", name, err)
		}
	}
	return l, nil
}

// Close gives back what this process holds of a lab that it opened. The lab stays.
func (l *Lab) Close() {
	for _, m := range l.Machines() {
		m.close()
	}
}

// Name of the lab.
func (l *Lab) Name() string { return l.state.Name }

// Machine returns the machine of that name. Asking for one that the lab does not
// have is a bug of the caller: it panics.
func (l *Lab) Machine(name string) *Machine {
	m, ok := l.Lookup(name)
	if !ok {
		var have []string
		for _, m := range l.Machines() {
			have = append(have, m.Name())
		}
		panic(fmt.Sprintf("lab %s has no machine %q (it has %s)", l.Name(), name, strings.Join(have, ", ")))
	}
	return m
}

// Lookup returns the machine of that name, or false.
func (l *Lab) Lookup(name string) (*Machine, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m, ok := l.machines[name]
	return m, ok
}

// Machines returns all machines, or those of a role, in the order of the topology
// and then that in which they came.
func (l *Lab) Machines(roles ...Role) []*Machine {
	l.mu.Lock()
	defer l.mu.Unlock()
	var ms []*Machine
	for _, name := range l.order {
		if m := l.machines[name]; len(roles) == 0 || slices.Contains(roles, m.state.Role) {
			ms = append(ms, m)
		}
	}
	return ms
}

// State returns a copy of what the lab has on record.
func (l *Lab) State() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.state
	s.Machines, s.Processes = slices.Clone(s.Machines), slices.Clone(s.Processes)
	s.Mounts, s.Pins, s.Cgroups = slices.Clone(s.Mounts), slices.Clone(s.Pins), slices.Clone(s.Cgroups)
	return s
}

// update changes the state and writes it down.
func (l *Lab) update(change func(*State)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down {
		return fmt.Errorf("lab %s is down", l.state.Name)
	}
	change(&l.state)
	return l.state.write()
}

// RecordMount says that the caller is about to mount something at an absolute
// path where nothing is mounted yet; the lab takes it away with itself.
func (l *Lab) RecordMount(path string) error {
	if !l.owner {
		return fmt.Errorf("record mount %s: %w", path, ErrNotOwner)
	}
	path = filepath.Clean(path)
	mounted, err := mountsUnder(path)
	if err != nil {
		return fmt.Errorf("record mount: %w", err)
	}
	if !filepath.IsAbs(path) || path == "/" || slices.Contains(mounted, path) {
		return fmt.Errorf("%w mount point %s: want an absolute path where nothing is mounted", ErrInvalid, path)
	}
	return l.update(func(s *State) { s.Mounts = append(s.Mounts, path) })
}

// RecordPin says that the caller is about to pin BPF objects at or below a path
// under /sys/fs/bpf; the lab removes it with itself.
func (l *Lab) RecordPin(path string) error {
	if !l.owner {
		return fmt.Errorf("record pin %s: %w", path, ErrNotOwner)
	}
	path = filepath.Clean(path)
	if !strings.HasPrefix(path, pinRoot) {
		return fmt.Errorf("%w pin %s: want a path below %s", ErrInvalid, path, pinRoot)
	}
	return l.update(func(s *State) { s.Pins = append(s.Pins, path) })
}

// Down stops the lab's processes, all at once and in good order where they
// comply within five seconds, and takes away everything the lab made. It may be
// called again. The error says what could not be removed.
func (l *Lab) Down(ctx context.Context) error {
	if !l.owner {
		return fmt.Errorf("lab %s down: %w", l.state.Name, ErrNotOwner)
	}
	l.mu.Lock()
	if l.down {
		l.mu.Unlock()
		return nil
	}
	l.down = true
	processes := slices.Clone(l.processes)
	state := l.state
	l.mu.Unlock()

	var stopping sync.WaitGroup
	for _, p := range processes {
		stopping.Go(func() { _ = p.Stop(ctx, stopGrace) })
	}
	stopping.Wait()
	l.Close()

	unlock, err := lockDir(l.options.Dir)
	if err != nil {
		return fmt.Errorf("lab %s down: %w", state.Name, err)
	}
	defer unlock()
	if err := sweep(state); err != nil {
		return fmt.Errorf("lab %s down: %w", state.Name, err)
	}
	if err := l.janitor.dismiss(ctx); err != nil {
		return fmt.Errorf("lab %s down: %w", state.Name, err)
	}
	l.options.Log.Info("lab is down", "lab", state.Name)
	return nil
}

// Destroy takes the lab of that name down, whoever brought it up: a live owner is
// asked to (SIGTERM) and killed if it has not by the end of grace; what is left is
// swept. The error wraps fs.ErrNotExist when there is no such lab.
func Destroy(ctx context.Context, name string, grace time.Duration, o Options) error {
	o = o.complete()
	s, err := Read(o.Dir, name)
	if err != nil {
		return fmt.Errorf("destroy lab %s: %w", name, err)
	}
	if s.OwnerAlive() {
		if s.Owner.ID == os.Getpid() {
			return fmt.Errorf("destroy lab %s: this process owns it", name)
		}
		asked, cancel := context.WithTimeout(ctx, grace)
		defer cancel()
		_ = s.Owner.signal(unix.SIGTERM)
		if err := s.Owner.wait(asked); err != nil {
			o.Log.Warn("the lab's owner did not end in time", "lab", name, "pid", s.Owner.ID)
			_ = s.Owner.signal(unix.SIGKILL)
			if err := s.Owner.wait(ctx); err != nil {
				return fmt.Errorf("destroy lab %s: %w", name, err)
			}
		}
	}
	unlock, err := lockDir(o.Dir)
	if err != nil {
		return fmt.Errorf("destroy lab %s: %w", name, err)
	}
	defer unlock()
	now, err := Read(o.Dir, name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && now.ID != s.ID {
		return nil // its owner or its janitor was first
	}
	if err := sweep(s); err != nil {
		return fmt.Errorf("destroy lab %s: %w", name, err)
	}
	return nil
}
