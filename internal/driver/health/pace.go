package health

import (
	"math"
	"time"

	"fairlead.dev/internal/model"
)

// presumedRate is how many probes that nobody asked for a machine begins in a second: with more
// such checks it asks less often, and spends a tenth of a processor at most.
const presumedRate = 1000

// pace is how often a machine asks what nobody asked it to. The probes of a second are shared
// among the namespaces of the backends: one that has no more checks than its share has each
// asked in its interval, however many others have. The zero value is that of no checks.
type pace struct {
	namespaces map[string]*namespacePace
	// A namespace has so many probes in so many seconds.
	share, seconds int
}

type namespacePace struct {
	checks int
	starts time.Time // when the next new check may begin
}

// nobodys is the namespace of checks that are said to be of none.
var nobodys = []string{""}

func namespacesOf(c model.Check) []string {
	if len(c.Namespaces) == 0 {
		return nobodys
	}
	return c.Namespaces
}

// set takes all checks.
func (p *pace) set(checks []model.Check) {
	before := p.namespaces
	p.namespaces = map[string]*namespacePace{}
	for _, c := range checks {
		if !c.Presumed {
			continue
		}
		for _, name := range namespacesOf(c) {
			n := p.namespaces[name]
			if n == nil {
				if n = before[name]; n == nil {
					n = &namespacePace{}
				}
				n.checks, p.namespaces[name] = 0, n
			}
			n.checks++
		}
	}
	wants := make([]int, 0, len(p.namespaces))
	for _, n := range p.namespaces {
		wants = append(wants, n.checks)
	}
	p.share, p.seconds = min(model.FairShare(presumedRate, wants), presumedRate), 1
	if p.share < 1 { // not even one a second for each
		p.share, p.seconds = presumedRate, len(wants)
	}
}

// takes is how long so many probes of one namespace take.
func (p *pace) takes(probes int) time.Duration {
	return time.Duration(probes*p.seconds) * time.Second / time.Duration(p.share)
}

// interval is how long the probes of a check lie apart, at least: what the namespace allows that
// is best off. Backends that another namespace names too are asked no less often for that.
func (p *pace) interval(c model.Check) time.Duration {
	least := time.Duration(math.MaxInt64)
	for _, name := range namespacesOf(c) {
		if n := p.namespaces[name]; n != nil {
			least = min(least, p.takes(n.checks))
		}
	}
	return least
}

// start is when a new check may begin.
func (p *pace) start(c model.Check, now time.Time) time.Time {
	var due time.Time
	for _, name := range namespacesOf(c) {
		n := p.namespaces[name]
		if n.starts.Before(now) {
			n.starts = now
		}
		if due.IsZero() || n.starts.Before(due) {
			due = n.starts
		}
		n.starts = n.starts.Add(p.takes(1))
	}
	return due
}
