package verdict

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"fairlead.dev/internal/model"
)

func names(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("edge%d", i)
	}
	return list
}

func id(i int) string { return fmt.Sprintf("10.0.%d.%d:80/6f1ed002ab55", i/256, i%256) }

func TestCheckersAreAFewOfThoseThereAre(t *testing.T) {
	for n := range 8 {
		machines := names(n)
		for i := range 200 {
			got := Checkers(id(i), machines, Count)
			if len(got) != min(n, Count) || len(slices.Compact(slices.Sorted(slices.Values(got)))) != len(got) {
				t.Fatalf("of %d machines %v check", n, got)
			}
			for _, m := range got {
				if !slices.Contains(machines, m) {
					t.Fatalf("%s is nobody", m)
				}
			}
			turned := slices.Clone(machines)
			slices.Reverse(turned)
			if other := Checkers(id(i), turned, Count); !slices.Equal(got, other) {
				t.Fatalf("the order of machines changes who checks: %v, %v", got, other)
			}
		}
	}
}

// TestCheckersChangeLittle holds that a machine that comes replaces one checker at most,
// and that one that goes is replaced where it checked and nowhere else.
func TestCheckersChangeLittle(t *testing.T) {
	const checks = 2000
	machines := names(10)
	moved := 0
	for i := range checks {
		before := Checkers(id(i), machines[:9], Count)
		after := Checkers(id(i), machines, Count)
		var gone []string
		for _, m := range before {
			if !slices.Contains(after, m) {
				gone = append(gone, m)
			}
		}
		if !slices.Contains(after, machines[9]) && !slices.Equal(before, after) || len(gone) > 1 {
			t.Fatalf("%v became %v when %s came", before, after, machines[9])
		}
		moved += len(gone)
	}
	if want := checks * Count / 10; math.Abs(float64(moved-want)) > float64(want)/5 {
		t.Errorf("%d places moved, want about %d", moved, want)
	}
}

func TestCheckersShareTheWork(t *testing.T) {
	const checks, machines = 10000, 20
	load := map[string]int{}
	for i := range checks {
		for _, m := range Checkers(id(i), names(machines), Count) {
			load[m]++
		}
	}
	want := float64(checks * Count / machines)
	for m, n := range load {
		if math.Abs(float64(n)-want) > want*0.12 {
			t.Errorf("%s checks %d, want about %.0f", m, n, want)
		}
	}
	if len(load) != machines {
		t.Errorf("%d machines check", len(load))
	}
}

// TestVerdicts goes through every way in which five machines can vote.
func TestVerdicts(t *testing.T) {
	says := []model.Health{model.HealthUnchecked, model.HealthUnknown, model.Healthy, model.Unhealthy}
	for _, before := range says {
		for n := range 1 << 10 {
			votes := map[string]model.Health{}
			well, ill := 0, 0
			for i := range 5 {
				v := says[n>>(2*i)&3]
				votes[fmt.Sprint(i)] = v
				switch v {
				case model.Healthy:
					well++
				case model.Unhealthy:
					ill++
				}
			}
			got := Of(votes, before)
			switch {
			case well+ill == 0 && (before == model.Healthy || before == model.Unhealthy):
				if got != before {
					t.Fatalf("nobody answers, and %s became %s", before, got)
				}
			case well+ill == 0:
				if got != model.HealthUnknown {
					t.Fatalf("nobody ever answered, and it is %s", got)
				}
			case ill > well != (got == model.Unhealthy), ill <= well != (got == model.Healthy):
				t.Fatalf("%d say healthy, %d unhealthy: %s", well, ill, got)
			}
			// Silence is no vote.
			if more := Of(map[string]model.Health{"0": votes["0"], "1": votes["1"], "2": votes["2"], "3": votes["3"], "4": votes["4"], "5": model.HealthUnknown}, before); more != got {
				t.Fatalf("one more that does not answer changes %s to %s", got, more)
			}
		}
	}
	for _, v := range []model.Health{model.Healthy, model.Unhealthy} {
		if got := Of(map[string]model.Health{"a": v}, model.HealthUnknown); got != v {
			t.Errorf("the first vote says %s, and it is %s", v, got)
		}
	}
	if got := Of(map[string]model.Health{"a": model.Unhealthy, "b": model.Healthy}, model.Healthy); got != model.Healthy {
		t.Errorf("one against one: %s", got)
	}
}

func BenchmarkCheckers(b *testing.B) {
	machines := names(100)
	for i := 0; b.Loop(); i++ {
		Checkers(id(i), machines, Count)
	}
}
