package balance

import (
	"cmp"
	"maps"
	"math"
	"net/netip"
	"slices"
	"time"

	"fairlead.dev/internal/model"
)

const (
	// DefaultWeight is that of a backend of which nothing is said.
	DefaultWeight = 100
	// DefaultDrain is the drain time of a frontend that says none.
	DefaultDrain = 30 * time.Second
	// partGrace and partLook: see Input.Parting; and how often it is asked.
	partGrace = 30 * time.Second
	partLook  = time.Second
	// splitWeight is what the targets of a frontend share, if there are several.
	splitWeight = 1_000_000
)

// Input is one frontend at one moment. Nothing of it is changed.
type Input struct {
	Frontend *model.Frontend
	// Sets holds those of the frontend's targets; one that is missing or nil is empty.
	Sets map[model.SetID]*model.BackendSet
	// Proxies are the backends of a frontend with a listener.
	Proxies []Proxy
	// Parting says that a machine which is none of the frontend's any more still has
	// connections at its proxy; nil: none has. Its proxy is kept for them when the drain time
	// is over, for another drain time and partGrace at most: the machine ends them, but its
	// clock is another one, and it may be busy.
	Parting func(machine string) bool
	// Health says what is known of a backend; nil: nobody checks.
	Health func(netip.AddrPort) model.Health
	// Lost says that a machine is not there; nil: none is known to be.
	Lost func(machine string) bool
	// Before is what the last call for the frontend returned; the zero value at first.
	Before History
	Now    time.Time
}

// Proxy is a machine's proxy as the backend of a listener.
type Proxy struct {
	Machine string
	State   model.BackendState
}

// History is what of the past counts: weights within the drain time, and backends that
// are gone. It is immutable.
type History struct {
	backends map[identity]past
	// split says that weights are shares of splitWeight.
	split bool
}

// identity is what makes a backend the same one as before: its address, and of a proxy
// its machine.
type identity struct {
	address netip.AddrPort
	proxy   string
}

type past struct {
	machine string
	weight  uint32
	// unready says that nothing could be sent to it.
	unready bool
	// peaks are the weights before that were larger than all that came after, largest and
	// oldest first.
	peaks []peak
	gone  time.Time // when it went; zero while it is there
}

// peak is a weight that a backend had until then.
type peak struct {
	weight uint32
	until  time.Time
}

// Backends are what the load balancers of the frontend are told, sorted by address and
// machine. next is when they will be others without anything having changed; zero for
// never.
func Backends(in Input) (backends []model.FrontendBackend, after History, next time.Time) {
	drain := Drain(in.Frontend)
	split := in.Frontend.Listener == "" && len(in.Frontend.Targets) > 1
	now := present(in, split)
	before := in.Before.backends
	if split != in.Before.split {
		before = rescale(before, now)
	}
	after = History{backends: make(map[identity]past, len(now)), split: split}
	due := func(t time.Time) {
		if t = t.Add(drain); next.IsZero() || t.Before(next) {
			next = t
		}
	}
	for id, b := range now {
		p := before[id].become(b.Weight, in.Now, drain)
		p.machine, p.unready, p.gone = b.Machine, b.State == model.BackendUnready, time.Time{}
		b.HopWeight = p.hop()
		if b.Weight > 0 {
			b.Standby = 0 // of another target of which it is a backup
		}
		for _, k := range p.peaks {
			due(k.until)
		}
		after.backends[id] = p
		backends = append(backends, b)
	}
	for id, p := range before {
		if _, there := now[id]; there {
			continue
		}
		gone := p.gone
		if gone.IsZero() {
			gone = in.Now
		}
		over := expired(gone, in.Now, drain)
		parts := over && in.Parting != nil && id.proxy != "" && !expired(gone, in.Now, 2*drain+partGrace) && in.Parting(id.proxy)
		if parts { // its flows are looked for as before
			p = p.become(0, in.Now, 2*drain+partGrace)
		} else {
			p = p.become(0, in.Now, drain)
		}
		p.gone = gone
		// One to which nothing could be sent had no flows to finish.
		if over && !parts || p.unready && p.hop() == 0 {
			continue
		}
		if parts {
			if look := in.Now.Add(partLook); next.IsZero() || look.Before(next) {
				next = look
			}
		} else {
			if !p.unready {
				due(gone)
			}
			for _, k := range p.peaks {
				due(k.until)
			}
		}
		state := model.BackendDraining
		if p.unready {
			state = model.BackendUnready
		}
		after.backends[id] = p
		backends = append(backends, model.FrontendBackend{Address: id.address, Machine: p.machine, HopWeight: p.hop(), State: state})
	}
	slices.SortFunc(backends, model.FrontendBackend.Compare)
	return backends, after, next
}

