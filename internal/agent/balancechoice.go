package agent

import (
	"cmp"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"fairlead.dev/internal/model"
)

// answers are what the data planes say of what they are to carry out: of a frontend that
// changes, of what it is and of what it becomes.
type answers map[model.FrontendKey][]*place

// give puts them into a place, and says whether they are of that.
func (a answers) give(p *place) bool {
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
			asked[key] = append(asked[key], &place{Balanced: p.Balanced})
		}
	}
	for key := range b.stale {
		if p := b.place(key); p != nil {
			asked[key] = append(asked[key], p)
		}
	}
	b.mu.Unlock()
	for _, places := range asked {
		for _, p := range places {
			p.cannot = b.lacks(p.Balanced)
		}
	}
	return asked
}

// lacks asks each data plane what it lacks for a frontend.
func (b *balancer) lacks(f *model.Balanced) []error {
	why := make([]error, len(b.parts.Planes))
	for i, plane := range b.parts.Planes {
		leave := b.enter(plane.Kind)
		why[i] = plane.Supports(f)
		leave()
	}
	return why
}

// refused says that no data plane takes a place that needs one, or none of the first choice.
func (p *place) refused() bool { return p.plane < 0 && !p.alone || p.why != "" }

// due says that the data planes are to be asked again.
func (p *place) due(now time.Time) bool {
	return !p.asked.IsZero() && p.refused() && now.Sub(p.asked) >= askAgain
}

// choose finds the data plane for a frontend: the one that was asked for, or the first
// that can carry it out by what they have answered.
func (b *balancer) choose(p *place) {
	p.plane, p.why = -1, ""
	asked := p.Frontend.DataPlane
	if p.alone && asked == model.DataPlaneAuto && !restricts(p.Frontend) {
		return // what reaches the machine reaches its proxy
	}
	var why []string
	second := -1 // that could, but did not when it was tried
	for i, plane := range b.parts.Planes {
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
			why = cmp.Or(o.Message, "it was tried in vain")
		default:
			continue
		}
		p.declined = maps.Clone(p.declined) // the place before may have it too
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

// observed is what the machine does about each frontend, sorted by key.
func (b *balancer) observed() []model.FrontendObserved {
	b.mu.Lock()
	defer b.mu.Unlock()
	var list []model.FrontendObserved
	for key, p := range b.joined {
		if p.here || p.plane >= 0 {
			list = append(list, b.observe(key, p))
		}
	}
	slices.SortFunc(list, func(x, y model.FrontendObserved) int { return x.Compare(y.FrontendKey) })
	return list
}

func (b *balancer) observe(key model.FrontendKey, p *place) model.FrontendObserved {
	o := model.FrontendObserved{FrontendKey: key, State: model.FrontendRefused, Message: p.why}
	if p.plane >= 0 {
		d, kind := b.drives[p.plane], b.parts.Planes[p.plane].Kind
		seen, known := d.seen[key]
		switch _, set := d.last.Frontends[key]; {
		case known && seen.State != model.FrontendPending && (set || d.err != nil):
			o = seen
			o.Message = join(seen.Message, p.why)
		case d.err != nil:
			o.Message = string(kind) + ": " + d.err.Error()
		default:
			o.State, o.Message = model.FrontendPending, "the data plane has not taken it yet"
		}
		o.DataPlane = kind
	}
	if !o.State.Carried() && p.here && p.Frontend.Listener != "" && !restricts(p.Frontend) && p.Frontend.DataPlane == model.DataPlaneAuto {
		// The routers alone balance it, as they do without the tier.
		o.State, o.Mode, o.DataPlane = model.FrontendBalanced, model.ModeLocal, ""
		if o.Message != "" {
			o.Message = "connections end when routers move them to another machine: " + o.Message
		}
	}
	o.Available = p.available
	o.Parting = b.remains(key)
	return o
}

func join(texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), "; ")
}

