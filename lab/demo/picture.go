package demo

import (
	"fmt"
	"html"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The picture is one SVG without scripts or fonts of its own, so that it shows
// the same on a web page, in a README and in a viewer; its colours follow the
// reader's light or dark setting.
const pictureStyle = `
  .card{fill:#ffffff;stroke:#d0d7de}
  .ink{fill:#1f2328}.dim{fill:#59636e}.good{fill:#1a7f37}.bad{fill:#cf222e}
  .box{fill:#f6f8fa;stroke:#818b98}
  .os1{fill:#0f7b8a}.k8s1{fill:#d9822b}.lost{fill:#cf222e}
  .edge-1{fill:#3f6fc4}.edge-2{fill:#8a63c9}.edge-3{fill:#4a9d6a}
  .wire{fill:none;stroke-linecap:butt}
  .wire.os1{fill:none;stroke:#0f7b8a}.wire.k8s1{fill:none;stroke:#d9822b}.wire.in{stroke:#818b98}
  .wire.edge-1{fill:none;stroke:#3f6fc4}.wire.edge-2{fill:none;stroke:#8a63c9}.wire.edge-3{fill:none;stroke:#4a9d6a}
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
    .edge-1{fill:#6d9bf0}.edge-2{fill:#b191ee}.edge-3{fill:#6cc48d}
    .wire.os1{stroke:#39b3c2}.wire.k8s1{stroke:#f0a04b}.wire.in{stroke:#656c76}
    .wire.edge-1{stroke:#6d9bf0}.wire.edge-2{stroke:#b191ee}.wire.edge-3{stroke:#6cc48d}
    .control{stroke:#656c76}
    .rule{stroke:#3d444d}.event{stroke:#f0f6fc}
  }
`

const (
	pictureWidth  = 1000
	pictureHeight = 1060
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
	p.add(`<line class="rule" x1="28" x2="%d" y1="384" y2="384"/>`, pictureWidth-28)
	r.drawTimelines(p)
	p.add("</svg>")
	return p.String()
}

// headline sums the run up.
func (r Result) headline() string {
	var requests, failed, lost, held, broken int
	for _, s := range r.Steps {
		requests += s.Requests
		held = max(held, int(s.Figures["held"]))
		broken += int(s.Figures["broken"])
		if s.Lost {
			lost += s.Failed
		} else {
			failed += s.Failed
		}
	}
	line := fmt.Sprintf("%s requests. Lost by changes and without a plane: %d; as proxies and edges die: %d",
		thousands(requests), failed, lost)
	if held > 0 {
		line += fmt.Sprintf("; of %d connections in the kernel as an edge dies: %d", held, broken)
	}
	return line + "."
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
	places := map[string]float64{"os1": 138, "k8s1": 246}
	enter := map[string]float64{"os1": places["os1"] + 40, "k8s1": places["k8s1"] + 47}
	for cluster, n := range byCluster {
		enter[cluster] -= width(n) / 2
	}
	const (
		routerX, edgeX, edgeWidth, clusterX = 214, 446, 150, 712
		middle                              = 240
	)
	p.wire("in", 150, middle, routerX, middle, width(total))
	leave := middle - width(total)/2
	for i, name := range slices.Sorted(maps.Keys(s.Answers)) {
		sum := 0
		for _, n := range s.Answers[name] {
			sum += n
		}
		top := 136 + 76*float64(i)
		y := top + 27
		p.wire(name, routerX+136, leave+width(sum)/2, edgeX, y, width(sum))
		leave += width(sum)
		out := y - width(sum)/2
		for _, cluster := range []string{"os1", "k8s1"} {
			w := width(s.Answers[name][cluster])
			p.wire(cluster, edgeX+edgeWidth, out+w/2, clusterX, enter[cluster]+w/2, w)
			out += w
			enter[cluster] += w
		}
		p.add(`<path class="control" d="M%d 101H%dQ%d 101 %d 111V%.1fQ%d %.1f %d %.1fH%d"/>`, edgeX, edgeX-6, edgeX-16, edgeX-16, top, edgeX-16, top+10, edgeX-6, top+10, edgeX)
		p.box(edgeX, top, edgeWidth, 54, name)
		p.add(`<rect class="%s" x="%d" y="%.1f" width="5" height="38" rx="2"/>`, name, edgeX, top+8)
		p.text(edgeX+14, top+42, "dim num", "%s requests", thousands(sum))
	}
	p.box(edgeX, 82, edgeWidth, 38, "plane")
	p.text(edgeX+edgeWidth-14, 105, "dim small end", "xDS, mTLS")
	p.box(28, middle-28, 122, 56, "client")
	p.text(42, middle+15, "dim num", "%s requests", thousands(total))
	p.box(routerX, middle-38, 136, 76, "router")
	p.text(routerX+14, middle+5, "dim num", "BGP, BFD, ECMP")
	p.text(routerX+14, middle+23, "dim num", "%.0f connections", s.Figures["connections"])
	p.text(28, middle+62, "dim small", "VIPs %s", r.vips("203."))
	p.text(28, middle+79, "dim small", "and %s", r.vips("2001:"))
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
		p.box(clusterX, y, 260, 40+18*float64(len(names)), c.name)
		p.add(`<rect class="%s" x="%d" y="%.1f" width="5" height="%.1f" rx="2"/>`, c.name, clusterX, y+8, 24+18*float64(len(names)))
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
	p.text(28, 368, "dim num", "%s", strings.Join(splits, "   ·   "))
}

// vips are the VIPs of one family, which begin alike.
func (r Result) vips(begin string) string {
	var found []string
	for _, s := range r.Steps {
		for _, h := range s.NextHops {
			if v := h.VIP.String(); strings.HasPrefix(v, begin) && !slices.Contains(found, v) {
				found = append(found, v)
			}
		}
	}
	return strings.Join(found, ", ")
}
