package xdp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"fairlead.dev/internal/driver/bpf"
	"fairlead.dev/internal/model"
)

const (
	// watchTick is how often programs are told that somebody looks still, and how many events there may be.
	watchTick = 100 * time.Millisecond
	// watchEvents is how many events of a frontend the programs tell in a tick.
	watchEvents = 100
	// watchLife is how long programs go on to tell when nobody renews that, in seconds.
	watchLife = 2
	// watchView is how often it is looked what frontends and backends there are.
	watchView = time.Second
	// watchFollowed is how many flows whose begin was told are looked at for whether they are silent, and watchLook how often.
	watchFollowed = 4096
	watchLook     = 5 * time.Second
)

// FlowLimits is described by the interface that the agent states.
func (d *DataPlane) FlowLimits() string {
	return "with direct server return an end of the backend's side is not seen; flows that arrive through tunnels from other machines are shown by those; of TCP a silence is not an end"
}

// WatchFlows is described by the interface that the agent states. One runs at a time.
func (d *DataPlane) WatchFlows(ctx context.Context, frontends []model.FrontendKey, tell func(model.FlowEvent), lost func(model.FrontendKey, uint64)) error {
	if !d.watching.CompareAndSwap(false, true) {
		return errors.New("watch flows: somebody watches already")
	}
	defer d.watching.Store(false)
	ticker := time.NewTicker(watchView)
	defer ticker.Stop()
	for {
		w, err := d.watcher(frontends, tell, lost)
		if err != nil {
			return fmt.Errorf("watch flows: %w", err)
		}
		if w != nil {
			err := w.run(ctx)
			w.close()
			if err != nil {
				return fmt.Errorf("watch flows: %w", err)
			}
		}
		select { // nothing is balanced, or the programs were replaced
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// flowWatcher reads what programs tell of flows.
type flowWatcher struct {
	d      *DataPlane
	k      *kernel
	want   map[model.FrontendKey]bool
	tell   func(model.FlowEvent)
	lost   func(model.FrontendKey, uint64)
	reader *ringbuf.Reader
	memory []byte
	cells  []bpfWatch
	began  uint64 // nanoseconds since boot

	view   *view
	viewed time.Time
	// known are the backends of all views, by place and generation: an event may be about one that is gone.
	known    map[slotAt]model.FrontendBackend
	watching map[uint32]model.FrontendKey
	followed map[bpfFlowKey]model.FlowEvent
	looked   time.Time
}

type slotAt struct {
	slot       uint32
	generation uint8
}

func (d *DataPlane) watcher(frontends []model.FrontendKey, tell func(model.FlowEvent), lost func(model.FrontendKey, uint64)) (*flowWatcher, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.k == nil || d.closed {
		return nil, nil //nolint:nilnil // nothing is balanced
	}
	w := &flowWatcher{
		d: d, k: d.k, want: map[model.FrontendKey]bool{}, tell: tell, lost: lost,
		known: map[slotAt]model.FrontendBackend{}, watching: map[uint32]model.FrontendKey{}, followed: map[bpfFlowKey]model.FlowEvent{},
	}
	for _, key := range frontends {
		w.want[key] = true
	}
	up, err := uptime()
	if err != nil {
		return nil, err
	}
	w.began = uint64(up)
	if w.reader, err = ringbuf.NewReader(d.k.maps.FlowEvents); err != nil {
		return nil, err
	}
	size := int(d.k.maps.Watched.MaxEntries()) * int(unsafe.Sizeof(bpfWatch{}))
	page := os.Getpagesize()
	w.memory, err = unix.Mmap(d.k.maps.Watched.FD(), 0, (size+page-1)/page*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("map what is watched: %w", err), w.reader.Close())
	}
	w.cells = unsafe.Slice((*bpfWatch)(unsafe.Pointer(&w.memory[0])), d.k.maps.Watched.MaxEntries())
	return w, nil
}

func (w *flowWatcher) close() {
	for index := range w.watching {
		w.off(index)
	}
	_ = w.reader.Close()
	w.cells = nil
	_ = unix.Munmap(w.memory)
}

// run tells until ctx is done, or the programs are others.
func (w *flowWatcher) run(ctx context.Context) error {
	var record ringbuf.Record
	for tick := time.Now(); ctx.Err() == nil; {
		if !time.Now().Before(tick) {
			if !w.renew() {
				return nil
			}
			tick = time.Now().Add(watchTick)
		}
		w.reader.SetDeadline(tick)
		err := w.reader.ReadInto(&record)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read events of flows: %w", err)
		}
		if len(record.RawSample) >= int(unsafe.Sizeof(bpfFlowEvent{})) {
			var e bpfFlowEvent
			copy(unsafe.Slice((*byte)(unsafe.Pointer(&e)), unsafe.Sizeof(e)), record.RawSample)
			w.take(&e)
		}
	}
	return nil
}

// renew has the programs go on, and says whether they are still the same.
func (w *flowWatcher) renew() bool {
	now := time.Now()
	if now.Sub(w.viewed) >= watchView && !w.look() {
		return false
	}
	up, err := uptime()
	if err != nil {
		return false
	}
	for index, key := range w.watching {
		c := &w.cells[index]
		atomic.StoreInt32(&c.Left, watchEvents)
		atomic.StoreUint32(&c.Until, uint32(up/time.Second)+watchLife)
		if n := atomic.SwapUint64(&c.Lost, 0); n > 0 {
			w.lost(key, n)
		}
	}
	runtime.KeepAlive(w.memory)
	if now.Sub(w.looked) >= watchLook {
		w.looked = now
		w.silent(up)
	}
	return true
}

func (w *flowWatcher) off(index uint32) {
	c := &w.cells[index]
	atomic.StoreUint32(&c.Until, 0)
	atomic.StoreInt32(&c.Left, 0)
	atomic.StoreUint64(&c.Lost, 0)
	runtime.KeepAlive(w.memory)
}

// look takes a new view, and says whether the programs are still the same.
func (w *flowWatcher) look() bool {
	w.d.mu.Lock()
	v, same := w.d.view(), w.d.k == w.k
	w.d.mu.Unlock()
	if v == nil || !same {
		return false
	}
	w.view, w.viewed = v, time.Now()
	watching := map[uint32]model.FrontendKey{}
	for index, f := range v.frontends {
		if w.want[f.key] && f.slots != nil && int(index) < len(w.cells) {
			watching[index] = f.key
		}
	}
	for index := range w.watching {
		if _, still := watching[index]; !still {
			w.off(index)
		}
	}
	w.watching = watching
	if len(w.known) > 4*len(v.slots)+watchFollowed {
		clear(w.known)
	}
	for slot, p := range v.slots {
		w.known[slotAt{slot, p.generation}] = p.backend
	}
	return true
}

// take tells of an event.
func (w *flowWatcher) take(e *bpfFlowEvent) {
	key, watched := w.watching[e.Flow.Frontend]
	if !watched || e.At < w.began {
		return
	}
	up, err := uptime()
	if err != nil {
		return
	}
	slot, placed := w.view.slots[e.Backend]
	if !placed { // one that has just come
		if !w.look() {
			return
		}
		slot = w.view.slots[e.Backend]
	}
	f := w.view.frontends[e.Flow.Frontend]
	backend := f.backendOf(slot)
	out := model.FlowEvent{
		At: time.Now().Add(time.Duration(e.At) - up), Frontend: key, DataPlane: model.DataPlaneXDP, Reason: flowReason(bpfFlowReason(e.Reason)),
		Client:  netip.AddrPortFrom(e.Flow.Client.address(), bpf.NetworkPort(e.Flow.Port)),
		Backend: backend.Address, BackendMachine: backend.Machine,
	}
	if e.From != 0 {
		if from, known := w.known[slotAt{e.From, e.FromGeneration}]; known {
			out.From = f.backendOf(viewSlot{backend: from}).Address
		}
	}
	switch bpfFlowEventKind(e.Kind) {
	case bpfFlowEventKindFLOW_EVENT_MOVE:
		out.Kind = model.FlowMove
	case bpfFlowEventKindFLOW_EVENT_END:
		out.Kind = model.FlowEnd
	default:
		out.Kind, out.From = model.FlowBegin, netip.AddrPort{}
	}
	w.tell(out)
	if out.Kind == model.FlowEnd {
		delete(w.followed, e.Flow)
	} else if len(w.followed) < watchFollowed {
		w.followed[e.Flow] = out
	}
}

func flowReason(r bpfFlowReason) model.FlowCause {
	switch r {
	case bpfFlowReasonFLOW_REASON_MIDFLOW:
		return model.FlowMidway
	case bpfFlowReasonFLOW_REASON_AGAIN:
		return model.FlowAgain
	case bpfFlowReasonFLOW_REASON_IDLE:
		return model.FlowSilent
	case bpfFlowReasonFLOW_REASON_GONE:
		return model.FlowGone
	case bpfFlowReasonFLOW_REASON_UNREADY:
		return model.FlowUnready
	case bpfFlowReasonFLOW_REASON_END:
		return model.FlowFIN
	case bpfFlowReasonFLOW_REASON_RESET:
		return model.FlowRST
	case bpfFlowReasonFLOW_REASON_BACKEND_END:
		return model.FlowBackendFIN
	case bpfFlowReasonFLOW_REASON_BACKEND_RESET:
		return model.FlowBackendRST
	}
	return ""
}

// silent tells of the flows that no packet ended: of those whose begin was told, as many as there is room for.
func (w *flowWatcher) silent(up time.Duration) {
	for key, out := range w.followed {
		var f bpfFlow
		err := w.k.maps.Flows.Lookup(key, &f)
		if err != nil {
			err = w.k.maps.Fresh.Lookup(key, &f)
		}
		quiet := idle(up, f.Seen)
		switch {
		case err != nil: // the table was full, or its frontend went
			out.Reason = model.FlowForgotten
		case !w.view.over(key.Frontend, f.State, quiet):
			continue
		case out.Frontend.Transport == model.TCP:
			out.Reason = model.FlowUnopened
		default:
			out.Reason = model.FlowIdle
		}
		delete(w.followed, key)
		out.Kind, out.At, out.From = model.FlowEnd, time.Now(), netip.AddrPort{}
		w.tell(out)
	}
}