// unbalanced says why none of a VIP's frontends that lead to backends of their own is
// balanced here, "" if one is or there are none; and why a frontend of the proxies is not
// balanced yet that is going to be. any says that it has backends of its own.
func (b *balancer) unbalanced(v model.VIP) (why, pending string, any bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	works := false
	for _, key := range v.Frontends {
		p := b.joined[key]
		if p != nil && p.Frontend.Listener != "" {
			// Of a VIP that comes back the data plane may still have what it did for other
			// machines alone: what routers send would meet a kernel that does not know it.
			d := b.driveOf(p)
			if _, stale := b.stale[key]; stale && len(b.parts.Planes) > 0 || d != nil && d.err == nil && !isHere(d.last.Frontends[key], b.machine) {
				pending = cmp.Or(pending, key.String()+" is not balanced here yet")
			}
			continue
		}
		if p == nil {
			if f := b.frontends[key]; f != nil && f.Listener != "" {
				continue // the routers alone balance it until its backends are known
			}
		}
		any = true
		this := b.missing(key, p)
		works = works || this == ""
		why = cmp.Or(why, this)
	}
	if works {
		why = ""
	}
	return why, pending, any
}

// isHere says that a frontend's VIP is the machine's.
func isHere(f *model.Balanced, machine string) bool {
	return f != nil && slices.Contains(f.Frontend.Machines, machine)
}

// missing says why a frontend takes no flow here, "" if it does.
func (b *balancer) missing(key model.FrontendKey, p *place) string {
	if p == nil || !p.until.IsZero() || !p.here {
		return "frontend " + key.String() + " is not known here yet"
	}
	switch o := b.observe(key, p); {
	case o.State != model.FrontendBalanced:
		return "frontend " + key.String() + " is not balanced here: " + cmp.Or(o.Message, string(o.State))
	case p.available == 0 && p.Frontend.LocalOnly:
		return "frontend " + key.String() + " has no available backend on this machine (externalTrafficPolicy: Local)"
	case p.available == 0:
		return "frontend " + key.String() + " has no available backend"
	}
	return ""
}

// serves are the VIPs of which this machine's proxy has flows that come out of tunnels, or
// may have: also those that its pool has no longer. An agent that has just started takes
// all for such of which its proxy is a backend.
func (b *balancer) serves() map[netip.Addr]bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	vips := map[netip.Addr]bool{}
	for key, p := range b.joined {
		if p.Frontend.Listener != "" && p.plane >= 0 && b.isBackend(p.Backends) {
			vips[key.VIP] = true
		}
	}
	if !b.began && len(b.parts.Planes) > 0 {
		for key, f := range b.frontends {
			if f.Listener != "" && b.isBackend(b.backends[key]) {
				vips[key.VIP] = true
			}
		}
	}
	return vips
}

func (b *balancer) driveOf(p *place) *drive {
	if p.plane < 0 {
		return nil
	}
	return &b.drives[p.plane]
}

// survives says why flows to this machine's proxy would break if routers moved those of
// a VIP to other machines now; "" if all of these pass them on to here.
func (b *balancer) survives(v model.VIP) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	known := len(v.Listeners) == 0
	for _, key := range v.Frontends {
		p := b.joined[key]
		if p == nil || p.Frontend.Listener == "" {
			continue
		}
		known = true
		if why := b.passed(key, p); why != "" {
			return why
		}
	}
	if !known {
		return v.Address.String() + " is balanced by routers alone"
	}
	return ""
}

// passed says why other machines do not pass a listener's flows on to this one.
func (b *balancer) passed(key model.FrontendKey, p *place) string {
	if o := b.observe(key, p); o.State != model.FrontendBalanced || o.Mode != model.ModeDSRGeneve {
		return key.String() + " is not passed on between machines"
	}
	others := 0
	for _, x := range p.Backends {
		if x.Machine == b.machine || x.Weight == 0 || x.State == model.BackendUnready {
			continue
		}
		others++
		if n := b.nodes[x.Machine]; n == nil || !n.Decaps {
			return key.String() + " is served by " + x.Machine + " too, which does not pass flows on"
		}
	}
	if others == 0 {
		return "no other machine serves " + key.String()
	}
	return ""
}
