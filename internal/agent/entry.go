package agent

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"fairlead.dev/internal/model"
)

// askAgain is when a data plane that could not carry a frontend out is asked again:
// an interface, a module or a right may have come.
const askAgain = time.Minute

// linger is how long an address is kept after its prefix was withdrawn, for what is
// under way.
const linger = 5 * time.Second

// entry is a frontend with its backends and the data plane that it is for.
type entry struct {
	*model.Balanced
	here      bool // the VIP is: otherwise the machine has backends of it only
	available uint32
	// alone says that this machine's proxy is the only one, which needs no data plane.
	alone bool
	// plane is the data plane's index in Balancing.Planes, -1 for none.
	plane    int
	why      string         // what speaks against the data planes before it, or against all
	cannot   []error        // what the data planes say that they lack, by their index
	declined map[int]string // by data planes that were tried
	asked    time.Time      // when it was last asked whether they can
	// until is when what is no longer wanted ends; zero while it is wanted.
	until time.Time
}

// join brings joined up to date and returns when the next of what lingers is over. Entries
// of which the data planes were asked something else are left for the next time, at once; it is
// not whole then.
func (b *balancer) join(now time.Time, answers answers) (again time.Duration, whole bool) {
	b.moved, whole = b.moved || len(b.stale) > 0, true
	for key := range b.stale {
		was := b.joined[key]
		is := b.entryOf(key)
		if is != nil && !answers.give(is) {
			again, whole = time.Millisecond, false
			continue
		}
		switch {
		case was != nil && was.here && (is == nil || !is.here):
			// Routers take a moment to follow, and so does what is on its way.
			if was.until.IsZero() {
				was.until = now.Add(linger)
			}
			if left := was.until.Sub(now); left > 0 && !b.released {
				if is != nil && !slices.Equal(was.Backends, is.Backends) { // its backends change meanwhile, and it sends new flows to none that leaves
					was.Balanced = &model.Balanced{Frontend: was.Frontend, Backends: is.Backends}
				}
				if again == 0 || left < again {
					again = left
				}
				continue // and stays stale
			}
			fallthrough
		case is == nil:
			if delete(b.joined, key); is != nil {
				b.joined[key] = is
			}
		default:
			if was != nil && was.Frontend == is.Frontend {
				is.declined = was.declined
			}
			b.joined[key] = is
		}
		delete(b.stale, key)
	}
	if b.nodesNew {
		b.shared, b.nodesNew = maps.Clone(b.nodes), false
	}
	for _, p := range b.joined {
		switch anew := p.due(now); {
		case anew && !answers.give(p):
			again = time.Millisecond
			continue
		case anew || p.asked.IsZero():
			if anew {
				p.declined = nil
			}
			p.asked, b.moved = now, true
			b.choose(p)
		}
		if p.refused() {
			if left := p.asked.Add(askAgain).Sub(now); again == 0 || left < again {
				again = max(left, time.Millisecond)
			}
		}
	}
	return again, whole
}

// entryOf is what the plane has said of a frontend, nil while it is not all there.
func (b *balancer) entryOf(key model.FrontendKey) *entry {
	f, known := b.frontends[key]
	list, told := b.backends[key]
	if !known || !told || b.released {
		return nil
	}
	p := &entry{Balanced: &model.Balanced{Frontend: f, Backends: list}, here: slices.Contains(f.Machines, b.machine), plane: -1}
	if f.LocalOnly && p.here {
		p.Backends = localOnly(list, b.machine)
	}
	p.alone = p.here && f.Listener != ""
	for _, x := range p.Backends {
		if x.Weight > 0 && x.State != model.BackendUnready {
			p.available++
		}
		p.alone = p.alone && x.Machine == b.machine
	}
	return p
}

// localOnly are the backends where those of other machines take no new flow. Flows that
// they have still find them.
func localOnly(list []model.FrontendBackend, machine string) []model.FrontendBackend {
	list = slices.Clone(list)
	for i := range list {
		if list[i].Machine != machine {
			list[i].Weight = 0
		}
	}
	return list
}

// answers are what the data planes say of what they are to carry out: of a frontend that
// changes, of what it is and of what it becomes.
type answers map[model.FrontendKey][]*entry

