package translate

import (
	"slices"
	"strconv"
	"testing"

	"fairlead.dev/internal/translate/fleet"
)

func namesOf(machines []fleet.Machine) []string {
	var out []string
	for _, m := range machines {
		out = append(out, m.Name)
	}
	return out
}

// One machine more or less among those that may be chosen, or in the number that is,
// moves one at most; and a cordoned one never leaves its place.
func TestAtMostMovesOne(t *testing.T) {
	var machines []fleet.Machine
	for i := range 20 {
		machines = append(machines, fleet.Machine{Name: "edge-" + strconv.Itoa(10+i)})
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
		chosen := namesOf(fleet.AtMost(most, machines, "pool"))
		if len(chosen) != most || !slices.IsSorted(chosen) {
			t.Fatalf("%d of 20: %q", most, chosen)
		}
		if more := namesOf(fleet.AtMost(most+1, machines, "pool")); lost(chosen, more) != 0 {
			t.Errorf("from %d to %d: %q became %q", most, most+1, chosen, more)
		}
		for i := range machines {
			rest := slices.Delete(slices.Clone(machines), i, i+1)
			want := 0
			if slices.Contains(chosen, machines[i].Name) {
				want = 1
			}
			if got := lost(chosen, namesOf(fleet.AtMost(most, rest, "pool"))); got != want {
				t.Errorf("%d of 20 without %s: %d left, want %d", most, machines[i].Name, got, want)
			}
			cordoned := slices.Clone(machines)
			cordoned[i].Cordoned = true
			if after := namesOf(fleet.AtMost(most, cordoned, "pool")); lost(chosen, after) != 0 || len(after) != most+want && most < 19 {
				t.Errorf("%d of 20 with %s cordoned: %q became %q", most, machines[i].Name, chosen, after)
			}
		}
	}
	if namesOf(fleet.AtMost(10, machines, "pool"))[0] == namesOf(fleet.AtMost(10, machines, "other"))[0] &&
		slices.Equal(namesOf(fleet.AtMost(10, machines, "pool")), namesOf(fleet.AtMost(10, machines, "other"))) {
		t.Error("two pools have the same machines")
	}
}
