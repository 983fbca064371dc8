package xdp

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"fairlead.dev/internal/driver/bpf"
	"fairlead.dev/internal/model"
)

const (
	// countEvery is how old the number of flows of a backend may be: to count them means to
	// read the whole flow table.
	countEvery = 5 * time.Second
	// countMost is how long that may take. What is not reached by then is not counted.
	countMost = 1500 * time.Millisecond
	batchSize = 4096
	// udpIdle is udp_idle of bpf/lb/flow.h: an entry of UDP that is silent for longer is no flow
	// any more, though nothing has taken it away.
	udpIdle = 180 * time.Second
	// openingIdle is how long a flow of TCP counts of which only the first packet was seen: it came
	// to nothing, or goes another way since.
	openingIdle = 10 * time.Second
	// closingIdle is how long a flow that one side ended is shown: as long as Linux remembers
	// one that both ended.
	closingIdle = 60 * time.Second
)

// view is what names in flow tables stand for, as of one moment.
type view struct {
	maps      bpfMaps
	possible  int
	frontends map[uint32]viewFrontend // by index
	slots     map[uint32]viewSlot
}

type viewFrontend struct {
	key     model.FrontendKey
	slots   map[uint64]uint32 // by ID of the backend; nil where the VIP is not here
	members []member
	local   []member
	shared  bool
}

type viewSlot struct {
	backend    model.FrontendBackend
	id         uint64
	generation uint8
	rows       uint32
	tunnelled  bool // packets to it go through a tunnel
}

// closing is the state of a flow that one side ended.
const closing = "closing"

// over says that an entry of a flow table stands for no flow any more.
func (v *view) over(frontend uint32, state uint8, idle time.Duration) bool {
	if v.frontends[frontend].key.Transport == model.UDP {
		return idle > udpIdle
	}
	return state == uint8(bpfFlowStateFLOW_NEW) && idle > openingIdle
}

// uptime is the clock by which programs note when a flow was seen.
func uptime() (time.Duration, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0, fmt.Errorf("read the clock: %w", err)
	}
	return time.Duration(now.Nano()), nil
}

// idle is how long ago an entry was seen, to the second.
func idle(up time.Duration, seen uint32) time.Duration {
	return max(0, up.Truncate(time.Second)-time.Duration(seen)*time.Second)
}

// view must be called under the lock.
func (d *DataPlane) view() *view {
	if d.k == nil || d.closed {
		return nil
	}
	v := &view{maps: d.k.maps, possible: d.k.possible, frontends: map[uint32]viewFrontend{}, slots: map[uint32]viewSlot{}}
	for _, f := range d.state.frontends {
		if f.locals == nil || f.plan == nil {
			continue
		}
		x := viewFrontend{key: f.key, members: f.plan.members, local: f.plan.local, shared: f.plan.shared}
		if f.table == nil {
			v.frontends[f.value.Index] = x
			continue
		}
		x.slots = make(map[uint64]uint32, len(f.table.slots))
		v.frontends[f.value.Index] = x
		for id, p := range f.table.slots {
			x.slots[id] = p.index
			v.slots[p.index] = viewSlot{backend: p.backend, id: id, generation: p.value.Generation, rows: f.table.shares[p.index], tunnelled: p.value.Mode == uint8(bpfModeMODE_GENEVE)}
		}
	}
	for _, l := range d.state.lingering {
		v.slots[l.slot.index] = viewSlot{backend: l.slot.backend, id: l.slot.value.Id, generation: l.slot.value.Generation}
	}
	return v
}

// backendOf is what stands for a backend of a frontend: slots of proxies are shared, and
// each frontend has its own VIP.
func (f viewFrontend) backendOf(p viewSlot) model.FrontendBackend {
	b := p.backend
	if f.shared {
		b.Address = netip.AddrPortFrom(f.key.VIP, f.key.Port)
	}
	return b
}

