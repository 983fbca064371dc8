package proxy

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"fairlead.dev/internal/model"
)

// groupStats are the counters of a cluster that figures are made of, by their ends.
const groupStats = `/stats?usedonly&filter=^cluster\..*\.(upstream_rq_total|upstream_rq_5xx|membership_total|membership_healthy)$`

// Groups are the figures of the groups that have taken requests, sorted.
func (s *Supervisor) Groups(ctx context.Context) ([]model.GroupFigures, error) {
	body, err := s.admin.ask(ctx, http.MethodGet, groupStats)
	if err != nil {
		return nil, err
	}
	return readGroups(string(body)), nil
}

func readGroups(stats string) []model.GroupFigures {
	groups := map[model.GroupID]*model.GroupFigures{}
	for line := range strings.Lines(stats) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		name, isCluster := strings.CutPrefix(name, "cluster.")
		dot := strings.LastIndexByte(name, '.')
		n, err := strconv.ParseUint(value, 10, 64)
		if !isCluster || dot < 0 || err != nil || len(name) > maxCluster || !utf8.ValidString(name) { // names go into reports
			continue
		}
		id := model.GroupID(name[:dot])
		g := groups[id]
		if g == nil {
			g = &model.GroupFigures{Group: id}
			groups[id] = g
		}
		switch name[dot+1:] {
		case "upstream_rq_total":
			g.Requests = n
		case "upstream_rq_5xx":
			g.Errors = n
		case "membership_total":
			g.Backends = uint32(min(n, 1<<31))
		case "membership_healthy":
			g.Healthy = uint32(min(n, 1<<31))
		}
	}
	var list []model.GroupFigures
	for _, id := range slices.SortedFunc(maps.Keys(groups), cmp.Compare) {
		if groups[id].Requests > 0 {
			list = append(list, *groups[id])
		}
	}
	return list
}
