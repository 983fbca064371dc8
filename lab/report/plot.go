package report

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// Plots are SVGs without scripts or fonts of their own, so that they show the same on
// a web page, in a README and in a viewer; colours follow the reader's light or dark
// setting.
const plotStyle = `
  .card{fill:#ffffff;stroke:#d0d7de}.ink{fill:#1f2328}.dim{fill:#59636e}
  .rule{stroke:#d0d7de}.mark{stroke:#cf222e;stroke-dasharray:4 3}.over{fill:#cf222e}
  .bar{fill:#0f7b8a}.line{fill:none;stroke:#0f7b8a;stroke-width:1.3;stroke-linejoin:round}
  .step{fill:none;stroke:#d9822b;stroke-width:1.6}
  text{font-family:ui-sans-serif,system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif;font-size:12px}
  .h1{font-size:17px;font-weight:600}.end{text-anchor:end}.mid{text-anchor:middle}
  @media (prefers-color-scheme:dark){
    .card{fill:#0d1117;stroke:#3d444d}.ink{fill:#f0f6fc}.dim{fill:#9198a1}
    .rule{stroke:#3d444d}.mark{stroke:#f85149}.over{fill:#f85149}
    .bar{fill:#39b3c2}.line{stroke:#39b3c2}.step{stroke:#f0a04b}
  }
`

const (
	plotWidth  = 900
	plotLeft   = 62
	plotRight  = 24
	plotTop    = 92
	plotBottom = 44
	panelGap   = 34
)

// Histogram is how often values lie where.
type Histogram struct {
	Title, Subtitle string
	// Unit of the values, for the axis.
	Unit string
	// Width of a bar, in the unit.
	Width  float64
	Values []float64
	// Goal is drawn as a line; 0 means none.
	Goal      float64
	GoalLabel string
}

// SVG draws the histogram.
func (h Histogram) SVG() string {
	const height = 380
	most := h.Goal * 1.1
	for _, v := range h.Values {
		most = max(most, v)
	}
	bars := make([]int, int(most/h.Width)+1)
	for _, v := range h.Values {
		bars[int(v/h.Width)]++
	}
	highest := 1
	for _, n := range bars {
		highest = max(highest, n)
	}
	p := newPlot(height, h.Title, h.Subtitle)
	x := scale{0, float64(len(bars)) * h.Width, plotLeft, plotWidth - plotRight}
	y := scale{0, float64(highest), height - plotBottom, plotTop}
	p.grid(y, x, "")
	p.axis(x, y.at(0), h.Unit)
	for i, n := range bars {
		if n > 0 {
			left, right := x.at(float64(i)*h.Width), x.at(float64(i+1)*h.Width)
			p.add(`<rect class="bar" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`, left+0.5, y.at(float64(n)), max(right-left-1, 1), y.at(0)-y.at(float64(n)))
		}
	}
	if h.Goal > 0 {
		p.add(`<line class="mark" x1="%.1f" x2="%.1f" y1="%d" y2="%.1f"/>`, x.at(h.Goal), x.at(h.Goal), plotTop-6, y.at(0))
		p.text(x.at(h.Goal)-6, plotTop+4, "over end", h.GoalLabel)
	}
	return p.end()
}

// Point is one value at a time, in seconds.
type Point struct{ At, Value float64 }

// Panel is one line over time.
type Panel struct {
	Label string
	// Steps: a value holds until the next one.
	Steps  bool
	Points []Point
	// Height of the panel against the others; 0 means 1.
	Height float64
}

// Timeline is panels above each other over the same time.
type Timeline struct {
	Title, Subtitle string
	Panels          []Panel
}

