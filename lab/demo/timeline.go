package demo

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

const (
	// A bar of a timeline stands for a multiple of this: ten requests of each flow.
	slot    = 40 * time.Millisecond
	maxBars = 80
)

// lane is a row of timelines, whose bars are stacked by one property of the requests.
type lane struct {
	y, height float64
	classes   []string
	of        func(sample) string
	legend    string
	steps     []Step
}

// lostClass is the class of requests that failed; it is on top of the others.
const lostClass = "lost"

// drawTimelines draws the steps in which something happened while requests ran: those
// of which clusters tell in the first row, those of which edges tell in the second, and in
// the third those without a proxy.
func (r Result) drawTimelines(p *picture) {
	lanes := []lane{
		{y: 410, height: 92, classes: []string{"os1", "k8s1"}, of: func(s sample) string { return s.cluster }, legend: "answered by"},
		{y: 614, height: 92, classes: []string{"edge-1", "edge-2", "edge-3"}, of: func(s sample) string { return s.edge }, legend: "carried by"},
		{y: 838, height: 92, classes: []string{"edge-1", "edge-2", "edge-3"}, of: func(s sample) string { return s.edge }, legend: "led to"},
	}
	for _, s := range r.Steps {
		if s.traffic == nil {
			continue
		}
		at := &lanes[0]
		switch {
		case strings.Contains(s.Title, "kernel"):
			at = &lanes[2]
		case strings.Contains(s.Title, "edge-"):
			at = &lanes[1]
		}
		at.steps = append(at.steps, s)
	}
	for _, l := range lanes {
		l.draw(p)
	}
}

func (l lane) draw(p *picture) {
	if len(l.steps) == 0 {
		return
	}
	pitch := float64(pictureWidth-56+24) / float64(len(l.steps))
	for i, s := range l.steps {
		x := 28 + pitch*float64(i)
		p.text(x, l.y, "ink h2", "%s", s.short())
		l.drawTimeline(p, s, x, l.y+14, pitch-24)
		class := "good"
		if s.Failed > 0 {
			class = "bad"
		}
		p.text(x, l.y+l.height+34, class+" h2", "%d of %s lost", s.Failed, thousands(s.Requests))
		p.text(x, l.y+l.height+52, "dim small", "%s", s.caption())
		p.text(x, l.y+l.height+69, "dim small", "%s", s.losses())
	}
	y := l.y + l.height + 76
	if l.legend != "answered by" {
		y += 18
	}
	x := 28.0
	p.text(x, y, "dim small", "%s", l.legend)
	x += 84
	for _, class := range append(slices.Clone(l.classes), lostClass) {
		p.add(`<rect class="%s" x="%.1f" y="%.1f" width="10" height="10" rx="2"/>`, class, x, y-9)
		p.text(x+15, y, "dim small", "%s", class)
		x += 30 + 7*float64(len(class))
	}
	p.text(pictureWidth-28, y, "dim small end", "%s requests a second; dashed: the event", thousands(steadyRate*len(l.steps[0].traffic.flows)))
}

// short is the title of a step for the picture.
func (s Step) short() string {
	for prefix, short := range map[string]string{
		"Shift": "Weights shift", "Kill the": "Plane killed (-9)", "Start the": "Plane started again",
		"Kill Envoy": "Envoy of edge-1 killed", "Kill all": "All of edge-3 killed", "Start edge": "edge-3 started again",
		"Cordon": "edge-2 cordoned", "Uncordon": "edge-2 uncordoned",
		"Let edge-3 vanish": "Balanced in the kernel: edge-3 vanishes", "Let edge-3 come": "Balanced in the kernel: edge-3 comes back",
	} {
		if strings.HasPrefix(s.Title, prefix) {
			return short
		}
	}
	return s.Title
}

