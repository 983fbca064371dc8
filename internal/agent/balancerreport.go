package agent

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/wire"
	agentv1 "fairlead.dev/proto/agent/v1"
)

const (
	// maxFlows bounds an answer about flows: a report holds at most a few megabytes.
	maxFlows     = 20_000
	defaultFlows = 1_000
)

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

func (b *balancer) observe(key model.FrontendKey, p *entry) model.FrontendObserved {
	o := model.FrontendObserved{FrontendKey: key, State: model.FrontendRefused, Message: p.why}
	if p.plane >= 0 {
		d, kind := b.drives[p.plane], b.drivers.Planes[p.plane].Kind
		seen, known := d.seen[key]
		switch _, set := d.last.Frontends[key]; {
		case known && seen.State != model.FrontendPending && (set || d.err != nil):
			o = seen
			o.Message = join(seen.Message, p.why)
		case d.err != nil:
			o.Message = string(kind) + ": " + d.err.Error()
		default:
			o.State, o.Message = model.FrontendPending, "the data plane has not applied it yet"
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
			if _, stale := b.stale[key]; stale && len(b.drivers.Planes) > 0 || d != nil && d.err == nil && !isHere(d.last.Frontends[key], b.machine) {
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
func (b *balancer) missing(key model.FrontendKey, p *entry) string {
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
	if !b.began && len(b.drivers.Planes) > 0 {
		for key, f := range b.frontends {
			if f.Listener != "" && b.isBackend(b.backends[key]) {
				vips[key.VIP] = true
			}
		}
	}
	return vips
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
func (b *balancer) passed(key model.FrontendKey, p *entry) string {
	if o := b.observe(key, p); o.State != model.FrontendBalanced || o.Mode != model.ModeDSRGeneve {
		return key.String() + " is not forwarded between machines"
	}
	others := 0
	for _, x := range p.Backends {
		if x.Machine == b.machine || x.Weight == 0 || x.State == model.BackendUnready {
			continue
		}
		others++
		if n := b.nodes[x.Machine]; n == nil || !n.Decaps {
			return key.String() + " is served by " + x.Machine + " too, which does not forward flows"
		}
	}
	if others == 0 {
		return "no other machine serves " + key.String()
	}
	return ""
}

// tunnelEnd is a data plane's answer to Tunneler.Tunnel; the zero value of one that has no
// tunnels.
type tunnelEnd struct {
	mtu     uint32
	message string
	ok      bool
}

// ask notes what data planes say of the machine's end of tunnels and of its interfaces, and
// returns whether that differs from before. Only run's goroutine calls it.
func (b *balancer) ask() (differs bool) {
	for i, plane := range b.drivers.Planes {
		var t tunnelEnd
		var list []model.InterfaceObserved
		if tunneler, tunnels := plane.DataPlane.(Tunneler); tunnels {
			t.mtu, t.message, t.ok = tunneler.Tunnel()
		}
		if a, attached := plane.DataPlane.(Attached); attached {
			list = a.Interfaces()
		}
		b.mu.Lock()
		d := &b.drives[i]
		differs = differs || d.tunnel != t || !slices.Equal(d.interfaces, list)
		d.tunnel, d.interfaces = t, list
		b.mu.Unlock()
	}
	return differs
}

// tunnel is how the machine takes packets out of tunnels, nil if it does not, and whether that
// is unknown yet. The data planes are asked again afterwards.
func (b *balancer) tunnel() (t *agentv1.Tunnel, unknown bool) {
	select {
	case <-b.known:
	default:
		return nil, true
	}
	defer b.asks.raise()
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.drives {
		if t := b.drives[i].tunnel; t.ok {
			return &agentv1.Tunnel{Mtu: t.mtu, Message: cut(t.message, maxMessage)}, false
		}
	}
	return nil, false
}

// interfaces are those at which data planes have programs, or could have.
func (b *balancer) interfaces() []model.InterfaceObserved {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := []model.InterfaceObserved{}
	for i := range b.drives {
		list = append(list, b.drives[i].interfaces...)
	}
	return list
}

// figures are what the data planes have counted; short are those whose flows may lack.
func (b *balancer) figures() (frontends, short []model.FrontendFigures, drops map[string]uint64, err error) {
	drops = map[string]uint64{}
	var errs []error
	for _, plane := range b.drivers.Planes {
		counts, counting := plane.DataPlane.(Inspector)
		if !counting {
			continue
		}
		some, dropped, err := counts.Figures()
		if err != nil {
			errs = append(errs, fmt.Errorf("figures of data plane %s: %w", plane.Kind, err))
			short = append(short, some...)
		} else {
			frontends = append(frontends, some...)
		}
		for reason, n := range dropped {
			drops[reason] += n
		}
	}
	if err := b.bound(frontends); err != nil {
		b.log.Debug("the number of flows of this machine's proxy may include flows that have ended", "error", err)
	}
	return frontends, short, drops, errors.Join(errs...)
}

// bound removes the flows of this machine's proxy that its sockets do not have any more, where
// it is to get no new one: whoever drains it waits for the last. A flow table has one that ended
// unseen until it is silent long enough, and as the only machine with a VIP this one needs no data
// plane that would see.
func (b *balancer) bound(frontends []model.FrontendFigures) error {
	if b.drivers.Connections == nil {
		return nil
	}
	var left []*model.BackendFigures
	var keys []model.FrontendKey
	b.mu.Lock()
	for i := range frontends {
		key := frontends[i].FrontendKey
		if f := b.frontends[key]; f == nil || f.Listener == "" || key.Transport != model.TCP || !b.rests(b.backends[key]) {
			continue
		}
		for j := range frontends[i].Backends {
			if f := &frontends[i].Backends[j]; f.Machine == b.machine && f.Address.Addr() == key.VIP && f.Flows-f.Tunnelled+f.Owned > 0 {
				left, keys = append(left, f), append(keys, key)
			}
		}
	}
	b.mu.Unlock()
	if len(keys) == 0 {
		return nil
	}
	counts, err := b.drivers.Connections(keys...)
	if err != nil {
		return err
	}
	for i, f := range left {
		open := uint64(counts[keys[i]])
		f.Owned, f.Flows = min(f.Owned, open), f.Tunnelled+min(f.Flows-f.Tunnelled, open)
	}
	return nil
}

// rests says that this machine's proxy is among backends and is to get no new flow.
func (b *balancer) rests(list []model.FrontendBackend) bool {
	return slices.ContainsFunc(list, func(x model.FrontendBackend) bool { return x.Machine == b.machine && x.Weight == 0 })
}

// flows are those that a query selects, bounded.
func (b *balancer) flows(q model.FlowQuery) (flows []model.Flow, truncated bool, err error) {
	if q.Limit <= 0 {
		q.Limit = defaultFlows
	}
	q.Limit = min(q.Limit, maxFlows)
	limit := q.Limit
	var errs []error
	for _, plane := range b.drivers.Planes {
		inspects, inspecting := plane.DataPlane.(Inspector)
		if !inspecting {
			continue
		}
		if q.Limit = limit - len(flows); q.Limit == 0 {
			return flows, true, errors.Join(errs...)
		}
		some, more, err := inspects.Flows(q)
		if err != nil {
			errs = append(errs, fmt.Errorf("flows of data plane %s: %w", plane.Kind, err))
			continue
		}
		flows, truncated = append(flows, some...), truncated || more
	}
	return flows, truncated, errors.Join(errs...)
}

// report implements part.
func (b *balancer) report(to *agentv1.Report) {
	carried := b.carries() // before the rest: that may be newer
	to.Carried = &agentv1.Checkpoint{Epoch: carried.Epoch, Revision: carried.Number}
	to.Tunnel, to.TunnelUnknown = b.tunnel()
	to.Frontends = wire.FrontendStates(b.observed())
}

// answer answers the plane's question about flows. What cannot be read selects nothing.
func (b *balancer) answer(asked *agentv1.FlowQuery) *agentv1.Flows {
	q, err := wire.FlowQueryOf(asked)
	if err != nil {
		b.log.Warn("cannot decode a request of the plane for flows", "error", err)
		return wire.Flows(asked.GetAsked(), nil, false)
	}
	flows, truncated, err := b.flows(q)
	if err != nil {
		b.log.Warn("some flows cannot be read", "error", err)
	}
	return wire.Flows(asked.GetAsked(), flows, truncated)
}