// give puts them into an entry, and says whether they are of that.
func (a answers) give(p *entry) bool {
	for _, of := range a[p.Frontend.FrontendKey] {
		if of.Frontend == p.Frontend && slices.Equal(of.Backends, p.Backends) {
			p.cannot = of.cannot
			return true
		}
	}
	return false
}

// inquire asks the data planes what they can carry out of what is new, and again of what none
// could. It is asked without mu, as a data plane may look into the kernel for it.
func (b *balancer) inquire(now time.Time) answers {
	asked := answers{}
	b.mu.Lock()
	for key, p := range b.joined {
		if p.due(now) {
			asked[key] = append(asked[key], &entry{Balanced: p.Balanced})
		}
	}
	for key := range b.stale {
		if p := b.entryOf(key); p != nil {
			asked[key] = append(asked[key], p)
		}
	}
	b.mu.Unlock()
	for _, entries := range asked {
		for _, p := range entries {
			p.cannot = b.lacks(p.Balanced)
		}
	}
	return asked
}

// lacks asks each data plane what it lacks for a frontend.
func (b *balancer) lacks(f *model.Balanced) []error {
	why := make([]error, len(b.drivers.Planes))
	for i, plane := range b.drivers.Planes {
		leave := b.enter(plane.Kind)
		why[i] = plane.Supports(f)
		leave()
	}
	return why
}

// refused says that no data plane takes an entry that needs one, or none of the first choice.
func (p *entry) refused() bool { return p.plane < 0 && !p.alone || p.why != "" }

// due says that the data planes are to be asked again.
func (p *entry) due(now time.Time) bool {
	return !p.asked.IsZero() && p.refused() && now.Sub(p.asked) >= askAgain
}

// choose finds the data plane for a frontend: the one that was asked for, or the first
// that can carry it out by what they have answered.
func (b *balancer) choose(p *entry) {
	p.plane, p.why = -1, ""
	asked := p.Frontend.DataPlane
	if p.alone && asked == model.DataPlaneAuto && !restricts(p.Frontend) {
		return // what reaches the machine reaches its proxy
	}
	var why []string
	second := -1 // that could, but did not when it was tried
	for i, plane := range b.drivers.Planes {
		if asked != model.DataPlaneAuto && asked != plane.Kind {
			continue
		}
		if !p.here && !b.drives[i].tunnel.ok {
			continue
		}
		if err := p.cannot[i]; err != nil {
			why = append(why, string(plane.Kind)+": "+err.Error())
			continue
		}
		if refusal := p.declined[i]; refusal != "" {
			why = append(why, string(plane.Kind)+": "+refusal)
			if second < 0 {
				second = i
			}
			continue
		}
		p.plane, p.why = i, strings.Join(why, "; ")
		return
	}
	switch p.why = strings.Join(why, "; "); {
	case second >= 0:
		p.plane = second // it says itself what is wrong, and may mend
	case p.why != "":
	case asked != model.DataPlaneAuto:
		p.why = "this machine's agent does not run the data plane " + string(asked) + " (--data-plane)"
	default:
		p.why = "this machine's agent runs no data plane (--data-plane)"
	}
}

// restricts says that a frontend of a proxy asks for what only a data plane does.
func restricts(f *model.Frontend) bool { return len(f.Sources) > 0 || f.NewFlows > 0 }

// decline notes which frontends their data planes could not carry out though they said
// so, one or all, and says whether another one is to be tried.
func (b *balancer) decline() (retry bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, p := range b.joined {
		if p.plane < 0 || p.Frontend.DataPlane != model.DataPlaneAuto || p.declined[p.plane] != "" {
			continue
		}
		d, why := b.drives[p.plane], ""
		o, seen := d.seen[key]
		switch {
		case d.tried && errors.Is(d.err, errors.ErrUnsupported):
			why = d.err.Error()
		case seen && d.last.Frontends[key] == p.Balanced && o.State == model.FrontendRefused:
			why = cmp.Or(o.Message, "the data plane refused it without a reason")
		default:
			continue
		}
		p.declined = maps.Clone(p.declined) // the entry before may have it too
		if p.declined == nil {
			p.declined = map[int]string{}
		}
		p.declined[p.plane] = why
		was := p.plane
		b.choose(p)
		retry = retry || p.plane != was
	}
	return retry
}

func (b *balancer) driveOf(p *entry) *drive {
	if p.plane < 0 {
		return nil
	}
	return &b.drives[p.plane]
}
