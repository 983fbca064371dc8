package demo

import (
	"fmt"
	"html"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// The picture is one SVG without scripts or fonts of its own, so that it shows
// the same on a web page, in a README and in a viewer; its colours follow the
// reader's light or dark setting.
const pictureStyle = `
  .card{fill:#ffffff;stroke:#d0d7de}
  .ink{fill:#1f2328}.dim{fill:#59636e}.good{fill:#1a7f37}.bad{fill:#cf222e}
  .box{fill:#f6f8fa;stroke:#818b98}
  .os1{fill:#0f7b8a}.k8s1{fill:#d9822b}.lost{fill:#cf222e}
  .wire{fill:none;stroke-linecap:butt}
  .wire.os1{fill:none;stroke:#0f7b8a}.wire.k8s1{fill:none;stroke:#d9822b}.wire.in{stroke:#818b98}
  .control{fill:none;stroke:#818b98;stroke-dasharray:2 4}
  .rule{stroke:#d0d7de}.event{stroke:#1f2328;stroke-dasharray:3 3}
  text{font-family:ui-sans-serif,system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif;font-size:13px}
  .h1{font-size:21px;font-weight:600}.h2{font-size:14px;font-weight:600}.num{font-size:12px;font-variant-numeric:tabular-nums}
  .small{font-size:11.5px}.end{text-anchor:end}.mid{text-anchor:middle}
  @media (prefers-color-scheme:dark){
    .card{fill:#0d1117;stroke:#3d444d}
    .ink{fill:#f0f6fc}.dim{fill:#9198a1}.good{fill:#3fb950}.bad{fill:#f85149}
    .box{fill:#151b23;stroke:#656c76}
    .os1{fill:#39b3c2}.k8s1{fill:#f0a04b}.lost{fill:#f85149}
    .wire.os1{stroke:#39b3c2}.wire.k8s1{stroke:#f0a04b}.wire.in{stroke:#656c76}
    .control{stroke:#656c76}
    .rule{stroke:#3d444d}.event{stroke:#f0f6fc}
  }
`

const (
	pictureWidth  = 1000
	pictureHeight = 610
	// A bar of a timeline stands for a multiple of this: ten requests of each flow.
	slot    = 40 * time.Millisecond
	maxBars = 80
)

// picture is an SVG that is being drawn.
type picture struct{ strings.Builder }

func (p *picture) add(format string, args ...any) { _, _ = fmt.Fprintf(p, format+"\n", args...) }

func (p *picture) text(x, y float64, class, format string, args ...any) {
	p.add(`<text x="%.1f" y="%.1f" class="%s">%s</text>`, x, y, class, html.EscapeString(fmt.Sprintf(format, args...)))
}

func (p *picture) box(x, y, w, h float64, title string) {
	p.add(`<rect class="box" x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="8"/>`, x, y, w, h)
	p.text(x+14, y+23, "ink h2", "%s", title)
}

// wire draws a curve that leaves and arrives level, as wide as its share.
func (p *picture) wire(class string, x1, y1, x2, y2, width float64) {
	bend := (x2 - x1) / 2
	p.add(`<path class="wire %s" stroke-width="%.1f" stroke-opacity="0.75" d="M%.1f %.1fC%.1f %.1f %.1f %.1f %.1f %.1f"/>`,
		class, max(width, 1), x1, y1, x1+bend, y1, x2-bend, y2, x2, y2)
}

// draw writes the picture of the run.
func (d *demo) draw() error {
	if err := os.MkdirAll(filepath.Dir(d.Picture), 0o755); err != nil {
		return fmt.Errorf("draw the picture: %w", err)
	}
	if err := os.WriteFile(d.Picture, []byte(d.result.picture()), 0o644); err != nil {
		return fmt.Errorf("draw the picture: %w", err)
	}
	return nil
}

func (r Result) picture() string {
	p := &picture{}
	p.add(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-labelledby="title">`, pictureWidth, pictureHeight)
	p.add(`<title id="title">%s</title>`, html.EscapeString("Fairlead: one run of make demo. "+r.headline()))
	p.add("<style>%s</style>", pictureStyle)
	p.add(`<rect class="card" x="0.5" y="0.5" width="%d" height="%d" rx="12"/>`, pictureWidth-1, pictureHeight-1)
	p.text(28, 42, "ink h1", "One run of make demo")
	verdict, class := "PASS", "good"
	if !r.Passed {
		verdict, class = "FAIL", "bad"
	}
	p.text(pictureWidth-28, 42, class+" h1 end", "%s", verdict)
	p.text(28, 64, "dim", "%s", r.headline())
	r.drawTopology(p)
	p.add(`<line class="rule" x1="28" x2="%d" y1="352" y2="352"/>`, pictureWidth-28)
	r.drawTimelines(p)
	p.add("</svg>")
	return p.String()
}

// headline sums the run up.
func (r Result) headline() string {
	var requests, failed, lost int
	for _, s := range r.Steps {
		requests += s.Requests
		if s.Lost {
			lost += s.Failed
		} else {
			failed += s.Failed
		}
	}
	return fmt.Sprintf("%s requests through real Envoys. Lost while weights shifted and the plane died and came back: %d. Lost to a killed Envoy: %d.",
		thousands(requests), failed, lost)
}

// many returns the step with the big number of requests.
func (r Result) many() (Step, bool) {
	i := slices.IndexFunc(r.Steps, func(s Step) bool { return s.Answers != nil })
	if i < 0 {
		return Step{}, false
	}
	return r.Steps[i], true
}

// drawTopology draws who talks to whom; the wires are as wide as their share.
func (r Result) drawTopology(p *picture) {
	s, ok := r.many()
	if !ok {
		return
	}
	total := 0
	byCluster := map[string]int{}
	for _, answers := range s.Answers {
		for cluster, n := range answers {
			total += n
			byCluster[cluster] += n
		}
	}
	const thickest = 46.0
	width := func(n int) float64 { return thickest * float64(n) / float64(max(total, 1)) }
	edges := []struct {
		name, family string
		y            float64
	}{{"edge-1", "IPv4", 150}, {"edge-2", "IPv6", 262}}
	places := map[string]float64{"os1": 120, "k8s1": 232}
	enter := map[string]float64{"os1": places["os1"] + 42, "k8s1": places["k8s1"] + 48}
	for cluster, n := range byCluster {
		enter[cluster] -= width(n) / 2
	}
	leaveClient := 219 - width(total)/2
	for _, e := range edges {
		sum := 0
		for _, n := range s.Answers[e.name] {
			sum += n
		}
		y := e.y + 28
		p.wire("in", 158, leaveClient+width(sum)/2, 382, y, width(sum))
		leaveClient += width(sum)
		out := y - width(sum)/2
		for _, cluster := range []string{"os1", "k8s1"} {
			w := width(s.Answers[e.name][cluster])
			p.wire(cluster, 542, out+w/2, 712, enter[cluster]+w/2, w)
			out += w
			enter[cluster] += w
		}
		p.box(382, e.y, 160, 56, e.name)
		p.text(396, e.y+43, "dim num", "%s, %s requests", e.family, thousands(sum))
		p.add(`<path class="control" d="M382 99H368Q358 99 358 109V%.1fQ358 %.1f 368 %.1fH382"/>`, e.y+4, e.y+14, e.y+14)
	}
	p.box(382, 80, 160, 38, "plane")
	p.text(542-14, 103, "dim small end", "xDS, mTLS")
	p.box(28, 191, 130, 56, "client")
	p.text(42, 234, "dim num", "%s requests", thousands(total))
	for _, c := range []struct {
		name, what string
	}{{"os1", "virtual machines, IPv4"}, {"k8s1", "containers, IPv6"}} {
		y := places[c.name]
		backends := map[string]int{}
		for _, sh := range s.Shares {
			for _, b := range sh.Backends {
				if clusterOf(b.Name) == c.name {
					backends[b.Name] += b.Count
				}
			}
		}
		names := slices.Sorted(maps.Keys(backends))
		p.box(712, y, 260, 40+18*float64(len(names)), c.name)
		p.add(`<rect class="%s" x="712" y="%.1f" width="5" height="%.1f" rx="2"/>`, c.name, y+8, 24+18*float64(len(names)))
		p.text(958, y+23, "dim small end", "%s", c.what)
		for i, name := range names {
			p.text(726, y+44+18*float64(i), "dim num", "%s", name)
			p.text(958, y+44+18*float64(i), "ink num end", "%s", thousands(backends[name]))
		}
	}
	var splits []string
	for _, sh := range s.Shares {
		for _, c := range sh.Clusters {
			if c.Name == "os1" {
				splits = append(splits, fmt.Sprintf("%s: os1 %.1f %% (asked %.0f)", sh.Host, 100*c.Got, 100*c.Want))
			}
		}
	}
	p.text(28, 338, "dim num", "%s", strings.Join(splits, "   ·   "))
}

// drawTimelines draws the steps in which something happened while requests ran.
func (r Result) drawTimelines(p *picture) {
	var steps []Step
	for _, s := range r.Steps {
		if s.traffic != nil {
			steps = append(steps, s)
		}
	}
	if len(steps) == 0 {
		return
	}
	titles := map[string]string{
		"Shift": "Weights shift", "Kill the": "Plane killed (-9)", "Start": "Plane started again", "Kill Envoy": "Envoy of edge-1 killed (-9)",
	}
	pitch := float64(pictureWidth-56+24) / float64(len(steps))
	for i, s := range steps {
		x := 28 + pitch*float64(i)
		title := s.Title
		for prefix, short := range titles {
			if strings.HasPrefix(s.Title, prefix) {
				title = short
			}
		}
		p.text(x, 380, "ink h2", "%s", title)
		s.drawTimeline(p, x, 396, pitch-24, 132)
		class := "good"
		if s.Failed > 0 {
			class = "bad"
		}
		p.text(x, 552, class+" h2", "%d of %s lost", s.Failed, thousands(s.Requests))
		p.text(x, 572, "dim small", "%s", s.caption())
	}
	y := float64(pictureHeight - 14)
	for i, l := range []struct{ class, what string }{{"os1", "answered by os1"}, {"k8s1", "answered by k8s1"}, {"lost", "lost"}} {
		p.add(`<rect class="%s" x="%d" y="%.1f" width="10" height="10" rx="2"/>`, l.class, 28+150*i, y-9)
		p.text(float64(44+150*i), y, "dim small", "%s", l.what)
	}
	p.text(pictureWidth-28, y, "dim small end", "%s requests a second over both edges, by who answered", thousands(steadyRate*len(steps[0].traffic.flows)))
}

// caption says in a few words what the step measured.
func (s Step) caption() string {
	f := s.Figures
	switch {
	case f["back_ms"] > 0:
		return fmt.Sprintf("back after %.0f ms; edge-2 lost %.0f", f["back_ms"], f["failed_edge2"])
	case f["plane_ready_s"] > 0:
		return fmt.Sprintf("ready in %.1f s, then the weights shift", f["plane_ready_s"])
	case f["weights_in_force_ms"] > 0:
		return fmt.Sprintf("in force %.0f ms after the API was told", f["weights_in_force_ms"])
	case strings.HasPrefix(s.Title, "Kill the"):
		return "the edges go on by what they hold"
	}
	return ""
}

// drawTimeline stacks the answers of each stretch of time by cluster, the lost
// requests on top, and marks the event.
func (s Step) drawTimeline(p *picture, x, y, w, h float64) {
	samples := s.traffic.since(time.Time{}, nil)
	if len(samples) == 0 {
		return
	}
	first, last := samples[0].start, samples[0].start
	for _, sample := range samples {
		if sample.start.Before(first) {
			first = sample.start
		}
		if sample.start.After(last) {
			last = sample.start
		}
	}
	width := slot * (last.Sub(first)/slot/maxBars + 1)
	// The last stretch is not a whole one.
	slots := make([]map[string]int, max(last.Sub(first)/width, 1))
	most := 1
	for _, sample := range samples {
		i := int(sample.start.Sub(first) / width)
		if i >= len(slots) {
			continue
		}
		if slots[i] == nil {
			slots[i] = map[string]int{}
		}
		class := sample.cluster
		if sample.failed {
			class = "lost"
		}
		slots[i][class]++
		slots[i]["all"]++
		most = max(most, slots[i]["all"])
	}
	step := w / float64(len(slots))
	for _, class := range []string{"os1", "k8s1", "lost"} {
		var path strings.Builder
		for i, counts := range slots {
			if counts[class] == 0 {
				continue
			}
			below := 0
			for _, under := range []string{"os1", "k8s1", "lost"} {
				if under == class {
					break
				}
				below += counts[under]
			}
			bottom := y + h - h*float64(below)/float64(most)
			height := h * float64(counts[class]) / float64(most)
			_, _ = fmt.Fprintf(&path, "M%.2f %.2fh%.2fv%.2fh%.2fz", x+step*float64(i), bottom, math.Max(step*0.86, 0.4), -height, -math.Max(step*0.86, 0.4))
		}
		if path.Len() > 0 {
			p.add(`<path class="%s" d="%s"/>`, class, path.String())
		}
	}
	p.add(`<line class="rule" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, x, x+w, y+h+0.5, y+h+0.5)
	if at := s.event.Sub(first); !s.event.IsZero() && at >= 0 && at <= last.Sub(first) {
		ex := x + w*float64(at)/float64(max(last.Sub(first), 1))
		p.add(`<line class="event" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, ex, ex, y-6, y+h)
	}
}
