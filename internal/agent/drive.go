package agent

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"fairlead.dev/internal/model"
)

// driveAgain is how long the first try of a data plane that failed waits for the
// second; it doubles up to driveMost.
const driveAgain = time.Second

const driveMost = 30 * time.Second

// drive is what one data plane was told.
type drive struct {
	last   model.Balancing // that it took; its maps are never changed
	tried  bool
	err    error
	again  time.Time
	wait   time.Duration
	seen   map[model.FrontendKey]model.FrontendObserved
	behind bool // the kernel may lack something of what is wanted
	// tunnel and interfaces are what it said when it was last asked.
	tunnel     tunnelEnd
	interfaces []model.InterfaceObserved
}

// wanted is what each data plane should do.
func (b *balancer) wanted(listening map[string]struct{}) []model.Balancing {
	wants := make([]model.Balancing, len(b.drivers.Planes))
	for i := range wants {
		wants[i] = model.Balancing{
			Machine: b.machine, Frontends: map[model.FrontendKey]*model.Balanced{}, Nodes: b.shared, Unready: map[model.FrontendKey]bool{},
			Guarded: map[netip.Addr][]model.FrontendKey{},
		}
	}
	for key, p := range b.joined {
		if p.plane < 0 {
			continue
		}
		w := wants[p.plane]
		w.Frontends[key] = p.Balanced
		if f := p.Frontend; f.Listener != "" {
			// What the machine has no longer gets no new flow before the plane's word of it is carried out.
			_, serves := listening[string(f.Listener)]
			if !serves || b.proxy != "" || b.leaving || !p.here || !p.until.IsZero() {
				w.Unready[key] = true
			}
		}
	}
	b.guard(wants)
	return wants
}

// drive tells each data plane what differs from what it was told, and returns when to try
// again. A frontend that moves is taken by the next data plane before the one before lets
// it go.
func (b *balancer) drive(wants []model.Balancing, now time.Time) (again time.Duration) {
	for i := range wants {
		both := wants[i]
		for key, f := range b.drives[i].last.Frontends {
			if _, stays := wants[i].Frontends[key]; stays || !slices.ContainsFunc(wants, func(w model.Balancing) bool { return w.Frontends[key] != nil }) {
				continue
			}
			if len(both.Frontends) == len(wants[i].Frontends) {
				both.Frontends = maps.Clone(both.Frontends)
			}
			both.Frontends[key] = f
		}
		b.set(i, both, now)
	}
	for i := range wants {
		left := wants[i]
		for key, f := range b.drives[i].last.Frontends {
			if wants[i].Frontends[key] != nil {
				continue
			}
			for j := range wants {
				if wants[j].Frontends[key] != nil && b.drives[j].last.Frontends[key] == nil { // it could not take it
					if len(left.Frontends) == len(wants[i].Frontends) {
						left.Frontends = maps.Clone(left.Frontends)
					}
					left.Frontends[key] = f
				}
			}
		}
		b.set(i, left, now)
		if d := &b.drives[i]; d.behind {
			if wait := max(d.again.Sub(now), time.Millisecond); again == 0 || wait < again {
				again = wait
			}
		}
	}
	return again
}

// set tells one data plane what to do, unless it knows. Only run's goroutine calls it.
func (b *balancer) set(i int, w model.Balancing, now time.Time) {
	d, plane := &b.drives[i], b.drivers.Planes[i]
	same := d.tried && sameBalancing(d.last, w)
	if same && !d.behind || d.behind && now.Before(d.again) && d.tried {
		if !same {
			d.behind = true
		}
		return
	}
	leave := b.enter(plane.Kind)
	err := plane.Set(w)
	leave()
	seen := map[model.FrontendKey]model.FrontendObserved{}
	for _, o := range plane.Observed() {
		seen[o.FrontendKey] = o
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil {
		if d.err != nil {
			b.log.Info("the data plane works again", "data_plane", plane.Kind)
		}
		d.last, d.wait, d.behind = w, 0, false
	} else {
		if d.err == nil || d.err.Error() != err.Error() {
			b.log.Error("the data plane cannot apply its configuration; it keeps the previous one", "data_plane", plane.Kind, "error", err)
		}
		d.wait = min(max(2*d.wait, driveAgain), driveMost)
		d.again, d.behind = now.Add(d.wait), true
	}
	d.tried, d.err, d.seen, b.moved = true, err, seen, true
}

func sameBalancing(a, b model.Balancing) bool {
	return maps.Equal(a.Frontends, b.Frontends) && maps.Equal(a.Nodes, b.Nodes) && maps.Equal(a.Unready, b.Unready) &&
		maps.EqualFunc(a.Guarded, b.Guarded, slices.Equal[[]model.FrontendKey])
}

// look notes what the data planes see now.
func (b *balancer) look() {
	for i, plane := range b.drivers.Planes {
		seen := map[model.FrontendKey]model.FrontendObserved{}
		for _, o := range plane.Observed() {
			seen[o.FrontendKey] = o
		}
		b.mu.Lock()
		b.moved = b.moved || !maps.Equal(b.drives[i].seen, seen)
		b.drives[i].seen = seen
		b.mu.Unlock()
	}
}
