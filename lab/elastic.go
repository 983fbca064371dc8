package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// AddMachine adds a machine while the lab is up and returns once it can be
// reached. When it fails, nothing of the machine is left.
//
// It gets the first addresses that no machine has: those of one that was removed
// are used again.
func (l *Lab) AddMachine(ctx context.Context, spec MachineSpec) (*Machine, error) {
	m, err := l.addMachine(ctx, spec)
	if err != nil {
		return nil, fmt.Errorf("add machine %s to lab %s: %w", spec.Name, l.Name(), err)
	}
	l.options.Log.Info("a machine has come", "lab", l.Name(), "machine", spec.Name)
	return m, nil
}

func (l *Lab) addMachine(ctx context.Context, spec MachineSpec) (*Machine, error) {
	if !l.owner {
		return nil, ErrNotOwner
	}
	l.growing.Lock()
	defer l.growing.Unlock()
	state := l.State()
	spec, err := completeMachine(spec, state.Segments)
	if err != nil {
		return nil, err
	}
	if _, ok := l.Lookup(spec.Name); ok {
		return nil, fmt.Errorf("%w machine name %q: used twice", ErrInvalid, spec.Name)
	}
	index := 0
	for slices.ContainsFunc(state.Machines, func(m MachineState) bool { return m.Index == index }) {
		index++
	}
	for _, name := range spec.Segments {
		if s := state.segment(name); index >= s.room() {
			return nil, fmt.Errorf("%w machine %s: %s has room for %d", ErrInvalid, spec.Name, s.Net4, s.room())
		}
	}
	laid := state.lay(spec, index)
	if err := l.update(func(s *State) { s.Machines = append(s.Machines, laid) }); err != nil {
		return nil, err
	}
	err = l.buildMachine(state, laid)
	if err == nil {
		err = l.Machine(spec.Name).awaitLinks(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, l.removeMachine(laid))
	}
	return l.Machine(spec.Name), nil
}

// RemoveMachine takes a machine away while the lab is up: it stops the machine's
// processes in good order where they comply within five seconds, kills whatever
// else is in it, and removes its interfaces, namespace and files. Logs stay.
func (l *Lab) RemoveMachine(ctx context.Context, name string) error {
	if !l.owner {
		return fmt.Errorf("remove machine %s of lab %s: %w", name, l.Name(), ErrNotOwner)
	}
	l.growing.Lock()
	defer l.growing.Unlock()
	m, ok := l.Lookup(name)
	if !ok {
		return fmt.Errorf("remove machine %s of lab %s: %w machine: there is none of that name", name, l.Name(), ErrInvalid)
	}
	l.mu.Lock()
	processes := slices.Clone(l.processes)
	l.mu.Unlock()
	var stopping sync.WaitGroup
	for _, p := range processes {
		if p.machine == m {
			stopping.Go(func() { _ = p.Stop(ctx, stopGrace) })
		}
	}
	stopping.Wait()
	if err := l.removeMachine(m.state); err != nil {
		return fmt.Errorf("remove machine %s of lab %s: %w", name, l.Name(), err)
	}
	l.options.Log.Info("a machine has gone", "lab", l.Name(), "machine", name)
	return nil
}

// removeMachine takes away what there is of a machine and then its record.
func (l *Lab) removeMachine(m MachineState) error {
	l.mu.Lock()
	if l.down {
		l.mu.Unlock()
		return fmt.Errorf("lab %s is down", l.state.Name)
	}
	if handle, ok := l.machines[m.Name]; ok {
		handle.close() // from here on, nothing starts in it
		delete(l.machines, m.Name)
		l.order = slices.DeleteFunc(l.order, func(name string) bool { return name == m.Name })
	}
	part := l.state
	l.mu.Unlock()
	part.Machines = []MachineState{m}
	part.Processes = slices.DeleteFunc(slices.Clone(part.Processes), func(p ProcessState) bool { return p.Machine != m.Name })

	if err := killAll(State{Name: part.Name, Boot: part.Boot, Machines: part.Machines, Processes: part.Processes}); err != nil {
		return err
	}
	if err := inFabric(part, func(h *netlink.Handle) error {
		for wire := range m.Wires {
			// A namespace goes some time after its last user; its wires go now.
			port, err := h.LinkByName(m.port(wire))
			if errors.As(err, &netlink.LinkNotFoundError{}) {
				continue
			}
			if err == nil {
				err = h.LinkDel(port)
			}
			if err != nil {
				return fmt.Errorf("remove the wire %s: %w", m.port(wire), err)
			}
		}
		return nil
	}); err != nil {
		return err
	}
	if err := unix.Unmount(m.Namespace, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount %s: %w", m.Namespace, err)
	}
	if err := errors.Join(os.RemoveAll(m.Namespace), os.RemoveAll(m.Dir)); err != nil {
		return err
	}
	return l.update(func(s *State) {
		s.Machines = slices.DeleteFunc(slices.Clone(s.Machines), func(other MachineState) bool { return other.Name == m.Name })
		s.Processes = slices.DeleteFunc(slices.Clone(s.Processes), func(p ProcessState) bool { return p.Machine == m.Name })
		l.processes = slices.DeleteFunc(l.processes, func(p *Process) bool { return p.machine.state.Name == m.Name })
	})
}
