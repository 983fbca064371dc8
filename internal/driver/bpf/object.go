package bpf

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
)

// Programs outlive the agent at their links. They are pinned besides, by the build that they are
// of: the next agent of the same build takes them as they are. To have the kernel verify them
// takes a second of processor time, and ten on a busy machine, in which routers wait for the
// agent's sessions.

const (
	// ProgramPrefix begins the names of pins of programs; the build and the program's name follow.
	ProgramPrefix = "program_"
	// ArrayPrefix begins the names of pins of program arrays; the array's number follows.
	ArrayPrefix = "array_"
)

// Spec describes an object. All fields but Inherited are required.
type Spec struct {
	// File is the compiled object. Its programs are of another build when it differs.
	File []byte
	// Programs are those that are pinned.
	Programs []string
	// Entries are how many entries a map has at most; 0 for as many as the object says. Maps
	// that an earlier agent left keep theirs.
	Entries func(name string) uint32
	// Key is the map whose entries identify the entries of all other maps. Without it pinned
	// maps are not used, and Remove removes it first.
	Key string
	// Inherited are maps whose contents do not depend on the layout: they name addresses and
	// no indices. Programs of both layouts use them while one replaces the other.
	Inherited []string
}

// Object is the loaded maps, pinned by their names, and programs.
type Object struct {
	spec     Spec
	pins     *Pins
	build    string
	maps     map[string]*ebpf.Map
	programs map[string]*ebpf.Program
	arrays   []string // pins of program arrays
	adopted  bool
}

// Load adopts the maps that are pinned and makes the others, and takes the programs that an agent
// of this build left, or has the kernel verify them.
func Load(pins *Pins, spec Spec, log *slog.Logger) (o *Object, err error) {
	if err := inherit(pins.path, spec.Inherited); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(spec.File)
	o = &Object{spec: spec, pins: pins, build: hex.EncodeToString(sum[:8])}
	o.clear()
	defer func() {
		if err != nil {
			o.Close()
			o, err = nil, fmt.Errorf("load the programs: %w", err)
		}
	}()
	collection, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(spec.File))
	if err != nil {
		return o, err
	}
	whole := true // all maps are there
	rest := false // maps are there that mean nothing without the key
	for name, m := range collection.Maps {
		if private(name) || m.Type == ebpf.ProgramArray {
			continue
		}
		m.Pinning = ebpf.PinByName
		if n := spec.Entries(name); n != 0 {
			m.MaxEntries = n
		}
		adopted, err := fit(m, pins.join(name), log)
		if err != nil {
			return o, err
		}
		whole = whole && adopted
		if adopted && name == spec.Key {
			o.adopted = true
		} else if adopted && !slices.Contains(spec.Inherited, name) {
			rest = true
		}
	}
	if rest && !o.adopted {
		// What is new would get the index of what was before, and with it that one's entries in
		// other maps.
		return o, fmt.Errorf("the map of %s is missing: without it the entries of the other maps belong to unknown %s", spec.Key, spec.Key)
	}
	if !whole || !o.reuse(collection, log) {
		err = o.verify(collection)
	}
	return o, err
}

// Adopted says whether the maps were there already.
func (o *Object) Adopted() bool { return o.adopted }

// Program is one of the pinned programs. It is the object's.
func (o *Object) Program(name string) *ebpf.Program { return o.programs[name] }

// Assign sets the fields of the structure that maps points to, whose tags `ebpf` are names of maps.
// The maps are the object's. Private maps stay nil.
func (o *Object) Assign(maps any) {
	v := reflect.ValueOf(maps).Elem()
	for i := range v.NumField() {
		if m := o.maps[v.Type().Field(i).Tag.Get("ebpf")]; m != nil {
			v.Field(i).Set(reflect.ValueOf(m))
		}
	}
}

// private says that a map is the programs' own: constants, and memory for what does not fit
// their stacks.
func private(name string) bool { return name[0] == '.' || strings.HasSuffix(name, "works") }

