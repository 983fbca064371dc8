package agent

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"fairlead.dev/internal/model"
)

// beginGrace is how long a new agent waits until all that it is to announce can be:
// a peer that kept the machine's routes would drop those that do not come at once.
const beginGrace = 8 * time.Second

// awaitTime bounds two waits of a VIP that is new here: for other machines, where no plane gives up
// before, and for this machine's kernel.
const awaitTime = 60 * time.Second

// awaiting is a VIP that is new here and waits for machines, this one or others, or one that waits
// no more.
type awaiting struct {
	since time.Time
	over  bool
	// kernel is since when this machine's kernel is waited for; zero: it is not. lateKernel says that it
	// was waited for long enough.
	kernel     time.Time
	lateKernel bool
}

// await is since when a VIP waits, and how much longer it may.
func (a *announcer) await(vip netip.Addr, now time.Time) (w *awaiting, left time.Duration) {
	if w = a.awaiting[vip]; w == nil {
		w = &awaiting{since: now}
		a.awaiting[vip] = w
	}
	if now.Before(w.since) {
		w.since = now // the clock was set back
	}
	until := w.since.Add(awaitTime)
	if begun := a.started.Add(beginGrace); a.isRemembered(vip) && begun.Before(until) {
		until = begun // peers may have kept it from the agent before
	}
	return w, until.Sub(now)
}

// isRemembered says that peers may have kept a VIP from the agent before.
func (a *announcer) isRemembered(vip netip.Addr) bool {
	_, remembered := a.remembered[vip]
	return remembered && !a.began
}

// awaitsKernel says why a VIP waits for this machine's kernel, to which routers would bring flows that
// it does not know, "" where it does not, and when to look again. A busy machine may take long to load
// programs; what is announced already stays so.
func (a *announcer) awaitsKernel(v model.VIP, pending string, now time.Time) (why string, again time.Duration) {
	w, left := a.await(v.Address, now)
	switch {
	case pending == "":
		w.kernel, w.lateKernel = time.Time{}, false
		return "", 0
	case w.kernel.IsZero() || now.Before(w.kernel):
		w.kernel = now
	}
	if !a.isRemembered(v.Address) {
		left = w.kernel.Add(awaitTime).Sub(now)
	}
	switch {
	case a.ready[v.Address]:
	case left > 0:
		return pending, left
	case !w.lateKernel:
		w.lateKernel = true
		a.log.Warn("this machine's kernel was not ready for the VIP in time; the VIP is announced anyway", "vip", v.Address, "why", pending)
	}
	return "", 0
}

// awaits says for what a VIP waits that is new here, "" for nothing, and when to look again.
// One that waited once waits no more: what planes say later of a VIP that serves, or say again
// to an agent that started anew, takes nothing off the air.
func (a *announcer) awaits(v model.VIP, now time.Time) (why string, again time.Duration) {
	w, again := a.await(v.Address, now)
	switch {
	case w.over:
	case len(v.Awaited) == 0:
		w.over = true
	case again <= 0:
		w.over = true
		a.log.Warn("other machines were not ready for the flows of the VIP in time; the VIP is announced anyway", "vip", v.Address, "not_ready", strings.Join(v.Awaited, ", "))
	case slices.Equal(v.Awaited, []string{a.machine}):
		return "the VIP is new on this machine, whose kernel is not ready for it yet", again
	default:
		others := slices.DeleteFunc(slices.Clone(v.Awaited), func(m string) bool { return m == a.machine })
		return "the VIP is new on this machine, and these machines are not ready for the flows that this machine forwards: " + strings.Join(others, ", "), again
	}
	return "", 0
}