// Figures is described by the interface that the agent states. Packets, bytes and new flows
// of proxies are those of all frontends that share their lookup table.
func (d *DataPlane) Figures() ([]model.FrontendFigures, map[string]uint64, error) {
	d.mu.Lock()
	v := d.view()
	d.mu.Unlock()
	if v == nil {
		return nil, nil, nil
	}
	counts := d.flowCounts(v)
	var list []model.FrontendFigures
	for index, f := range v.frontends {
		total, err := v.sum(v.maps.FrontendCounters, index)
		if err != nil {
			return nil, nil, err
		}
		figures := model.FrontendFigures{FrontendKey: f.key, Packets: total.Packets, Bytes: total.Bytes, NewFlows: total.Flows}
		if f.slots != nil {
			if err := v.backends(&figures, index, f, counts); err != nil {
				return nil, nil, err
			}
		}
		for _, m := range f.local {
			at := slices.IndexFunc(figures.Backends, func(b model.BackendFigures) bool {
				return b.Address == m.backend.Address && b.Machine == m.backend.Machine
			})
			if at < 0 {
				at = len(figures.Backends)
				figures.Backends = append(figures.Backends, model.BackendFigures{Address: m.backend.Address, Machine: m.backend.Machine})
			}
			figures.Backends[at].Owns, figures.Backends[at].Owned = true, counts.owned[ownedBy{index, m.id}]
		}
		slices.SortFunc(figures.Backends, func(a, b model.BackendFigures) int {
			return model.FrontendBackend{Address: a.Address, Machine: a.Machine}.Compare(model.FrontendBackend{Address: b.Address, Machine: b.Machine})
		})
		list = append(list, figures)
	}
	slices.SortFunc(list, func(a, b model.FrontendFigures) int { return a.Compare(b.FrontendKey) })
	drops, err := bpf.Drops(v.maps.Drops, v.possible)
	return list, drops, cmp.Or(counts.short, err)
}

// Arrived is described by the interface that the agent states.
func (d *DataPlane) Arrived() (total uint64, err error) {
	d.mu.Lock()
	v := d.view()
	d.mu.Unlock()
	if v == nil {
		return 0, nil
	}
	for index, f := range v.frontends {
		if f.slots == nil {
			continue
		}
		c, err := v.sum(v.maps.FrontendCounters, index)
		if err != nil {
			return 0, err
		}
		total += c.Packets
	}
	return total, nil
}

func (v *view) backends(figures *model.FrontendFigures, index uint32, f viewFrontend, counts *flowCounts) error {
	for _, m := range f.members {
		slot := f.slots[m.id]
		total, err := v.sum(v.maps.BackendCounters, slot)
		if err != nil {
			return err
		}
		b := model.BackendFigures{
			Address: m.backend.Address, Machine: m.backend.Machine, Packets: total.Packets, Bytes: total.Bytes, NewFlows: total.Flows,
			Flows: counts.balanced[balancedTo{index, slot}], Rows: v.slots[slot].rows,
		}
		if v.slots[slot].tunnelled {
			b.Tunnelled = b.Flows
		}
		figures.Backends = append(figures.Backends, b)
	}
	return nil
}

// sum adds what the CPUs counted.
func (v *view) sum(m *ebpf.Map, index uint32) (total bpfCounter, err error) {
	each := make([]bpfCounter, v.possible)
	if err := m.Lookup(index, &each); err != nil {
		return total, fmt.Errorf("read counters: %w", err)
	}
	for _, c := range each {
		total.Packets += c.Packets
		total.Bytes += c.Bytes
		total.Flows += c.Flows
	}
	return total, nil
}

// flowCounts are the flows by what they belong to.
type flowCounts struct {
	at       time.Time
	balanced map[balancedTo]uint64
	owned    map[ownedBy]uint64
	short    error // why some may lack
}

type (
	balancedTo struct{ frontend, slot uint32 }
	ownedBy    struct {
		frontend uint32
		id       uint64
	}
)

// flowCounts reads the flow tables, or returns what was read a moment ago.
func (d *DataPlane) flowCounts(v *view) *flowCounts {
	d.counting.Lock()
	defer d.counting.Unlock()
	if d.counts != nil && time.Since(d.counts.at) < countEvery {
		return d.counts
	}
	c := &flowCounts{balanced: map[balancedTo]uint64{}, owned: map[ownedBy]uint64{}}
	end := time.Now().Add(countMost)
	up, err := uptime()
	if err != nil {
		d.c.Log.Warn("the number of flows includes flows that have ended", "error", err)
	}
	for _, m := range []*ebpf.Map{v.maps.Flows, v.maps.Fresh} {
		err := each(m, func(k *bpfFlowKey, f *bpfFlow) bool {
			if f.State != uint8(bpfFlowStateFLOW_CLOSING) && v.slots[f.Backend].generation == f.Generation && !v.over(k.Frontend, f.State, idle(up, f.Seen)) {
				c.balanced[balancedTo{k.Frontend, f.Backend}]++
			}
			return true
		}, end)
		c.short = errors.Join(c.short, err)
	}
	for _, m := range []*ebpf.Map{v.maps.Owned, v.maps.OwnedFresh} {
		err := each(m, func(k *bpfFlowKey, o *bpfOwned) bool {
			if o.State != uint8(bpfFlowStateFLOW_CLOSING) && !v.over(k.Frontend, o.State, idle(up, o.Seen)) {
				c.owned[ownedBy{k.Frontend, o.Id}]++
			}
			return true
		}, end)
		c.short = errors.Join(c.short, err)
	}
	if c.short != nil {
		d.c.Log.Warn("some flows were not counted", "error", c.short)
	}
	c.at = time.Now()
	d.counts = c
	return c
}

