package bench

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"fairlead.dev/internal/lookup"
	"fairlead.dev/internal/model"
	"fairlead.dev/lab/packet"
)

// LBOptions say how the load balancer is measured.
type LBOptions struct {
	Runs     int // of each case, of 4,096 packets each; default 200
	Backends int // default 100
	Progress func(what string)
}

// LBResult is what packets and tables cost.
type LBResult struct {
	Backends int      `json:"backends"`
	Cases    []LBCase `json:"cases"`
	// LiveMpps is of one thread, which makes the packets too: mode DSRIPIP.
	LiveMpps float64                `json:"live_mpps"`
	Live     map[string]packet.Live `json:"live"`
	// Features are what a packet costs more, or less, than that of the first case.
	Features []LBFeature `json:"features"`
	// Memory of the maps, bytes, at their sizes here: 1,048,576 flows.
	Memory map[string]uint64 `json:"map_bytes"`
	Table  LBTable           `json:"lookup_table"`
	// Weights are how near backends come to theirs.
	Weights []LBWeights `json:"weights"`
}

// LBCase is what one packet of a kind costs.
type LBCase struct {
	Name   string `json:"name"`
	Mode   string `json:"mode"`
	Flows  uint32 `json:"flows"`
	VIPs   uint32 `json:"vips"`
	Family string `json:"family"`
	packet.Cost
}

// LBFeature is what a feature adds to an established TCP packet of one flow.
type LBFeature struct {
	Name string  `json:"name"`
	NS   float64 `json:"ns"`
}

// LBTable is what the lookup table of so many backends costs.
type LBTable struct {
	Rows        int     `json:"rows"`
	BuildMS     float64 `json:"build_ms"`
	ChangeMS    float64 `json:"change_ms"`
	Imbalance   float64 `json:"imbalance_percent"`
	OthersMoved float64 `json:"unrelated_rows_moved_percent"`
}

const lbFlows = 1 << 20

// LB measures the load balancer's program packet by packet.
func LB(ctx context.Context, o LBOptions) (r LBResult, err error) {
	o.Runs, o.Backends = cmp.Or(o.Runs, 200), cmp.Or(o.Backends, 100)
	r = LBResult{Backends: o.Backends, Live: map[string]packet.Live{}}
	tell := func(what string) {
		if o.Progress != nil {
			o.Progress(what)
		}
	}
	b, err := packet.New(o.Backends, lbFlows)
	if err != nil {
		return r, err
	}
	defer func() { _ = b.Close() }()
	measure := func(c packet.Case) (packet.Cost, error) {
		if err := ctx.Err(); err != nil {
			return packet.Cost{}, err
		}
		c.VIPs, c.Flows = max(1, c.VIPs), max(1, c.Flows)
		tell(fmt.Sprintf("%s, %s, %d flows, %d VIPs", c.Name, c.Mode, c.Flows, c.VIPs))
		return b.Measure(c, o.Runs)
	}
	for _, c := range lbCases() {
		cost, err := measure(c)
		if err != nil {
			return r, err
		}
		family := "IPv4"
		if c.IPv6 {
			family = "IPv6"
		}
		r.Cases = append(r.Cases, LBCase{Name: c.Name, Mode: string(c.Mode), Flows: max(1, c.Flows), VIPs: max(1, c.VIPs), Family: family, Cost: cost})
	}
	for _, c := range lbFeatures() {
		cost, err := measure(c)
		if err != nil {
			return r, err
		}
		r.Features = append(r.Features, LBFeature{c.Name, cost.Median - r.Cases[0].Median})
	}
	for _, mode := range []model.ForwardMode{model.ModeDSRIPIP, model.ModeDSRGeneve} {
		tell("live frames, " + string(mode))
		var best packet.Live
		for range 5 {
			l, err := b.Live(packet.Case{Mode: mode, Flows: 1024, VIPs: 1}, 2_000_000)
			if err != nil {
				return r, err
			}
			if l.Mpps > best.Mpps {
				best = l
			}
		}
		r.Live[string(mode)] = best
	}
	r.LiveMpps = r.Live[string(model.ModeDSRIPIP)].Mpps
	if r.Memory, err = b.Memory(); err != nil {
		return r, err
	}
	r.Table = lbTable(o.Backends)
	r.Weights, err = lbWeights(b, tell)
	return r, err
}

