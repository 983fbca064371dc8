package balance

import (
	"slices"

	"fairlead.dev/internal/model"
)

// stage is whether a member has flows of its set, as far as that is for backups and the others to settle.
type stage uint8

const (
	onStage    stage = iota // it has, unless it is unhealthy
	standingBy              // a backup that is not needed
	relieved                // none of those that are no backups is able to, and backups are
)

// setStage says which members have the flows of their set: its backups while none of the others is able to, else
// the others. Where neither are, it is the others, and package doc says what becomes of them.
//
// Backups that have flows keep them until another one is healthy: one that was not asked yet waits. It does not
// wait for a check that nobody asked for, which may never be answered.
func setStage(in Input, all []member) {
	for len(all) > 0 {
		n := slices.IndexFunc(all, func(m member) bool { return m.target != all[0].target })
		if n < 0 {
			n = len(all)
		}
		stageSet(in, all[:n])
		all = all[n:]
	}
}

// stageSet is setStage for the members of one set.
func stageSet(in Input, set []member) {
	if !slices.ContainsFunc(set, func(m member) bool { return m.Backup }) {
		return
	}
	asked := in.Frontend.Check != nil && !in.Frontend.Check.Presumed
	var others, otherAble, backups, busy bool // busy: backups have had flows
	for _, m := range set {
		able := m.takes && !m.out()
		if m.Backup {
			backups = backups || able
			busy = busy || in.Before.backends[identity{address: m.Address}].weight > 0
		} else {
			others = others || m.takes
		}
	}
	if !others {
		return
	}
	for _, m := range set {
		waits := busy && asked && m.Health == model.HealthUnknown
		otherAble = otherAble || !m.Backup && m.takes && !m.out() && !waits
	}
	for i := range set {
		switch m := &set[i]; {
		case m.Backup && m.takes && (otherAble || !backups):
			m.stage = standingBy
		case !m.Backup && m.takes && !otherAble && backups:
			m.stage = relieved
		}
	}
}
