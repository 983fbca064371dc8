package xdp

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
)

// Programs outlive the agent at their links. They are pinned besides, by the build that they are
// of: the next agent of the same build takes them as they are. To have the kernel verify them
// takes a second of processor time, and ten on a busy machine, in which routers wait for the
// agent's sessions.

const (
	// programPrefix begins the names of pins of programs; the build and the program's name follow.
	programPrefix = "program_"
	// arrayPrefix begins the names of pins of program arrays; the array's number follows.
	arrayPrefix = "array_"
)

// programNames are the programs that are pinned.
var programNames = []string{bpfProgBalance, bpfProgBalanceAny, bpfProgTunnelIn, bpfProgTunnelOut}

// build is a name of the programs of this binary and of all that their loader gives them.
var build = sync.OnceValue(func() string {
	sum := sha256.Sum256(_BpfBytes)
	return hex.EncodeToString(sum[:8])
})

func programPin(name string) string { return programPrefix + build() + "_" + name }

// reuse takes the programs that an agent of this build left with the maps that are pinned, and
// says whether they are there and of use.
func (k *kernel) reuse(log *slog.Logger) bool {
	err := k.takePrograms()
	if err == nil {
		return true
	}
	if !errors.Is(err, os.ErrNotExist) {
		log.Info("the programs of an earlier agent are loaded anew", "because", err)
	}
	k.close()
	k.balance, k.ingress, k.egress, k.maps, k.arrays = nil, nil, nil, bpfMaps{}, nil
	clear(k.named)
	return false
}

func (k *kernel) takePrograms() (err error) {
	programs := map[string]*ebpf.Program{}
	defer func() {
		for _, p := range programs {
			_ = p.Close()
		}
	}()
	used := map[ebpf.MapID]bool{}
	for _, name := range programNames {
		p, err := ebpf.LoadPinnedProgram(filepath.Join(k.pins, programPin(name)), nil)
		if err != nil {
			return fmt.Errorf("open the pinned program %s: %w", name, err)
		}
		programs[name] = p
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
	maps := reflect.ValueOf(&k.maps).Elem()
	for i := range maps.NumField() {
		name := maps.Type().Field(i).Tag.Get("ebpf")
		if private(name) || name == bpfMapPrograms {
			continue
		}
		m, err := ebpf.LoadPinnedMap(filepath.Join(k.pins, name), nil)
		if err != nil {
			return fmt.Errorf("open the pinned map %s: %w", name, err)
		}
		k.named[name] = m
		maps.Field(i).Set(reflect.ValueOf(m))
		if id, err := mapID(m); err != nil {
			return err
		} else if !used[id] {
			return fmt.Errorf("the pinned map %s is not the one that they use", name)
		}
	}
	names, err := pinned(k.pins, arrayPrefix)
	if err != nil {
		return err
	}
	for _, name := range names {
		if id, err := strconv.ParseUint(name, 16, 32); err == nil && used[ebpf.MapID(id)] {
			k.arrays = append(k.arrays, arrayPrefix+name)
		}
	}
	if len(k.arrays) == 0 {
		return errors.New("the array by which they call each other is not pinned")
	}
	k.balance, k.ingress, k.egress = programs[bpfProgBalance], programs[bpfProgTunnelIn], programs[bpfProgTunnelOut]
	for _, name := range []string{bpfProgBalance, bpfProgTunnelIn, bpfProgTunnelOut} {
		delete(programs, name)
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
func (k *kernel) verify(spec *ebpf.CollectionSpec) error {
	for _, name := range programNames {
		if err := k.unpin(programPin(name)); err != nil {
			return err
		}
	}
	programs, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: k.pins}})
	if err != nil {
		var refused *ebpf.VerifierError
		if errors.As(err, &refused) {
			return fmt.Errorf("%w: Linux %s refuses a program, which is a defect of Fairlead or of that kernel; please report this: %s", errors.ErrUnsupported, release(), strings.Join(refused.Log[max(0, len(refused.Log)-20):], "\n"))
		}
		return err
	}
	defer programs.Close()
	for name, m := range programs.Maps {
		if !private(name) && m.Type() != ebpf.ProgramArray {
			k.named[name] = m
		}
	}
	if err := k.pinArrays(programs.Maps); err != nil {
		return err
	}
	for _, name := range programNames {
		if err := programs.Programs[name].Pin(filepath.Join(k.pins, programPin(name))); err != nil {
			return fmt.Errorf("pin the program %s: %w", name, err)
		}
	}
	if err := programs.Assign(&k.maps); err != nil {
		clear(k.named)
		return err
	}
	k.balance = programs.DetachProgram(bpfProgBalance)
	k.ingress, k.egress = programs.DetachProgram(bpfProgTunnelIn), programs.DetachProgram(bpfProgTunnelOut)
	return nil
}

// pinArrays pins the arrays of programs that call each other. The kernel empties such an
// array with its last pin or descriptor, and each version of the programs has its own: those
// of the version before are pinned until no link uses them (dropPrograms).
func (k *kernel) pinArrays(all map[string]*ebpf.Map) error {
	for name, m := range all {
		if m.Type() != ebpf.ProgramArray {
			continue
		}
		id, err := mapID(m)
		if err != nil {
			return err
		}
		pin := arrayPrefix + strconv.FormatUint(uint64(id), 16)
		if err := m.Pin(filepath.Join(k.pins, pin)); err != nil {
			return fmt.Errorf("pin the programs %s: %w", name, err)
		}
		k.arrays = append(k.arrays, pin)
	}
	return nil
}

// dropPrograms removes the pins of programs and arrays that no link uses any more: all but
// ours, which stay if keep is said.
func (k *kernel) dropPrograms(keep bool) error {
	for _, prefix := range []string{programPrefix, arrayPrefix} {
		names, err := pinned(k.pins, prefix)
		if err != nil {
			return err
		}
		for _, name := range names {
			name = prefix + name
			if keep && (slices.Contains(k.arrays, name) || strings.HasPrefix(name, programPin(""))) {
				continue
			}
			if err := k.unpin(name); err != nil {
				return err
			}
		}
	}
	return nil
}

func (k *kernel) unpin(name string) error {
	if err := os.Remove(filepath.Join(k.pins, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the pin of programs: %w", err)
	}
	return nil
}