// caption says in a few words what the step measured.
func (s Step) caption() string {
	f := s.Figures
	switch {
	case f["back_ms"] > 0:
		return fmt.Sprintf("out %.0f, back %.0f, in %.0f ms", f["withdrawn_ms"], f["back_ms"], f["routed_ms"])
	case strings.HasPrefix(s.Title, "Cordon"):
		return fmt.Sprintf("router follows after %.1f s", f["withdrawn_ms"]/1000)
	case f["withdrawn_ms"] > 0:
		return fmt.Sprintf("router follows after %.0f ms", f["withdrawn_ms"])
	case f["routed_ms"] > 0:
		return fmt.Sprintf("three next hops after %.1f s", f["routed_ms"]/1000)
	case f["plane_ready_s"] > 0:
		return fmt.Sprintf("ready in %.1f s, then the weights shift", f["plane_ready_s"])
	case f["weights_in_force_ms"] > 0:
		return fmt.Sprintf("in force %.0f ms after the API accepted it", f["weights_in_force_ms"])
	case strings.HasPrefix(s.Title, "Kill the"):
		return "the edges serve from their stored state"
	}
	return ""
}

// losses says where requests were lost, of a step in which they may be.
func (s Step) losses() string {
	f := s.Figures
	moved := fmt.Sprintf("%.0f on moved paths", f["failed_moved"])
	switch {
	case f["held"] > 0:
		return fmt.Sprintf("%.0f of %.0f open connections broken", f["broken"], f["held"])
	case !s.Lost:
		return ""
	case f["withdrawn_ms"] > 0:
		return fmt.Sprintf("%.0f on it, %s", f["failed_struck"], moved)
	}
	return moved
}

// bars count the requests of each stretch of time by class, and where on the way from
// the first to the last request the event was.
func (l lane) bars(s Step) (slots []map[string]int, most int, event float64) {
	samples := s.traffic.since(time.Time{}, nil)
	if len(samples) == 0 {
		return nil, 0, -1
	}
	first, last := samples[0].start, samples[0].start
	for _, x := range samples {
		if x.start.Before(first) {
			first = x.start
		}
		if x.start.After(last) {
			last = x.start
		}
	}
	width := slot * (last.Sub(first)/slot/maxBars + 1)
	// The last stretch is not a whole one.
	slots = make([]map[string]int, max(last.Sub(first)/width, 1))
	for _, x := range samples {
		i := int(x.start.Sub(first) / width)
		if i >= len(slots) {
			continue
		}
		if slots[i] == nil {
			slots[i] = map[string]int{}
		}
		class := l.of(x)
		if x.failed {
			class = lostClass
		}
		slots[i][class]++
		slots[i]["all"]++
		most = max(most, slots[i]["all"])
	}
	event = -1
	if at := s.event.Sub(first); !s.event.IsZero() && at >= 0 && at <= last.Sub(first) {
		event = float64(at) / float64(max(last.Sub(first), 1))
	}
	return slots, most, event
}

// drawTimeline stacks the requests of each stretch of time, the lost ones on top, and
// marks the event.
func (l lane) drawTimeline(p *picture, s Step, x, y, w float64) {
	slots, most, event := l.bars(s)
	if most == 0 {
		return
	}
	step := w / float64(len(slots))
	wide := math.Max(step*0.86, 0.4)
	below := make([]int, len(slots))
	for _, class := range append(slices.Clone(l.classes), lostClass) {
		var path strings.Builder
		for i, counts := range slots {
			if counts[class] == 0 {
				continue
			}
			bottom := y + l.height - l.height*float64(below[i])/float64(most)
			height := l.height * float64(counts[class]) / float64(most)
			_, _ = fmt.Fprintf(&path, "M%.2f %.2fh%.2fv%.2fh%.2fz", x+step*float64(i), bottom, wide, -height, -wide)
			below[i] += counts[class]
		}
		if path.Len() > 0 {
			p.add(`<path class="%s" d="%s"/>`, class, path.String())
		}
	}
	p.add(`<line class="rule" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, x, x+w, y+l.height+0.5, y+l.height+0.5)
	if event >= 0 {
		p.add(`<line class="event" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, x+w*event, x+w*event, y-6, y+l.height)
	}
}
