package fleet

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"testing"
)

func namesOf(machines []Machine) []string {
	var out []string
	for _, m := range machines {
		out = append(out, m.Name)
	}
	return out
}

// TestAtMostMovesOne holds that one machine more or less among the candidates, or in the number that is chosen, moves
// one at most, and that a cordoned machine stays chosen.
func TestAtMostMovesOne(t *testing.T) {
	var machines []Machine
	for i := range 20 {
		machines = append(machines, Machine{Name: "edge-" + strconv.Itoa(10+i)})
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
			if slices.Contains(chosen, machines[i].Name) {
				want = 1
			}
			if got := lost(chosen, namesOf(atMost(most, rest, "pool"))); got != want {
				t.Errorf("%d of 20 without %s: %d left, want %d", most, machines[i].Name, got, want)
			}
			cordoned := slices.Clone(machines)
			cordoned[i].cordoned = true
			if after := namesOf(atMost(most, cordoned, "pool")); lost(chosen, after) != 0 || len(after) != most+want && most < 19 {
				t.Errorf("%d of 20 with %s cordoned: %q became %q", most, machines[i].Name, chosen, after)
			}
		}
	}
	if namesOf(atMost(10, machines, "pool"))[0] == namesOf(atMost(10, machines, "other"))[0] &&
		slices.Equal(namesOf(atMost(10, machines, "pool")), namesOf(atMost(10, machines, "other"))) {
		t.Error("two pools have the same machines")
	}
}

// TestCandidates holds that the first candidates spread evenly, and that the loss of a machine moves its own VIPs only.
func TestCandidates(t *testing.T) {
	s := &Selection{}
	for i := range 5 {
		s.Machines = append(s.Machines, fmt.Sprintf("machine-%d", i))
	}
	less := &Selection{Machines: slices.Clone(s.Machines[1:])}
	cordoned := &Selection{Machines: s.Machines, cordoned: s.Machines[:1]}
	first := map[string]int{}
	const vips = 1000
	vip := netip.MustParseAddr("192.0.2.0")
	for range vips {
		list := s.Candidates(vip)
		first[list[0]]++
		without := slices.DeleteFunc(slices.Clone(list), func(m string) bool { return m == "machine-0" })
		if !slices.Equal(less.Candidates(vip), without) {
			t.Fatalf("%s: %v, and without machine-0 %v", vip, list, less.Candidates(vip))
		}
		if got := cordoned.Candidates(vip); !slices.Equal(got, append(without, "machine-0")) {
			t.Fatalf("%s: %v with machine-0 cordoned", vip, got)
		}
		vip = vip.Next()
	}
	for m, n := range first {
		if n < vips/5*3/4 || n > vips/5*5/4 {
			t.Errorf("%s is the first candidate of %d of %d", m, n, vips)
		}
	}
}
