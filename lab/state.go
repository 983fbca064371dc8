package lab

import (
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

	"golang.org/x/sys/unix"
)

// DefaultDir is where labs keep their state.
const DefaultDir = "/run/fairlead-lab"

// pinRoot is the only place a lab removes BPF pins from.
const pinRoot = "/sys/fs/bpf/"

// State is what a lab made or was about to make: everything that a sweep must
// take away. It is written before the thing it speaks of is made.
type State struct {
	// Name of the lab, and an ID that tells it from an earlier lab of that name.
	Name string `json:"name"`
	ID   string `json:"id"`
	// Boot is the kernel's boot id: after a reboot no pid here means anything.
	Boot    string    `json:"boot"`
	Created time.Time `json:"created"`
	Owner   Pid       `json:"owner"`
	Janitor Pid       `json:"janitor,omitzero"`
	// Net4 and Net6 are the networks of the first segment.
	Net4     netip.Prefix `json:"net4"`
	Net6     netip.Prefix `json:"net6"`
	Segments []Segment    `json:"segments"`
	MTU      int          `json:"mtu"`
	// Fabric is the path of the namespace that holds the bridges.
	Fabric    string         `json:"fabric"`
	Machines  []MachineState `json:"machines"`
	Processes []ProcessState `json:"processes,omitempty"`
	Mounts    []string       `json:"mounts,omitempty"`
	Pins      []string       `json:"pins,omitempty"`
	Cgroups   []string       `json:"cgroups,omitempty"`
	dir       string         // the lab's own directory
}

// MachineState is one machine of a lab.
type MachineState struct {
	Name string `json:"name"`
	Role Role   `json:"role,omitempty"`
	// Namespace is a file that stands for the machine's network namespace, as
	// setns(2) and `nsenter --net=` take it.
	Namespace string `json:"namespace"`
	// Addr4 and Addr6 are its addresses on its first segment, the primary one first.
	Addr4 []netip.Addr `json:"addr4"`
	Addr6 []netip.Addr `json:"addr6"`
	// Wires are its interfaces eth0, eth1 and so on.
	Wires []WireState `json:"wires"`
	// Index makes the machine's addresses; no two machines have the same.
	Index int `json:"index"`
	// Dir is the machine's own directory.
	Dir string `json:"dir"`
}

// WireState is one interface of a machine.
type WireState struct {
	// Segment is the name of the segment that it is on.
	Segment string `json:"segment,omitempty"`
	// Addr4 and Addr6 are its addresses, the primary one first.
	Addr4 []netip.Addr `json:"addr4"`
	Addr6 []netip.Addr `json:"addr6"`
}

// device is the name of the interface in the machine, port that of its other end
// in the fabric.
func (m MachineState) device(wire int) string { return fmt.Sprintf("eth%d", wire) }

func (m MachineState) port(wire int) string {
	if wire == 0 {
		return m.Name
	}
	return fmt.Sprintf("m%d.%d", m.Index, wire) // the name may be as long as a link's may be
}

// on returns the machine's wire on a segment.
func (m MachineState) on(segment string) (WireState, bool) {
	i := slices.IndexFunc(m.Wires, func(w WireState) bool { return w.Segment == segment })
	if i < 0 {
		return WireState{}, false
	}
	return m.Wires[i], true
}

// ProcessState is one process that was started in a machine.
type ProcessState struct {
	Name    string   `json:"name"`
	Machine string   `json:"machine"`
	Pid     Pid      `json:"pid"`
	Argv    []string `json:"argv"`
	Log     string   `json:"log"`
}

// Running reports whether the process is still there.
func (p ProcessState) Running() bool { return p.Pid.Alive() }

// Dir is the lab's own directory.
func (s State) Dir() string { return s.dir }

// OwnerAlive reports whether the process that brought the lab up still runs.
// If it does not, the lab is stale: its janitor is about to sweep it, or was killed.
func (s State) OwnerAlive() bool {
	return s.Boot == bootID() && s.Owner.Alive()
}

// Read returns the state of the lab of that name under dir. The error wraps
// fs.ErrNotExist when there is none.
func Read(dir, name string) (State, error) {
	own := filepath.Join(dir, name)
	raw, err := os.ReadFile(filepath.Join(own, "state.json"))
	if err != nil {
		return State{}, fmt.Errorf("read the state of lab %s: %w", name, err)
	}
	s := State{dir: own}
	if err := json.Unmarshal(raw, &s); err != nil {
		return State{}, fmt.Errorf("read the state of lab %s: %w", name, err)
	}
	return s, nil
}

// List returns the labs under dir, by name. A directory without a readable state
// is reported in the error, next to the labs that could be read.
func List(dir string) ([]State, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list labs: %w", err)
	}
	var labs []State
	var problems []error
	for _, e := range entries {
		s, err := Read(dir, e.Name())
		switch {
		case err == nil:
			labs = append(labs, s)
		case !errors.Is(err, fs.ErrNotExist):
			problems = append(problems, err)
		}
	}
	return labs, errors.Join(problems...)
}

