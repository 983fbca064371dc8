package agent

import (
	"context"
	"slices"
	"time"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
)

// A change that is planned is a chain of steps, and each waits until the one before has
// taken effect wherever it must: in this machine's kernel, at the routers, at the other
// machines. None waits for a time in which it usually has: a busy machine overruns that.

const (
	// lookEvery is how often it is looked whether a step has taken effect.
	lookEvery = 20 * time.Millisecond
	// noticeTime is how long the others may take to notice that the machine leaves. Where
	// they do not, what is in its kernel stays and passes on what they send.
	noticeTime = 30 * time.Second
	// followTime is how long routers may take to follow. A host that does not go by routes
	// would be waited for without end.
	followTime = 15 * time.Second
	// askTime is what data planes get to say how much came.
	askTime = time.Second
)

// progress is how far planned changes have come: the machine leaving, what the kernel carries
// out, and VIPs that it has no longer. It is guarded by the balancer's lock.
type progress struct {
	as   uint64 // its number; 0: the machine does not leave
	left uint64 // the one that all others have noticed
	last uint64 // the largest that it had, or that the plane named
	// told and carried count changes that were asked for, and those that are in the kernel.
	told, carried uint64
	point         delta.Revision // the last checkpoint of which everything is in the kernel
	parting       map[model.FrontendKey]uint32
}

// carries is the last checkpoint that the kernel carries out.
func (b *balancer) carries() delta.Revision {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.progress.carried == b.progress.told && b.point.Compare(b.progress.point) > 0 {
		b.progress.point = b.point
	}
	return b.progress.point
}

// leavesAs is the number of the machine's leaving, 0 while it does not.
func (b *balancer) leavesAs() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.progress.as
}

// noticed notes which leaving all others have noticed.
func (b *balancer) noticed(number uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.progress.last = max(b.progress.last, number)
	if number == b.progress.as {
		b.progress.left = number
	}
}

// isNoticed says that no other machine sends new flows here: all have noticed that it leaves.
func (b *balancer) isNoticed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.progress.as > 0 && b.progress.left == b.progress.as
}

// isCarried says that everything that was asked for is in the kernel.
func (b *balancer) isCarried() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.progress.carried == b.progress.told || len(b.drivers.Planes) == 0
}

// arrived is how many packets came for VIPs by themselves; false if that is not counted of
// every frontend here, or not said in time.
func (b *balancer) arrived(ctx context.Context) (total uint64, known bool) {
	counters := b.counters()
	if len(counters) == 0 {
		return 0, false
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	answer := make(chan uint64, 1) // closed without one if it is not known
	go func() {
		defer close(answer)
		var total uint64
		for _, a := range counters {
			n, err := a.Arrived()
			if err != nil {
				return
			}
			total += n
		}
		answer <- total
	}()
	select {
	case total, known = <-answer:
		return total, known
	case <-ctx.Done():
		return 0, false
	}
}

// counters are the data planes that count what comes for the frontends here; none if one of
// these is balanced by another data plane, or by routers alone. A data plane that has nothing
// to balance counts nothing, whatever comes.
func (b *balancer) counters() (list []Arrivals) {
	b.mu.Lock()
	defer b.mu.Unlock()
	needed := make([]bool, len(b.drivers.Planes))
	for key, p := range b.joined {
		d := b.driveOf(p)
		if d != nil && d.seen[key].State.Carried() {
			needed[p.plane] = true
		} else if p.here {
			return nil
		}
	}
	for i, plane := range b.drivers.Planes {
		if !needed[i] {
			continue
		}
		a, counts := plane.DataPlane.(Arrivals)
		if !counts {
			return nil
		}
		list = append(list, a)
	}
	return list
}

// housing is which flows other machines send to backends on this one through a tunnel.
type housing uint8

const (
	housesNone housing = iota
	housesOld          // those that began before the backends were taken out
	housesNew
)

// houses says which flows come to backends here through a tunnel: of frontends without a proxy
// whose VIP another machine has. In modes other than DSRGeneve backends need no agent.
func (b *balancer) houses() (most housing) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, p := range b.joined {
		f := p.Frontend
		if f.Listener != "" || p.plane < 0 || b.drivers.Planes[p.plane].Kind != model.DataPlaneXDP || f.Mode != model.ModeAuto && f.Mode != model.ModeDSRGeneve ||
			!slices.ContainsFunc(f.Machines, func(m string) bool { return m != b.machine }) {
			continue
		}
		for _, x := range p.Backends {
			switch {
			case x.Machine != b.machine || x.Proxy(key):
			case x.Weight > 0:
				return housesNew
			case x.HopWeight > 0:
				most = housesOld
			}
		}
	}
	return most
}

// open is how many connections of TCP clients the machine's sockets have at its VIPs.
func (b *balancer) open() (total int, err error) {
	if b.drivers.Connections == nil {
		return 0, nil
	}
	b.mu.Lock()
	var keys []model.FrontendKey
	for key, p := range b.joined {
		if key.Transport == model.TCP && p.Frontend.Listener != "" {
			keys = append(keys, key)
		}
	}
	b.mu.Unlock()
	if len(keys) == 0 {
		return 0, nil
	}
	counts, err := b.drivers.Connections(keys...)
	for _, n := range counts {
		total += n
	}
	return total, err
}

// proxyIs notes why this machine's proxy serves nothing, "" when it serves.
func (b *balancer) proxyIs(why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if (b.proxy == "") != (why == "") {
		b.news.raise()
	}
	b.proxy = why
}

// leave has new flows go past this machine's proxy, as far as there is another one; false
// takes it back.
func (b *balancer) leave(on bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.leaving == on {
		return
	}
	b.leaving, b.progress.as = on, 0
	if on {
		// Never one that was noticed before, though the clock is set back.
		b.progress.as = max(uint64(max(b.now().UnixNano(), 1)), b.progress.last+1)
		b.progress.last = b.progress.as
	}
	b.progress.told++
	b.news.raise()
	b.changed.raise()
}

// hasNeighbours says that other machines may send this one what it balances or has backends
// of.
func (b *balancer) hasNeighbours() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name := range b.nodes {
		if name != b.machine && len(b.joined) > 0 && len(b.drivers.Planes) > 0 {
			return true
		}
	}
	return false
}

// hasBegun says that the data planes were told of what the machine knows: what it balances, and
// who its neighbours are, is known from then on.
func (b *balancer) hasBegun() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.began
}

// release takes everything out of the kernel, and returns when that was tried, or at the limit
// or when ctx is done.
func (b *balancer) release(ctx context.Context, limit time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	b.mu.Lock()
	b.released = true
	for key := range b.joined {
		b.stale[key] = struct{}{}
	}
	b.mu.Unlock()
	select { // of an earlier apply
	case <-b.emptied:
	default:
	}
	b.news.raise()
	select {
	case <-b.emptied:
	case <-ctx.Done():
		b.log.Warn("data planes may have left programs or rules in the kernel")
	}
}
