package xdp

import (
	"errors"
	"os"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
)

// spare are programs with small maps that no test uses now. The kernel takes half a second to
// check them all: once is enough, for the tests differ in what is in the maps.
var spare struct {
	sync.Mutex
	objects []*bpfObjects
}

// borrow gives a test programs with small maps as they are after loading, until it ends.
func borrow(t testing.TB) bpfObjects {
	t.Helper()
	spare.Lock()
	var o *bpfObjects
	if n := len(spare.objects); n > 0 {
		o, spare.objects = spare.objects[n-1], spare.objects[:n-1]
	}
	spare.Unlock()
	if o == nil {
		spec, err := loadBpf()
		must(t, err)
		for _, m := range spec.Maps {
			if m.Type != ebpf.RingBuf && m.MaxEntries > 4096 {
				m.MaxEntries = 4096
			}
		}
		o = &bpfObjects{}
		must(t, spec.LoadAndAssign(o, nil))
	}
	must(t, o.Programs.Put(uint32(0), o.BalanceAny))
	t.Cleanup(func() {
		if err := errors.Join(wipe(o)...); err != nil {
			t.Error(err)
			_ = o.Close()
			return
		}
		spare.Lock()
		defer spare.Unlock()
		spare.objects = append(spare.objects, o)
	})
	return *o
}

// wipe makes maps and variables as they are after loading: the variables that programs write
// begin with zero.
func wipe(o *bpfObjects) (errs []error) {
	for _, f := range reflect.ValueOf(&o.bpfVariables).Elem().Fields() {
		if v := f.Interface().(*ebpf.Variable); v != nil && !v.ReadOnly() {
			errs = append(errs, v.Set(make([]byte, v.Size())))
		}
	}
	for _, f := range reflect.ValueOf(&o.bpfMaps).Elem().Fields() {
		m := f.Interface().(*ebpf.Map)
		switch m.Type() {
		case ebpf.ProgramArray: // put again before the next use
		case ebpf.RingBuf:
			errs = append(errs, drain(m))
		case ebpf.Array, ebpf.PerCPUArray:
			errs = append(errs, zero(m))
		default:
			errs = append(errs, clearKeys(m))
		}
	}
	return errs
}

// zero makes every value of an array zero.
func zero(m *ebpf.Map) error {
	keys := make([]uint32, m.MaxEntries())
	for i := range keys {
		keys[i] = uint32(i)
	}
	each := 1
	if m.Type() == ebpf.PerCPUArray {
		each = ebpf.MustPossibleCPU()
	}
	values := reflect.MakeSlice(reflect.SliceOf(reflect.ArrayOf(int(m.ValueSize()), reflect.TypeFor[byte]())), each*len(keys), each*len(keys))
	_, err := m.BatchUpdate(keys, values.Interface(), nil)
	return err
}

// clearKeys removes every key of a map.
func clearKeys(m *ebpf.Map) error {
	for {
		key, err := m.NextKeyBytes(nil)
		if key == nil || err != nil {
			return err
		}
		if err := m.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
	}
}

// drain takes everything out of a ring.
func drain(m *ebpf.Map) error {
	r, err := ringbuf.NewReader(m)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	r.SetDeadline(time.Unix(1, 0)) // what is there, and no waiting
	for {
		if _, err := r.Read(); errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// What one test leaves in the maps, the next one does not find.
func TestBorrowedProgramsAreAsLoaded(t *testing.T) {
	needsRoot(t)
	vip := wireAddress(families[0].vip)
	t.Run("used", func(t *testing.T) {
		k := loadSmall(t)
		put(k, k.Vips, vip, uint32(1))
		put(k, k.Rows, uint32(4095), uint64(7))
		must(t, k.Drops.Put(uint32(1), slices.Repeat([]uint64{1}, ebpf.MustPossibleCPU())))
		put(k, k.Flows, bpfFlowKey{Client: vip}, bpfFlow{})
		must(t, k.Unmarked.Set(uint32(1)))
	})
	t.Run("used again", func(t *testing.T) {
		k := loadSmall(t)
		var unmarked uint32
		must(t, k.Unmarked.Get(&unmarked))
		row, _ := get[uint32, uint64](k, k.Rows, 4095)
		_, isVIP := get[bpfAddress, uint32](k, k.Vips, vip)
		_, isFlow := get[bpfFlowKey, bpfFlow](k, k.Flows, bpfFlowKey{Client: vip})
		if row != 0 || isVIP || isFlow || k.allDropped() != 0 || unmarked != 0 {
			t.Errorf("row %d, VIP %t, flow %t, %d dropped, unmarked %d", row, isVIP, isFlow, k.allDropped(), unmarked)
		}
	})
}