// segment returns the segment of that name. It is there.
func (s State) segment(name string) Segment {
	return s.Segments[slices.IndexFunc(s.Segments, func(g Segment) bool { return g.Name == name })]
}

// lay returns a machine as it will be.
func (s State) lay(m MachineSpec, index int) MachineState {
	laid := MachineState{
		Name: m.Name, Role: m.Role, Index: index,
		Namespace: filepath.Join(s.dir, "netns", m.Name), Dir: filepath.Join(s.dir, "machines", m.Name),
	}
	for _, name := range m.Segments {
		v4, v6 := s.segment(name).addresses(index, m.Addresses)
		laid.Wires = append(laid.Wires, WireState{Segment: name, Addr4: v4, Addr6: v6})
	}
	laid.Addr4, laid.Addr6 = laid.Wires[0].Addr4, laid.Wires[0].Addr6
	return laid
}

// gateway returns the addresses of the router that a machine's default routes go
// through, and false if it has none.
func (s State) gateway(m MachineState) (v4, v6 netip.Addr, ok bool) {
	if m.Role == RoleRouter {
		return v4, v6, false
	}
	for _, w := range m.Wires {
		for _, r := range s.Machines {
			if at, ok := r.on(w.Segment); ok && r.Role == RoleRouter {
				return at.Addr4[0], at.Addr6[0], true
			}
		}
	}
	return v4, v6, false
}

// write replaces the lab's state file. A reader sees the old or the new one.
func (s State) write() error {
	raw, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("write the state of lab %s: %w", s.Name, err)
	}
	path := filepath.Join(s.dir, "state.json")
	if err := os.WriteFile(path+".new", append(raw, '\n'), 0o600); err != nil {
		return fmt.Errorf("write the state of lab %s: %w", s.Name, err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("write the state of lab %s: %w", s.Name, err)
	}
	return nil
}

// namespaces returns the paths of all namespaces of the lab.
func (s State) namespaces() []string {
	paths := make([]string, 0, len(s.Machines)+1)
	for _, m := range s.Machines {
		paths = append(paths, m.Namespace)
	}
	return append(paths, s.Fabric)
}

func bootID() string {
	raw, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(raw))
}

// lockDir takes the lock that serialises making, claiming and sweeping of labs
// under dir, and makes dir when it is not there: in memory, where it is the one of all labs.
// The returned function gives the lock back and removes dir when it is empty.
func lockDir(dir string) (unlock func(), err error) {
	for {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("make the labs' directory: %w", err)
		}
		fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.ENOENT) {
			continue // removed by the one before us
		}
		if err != nil {
			return nil, fmt.Errorf("open %s: %w", dir, err)
		}
		for {
			err = unix.Flock(fd, unix.LOCK_EX)
			if !errors.Is(err, unix.EINTR) {
				break
			}
		}
		if err != nil {
			_ = unix.Close(fd)
			return nil, fmt.Errorf("lock %s: %w", dir, err)
		}
		var held, now unix.Stat_t
		if unix.Fstat(fd, &held) == nil && unix.Stat(dir, &now) == nil && held.Ino == now.Ino && held.Dev == now.Dev &&
			(dir != DefaultDir || !keepInMemory(dir)) {
			return func() {
				removeEmpty(dir)
				_ = unix.Close(fd)
			}, nil
		}
		_ = unix.Close(fd) // the directory that we locked is no longer the one at this path
	}
}

// keepInMemory mounts a tmpfs over a directory that is empty and on a disk, and says whether it
// did. Routers, agents and databases of labs write there, and would stand still while the disk
// of the host is busy: a second of that is enough for BFD to give up a session that lives.
// Where /run is a tmpfs, as on most hosts, there is nothing to do.
func keepInMemory(dir string) bool {
	var on unix.Statfs_t
	if unix.Statfs(dir, &on) != nil || on.Type == unix.TMPFS_MAGIC || !isEmpty(dir) {
		return false
	}
	return unix.Mount("fairlead-lab", dir, "tmpfs", 0, "mode=0755") == nil
}

// removeEmpty removes a directory, and the tmpfs that keepInMemory mounted over it, unless
// something is in it.
func removeEmpty(dir string) {
	if !isEmpty(dir) {
		return
	}
	var on, above unix.Stat_t
	var fs unix.Statfs_t
	if unix.Stat(dir, &on) == nil && unix.Stat(filepath.Dir(dir), &above) == nil && on.Dev != above.Dev &&
		unix.Statfs(dir, &fs) == nil && fs.Type == unix.TMPFS_MAGIC {
		_ = unix.Unmount(dir, unix.MNT_DETACH) // we hold its lock, and nobody else anything in it
	}
	_ = unix.Rmdir(dir)
}

func isEmpty(dir string) bool {
	in, err := os.ReadDir(dir)
	return err == nil && len(in) == 0
}
