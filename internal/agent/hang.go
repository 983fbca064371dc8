package agent

import (
	"slices"
	"time"

	"fairlead.dev/internal/model"
)

// endTime is what data planes get to return from what they do when the agent ends.
const endTime = 5 * time.Second

// giveUp notes which data planes the agent ends without.
func (b *balancer) giveUp() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for kind, calls := range b.busy {
		if calls > 0 {
			b.hung = append(b.hung, string(kind))
		}
	}
	slices.Sort(b.hung)
	b.log.Error("data planes did not stop in time: the agent ends without them, and their load balancing in the kernel stays as it is", "data_planes", b.hung, "waited", b.endTime)
}

// hangs says that the agent has ended without a data plane.
func (b *balancer) hangs() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.hung) > 0
}

// enter notes that a data plane is at work until leave is called.
func (b *balancer) enter(kind model.DataPlaneKind) (leave func()) {
	count := func(n int) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.busy[kind] += n
	}
	count(1)
	return func() { count(-1) }
}