// fit makes a map as large as the pinned one is, and removes a pin that is of no use.
func fit(m *ebpf.MapSpec, path string, log *slog.Logger) (adopted bool, err error) {
	there, err := ebpf.LoadPinnedMap(path, nil)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("open the pinned map %s: %w", path, err)
	}
	defer func() { _ = there.Close() }()
	if there.Type() == m.Type && there.KeySize() == m.KeySize && there.ValueSize() == m.ValueSize && there.Flags() == m.Flags {
		if there.MaxEntries() != m.MaxEntries && m.Type != ebpf.PerCPUArray && m.Type != ebpf.RingBuf {
			log.Info("a map of an earlier agent keeps its size", "map", m.Name, "entries", there.MaxEntries(), "asked", m.MaxEntries)
		}
		m.MaxEntries = there.MaxEntries()
		return true, nil
	}
	log.Warn("a pinned map has another layout than this version needs; it is created anew", "map", m.Name)
	if err := there.Unpin(); err != nil {
		return false, fmt.Errorf("remove the pinned map %s: %w", path, err)
	}
	return false, nil
}

// programPin is the name of a program's pin.
func (o *Object) programPin(name string) string { return ProgramPrefix + o.build + "_" + name }

// reuse takes the programs that an agent of this build left with the maps that are pinned, and
// says whether they are there and of use.
func (o *Object) reuse(collection *ebpf.CollectionSpec, log *slog.Logger) bool {
	err := o.openPinned(collection)
	if err == nil {
		return true
	}
	if !errors.Is(err, os.ErrNotExist) {
		log.Info("the programs of an earlier agent are reloaded", "because", err)
	}
	o.Close()
	return false
}

func (o *Object) openPinned(collection *ebpf.CollectionSpec) error {
	used := map[ebpf.MapID]bool{}
	for _, name := range o.spec.Programs {
		p, err := ebpf.LoadPinnedProgram(o.pins.join(o.programPin(name)), nil)
		if err != nil {
			return fmt.Errorf("open the pinned program %s: %w", name, err)
		}
		o.programs[name] = p
		info, err := p.Info()
		if err != nil {
			return fmt.Errorf("ask about the program %s: %w", name, err)
		}
		ids, known := info.MapIDs()
		if !known {
			return errors.New("the kernel does not say which maps a program uses")
		}
		for _, id := range ids {
			used[id] = true
		}
	}
	for name, spec := range collection.Maps {
		if private(name) || spec.Type == ebpf.ProgramArray {
			continue
		}
		m, err := ebpf.LoadPinnedMap(o.pins.join(name), nil)
		if err != nil {
			return fmt.Errorf("open the pinned map %s: %w", name, err)
		}
		o.maps[name] = m
		if id, err := mapID(m); err != nil {
			return err
		} else if !used[id] {
			return fmt.Errorf("the programs use another map than the pinned map %s", name)
		}
	}
	names, err := pinned(o.pins.path, ArrayPrefix)
	if err != nil {
		return err
	}
	for _, name := range names {
		if id, err := strconv.ParseUint(name, 16, 32); err == nil && used[ebpf.MapID(id)] {
			o.arrays = append(o.arrays, ArrayPrefix+name)
		}
	}
	if len(o.arrays) == 0 {
		return errors.New("the array through which the programs call each other is not pinned")
	}
	return nil
}

func mapID(m *ebpf.Map) (ebpf.MapID, error) {
	info, err := m.Info()
	if err != nil {
		return 0, fmt.Errorf("ask about the map %s: %w", m, err)
	}
	id, known := info.ID()
	if !known {
		return 0, errors.New("the kernel does not number its maps")
	}
	return id, nil
}

