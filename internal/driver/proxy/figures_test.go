package proxy

import (
	"slices"
	"testing"

	"fairlead.dev/internal/model"
)

func TestFiguresOfGroups(t *testing.T) {
	got := readGroups(`cluster.team/b/80.membership_healthy: 1
cluster.team/b/80.membership_total: 2
cluster.team/b/80.upstream_rq_5xx: 3
cluster.team/b/80.upstream_rq_total: 40
cluster.team/a/80~1f.upstream_rq_total: 5
cluster.team/idle/80.membership_total: 7
http.http-80.downstream_rq_total: 9
cluster.odd
cluster.team/c/80.upstream_rq_total: many
`)
	want := []model.GroupFigures{
		{Group: "team/a/80~1f", Requests: 5},
		{Group: "team/b/80", Requests: 40, Errors: 3, Backends: 2, Healthy: 1},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
