package report

import (
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

// classes are those of the SVG's elements, in order; the SVG is well-formed.
func classes(t *testing.T, svg string) (all []string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("it is no XML: %v\n%s", err, svg)
		}
		if e, ok := token.(xml.StartElement); ok {
			for _, a := range e.Attr {
				if a.Name.Local == "class" {
					all = append(all, a.Value)
				}
			}
		}
	}
}

func count(list []string, what string) (n int) {
	for _, s := range list {
		if s == what {
			n++
		}
	}
	return n
}

func TestHistogram(t *testing.T) {
	svg := Histogram{Title: "a < b", Unit: "ms", Width: 10, Values: []float64{0, 9.9, 10, 31}, Goal: 20, GoalLabel: "goal"}.SVG()
	got := classes(t, svg)
	if n := count(got, "bar"); n != 3 {
		t.Errorf("%d bars, want 3: 0 to 10, 10 to 20, 30 to 40", n)
	}
	if !slices.Contains(got, "mark") || !strings.Contains(svg, "a &lt; b") {
		t.Errorf("the goal or the title is not there: %s", svg)
	}
	if got := classes(t, Histogram{Width: 10}.SVG()); count(got, "bar")+count(got, "mark") != 0 {
		t.Errorf("an empty histogram has bars: %v", got)
	}
}

func TestTimeline(t *testing.T) {
	points := []Point{{0, 1}, {10, 3}, {20, 2}}
	svg := Timeline{Title: "t", Panels: []Panel{{Label: "steps", Steps: true, Points: points}, {Label: "line", Points: points}}}.SVG()
	got := classes(t, svg)
	if count(got, "step") != 1 || count(got, "line") != 1 {
		t.Errorf("lines are %v, want one of each kind", got)
	}
	// Time goes to the right edge, and a higher value is higher up.
	line := svg[strings.Index(svg, `class="line" d="`):]
	line = line[:strings.Index(line, `"/>`)]
	if n := strings.Count(line, "L"); n != len(points)-1 || !strings.Contains(line, "L876.0 ") {
		t.Errorf("the line is %s, want %d points that end at the right", line, len(points))
	}
	classes(t, Timeline{Panels: []Panel{{}}}.SVG())
}

func TestTicks(t *testing.T) {
	for _, c := range []struct {
		most  float64
		about int
		want  []float64
	}{
		{4, 5, []float64{0, 1, 2, 3, 4}},
		{210, 5, []float64{0, 50, 100, 150, 200}},
		{1, 10, []float64{0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1}},
	} {
		got := scale{0, c.most, 0, 100}.ticks(c.about)
		if len(got) != len(c.want) || got[len(got)-1]-c.want[len(c.want)-1] > 1e-9 {
			t.Errorf("ticks to %v are %v, want %v", c.most, got, c.want)
		}
	}
}