// verify has the kernel verify the programs, and pins them. Those that are pinned go first: they
// are of other maps, or not whole.
func (o *Object) verify(spec *ebpf.CollectionSpec) error {
	for _, name := range o.spec.Programs {
		if err := o.unpin(o.programPin(name)); err != nil {
			return err
		}
	}
	loaded, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: o.pins.path}})
	if err != nil {
		var refused *ebpf.VerifierError
		if errors.As(err, &refused) {
			return fmt.Errorf("%w: Linux %s refuses a program, which is a defect of Fairlead or of that kernel; please report this: %s", errors.ErrUnsupported, release(), strings.Join(refused.Log[max(0, len(refused.Log)-20):], "\n"))
		}
		return err
	}
	defer loaded.Close() // what is detached from it stays
	if err := o.pinArrays(loaded.Maps); err != nil {
		return err
	}
	for _, name := range o.spec.Programs {
		if err := loaded.Programs[name].Pin(o.pins.join(o.programPin(name))); err != nil {
			return fmt.Errorf("pin the program %s: %w", name, err)
		}
	}
	for name, m := range loaded.Maps {
		if !private(name) && m.Type() != ebpf.ProgramArray {
			o.maps[name] = loaded.DetachMap(name)
		}
	}
	for _, name := range o.spec.Programs {
		o.programs[name] = loaded.DetachProgram(name)
	}
	return nil
}

// pinArrays pins the arrays of programs that call each other. The kernel empties such an
// array with its last pin or descriptor, and each version of the programs has its own: those
// of the version before are pinned until no link uses them (DropPrograms).
func (o *Object) pinArrays(all map[string]*ebpf.Map) error {
	for name, m := range all {
		if m.Type() != ebpf.ProgramArray {
			continue
		}
		id, err := mapID(m)
		if err != nil {
			return err
		}
		pin := ArrayPrefix + strconv.FormatUint(uint64(id), 16)
		if err := m.Pin(o.pins.join(pin)); err != nil {
			return fmt.Errorf("pin the programs %s: %w", name, err)
		}
		o.arrays = append(o.arrays, pin)
	}
	return nil
}

// DropPrograms removes the pins of programs and arrays that no link uses any more: all but
// ours, which stay if keep is said.
func (o *Object) DropPrograms(keep bool) error {
	for _, prefix := range []string{ProgramPrefix, ArrayPrefix} {
		names, err := pinned(o.pins.path, prefix)
		if err != nil {
			return err
		}
		for _, name := range names {
			name = prefix + name
			if keep && (slices.Contains(o.arrays, name) || strings.HasPrefix(name, o.programPin(""))) {
				continue
			}
			if err := o.unpin(name); err != nil {
				return err
			}
		}
	}
	return nil
}

func (o *Object) unpin(name string) error {
	if err := o.pins.remove(name); err != nil {
		return fmt.Errorf("remove the pin of programs: %w", err)
	}
	return nil
}

// Close releases maps and programs. Pinned and attached ones stay.
func (o *Object) Close() {
	for _, p := range o.programs {
		_ = p.Close()
	}
	for _, m := range o.maps {
		_ = m.Close()
	}
	o.clear()
}

func (o *Object) clear() {
	o.maps, o.programs, o.arrays = map[string]*ebpf.Map{}, map[string]*ebpf.Program{}, nil
}

// Remove takes the pins of programs and maps away: maps go with the last program that uses
// them. The key goes first of these, since this agent may be killed meanwhile: the next one
// adopts maps that it finds with the key, and uses none that it finds without it.
func (o *Object) Remove() error {
	if err := o.DropPrograms(false); err != nil {
		return err
	}
	errs := []error{o.maps[o.spec.Key].Unpin()}
	for name, m := range o.maps {
		if name != o.spec.Key {
			errs = append(errs, m.Unpin())
		}
	}
	return errors.Join(errs...)
}

// Bytes is the kernel's memory of the maps.
func (o *Object) Bytes() uint64 {
	var total uint64
	for _, m := range o.maps {
		if info, err := m.Info(); err == nil {
			n, _ := info.Memlock()
			total += n
		}
	}
	return total
}
