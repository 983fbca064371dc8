package render

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/translate/field"
)

// Text writes a result for people, one entry a line, the same bytes for the same
// result. It says everything that is in the result.
func (d Desired) Text() string {
	var b strings.Builder
	if d.MinTLS != "" {
		fmt.Fprintf(&b, "no host name below TLS %s\n", d.MinTLS)
	}
	for _, l := range d.Listeners {
		writeListener(&b, l, d.MinTLS)
	}
	for _, h := range d.VirtualHosts {
		policy, usual := h.Policy, ""
		if p, ok := besidesContour(h.Policy); ok {
			policy, usual = p, " with gzip and gRPC-Web"
		}
		fmt.Fprintf(&b, "host %s %s%s%s\n", h.Listener, h.Host, field.When(h.Section != "" && h.Section != h.Host, " under "+h.Section), usual)
		writePolicy(&b, "  ", policy)
		for _, r := range h.Routes {
			writeRoute(&b, r)
		}
		if len(h.Routes) == 0 {
			b.WriteString("  no routes: 404\n")
		}
	}
	for _, h := range d.TLSHosts {
		writeTLSHost(&b, h, d.MinTLS)
	}
	for _, c := range d.Certificates {
		fmt.Fprintf(&b, "certificate %s for %s until %s\n", c.ID, listText(c.Names), c.NotAfter.Format(time.RFC3339))
	}
	for _, a := range d.Authorities {
		fmt.Fprintf(&b, "authority %s\n", a.ID)
	}
	for _, g := range d.Groups {
		writeGroup(&b, g)
	}
	for _, s := range d.Sets {
		writeSet(&b, s)
	}
	for _, v := range d.Views {
		fmt.Fprintf(&b, "view %s listeners %s\n", v.ID, listText(v.Listeners))
	}
	for _, m := range d.Machines {
		fmt.Fprintf(&b, "machine %s%s views %s drain %ds%s%s%s\n", m.Name, field.When(m.HostsOnly, " with backends only"), listText(m.Views), m.DrainSeconds, field.When(m.Cordoned, " cordoned"),
			field.When(m.RouterID.IsValid(), " router id "+m.RouterID.String()), tunnelText(d.Nodes, m.Name))
		for _, c := range m.Contested {
			fmt.Fprintf(&b, "  %s is claimed by %s too%s\n", c.Address, listText(c.With), field.When(c.Holder != "", "; "+c.Holder+" has it"))
		}
	}
	for _, a := range d.Assignments {
		fmt.Fprintf(&b, "assignment %s pool %s to %s by %s listeners %s machines %s\n", a.Address, a.Pool, a.Owner.Describe(), a.Mode, listText(a.Listeners), listText(a.Machines))
	}
	for _, f := range d.Frontends {
		writeFrontend(&b, f)
	}
	for _, v := range d.VIPs {
		writeVIP(&b, v)
	}
	for _, p := range d.Peers {
		writePeer(&b, p)
	}
	for _, s := range d.Statuses {
		writeStatus(&b, s)
	}
	return b.String()
}

func writeGroup(b *strings.Builder, g *model.BackendGroup) {
	fmt.Fprintf(b, "group %s", g.ID)
	if string(g.Set) != string(g.ID) {
		fmt.Fprintf(b, " set %s", g.Set)
	}
	if g.Balance != model.BalanceRoundRobin {
		fmt.Fprintf(b, " balance %s", g.Balance)
	}
	if g.Protocol != "" {
		fmt.Fprintf(b, " protocol %s", g.Protocol)
	}
	if g.Measured {
		b.WriteString(" measured")
	}
	b.WriteByte('\n')
	if g.TLS != nil {
		writeBackendTLS(b, g.TLS)
	}
	writeBackendOptions(b, g)
	if h := g.HealthCheck; h != nil {
		fmt.Fprintf(b, "  check %s host %s every %s timeout %s out after %d back after %d\n",
			h.Path, h.Host, h.Interval, h.Timeout, h.Unhealthy, h.Healthy)
	}
}

