package translate

import (
	"slices"
	"strconv"
	"testing"
)

func namesOf(machines []fleetMachine) []string {
	var out []string
	for _, m := range machines {
		out = append(out, m.name)
	}
	return out
}

// One machine more or less among those that may be chosen, or in the number that is,
// moves one at most; and a cordoned one never leaves its place.
func TestAtMostMovesOne(t *testing.T) {
	var machines []fleetMachine
	for i := range 20 {
		machines = append(machines, fleetMachine{name: "edge-" + strconv.Itoa(10+i)})
	}
	lost := func(before, after []string) int {
		n := 0
		for _, name := range before {
			if !slices.Contains(after, name) {
				n++
			}
		}
		return n
	}
	for most := 1; most < 20; most++ {
		chosen := namesOf(atMost(most, machines, "pool"))
		if len(chosen) != most || !slices.IsSorted(chosen) {
			t.Fatalf("%d of 20: %q", most, chosen)
		}
		if more := namesOf(atMost(most+1, machines, "pool")); lost(chosen, more) != 0 {
			t.Errorf("from %d to %d: %q became %q", most, most+1, chosen, more)
		}
		for i := range machines {
			rest := slices.Delete(slices.Clone(machines), i, i+1)
			want := 0
			if slices.Contains(chosen, machines[i].name) {
				want = 1
			}
			if got := lost(chosen, namesOf(atMost(most, rest, "pool"))); got != want {
				t.Errorf("%d of 20 without %s: %d left, want %d", most, machines[i].name, got, want)
			}
			cordoned := slices.Clone(machines)
			cordoned[i].cordoned = true
			if after := namesOf(atMost(most, cordoned, "pool")); lost(chosen, after) != 0 || len(after) != most+want && most < 19 {
				t.Errorf("%d of 20 with %s cordoned: %q became %q", most, machines[i].name, chosen, after)
			}
		}
	}
	if namesOf(atMost(10, machines, "pool"))[0] == namesOf(atMost(10, machines, "other"))[0] &&
		slices.Equal(namesOf(atMost(10, machines, "pool")), namesOf(atMost(10, machines, "other"))) {
		t.Error("two pools have the same machines")
	}
}
