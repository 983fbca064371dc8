package render

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"fairlead.dev/internal/model"
)

func writeFrontend(b *strings.Builder, f *model.Frontend) {
	fmt.Fprintf(b, "frontend %s of %s", f.FrontendKey, f.Owner.Describe())
	add := func(is bool, format string, args ...any) {
		if is {
			fmt.Fprintf(b, " "+format, args...)
		}
	}
	add(f.Listener != "", "to listener %s", f.Listener)
	add(f.Mode != "", "mode %s", f.Mode)
	add(f.DataPlane != "", "by %s", f.DataPlane)
	add(f.Hash != "", "hash %s", f.Hash)
	add(f.Affinity > 0, "affinity %s", f.Affinity)
	add(f.NewFlows > 0, "new flows %d/s", f.NewFlows)
	add(f.Drain > 0, "drain %s", f.Drain)
	add(f.LocalOnly, "local backends only")
	add(f.Panic > 0, "panic below %d%%", f.Panic)
	add(f.Scheduler != "", "scheduler %s", f.Scheduler)
	add(f.MaxFlows > 0, "flows a backend %d", f.MaxFlows)
	if q := f.QUIC; q != nil {
		add(true, "QUIC server ID %d bytes at %d", q.Length, q.Offset)
	}
	fmt.Fprintf(b, " machines %s\n", listText(f.Machines))
	if len(f.Sources) > 0 {
		fmt.Fprintf(b, "  from %s\n", listText(prefixTexts(f.Sources)))
	}
	for _, t := range f.Targets {
		fmt.Fprintf(b, "  -> %d %s\n", t.Weight, cmp.Or(string(t.Set), "broken"))
	}
	if f.Listener == "" && len(f.Targets) == 0 {
		b.WriteString("  no backends\n")
	}
	for _, a := range slices.SortedFunc(maps.Keys(f.Weights), netip.Addr.Compare) {
		fmt.Fprintf(b, "  weight %d of %s\n", f.Weights[a], a)
	}
	if len(f.Drained) > 0 {
		fmt.Fprintf(b, "  drained %s\n", addressList(f.Drained))
	}
	switch c := f.Check; {
	case c == nil && f.Transport == model.TCP && f.Listener == "":
		b.WriteString("  check none\n")
	case c != nil && !c.Presumed: // the presumed one is said by silence
		fmt.Fprintf(b, "  check %s", cmp.Or(string(c.Kind), "HTTP"))
		add(c.Port > 0, "port %d", c.Port)
		add(c.Path != "", "path %s", c.Path)
		add(c.Host != "", "host %s", c.Host)
		add(c.Service != "", "service %s", c.Service)
		add(len(c.Codes) > 0, "codes %v", c.Codes)
		add(len(c.Send) > 0, "send %x", c.Send)
		add(len(c.Expect) > 0, "expect %x", c.Expect)
		fmt.Fprintf(b, " every %s jitter %d%% timeout %s fall %d rise %d\n", c.Interval, c.Jitter, c.Timeout, c.Unhealthy, c.Healthy)
	}
}

// tunnelText says where a machine takes in what comes through tunnels.
func tunnelText(nodes []*model.Node, name string) string {
	i, found := slices.BinarySearchFunc(nodes, name, func(n *model.Node, name string) int { return cmp.Compare(n.Name, name) })
	if !found {
		return ""
	}
	text := ""
	for _, a := range []netip.Addr{nodes[i].Tunnel4, nodes[i].Tunnel6} {
		if a.IsValid() {
			text += " tunnel " + a.String()
		}
	}
	return text
}