// Drain is how long a backend of the frontend that is to take no new flow keeps its flows.
func Drain(f *model.Frontend) time.Duration {
	if f.Drain <= 0 {
		return DefaultDrain
	}
	return f.Drain
}

// Available is how many of the backends may get new flows.
func Available(backends []model.FrontendBackend) int {
	n := 0
	for _, b := range backends {
		if b.Weight > 0 {
			n++
		}
	}
	return n
}

func expired(t, now time.Time, drain time.Duration) bool { return !now.Before(t.Add(drain)) }

// become is what a backend's past is once it has a weight.
func (p past) become(weight uint32, now time.Time, drain time.Duration) past {
	var peaks []peak
	if p.weight > weight {
		p.peaks = append(slices.Clip(p.peaks), peak{p.weight, now})
	}
	for _, k := range p.peaks {
		if expired(k.until, now, drain) {
			continue
		}
		for len(peaks) > 0 && peaks[len(peaks)-1].weight <= k.weight {
			peaks = peaks[:len(peaks)-1]
		}
		if k.weight > weight {
			peaks = append(peaks, k)
		}
	}
	p.weight, p.peaks = weight, peaks
	return p
}

func (p past) hop() uint32 {
	if len(p.peaks) > 0 {
		return max(p.weight, p.peaks[0].weight)
	}
	return p.weight
}

// rescale words the past in the measure of the present, by the backends that are in both.
func rescale(before map[identity]past, now map[identity]model.FrontendBackend) map[identity]past {
	var was, is uint64
	for id, p := range before {
		if b := now[id]; b.Weight > 0 && p.weight > 0 {
			was, is = was+uint64(p.weight), is+uint64(b.Weight)
		}
	}
	if was == 0 {
		return before
	}
	factor := func(w uint32) uint32 {
		if w == 0 {
			return 0
		}
		return uint32(max(1, min(math.MaxUint32, uint64(math.Round(float64(w)*float64(is)/float64(was))))))
	}
	out := make(map[identity]past, len(before))
	for id, p := range before {
		p.weight = factor(p.weight)
		p.peaks = slices.Clone(p.peaks)
		for i := range p.peaks {
			p.peaks[i].weight = factor(p.peaks[i].weight)
		}
		out[id] = p
	}
	return out
}

// present are the backends that the frontend has now, without hop weights.
func present(in Input, split bool) map[identity]model.FrontendBackend {
	if in.Frontend.Listener != "" {
		return proxies(in)
	}
	m := members(in)
	setStage(in, m)
	panics := panicking(in.Frontend, m)
	for i := range m {
		m[i].settle(in.Frontend, panics)
	}
	weigh(in.Frontend, m, split)
	out := make(map[identity]model.FrontendBackend, len(m))
	for _, x := range m {
		id := identity{address: x.Address}
		if other, twice := out[id]; twice {
			x.Weight = uint32(min(math.MaxUint32, uint64(x.Weight)+uint64(other.Weight)))
			x.State = min(x.State, other.State)
			x.Machine = cmp.Or(x.Machine, other.Machine)
			x.Backup = x.Backup && other.Backup
			x.Standby = uint32(min(math.MaxUint32, uint64(x.Standby)+uint64(other.Standby)))
		}
		out[id] = x.FrontendBackend
	}
	return out
}

func proxies(in Input) map[identity]model.FrontendBackend {
	at := netip.AddrPortFrom(in.Frontend.VIP, in.Frontend.Port)
	out := make(map[identity]model.FrontendBackend, len(in.Proxies))
	for _, p := range in.Proxies {
		b := model.FrontendBackend{Address: at, Machine: p.Machine, State: p.State}
		if p.State == model.BackendReady {
			b.Weight = DefaultWeight
		}
		out[identity{at, p.Machine}] = b
	}
	return out
}

