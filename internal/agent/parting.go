package agent

import (
	"maps"
	"slices"
	"time"

	"fairlead.dev/internal/model"
)

// defaultDrain is taken until a plane says another.
const defaultDrain = 30 * time.Second

const (
	// cutGrace is how long after its time a proxy may take to close what is left.
	cutGrace = 10 * time.Second
	// countBefore is how long before the proxy closes connections those are counted that
	// it will close.
	countBefore = time.Second
	// countEvery is how often connections are counted that a machine still has.
	countEvery = time.Second
	// frontendDrain is the drain time of a frontend that says none, as planes have it.
	frontendDrain = 30 * time.Second
)

// parting is a listener at a VIP that this machine has no longer, while other machines
// pass on to its proxy the connections that it has there.
type parting struct {
	listener model.ListenerID
	due      time.Time // when the proxy is told to end them
	over     time.Time // when the proxy closes those that are left; zero until it is told
	end      time.Time // when the frontend's drain time is over; zero: the proxy ends them within it
	counted  bool
}

// errands are what is to be done for partings once no lock is held.
type errands struct {
	renew, undo map[model.ListenerID]bool
	count       []model.FrontendKey
	open        []model.FrontendKey // of which the plane is to know how many connections there are
}

// part has the proxy end its connections at VIPs that the machine has no longer, and says
// how many outlived it. It returns when to look again; 0: not before something happens.
//
// The end is that of the frontend's drain time. The proxy takes its own (ProxyDrain) to
// end connections gently, and then closes what is left: it is told as late as this allows.
func (b *balancer) part(now time.Time) (again time.Duration) {
	e, again := b.partings.look(b, now)
	for _, l := range slices.Sorted(maps.Keys(e.renew)) {
		b.log.Info("the machine no longer has a VIP of a listener: its connections close after their current response", "listener", l, "limit", b.proxyDrain)
		b.relay.renew(l, true)
	}
	for _, l := range slices.Sorted(maps.Keys(e.undo)) {
		b.relay.renew(l, false)
	}
	slices.SortFunc(e.count, model.FrontendKey.Compare)
	for _, key := range e.count {
		b.count(key)
	}
	if len(e.open) > 0 {
		counts, err := b.drivers.Connections(e.open...)
		for _, key := range e.open {
			if err != nil {
				b.remain(key, 1) // it is not known that there is none
			} else {
				b.remain(key, uint32(counts[key]))
			}
		}
	}
	return again
}

// remain notes how many connections there are at a VIP that the machine has no longer. As
// long as there are some, the plane has other machines pass them on to here.
func (b *balancer) remain(key model.FrontendKey, n uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if was, known := b.progress.parting[key]; !known || was != n {
		b.progress.parting[key], b.moved = n, true
	}
}

// remains is how many connections a machine that lost the VIP still has; one that was not
// counted yet may have some.
func (b *balancer) remains(key model.FrontendKey) uint32 {
	if !b.parted(key) {
		return 0
	}
	if n, known := b.progress.parting[key]; known {
		return n
	}
	return 1
}

// count says how many connections end with the drain time.
func (b *balancer) count(key model.FrontendKey) {
	if b.drivers.Connections == nil || key.Transport != model.TCP {
		return
	}
	counts, err := b.drivers.Connections(key)
	switch n := counts[key]; {
	case err != nil:
		b.log.Warn("cannot count the connections that outlived the drain time", "frontend", key.String(), "error", err)
	case n > 0:
		b.cut.Add(uint64(n))
		b.log.Warn("the machine no longer has a VIP, and the drain time is over: the remaining connections are cut", "frontend", key.String(), "connections", n)
	default:
		b.log.Info("the machine no longer has a VIP, and all connections to it have ended", "frontend", key.String())
	}
}

// partings are by frontend.
type partings map[model.FrontendKey]*parting

// look brings partings up to date.
func (p partings) look(b *balancer, now time.Time) (e errands, again time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, f := range b.frontends {
		if p[key] == nil && b.parted(key) {
			p[key] = &parting{listener: f.Listener, due: now.Add(drainOf(f) - b.proxyDrain)}
			if drainOf(f) < b.proxyDrain {
				p[key].end = now.Add(drainOf(f))
			}
		}
	}
	e.renew, e.undo = map[model.ListenerID]bool{}, map[model.ListenerID]bool{}
	soon := func(at time.Time) {
		if left := at.Sub(now); again == 0 || left < again {
			again = left
		}
	}
	for key, x := range p {
		if !b.parted(key) {
			delete(p, key)
			delete(b.progress.parting, key)
			if !x.over.IsZero() {
				e.undo[x.listener] = true
			}
			f := b.frontends[key]
			if back := f != nil && slices.Contains(f.Machines, b.machine); !back && !x.counted {
				e.count = append(e.count, key)
			}
			continue
		}
		if x.over.IsZero() && !now.Before(x.due) {
			x.over = now.Add(b.proxyDrain)
			if x.end.IsZero() {
				x.end = x.over.Add(cutGrace) // it may be busy
			}
			e.renew[x.listener] = true
		}
		switch {
		case !x.end.IsZero() && !now.Before(x.end):
			if n, known := b.progress.parting[key]; !known || n > 0 {
				b.progress.parting[key], b.moved = 0, true
			}
		case key.Transport != model.TCP || b.drivers.Connections == nil: // by time alone
			if at := x.end; !at.IsZero() {
				soon(at)
			}
		default:
			e.open = append(e.open, key)
			soon(now.Add(countEvery))
		}
		switch count := x.over.Add(-countBefore); {
		case x.over.IsZero():
			soon(x.due)
		case x.counted:
		case now.Before(count):
			soon(count)
		default:
			x.counted = true
			e.count = append(e.count, key)
		}
	}
	for _, x := range p {
		delete(e.undo, x.listener)
	}
	return e, again
}

// parted says that the machine has the VIP of a listener's frontend no longer, and that
// others pass on to it the connections that it has there.
func (b *balancer) parted(key model.FrontendKey) bool {
	f, p := b.frontends[key], b.joined[key]
	return f != nil && f.Listener != "" && !slices.Contains(f.Machines, b.machine) && p != nil && p.plane >= 0 && !b.released &&
		b.isBackend(b.backends[key])
}

// isBackend says that this machine's proxy is among backends and may have flows.
func (b *balancer) isBackend(list []model.FrontendBackend) bool {
	return slices.ContainsFunc(list, func(x model.FrontendBackend) bool {
		return x.Machine == b.machine && x.State != model.BackendUnready
	})
}

func drainOf(f *model.Frontend) time.Duration {
	if f.Drain > 0 {
		return f.Drain
	}
	return frontendDrain
}