func writeSet(b *strings.Builder, s *model.BackendSet) {
	fmt.Fprintf(b, "set %s\n", s.ID)
	for _, backend := range s.Backends {
		fmt.Fprintf(b, "  %s", backend.Address)
		switch backend.State {
		case model.BackendReady:
		case model.BackendDraining:
			b.WriteString(" draining")
		case model.BackendUnready:
			b.WriteString(" unready")
		}
		if backend.Backup {
			b.WriteString(" backup")
		}
		if backend.Weight > 0 {
			fmt.Fprintf(b, " weight %d", backend.Weight)
		}
		if backend.Zone != "" {
			fmt.Fprintf(b, " zone %s", backend.Zone)
		}
		if backend.Machine != "" {
			fmt.Fprintf(b, " at %s", backend.Machine)
		}
		b.WriteByte('\n')
	}
	if len(s.Backends) == 0 {
		b.WriteString("  no backends: 503\n")
	}
	if s.Refusal != "" {
		fmt.Fprintf(b, "  %s\n", s.Refusal)
	}
}

func writeVIP(b *strings.Builder, v MachineVIP) {
	fmt.Fprintf(b, "vip %s at %s pool %s by %s listeners %s%s", v.Address, v.Machine, v.Pool, v.Mode, listText(v.Listeners), pathText(v.Path))
	if len(v.Frontends) > 0 {
		fmt.Fprintf(b, " frontends %s", frontendList(v.Frontends))
	}
	if len(v.Candidates) > 0 {
		fmt.Fprintf(b, " candidates %s", listText(v.Candidates))
	}
	if len(v.Interfaces) > 0 {
		fmt.Fprintf(b, " interfaces %s", listText(v.Interfaces))
	}
	b.WriteByte('\n')
}

func writePeer(b *strings.Builder, m MachinePeer) {
	p := m.Peer
	at := "interface " + p.Interface
	if p.Interface == "" {
		at = p.Address.String()
	}
	fmt.Fprintf(b, "peer %s at %s %s port %d AS %d to %d", p.Name, m.Machine, at, p.Port, p.LocalASN, p.PeerASN)
	fmt.Fprintf(b, "%s%s", field.When(p.IPv4, " IPv4"), field.When(p.IPv6, " IPv6"))
	fmt.Fprintf(b, "%s%s", field.When(p.TTL > 0, fmt.Sprintf(" ttl %d", p.TTL)), field.When(p.TTLSecurity > 0, fmt.Sprintf(" at most %d hops away", p.TTLSecurity)))
	fmt.Fprintf(b, "%s%s", field.When(p.Source.IsValid(), " from "+p.Source.String()), field.When(p.Device != "", " by "+p.Device))
	fmt.Fprintf(b, "%s%s%s", field.When(p.Connection != "", " connection "+string(p.Connection)), field.When(p.Role != "", " role "+string(p.Role)), field.When(p.StrictRole, " strict"))
	if p.NeedsPassword {
		b.WriteString(" password " + cmp.Or(p.Password.String(), "missing"))
	}
	fmt.Fprintf(b, "\n  hold %s keepalive %s retry %s restart %s", p.HoldTime, p.Keepalive, p.ConnectRetry, p.RestartTime)
	if p.BFD != nil {
		fmt.Fprintf(b, " bfd %s x %d%s", p.BFD.Interval, p.BFD.Multiplier, field.When(p.BFD.Mode != "", " "+string(p.BFD.Mode)))
	}
	fmt.Fprintf(b, " prefixes at most %d%s%s", p.MaxPrefixes, field.When(p.EndAboveMax, " or it ends"), field.When(p.AddPath, " add-path"))
	for _, hop := range []netip.Prefix{p.NextHop4, p.NextHop6} {
		switch {
		case hop.IsSingleIP():
			b.WriteString(" next hop " + hop.Addr().String())
		case hop.IsValid():
			b.WriteString(" next hop in " + hop.String())
		}
	}
	b.WriteString(pathText(p.Path) + "\n")
}

// pathText says what is added to advertisements.
func pathText(o model.PathOptions) string {
	text := ""
	if len(o.Communities) > 0 {
		text += " communities " + listText(o.Communities)
	}
	if o.LocalPreference != nil {
		text += fmt.Sprintf(" local preference %d", *o.LocalPreference)
	}
	if o.MED != nil {
		text += fmt.Sprintf(" med %d", *o.MED)
	}
	if o.Prepend > 0 {
		text += fmt.Sprintf(" prepend %d", o.Prepend)
	}
	return text
}