// member is a backend of one target.
type member struct {
	model.FrontendBackend
	target int
	own    uint32 // its weight among its set
	takes  bool   // it may get new flows, if it is healthy
	away   bool   // its machine is lost, and nobody finds it well
	stage  stage  // whether it is for others of its set to take flows
}

// out says that a member is not to get new flows for what is known of it.
func (m member) out() bool { return m.away || m.Health == model.Unhealthy }

// members are the backends of every target, by target and address. Packets of one family
// go to no backend of the other: a Service with both has a frontend for each.
func members(in Input) []member {
	f := in.Frontend
	var out []member
	for i, t := range f.Targets {
		set := in.Sets[t.Set]
		if set == nil {
			continue
		}
		family := model.BackendSet{Backends: slices.Clone(set.Backends)}
		family.Backends = slices.DeleteFunc(family.Backends, func(b model.Backend) bool { return b.Address.Addr().Unmap().Is4() != f.VIP.Is4() })
		state, none := family.Accepting()
		for _, b := range family.Backends {
			m := member{target: i, own: DefaultWeight, FrontendBackend: model.FrontendBackend{Address: b.Address, Machine: b.Machine, State: b.State, Backup: b.Backup}}
			if w, said := f.Weights[b.Address.Addr()]; said {
				m.own = w
			}
			m.own = uint32(min(math.MaxUint32, uint64(m.own)*uint64(b.Share())))
			if in.Health != nil {
				m.Health = in.Health(b.Address)
			}
			m.away = in.Lost != nil && b.Machine != "" && m.Health != model.Healthy && in.Lost(b.Machine)
			m.takes = !none && b.State == state && t.Weight > 0 && m.own > 0
			if slices.Contains(f.Drained, b.Address.Addr()) {
				m.takes, m.State = false, max(m.State, model.BackendDraining)
			}
			out = append(out, m)
		}
	}
	return out
}

// panicking says that so few backends are healthy that health is not to be believed.
//
// Where nobody asked for a check, and where machines are lost, none left means that.
func panicking(f *model.Frontend, all []member) bool {
	takes, healthy, ill := 0, 0, 0
	for _, m := range all {
		if !m.takes || m.stage != onStage {
			continue
		}
		takes++
		if !m.out() {
			healthy++
		}
		if m.Health == model.Unhealthy {
			ill++
		}
	}
	if healthy == 0 && (ill == 0 || f.Check != nil && f.Check.Presumed) {
		return true
	}
	return healthy*100 < int(f.Panic)*takes
}

// settle makes the state of what was found.
func (m *member) settle(f *model.Frontend, panics bool) {
	switch {
	case m.takes && (m.stage != onStage || m.out() && !panics):
		m.takes = false
		// Flows of TCP are left to end by themselves: the checkers may be wrong. Those of
		// UDP have no end, and would be sent into the void for ever.
		m.State = model.BackendDraining
		if m.out() && f.Transport == model.UDP && f.QUIC == nil {
			m.State = model.BackendUnready
		}
	case m.takes:
		m.State = model.BackendReady // also where all that there is drains
	case m.State == model.BackendReady:
		m.State = model.BackendDraining // its weight or its target's is 0
	}
}

// weigh gives each member that takes flows its weight. A target's share is its own,
// however many backends it has.
func weigh(f *model.Frontend, all []member, split bool) {
	if !split {
		for i := range all {
			switch m := &all[i]; {
			case m.takes:
				m.Weight = m.own
			case m.stage == standingBy:
				m.Standby = m.own
			}
		}
		return
	}
	own, standby := map[int]float64{}, map[int]float64{}
	for _, m := range all {
		switch {
		case m.takes:
			own[m.target] += float64(m.own)
		case m.stage == standingBy:
			standby[m.target] += float64(m.own)
		}
	}
	total := 0.0
	for _, i := range slices.Sorted(maps.Keys(own)) {
		total += float64(f.Targets[i].Weight)
	}
	for i := range all {
		weight := float64(f.Targets[all[i].target].Weight)
		switch m := &all[i]; {
		case m.takes:
			m.Weight = uint32(max(1, math.Round(weight/total*float64(m.own)/own[m.target]*splitWeight)))
		case m.stage == standingBy:
			of := total
			if own[m.target] == 0 {
				of += weight
			}
			m.Standby = uint32(max(1, math.Round(weight/of*float64(m.own)/standby[m.target]*splitWeight)))
		}
	}
}
