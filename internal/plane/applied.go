package plane

import "fairlead.dev/internal/progress"

// timeApplied notes how long a machine took to run the revision that concerned it.
func (l *loop) timeApplied(name string, now *progress.Machine) {
	if now == nil {
		return
	}
	rev, is := l.plane.views.Reached(name, now.Applied)
	if !is {
		return
	}
	if at, known := l.published.At(rev); known {
		l.plane.metrics.applied.Observe(l.plane.config.Now().Sub(at).Seconds())
	}
}
