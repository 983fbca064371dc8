package console

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"

	v1 "fairlead.dev/internal/console/v1"
)

// WriteVIPs renders the VIPs: who has each, who announces it, and why not.
func WriteVIPs(w io.Writer, s v1.Status, o TextOptions) error {
	b := bufio.NewWriterSize(printable{w}, screen)
	if t := heading(b, "VIPs", len(s.VIPs), "none: there is no AddressPool, or no resource needs an address"); t != nil {
		shown := rows(b, s.VIPs, o)
		fmt.Fprintln(t, "  ADDRESS\tPOOL\tOWNER\tBY\tSTATE\tMACHINES\tFRONTENDS")
		for _, v := range shown {
			fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%s\t%s\t%s\n", v.Address, v.Pool, v.Owner.Describe(), v.Mode, v.State, announcers(v), frontendsText(v.Frontends))
		}
		flush(t)
		var why grouped[string]
		for _, v := range shown {
			if v.Message != "" {
				why.add(v.Message, v.Address.String())
			}
		}
		if len(why.causes) > 0 {
			fmt.Fprint(b, "\nNot announced, or not everywhere\n")
			writeCauses(b, why, o)
		}
	}
	writeFrontends(b, s.Frontends, o)
	return flushAll(b, "VIPs")
}

