// Package verdict decides who checks a backend, and what comes of what they found.
//
// It does no I/O and reads no clock: equal arguments give equal answers, so that anybody
// can count after why a backend is out.
//
// Invariant: a backend is out because more of those that answer say so than say the
// opposite. Nobody's silence takes a backend out or brings it back.
package verdict

import (
	"cmp"
	"slices"

	"fairlead.dev/internal/model"
)

// Count is how many machines check a backend, if there are as many: two agree against one
// that errs.
const Count = 3

// Checkers are the n machines that check what has this ID, best first; all, if there are
// fewer. machines are unique, in any order.
//
// They are chosen by rendezvous (Thaler and Ravishankar, 1998): a machine that comes takes
// the place of one checker at most, and one that goes leaves its places to one each.
func Checkers(id string, machines []string, n int) []string {
	type ranked struct {
		machine string
		score   uint64
	}
	var best []ranked
	for _, m := range machines {
		r := ranked{m, score(id, m)}
		at, _ := slices.BinarySearchFunc(best, r, func(a, b ranked) int {
			return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.machine, b.machine))
		})
		if at >= n {
			continue
		}
		best = slices.Insert(best, at, r)
		best = best[:min(len(best), n)]
	}
	chosen := make([]string, len(best))
	for i, r := range best {
		chosen[i] = r.machine
	}
	return chosen
}

// score is FNV-1a of both names, mixed as in MurmurHash3, whose last bits depend on all.
func score(id, machine string) uint64 {
	h := uint64(14695981039346656037)
	for _, part := range [...]string{id, "\x00", machine} {
		for i := range len(part) {
			h = (h ^ uint64(part[i])) * 1099511628211
		}
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// Of is what the votes come to: unhealthy when more machines say so than say healthy,
// healthy otherwise. Votes that are neither do not count; when none does, what was decided
// before stays, and is unknown at first.
func Of(votes map[string]model.Health, before model.Health) model.Health {
	well, ill := 0, 0
	for _, v := range votes {
		switch v {
		case model.Healthy:
			well++
		case model.Unhealthy:
			ill++
		}
	}
	switch {
	case well+ill > 0 && ill > well:
		return model.Unhealthy
	case well+ill > 0:
		return model.Healthy
	case before == model.Healthy || before == model.Unhealthy:
		return before
	default:
		return model.HealthUnknown
	}
}