// errTime says that a flow table was not read to its end.
var errTime = errors.New("the flow table is too large to be read in time")

// each calls f for every entry of a table, in batches, until f says false or the time is
// over. Entries that come and go meanwhile may be missed, or seen twice.
func each[K, V any](m *ebpf.Map, f func(*K, *V) bool, end time.Time) error {
	size := batchSize
	keys, values := make([]K, size), make([]V, size)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookup(&cursor, keys, values, nil)
		if errors.Is(err, unix.ENOSPC) { // a bucket with more entries than the batch
			size *= 2
			keys, values = make([]K, size), make([]V, size)
			cursor = ebpf.MapBatchCursor{}
			if size > 1<<20 {
				return fmt.Errorf("read a flow table: %w", err)
			}
			continue
		}
		for i := range n {
			if !f(&keys[i], &values[i]) {
				return nil
			}
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read a flow table: %w", err)
		}
		if time.Now().After(end) {
			return errTime
		}
	}
}

// Flows is described by the interface that the agent states.
func (d *DataPlane) Flows(q model.FlowQuery) (flows []model.Flow, truncated bool, err error) {
	d.mu.Lock()
	v := d.view()
	d.mu.Unlock()
	if v == nil {
		return nil, false, nil
	}
	if q.Limit <= 0 {
		q.Limit = 1000
	}
	up, err := uptime()
	if err != nil {
		return nil, false, err
	}
	take := func(k *bpfFlowKey, backend model.FrontendBackend, f viewFrontend, state string, raw uint8, seen uint32) bool {
		x := model.Flow{
			Frontend: f.key, Client: netip.AddrPortFrom(k.Client.address(), bpf.NetworkPort(k.Port)), Backend: backend.Address, Machine: backend.Machine,
			State: state, Idle: idle(up, seen),
		}
		switch {
		case v.over(k.Frontend, raw, x.Idle),
			state == closing && x.Idle > closingIdle,
			q.Frontend != model.FrontendKey{} && q.Frontend != x.Frontend,
			q.Client.IsValid() && !q.Client.Contains(x.Client.Addr()),
			q.Backend.IsValid() && q.Backend != x.Backend.Addr():
			return true
		}
		if len(flows) == q.Limit {
			truncated = true
			return false
		}
		flows = append(flows, x)
		return true
	}
	end := time.Now().Add(countMost)
	for _, m := range []*ebpf.Map{v.maps.Flows, v.maps.Fresh} {
		if err == nil && !truncated {
			err = each(m, func(k *bpfFlowKey, e *bpfFlow) bool {
				p, placed := v.slots[e.Backend]
				f, known := v.frontends[k.Frontend]
				if !known || !placed || p.generation != e.Generation {
					return true
				}
				return take(k, f.backendOf(p), f, flowState(e.State), e.State, e.Seen)
			}, end)
		}
	}
	local := v.locals()
	for _, m := range []*ebpf.Map{v.maps.Owned, v.maps.OwnedFresh} {
		if err != nil || truncated {
			break
		}
		err = each(m, func(k *bpfFlowKey, o *bpfOwned) bool {
			f, known := v.frontends[k.Frontend]
			b, here := local[ownedBy{k.Frontend, o.Id}]
			if !known || !here || o.State == uint8(bpfFlowStateFLOW_CLOSING) {
				return true
			}
			return take(k, b, f, "owned", o.State, o.Seen)
		}, end)
	}
	if errors.Is(err, errTime) {
		return flows, true, nil
	}
	return flows, truncated, err
}

// locals are the backends of this machine.
func (v *view) locals() map[ownedBy]model.FrontendBackend {
	local := map[ownedBy]model.FrontendBackend{}
	for index, f := range v.frontends {
		for _, m := range f.local {
			local[ownedBy{index, m.id}] = m.backend
		}
	}
	return local
}

func flowState(s uint8) string {
	switch bpfFlowState(s) {
	case bpfFlowStateFLOW_ESTABLISHED:
		return "established"
	case bpfFlowStateFLOW_CLOSING:
		return closing
	}
	return "new"
}