// SVG draws the panels.
func (t Timeline) SVG() string {
	const unit = 130.0
	height, last := float64(plotTop), 0.0
	for _, panel := range t.Panels {
		height += unit*share(panel) + panelGap
		for _, point := range panel.Points {
			last = max(last, point.At)
		}
	}
	height += plotBottom - panelGap
	p := newPlot(int(height), t.Title, t.Subtitle)
	x := scale{0, max(last, 1), plotLeft, plotWidth - plotRight}
	top := float64(plotTop)
	for i, panel := range t.Panels {
		bottom := top + unit*share(panel)
		highest := 0.0
		for _, point := range panel.Points {
			highest = max(highest, point.Value)
		}
		y := scale{0, max(highest, 1) * 1.05, bottom, top}
		p.grid(y, x, panel.Label)
		var path strings.Builder
		for j, point := range panel.Points {
			switch {
			case j == 0:
				fmt.Fprintf(&path, "M%.1f %.1f", x.at(point.At), y.at(point.Value))
			case panel.Steps:
				fmt.Fprintf(&path, "H%.1fV%.1f", x.at(point.At), y.at(point.Value))
			default:
				fmt.Fprintf(&path, "L%.1f %.1f", x.at(point.At), y.at(point.Value))
			}
		}
		class := "line"
		if panel.Steps {
			class = "step"
		}
		p.add(`<path class="%s" d="%s"/>`, class, path.String())
		if i == len(t.Panels)-1 {
			p.axis(x, bottom, "s")
		}
		top = bottom + panelGap
	}
	return p.end()
}

func share(p Panel) float64 {
	if p.Height > 0 {
		return p.Height
	}
	return 1
}

// scale maps values to pixels.
type scale struct{ least, most, from, to float64 }

func (s scale) at(v float64) float64 {
	return s.from + (v-s.least)/(s.most-s.least)*(s.to-s.from)
}

// ticks are round values in the scale, about so many.
func (s scale) ticks(about int) (values []float64) {
	step := math.Pow(10, math.Floor(math.Log10((s.most-s.least)/float64(about))))
	for _, by := range []float64{1, 2, 5, 10} {
		if (s.most-s.least)/(step*by) <= float64(about) {
			step *= by
			break
		}
	}
	for i := math.Ceil(s.least / step); i*step <= s.most; i++ {
		values = append(values, i*step)
	}
	return values
}

// plot is an SVG that is being drawn.
type plot struct{ strings.Builder }

func newPlot(height int, title, subtitle string) *plot {
	p := &plot{}
	p.add(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-labelledby="title">`, plotWidth, height)
	p.add(`<title id="title">%s</title>`, html.EscapeString(title+". "+subtitle))
	p.add("<style>%s</style>", plotStyle)
	p.add(`<rect class="card" x="0.5" y="0.5" width="%d" height="%d" rx="10"/>`, plotWidth-1, height-1)
	p.text(24, 32, "ink h1", title)
	p.text(24, 52, "dim", subtitle)
	return p
}

func (p *plot) add(format string, args ...any) { _, _ = fmt.Fprintf(p, format+"\n", args...) }

func (p *plot) text(x, y float64, class, text string) {
	p.add(`<text x="%.1f" y="%.1f" class="%s">%s</text>`, x, y, class, html.EscapeString(text))
}

// grid draws level lines with their values, and what they are.
func (p *plot) grid(y, x scale, label string) {
	for _, v := range y.ticks(5) {
		if v != math.Trunc(v) {
			continue // counts and Mbit/s
		}
		p.add(`<line class="rule" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, x.from, x.to, y.at(v), y.at(v))
		p.text(x.from-8, y.at(v)+4, "dim end", fmt.Sprintf("%g", v))
	}
	if label != "" {
		p.text(x.from, y.to-7, "ink", label)
	}
}

// axis draws the values of x below a plot.
func (p *plot) axis(x scale, bottom float64, unit string) {
	for _, v := range x.ticks(10) {
		p.text(x.at(v), bottom+17, "dim mid", fmt.Sprintf("%g", v))
	}
	p.text(x.to, bottom+34, "dim end", unit)
}

func (p *plot) end() string {
	p.add("</svg>")
	return p.String()
}
