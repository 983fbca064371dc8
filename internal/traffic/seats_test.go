package traffic

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"fairlead.dev/internal/model"
)

// Whatever comes: seats are bounded and used up, namespaces that want more have as many as any other but one, and who has a seat keeps it once
// that is so.
func TestSeatsAreFair(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		most, wants := 1+random.IntN(20), map[string]int{}
		s := newSeats[string](most, quietTurns)
		turn := func() (all int) {
			s.turn()
			for _, namespace := range slices.Sorted(maps.Keys(wants)) {
				for i := range wants[namespace] {
					s.has(fmt.Sprint(namespace, i), namespace, true)
					all++
				}
			}
			return all
		}
		for range 1 + random.IntN(5) {
			wants[fmt.Sprint("ns", len(wants))] = 1 + random.IntN(30)
			all := turn()
			if len(s.given) != min(most, all) {
				t.Fatalf("%d seats of %d are given to %d", len(s.given), most, all)
			}
		}
		for a, n := range wants {
			for b := range wants {
				if s.of[a] < n && s.of[b] > s.of[a]+1 {
					t.Fatalf("of %d seats for %v: %v", most, wants, s.of)
				}
			}
		}
		before := slices.Sorted(maps.Keys(s.given))
		if turn(); !slices.Equal(before, slices.Sorted(maps.Keys(s.given))) {
			t.Fatal("seats change hands without end")
		}
	}
}

// A namespace that has taken all series leaves others theirs; what it loses is in "other" from then on.
func TestNamespacesShareNames(t *testing.T) {
	totals, volumes := NewTotals(Hosts, 4), NewVolumes(4)
	take := func(n uint64, hosts ...model.RequestFigures) (requests, sent map[string]uint64) {
		var traffic model.Traffic
		for _, f := range hosts {
			f.Classes = [model.StatusClasses]uint64{2: n}
			traffic.Requests = append(traffic.Requests, f)
			traffic.Hosts = append(traffic.Hosts, model.HostTraffic{Host: f.Host, Volume: model.Volume{Sent: n}})
		}
		totals.Take(traffic.Requests)
		volumes.Take(Hosts.Counted(traffic))
		requests, sent = map[string]uint64{}, map[string]uint64{}
		totals.All(func(name string, _ model.StatusClass, n uint64) { requests[name] = n })
		volumes.All(func(name string, v model.Volume) { sent[name] = v.Sent })
		return requests, sent
	}
	var many []model.RequestFigures
	for i := range 6 {
		many = append(many, model.RequestFigures{Host: fmt.Sprintf("m%d.test", i), Route: "HTTPRoute/many/app"})
	}
	few := model.RequestFigures{Host: "few.test", Route: "HTTPRoute/few/app"}
	want := map[string]uint64{"m0.test": 10, "m1.test": 10, "m2.test": 10, "m3.test": 10, "other": 20}
	for range 2 {
		if requests, sent := take(10, many...); !reflect.DeepEqual(requests, want) || !reflect.DeepEqual(sent, want) {
			t.Errorf("requests %v, bytes %v, want %v", requests, sent, want)
		}
	}
	// m3.test has counted in its own series before few.test takes its seat.
	want = map[string]uint64{"m0.test": 15, "m1.test": 15, "m2.test": 15, "few.test": 15, "other": 30}
	if requests, sent := take(15, append(slices.Clone(many), few)...); !reflect.DeepEqual(requests, want) || !reflect.DeepEqual(sent, want) {
		t.Errorf("requests %v, bytes %v, want %v", requests, sent, want)
	}
	want = map[string]uint64{"m0.test": 16, "m1.test": 16, "m2.test": 16, "few.test": 16, "other": 33}
	if requests, sent := take(16, append(slices.Clone(many), few)...); !reflect.DeepEqual(requests, want) || !reflect.DeepEqual(sent, want) {
		t.Errorf("requests %v, bytes %v, want %v", requests, sent, want)
	}
	if volumes.Left() != 3 {
		t.Errorf("%d are left out", volumes.Left())
	}
}

// A name that has counted nothing for long makes room for one that does.
func TestQuietNamesMakeRoom(t *testing.T) {
	volumes := NewVolumes(1)
	counted := func(n uint64) []Counted {
		return []Counted{{Key: "old", Name: "old", Volume: model.Volume{Sent: 7}}, {Key: "new", Name: "new", Volume: model.Volume{Sent: n}}}
	}
	for n := range uint64(quietTurns) {
		volumes.Take(counted(n))
	}
	sent := func() map[string]uint64 {
		all := map[string]uint64{}
		volumes.All(func(name string, v model.Volume) { all[name] = v.Sent })
		return all
	}
	if got := sent(); got["old"] != 7 || got["new"] != 0 || volumes.Left() != 1 {
		t.Errorf("too early: %v", got)
	}
	volumes.Take(counted(quietTurns + 4))
	if got := sent(); !reflect.DeepEqual(got, map[string]uint64{"new": 5, Other: quietTurns - 1}) || volumes.Left() != 1 {
		t.Errorf("%v, %d left out", got, volumes.Left())
	}
}
