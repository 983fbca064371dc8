package agent

import (
	"maps"
	"slices"

	"fairlead.dev/internal/model"
)

const (
	// reportedBytes is how much of a report results of checks may take: half of what a plane takes.
	reportedBytes = 4 << 20
	// reportedResults is how many results a plane takes.
	reportedResults = 100_000
	// resultBytes is what a result takes beside its texts, at most.
	resultBytes = 48
	// reportedEjections is how many backends that the proxy holds for failed a report tells, of some
	// 200 bytes each.
	reportedEjections = 8192
)

// ejections are those that a report has room for: of each namespace its share, the first ones.
func ejections(all []model.Ejection) (kept []model.Ejection) {
	if len(all) <= reportedEjections {
		return all
	}
	counts := map[string]int{}
	for _, e := range all {
		counts[e.Group.Namespace()]++
	}
	share := model.FairShare(reportedEjections, slices.Collect(maps.Values(counts)))
	clear(counts)
	for _, e := range all {
		if n := e.Group.Namespace(); counts[n] < share {
			counts[n]++
			kept = append(kept, e)
		}
	}
	return kept
}

// fitting leaves out what is too much: messages first, then results of presumed checks, then
// others, each from the end. The same are left out again as long as the checks are the same, so
// that no verdict wavers.
func fitting(results []model.CheckResult, presumed func(id string) bool) []model.CheckResult {
	total, bare := 0, 0
	for _, r := range results {
		bare += len(r.ID) + len(r.Health) + resultBytes
		total += len(r.ID) + len(r.Health) + resultBytes + len(r.Message)
	}
	if total <= reportedBytes && len(results) <= reportedResults {
		return results
	}
	results = slices.Clone(results)
	for i := range results {
		results[i].Message = ""
	}
	if bare <= reportedBytes && len(results) <= reportedResults {
		return results
	}
	room, places := reportedBytes, reportedResults
	keep := make([]bool, len(results))
	for _, last := range []bool{false, true} {
		for i, r := range results {
			if presumed(r.ID) != last {
				continue
			}
			if room -= len(r.ID) + len(r.Health) + resultBytes; room < 0 || places == 0 {
				break
			}
			keep[i] = true
			places--
		}
	}
	kept := results[:0]
	for i, r := range results {
		if keep[i] {
			kept = append(kept, r)
		}
	}
	return kept
}