// lbCases are those whose figures peers have published; the first is the common one.
func lbCases() (cases []packet.Case) {
	for _, mode := range []model.ForwardMode{model.ModeDSRIPIP, model.ModeDSRGeneve, model.ModeNAT} {
		for _, six := range []bool{false, true} {
			for _, flows := range []uint32{1, 1 << 10, 1 << 16, 1 << 19} {
				cases = append(cases, packet.Case{Name: "established TCP", Mode: mode, Flows: flows, IPv6: six})
			}
			cases = append(cases,
				packet.Case{Name: "SYN", Mode: mode, Flows: 1, SYN: true, IPv6: six},
				packet.Case{Name: "SYN", Mode: mode, Flows: 1 << 16, SYN: true, IPv6: six},
				packet.Case{Name: "new flow", Mode: mode, SYN: true, New: true, IPv6: six},
				packet.Case{Name: "UDP", Mode: mode, Flows: 1, UDP: true, IPv6: six},
				packet.Case{Name: "UDP", Mode: mode, Flows: 1 << 16, UDP: true, IPv6: six},
			)
			for _, flows := range []uint32{1, 1 << 10, 1 << 16} {
				cases = append(cases, packet.Case{Name: "established TCP", Mode: mode, Flows: flows, VIPs: 1000, IPv6: six})
			}
		}
	}
	return cases
}

func lbFeatures() []packet.Case {
	c := packet.Case{Mode: model.ModeDSRIPIP}
	with := func(name string, set func(*packet.Case)) packet.Case {
		f := c
		f.Name = name
		set(&f)
		return f
	}
	return []packet.Case{
		with("source ranges", func(c *packet.Case) { c.Sources = true }),
		with("session affinity", func(c *packet.Case) { c.Affinity = true }),
		with("limit of new flows", func(c *packet.Case) { c.Limit = true }),
		with("IPv6 instead of IPv4", func(c *packet.Case) { c.IPv6 = true }),
		with("Geneve with three hops instead of IP in IP", func(c *packet.Case) { c.Mode = model.ModeDSRGeneve }),
		with("link address instead of IP in IP", func(c *packet.Case) { c.Mode = model.ModeDSRL2 }),
		with("NAT instead of IP in IP", func(c *packet.Case) { c.Mode = model.ModeNAT }),
	}
}

// lbTable measures a lookup table: the least of ten each.
func lbTable(backends int) LBTable {
	members := make([]lookup.Member, backends)
	for i := range members {
		members[i] = lookup.Member{ID: uint64(i)*0x9e3779b97f4a7c15 + 1, Weight: 100, HopWeight: 100}
	}
	more := append(members[:backends:backends], lookup.Member{ID: 7, Weight: 100, HopWeight: 100})
	t := LBTable{Rows: lookup.Rows(backends), BuildMS: 1e9, ChangeMS: 1e9}
	least := func(to *float64, f func()) {
		began := time.Now()
		f()
		*to = min(*to, float64(time.Since(began).Microseconds())/1000)
	}
	var table *lookup.Table
	for range 10 {
		least(&t.BuildMS, func() { table = lookup.New(t.Rows, members) })
	}
	before := make([]uint64, t.Rows)
	for i := range before {
		before[i] = table.Members()[table.Row(i)[0]].ID
	}
	for _, share := range table.Shares() {
		due := float64(t.Rows) / float64(backends)
		t.Imbalance = max(t.Imbalance, 100*max(float64(share)-due, due-float64(share))/due)
	}
	for range 10 {
		least(&t.ChangeMS, func() { table.Update(more) })
		least(&t.ChangeMS, func() { table.Update(members) })
	}
	table.Update(more)
	moved := 0
	for i := range before {
		if is := table.Members()[table.Row(i)[0]].ID; is != before[i] && is != 7 {
			moved++
		}
	}
	t.OthersMoved = 100 * float64(moved) / float64(t.Rows)
	return t
}
