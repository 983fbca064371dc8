package xdp

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf/ringbuf"
)

// Programs tell of flows only while somebody looks, no more than there is room for, and stop by themselves.
func TestProgWatch(t *testing.T) {
	w := newLB(t)
	f := w.serve(tcp4, bpfModeMODE_IPIP, "10.0.1.1", "10.0.1.2")
	r, err := ringbuf.NewReader(w.FlowEvents)
	must(t, err)
	t.Cleanup(func() { _ = r.Close() })
	port := 1000
	begin := func(n int) {
		for range n {
			port++
			w.goes(from(fmt.Sprintf("198.51.100.7:%d", port), tcp4, "S").bytes(), f.servers[0])
		}
	}
	told := func() (kinds map[uint8]int) {
		t.Helper()
		kinds = map[uint8]int{}
		for {
			r.SetDeadline(time.Now())
			record, err := r.Read()
			if err != nil {
				if !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Fatal(err)
				}
				return kinds
			}
			kinds[record.RawSample[40]]++
		}
	}
	watch := func(until uint32, left int32) {
		put(w.programRig, w.Watched, f.value.Index, bpfWatch{Until: until, Left: left})
	}
	cell := func() (c bpfWatch) {
		t.Helper()
		must(t, w.Watched.Lookup(f.value.Index, &c))
		return c
	}
	up, err := uptime()
	must(t, err)
	now := uint32(up / time.Second)
	w.rowsAre(f, f.servers[0])
	begin(5)
	if kinds := told(); len(kinds) > 0 || cell() != (bpfWatch{}) {
		t.Errorf("nobody looks, and %v were told: %+v", kinds, cell())
	}
	watch(now+60, 3)
	begin(10)
	if kinds := told(); kinds[uint8(bpfFlowEventKindFLOW_EVENT_BEGIN)] != 3 || cell().Lost != 7 {
		t.Errorf("%v were told of 10 flows with room for 3: %+v", kinds, cell())
	}
	watch(now-1, 100)
	begin(5)
	if kinds := told(); len(kinds) > 0 || cell().Lost != 0 {
		t.Errorf("the agent is gone, and %v were told: %+v", kinds, cell())
	}
	watch(now+60, 100)
	w.goes(from(cli4, tcp4, "S").bytes(), f.servers[0])
	w.goes(from(cli4, tcp4, "A").bytes(), f.servers[0])
	w.goes(from(cli4, tcp4, "FA").bytes(), f.servers[0])
	w.goes(from(cli4, tcp4, "FA").bytes(), f.servers[0])
	if kinds := told(); kinds[uint8(bpfFlowEventKindFLOW_EVENT_BEGIN)] != 1 || kinds[uint8(bpfFlowEventKindFLOW_EVENT_END)] != 1 || len(kinds) != 2 {
		t.Errorf("of one flow %v were told", kinds)
	}
}