// writeFrontends says of each frontend what leads where, and by which data planes.
func writeFrontends(w io.Writer, frontends []v1.FrontendStatus, o TextOptions) {
	if len(frontends) == 0 {
		return
	}
	t := heading(w, "Frontends", len(frontends), "")
	shown := rows(w, frontends, o)
	fmt.Fprintln(t, "  FRONTEND\tOWNER\tTO\tSTATE\tBACKENDS\tBY")
	for _, f := range shown {
		to := "backends"
		if f.Listener != "" {
			to = "proxies"
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%d of %d\t%s\n", f.FrontendKey, f.Owner.Describe(), to, f.State, f.Available, f.Backends, chosen(f))
	}
	flush(t)
	var why grouped[string]
	for _, f := range shown {
		if f.Message != "" {
			why.add(f.Message, f.String())
		}
	}
	writeCauses(w, why, o)
}

// chosen names the data planes and modes of a frontend, and the machines that use each.
func chosen(f v1.FrontendStatus) string {
	at := map[string][]string{}
	for _, m := range f.At {
		if m.State == v1.FrontendBalanced {
			how := strings.TrimSpace(string(m.DataPlane) + " " + string(m.Mode))
			at[cmp.Or(how, "itself")] = append(at[cmp.Or(how, "itself")], m.Machine)
		}
	}
	var out []string
	for _, how := range slices.Sorted(maps.Keys(at)) {
		out = append(out, how+" at "+list(at[how], 5))
	}
	return dash(strings.Join(out, "; "))
}

// WriteBGP renders the sessions, what is advertised over each, and why not.
func WriteBGP(w io.Writer, s v1.Status, o TextOptions) error {
	b := bufio.NewWriterSize(printable{w}, screen)
	if t := heading(b, "Sessions", len(s.Sessions), "none: no BGPPeer selects a connected machine"); t != nil {
		shown := rows(b, s.Sessions, o)
		fmt.Fprintln(t, "  MACHINE\tPEER\tADDRESS\tAS\tSTATE\tFOR\tBFD\tSENT\tRECEIVED\tLOST")
		for _, x := range shown {
			fmt.Fprintf(t, "  %s\t%s\t%s\t%d to %d\t%s\t%s\t%s\t%d\t%d\t%d\n", x.Machine, x.Peer, addressText(x.Session), x.LocalASN, x.PeerASN,
				x.State, ageOr(o, x.Session), cmp.Or(x.BFD, "-"), len(x.Advertised), x.Received, x.Flaps)
		}
		flush(t)
		writeAdvertised(b, shown)
		var why grouped[string]
		for _, x := range shown {
			if x.Reason != v1.SessionOK {
				why.add(string(x.Reason)+": "+x.Message, x.Machine+" to "+x.Peer)
			}
		}
		if len(why.causes) > 0 {
			fmt.Fprint(b, "\nProblems\n")
			writeCauses(b, why, o)
		}
	}
	return flushAll(b, "sessions")
}

// writeNetwork sums up VIPs and sessions in two lines.
func writeNetwork(w io.Writer, s v1.Status) {
	announced, up := 0, 0
	for _, v := range s.VIPs {
		if v.State == "announced" {
			announced++
		}
	}
	for _, x := range s.Sessions {
		if x.State == v1.SessionEstablished {
			up++
		}
	}
	fmt.Fprintf(w, "\nVIPs       %d of %d announced (fairlead vips)\n", announced, len(s.VIPs))
	if len(s.Frontends) > 0 {
		balanced := 0
		for _, f := range s.Frontends {
			if f.State == "balanced" {
				balanced++
			}
		}
		fmt.Fprintf(w, "Frontends  %d of %d balanced (fairlead backends)\n", balanced, len(s.Frontends))
	}
	if len(s.Sessions) > 0 {
		fmt.Fprintf(w, "BGP        %d of %d sessions established (fairlead bgp)\n", up, len(s.Sessions))
	}
}

func writeAdvertised(w io.Writer, sessions []v1.SessionStatus) {
	by := map[netip.Prefix][]string{}
	var order []netip.Prefix
	for _, x := range sessions {
		for _, p := range x.Advertised {
			if by[p] == nil {
				order = append(order, p)
			}
			by[p] = append(by[p], x.Machine+" to "+x.Peer)
		}
	}
	if len(order) == 0 {
		fmt.Fprint(w, "\nAdvertised  nothing: `fairlead vips` says why\n")
		return
	}
	fmt.Fprintf(w, "\nAdvertised (%d)\n", len(order))
	for _, p := range order {
		fmt.Fprintf(w, "  %s  %s\n", p, strings.Join(by[p], ", "))
	}
}

// addressText is where the peer is: an address, or the interface on which its router is not found so far.
func addressText(s v1.Session) string {
	if !s.Address.IsValid() {
		return "interface " + s.Interface
	}
	return s.Address.String()
}

func ageOr(o TextOptions, s v1.Session) string {
	if s.Since.IsZero() {
		return "-"
	}
	return age(o.Now, s.Since)
}

// frontendsText is the ports of a VIP: "tcp/80,udp/53".
func frontendsText(keys []v1.FrontendKey) string {
	var names []string
	for _, k := range keys {
		names = append(names, fmt.Sprintf("%s/%d", strings.ToLower(string(k.Transport)), k.Port))
	}
	return list(names, 4)
}

// writeCauses says each cause once, behind those that it has in its way.
func writeCauses(w io.Writer, why grouped[string], o TextOptions) {
	for _, c := range why.causes {
		fmt.Fprintf(w, "  %s: %s\n", c.named(o), c.what)
	}
}

// announcers names the machines that announce a VIP, of those that should, and those that
// keep it until one of these does.
func announcers(v v1.VIPStatus) string {
	var names, keepers []string
	for _, at := range v.At {
		switch {
		case at.State != v1.VIPAnnounced:
		case at.HandsOver:
			keepers = append(keepers, at.Machine)
		default:
			names = append(names, at.Machine)
		}
	}
	text := list(names, 5)
	if v.Mode != v1.AnnounceL2 {
		text = fmt.Sprintf("%d of %d: %s", len(names), len(v.Machines), text)
	}
	if len(keepers) > 0 {
		text += "; handing over: " + list(keepers, 5)
	}
	return text
}

func flushAll(b *bufio.Writer, what string) error {
	if err := b.Flush(); err != nil {
		return fmt.Errorf("write the %s: %w", what, err)
	}
	return nil
}
