package health

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"fairlead.dev/internal/model"
)

// How a probe ends, as figures have it.
const (
	Good            = "good"
	FailRefused     = "refused"
	FailReset       = "reset"
	FailClosed      = "closed"
	FailTimeout     = "timeout"
	FailUnreachable = "unreachable"
	FailTLS         = "tls"
	FailAnswer      = "answer" // the answer is not the expected one
	FailOther       = "other"
)

// bounds are what durations are counted by, seconds.
var bounds = [...]float64{0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10}

// figures of the probes of one kind.
type figures struct {
	ended   map[string]uint64
	seconds float64
	within  [len(bounds)]uint64
}

// count notes a probe that ended. The prober is locked.
func (p *Prober) count(kind model.CheckKind, how string, took time.Duration) {
	f := p.figures[kind]
	if f == nil {
		f = &figures{ended: map[string]uint64{}}
		p.figures[kind] = f
	}
	f.ended[how]++
	f.seconds += took.Seconds()
	for i, most := range bounds {
		if took.Seconds() <= most {
			f.within[i]++
		}
	}
}

// Figures returns the finished probes, by kind; underWay is the number of the others.
func (p *Prober) Figures() (list []model.CheckFigures, underWay int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for kind, f := range p.figures {
		x := model.CheckFigures{Kind: kind, Ended: maps.Clone(f.ended), Seconds: f.seconds, Within: map[float64]uint64{}}
		for i, most := range bounds {
			x.Within[most] = f.within[i]
		}
		list = append(list, x)
	}
	slices.SortFunc(list, func(a, b model.CheckFigures) int { return cmp.Compare(a.Kind, b.Kind) })
	return list, p.running
}
