package agent

import (
	"slices"
	"strings"
	"time"

	"fairlead.dev/internal/model"
)

// awaitTime is how long a VIP that is new here waits for other machines where no plane says
// how long; a plane gives up before.
const awaitTime = 60 * time.Second

// awaiting is a VIP that is new here and waits for machines, or one that waits no more.
type awaiting struct {
	since time.Time
	over  bool
}

// awaits says for what a VIP waits that is new here, "" for nothing, and when to look again.
// One that waited once waits no more: what planes say later of a VIP that serves, or say again
// to an agent that started anew, takes nothing off the air.
func (a *announcer) awaits(v model.VIP, now time.Time) (why string, again time.Duration) {
	w := a.awaiting[v.Address]
	if w == nil {
		w = &awaiting{since: now}
		a.awaiting[v.Address] = w
	}
	if now.Before(w.since) {
		w.since = now // the clock was set back
	}
	until := w.since.Add(awaitTime)
	_, remembered := a.remembered[v.Address]
	if begun := a.started.Add(beginGrace); remembered && !a.began && begun.Before(until) {
		until = begun // peers may have kept it from the agent before
	}
	again = until.Sub(now)
	switch {
	case w.over:
	case len(v.Awaited) == 0:
		w.over = true
	case again <= 0:
		w.over = true
		a.log.Warn("a VIP is announced though not all machines are known to be ready for its flows", "vip", v.Address, "not_ready", strings.Join(v.Awaited, ", "))
	case slices.Equal(v.Awaited, []string{a.machine}):
		return "it is new here, and this machine's kernel is not ready for it yet", again
	default:
		others := slices.DeleteFunc(slices.Clone(v.Awaited), func(m string) bool { return m == a.machine })
		return "it is new here, and not ready for what this machine passes on are " + strings.Join(others, ", "), again
	}
	return "", 0
}
