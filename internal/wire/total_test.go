package wire

import (
	"math"
	"reflect"
	"testing"

	"fairlead.dev/internal/model"
	agentv1 "fairlead.dev/proto/agent/v1"
)

func TestTotals(t *testing.T) {
	v := model.Volume{Received: 1, Sent: 2, Retries: 3, Resets: 4, Connections: 5, Open: 6, Answers: [model.StatusClasses]uint64{2: 7, 5: 8}}
	v.Seconds.Add(0.03, 9)
	v.Seconds.Add(7, 1)
	want := []model.TrafficTotal{{By: "namespaces", Name: "shop", Volume: v}, {By: "listeners", Name: "http-80"}}
	if got := TotalsOf(Totals(want)); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	odd := TotalsOf([]*agentv1.Total{{Buckets: []int32{4, 5, 5, 6}, Counts: []uint64{1, 2, 3, 4}}, {Buckets: []int32{4, 5}, Counts: []uint64{1}}, {Buckets: []int32{4, math.MaxInt32}, Counts: []uint64{1, 1}}})
	if len(odd[0].Seconds.Buckets) != 2 || len(odd[1].Seconds.Buckets) != 1 || len(odd[2].Seconds.Buckets) != 1 {
		t.Errorf("odd buckets are read as %+v", odd)
	}
}
