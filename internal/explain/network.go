package explain

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"fairlead.dev/internal/model"
)

// Network is how the request gets to a machine.
type Network struct {
	// VIPs that lead to the listener, or the one that was asked for.
	VIPs []VIP `json:"vips"`
	// Edges that may take the connection.
	Edges []Edge `json:"edges"`
	// How the edge is chosen, in a sentence.
	How string `json:"how"`
	// Nobody says why no machine takes the connection; empty when one does.
	Nobody string `json:"nobody,omitempty"`
}

// VIP is an address that leads to the listener.
type VIP struct {
	Address  netip.Addr     `json:"address"`
	Owner    Source         `json:"owner"`
	Pool     Source         `json:"pool"`
	Announce model.Announce `json:"announce"`
	State    string         `json:"state"`
	Message  string         `json:"message,omitempty"`
	// Machines that the pool selects.
	Machines []string `json:"machines"`
	// By are the machines that announce it.
	By []string `json:"by"`
	// Not are the pool's other machines.
	Not  []NotAnnouncing `json:"not,omitempty"`
	Note string          `json:"note,omitempty"`
}

// NotAnnouncing is a machine of the pool that does not announce a VIP.
type NotAnnouncing struct {
	Machine string         `json:"machine"`
	State   model.VIPState `json:"state,omitempty"` // empty: it does not report
	Why     string         `json:"why"`
}

// Edge is a machine that may take the connection.
type Edge struct {
	Machine string `json:"machine"`
	// Through are the addresses by which it is reached: VIPs, or its own.
	Through []string `json:"through"`
	// Note says what may be different there.
	Note string `json:"note,omitempty"`
}

// network finds the addresses that lead to the listener and the machines behind them.
// Proxies listen on every address of a machine, so that each VIP on it leads to each of
// its listeners; without an address asked for, VIPs whose owner has the listener count.
func (x *explainer) network(id model.ListenerID) {
	x.e.Network = Network{VIPs: []VIP{}, Edges: []Edge{}}
	n := &x.e.Network
	asked := x.request.VIP
	for _, v := range x.world.VIPs {
		leads := id != "" && slices.Contains(v.Listeners, id)
		if asked.IsValid() && v.Address != asked || !asked.IsValid() && !leads {
			continue
		}
		vip := x.vip(v)
		if id != "" && !leads && len(v.Listeners) > 0 {
			vip.Note = "its owner has no listener at port " + x.port() + "; machines answer there at every address that they have"
		}
		n.VIPs = append(n.VIPs, vip)
	}
	switch {
	case x.world.Standby != "":
		n.How = "this plane is a standby and does not know what machines do: ask the leader at " + x.world.Standby
	case x.world.Offline && id == "":
		n.How = "no manifest asks for a listener at port " + x.port()
	case x.world.Offline && !asked.IsValid():
		n.How = "manifests do not say which machines run: any that serves the listener"
	case x.world.Offline:
		n.How = "manifests do not say who answers at " + asked.String()
	case len(n.VIPs) > 0:
		x.byVIP(n, asked)
	case x.own():
		n.How = "the listener is bound to addresses that are no VIPs any more"
		n.Nobody = n.How
	default:
		x.byMachine(n, id, asked)
	}
	if n.Nobody == "" && id != "" {
		n.Nobody = x.refusedBy(n.Edges, id)
	}
}

// refusedBy says why none of the edges takes connections for a listener; empty when one does.
func (x *explainer) refusedBy(edges []Edge, id model.ListenerID) string {
	var whys []string
	var who []string
	mends := false // one of them has a proxy that could
	for _, e := range edges {
		i := slices.IndexFunc(x.world.Machines, func(m model.MachineStatus) bool { return m.Name == e.Machine })
		if i < 0 || !x.world.Machines[i].Connected {
			return "" // it is not known
		}
		m := x.world.Machines[i]
		why, refused := refusesListener(m, id)
		switch {
		case refused:
			why = "refuses the listener " + string(id) + ": " + why
		case m.Proxy.State == "none":
			why = "runs no proxy"
		case m.Proxy.State == "backoff" || m.Proxy.State == "stopped":
			why = "has a proxy in state " + m.Proxy.State
		default:
			return ""
		}
		mends = mends || m.Proxy.State != "none"
		if at := slices.Index(whys, why); at >= 0 {
			who[at] = "each of " + strings.TrimPrefix(who[at], "each of ") + ", " + m.Name
			continue
		}
		whys, who = append(whys, why), append(who, m.Name)
	}
	if len(whys) == 0 {
		return ""
	}
	for i := range whys {
		whys[i] = who[i] + " " + whys[i]
	}
	remedy := "; fix the cause there (for example, free the port): the proxy retries by itself"
	if !mends {
		remedy = ""
	}
	return "no machine takes the connection: " + shortList(whys, "; ") + remedy
}

// refusesListener says why a machine's proxy refuses a listener. Its half over UDP is the same one.
func refusesListener(m model.MachineStatus, id model.ListenerID) (why string, refused bool) {
	for _, r := range m.Refused {
		name, _, _ := strings.Cut(r.Name, "/")
		if r.Kind == "refused" && strings.HasSuffix(r.Type, ".Listener") && name == string(id) {
			return r.Message, true
		}
	}
	return "", false
}

// shortList names the first few.
func shortList(all []string, separator string) string {
	if more := len(all) - maxSources; more > 0 {
		return strings.Join(all[:maxSources], separator) + separator + "and " + strconv.Itoa(more) + " more"
	}
	return strings.Join(all, separator)
}

// unannounced says which VIPs nobody announces, why, and where to look.
func unannounced(vips []VIP) string {
	var names, whys []string
	bgp := false
	for _, v := range vips {
		names = append(names, v.Address.String())
		bgp = bgp || v.Announce == model.AnnounceBGP
		if v.Message != "" && !slices.Contains(whys, v.Message) {
			whys = append(whys, v.Message)
		}
	}
	text := "no machine announces " + shortList(names, ", ") + ", so that no connection gets to one"
	if len(whys) > 0 {
		text += ": " + shortList(whys, "; ")
	}
	if bgp {
		text += " (`fairlead bgp` shows the sessions)"
	}
	return text
}

func (x *explainer) vip(v model.VIPStatus) VIP {
	x.concerned[vipSubject(v.Address)] = true
	out := VIP{
		Address: v.Address, Announce: v.Mode, State: v.State, Message: v.Message, Machines: v.Machines, By: []string{},
		Owner: x.source(Source{Object: v.Owner}), Pool: x.source(Source{Object: model.Object{Kind: "AddressPool", Name: v.Pool}, Field: "spec.addresses"}),
	}
	reports := map[string]bool{}
	for _, at := range v.At {
		reports[at.Machine] = true
		switch at.State {
		case model.VIPAnnounced:
			out.By = append(out.By, at.Machine)
		case model.VIPStandby:
			out.Not = append(out.Not, NotAnnouncing{at.Machine, at.State, "it stands by for the owner"})
		default:
			why := at.Message
			if why == "" {
				why = "it does not say why"
			}
			out.Not = append(out.Not, NotAnnouncing{at.Machine, at.State, why})
		}
	}
	for _, m := range v.Machines {
		if !reports[m] && !x.world.Offline && x.world.Standby == "" {
			out.Not = append(out.Not, NotAnnouncing{Machine: m, Why: "it does not report to the plane, or not yet about this VIP"})
		}
	}
	return out
}

// byVIP lists the machines that announce the VIPs.
func (x *explainer) byVIP(n *Network, asked netip.Addr) {
	through := map[string][]string{}
	bgp := false
	for _, v := range n.VIPs {
		bgp = bgp || v.Announce == model.AnnounceBGP && len(v.By) > 1
		for _, m := range v.By {
			through[m] = append(through[m], v.Address.String())
		}
	}
	for _, m := range sortedKeys(through) {
		n.Edges = append(n.Edges, x.edge(m, through[m]))
	}
	switch {
	case len(n.Edges) == 0 && asked.IsValid():
		n.How = "no machine announces " + asked.String()
		n.Nobody = unannounced(n.VIPs)
	case len(n.Edges) == 0 && x.own():
		n.How = "no machine announces an address that the listener is bound to"
		n.Nobody = unannounced(n.VIPs)
	case len(n.Edges) == 0:
		x.byMachine(n, x.listenerID(), asked)
		n.How = "no VIP is announced; " + n.How
		if n.Nobody == "" {
			n.Nobody = unannounced(n.VIPs) + "; only the machines' own addresses lead there"
		}
	case bgp && x.request.From.IsValid():
		n.How = "routers spread connections by a hash over addresses and ports (ECMP): each new connection of " + x.request.From.String() + " may take another edge"
	case bgp:
		n.How = "routers spread connections by a hash over addresses and ports (ECMP): each new one may take another edge"
	case len(n.Edges) == 1:
		n.How = "it alone announces the address"
	default:
		n.How = "each address leads to the one machine that announces it"
	}
}

// own reports whether the listener is bound to addresses of its own, and not to those of
// machines.
func (x *explainer) own() bool { return x.e.Listener != nil && len(x.e.Listener.Addresses) > 0 }

func (x *explainer) listenerID() model.ListenerID {
	if x.e.Listener == nil {
		return ""
	}
	return x.e.Listener.ID
}

// byMachine lists the machines' own addresses.
func (x *explainer) byMachine(n *Network, id model.ListenerID, asked netip.Addr) {
	var serving []string
	if x.e.Listener != nil {
		serving = x.e.Listener.Machines
	}
	found := false
	for _, m := range x.world.Machines {
		mine := slices.ContainsFunc(m.Addresses, func(text string) bool {
			a, err := netip.ParseAddr(text)
			return err == nil && a.Unmap() == asked
		})
		switch {
		case asked.IsValid() && !mine:
			continue
		case asked.IsValid():
			found = true
			n.Edges = append(n.Edges, x.edge(m.Name, []string{asked.String()}))
		case slices.Contains(serving, m.Name):
			n.Edges = append(n.Edges, x.edge(m.Name, m.Addresses))
		}
	}
	switch {
	case asked.IsValid() && found:
		n.How = "it is an address of the machine itself"
	case asked.IsValid():
		n.How = asked.String() + " is no VIP and no address of a machine"
		n.Nobody = n.How + ": what is sent there is not for the edges"
	case id == "":
		n.How = "no listener, so no address leads to one"
	case len(n.Edges) == 0:
		n.How = "no machine has joined"
		n.Nobody = "no machine serves the listener: none has joined"
		if len(x.world.Machines) > 0 {
			n.How = "no machine with a proxy has joined"
			n.Nobody = "no machine serves the listener: none that has joined runs a proxy"
		}
	default:
		n.How = "clients reach the machines at their own addresses: whatever DNS says for " + x.request.dialHost()
	}
}

// edge describes a machine that may take the connection.
func (x *explainer) edge(name string, through []string) Edge {
	x.concern(model.Object{Kind: "Machine", Name: name})
	e := Edge{Machine: name, Through: append([]string{}, through...)}
	i := slices.IndexFunc(x.world.Machines, func(m model.MachineStatus) bool { return m.Name == name })
	if i < 0 {
		return e
	}
	m := x.world.Machines[i]
	var notes []string
	if !m.Connected {
		notes = append(notes, "it does not report: it may serve what it had last, or nothing")
	} else {
		switch m.Proxy.State {
		case "", "ready":
		case "none":
			notes = append(notes, "it runs no proxy")
		default:
			notes = append(notes, "its proxy is "+m.Proxy.State)
		}
		if m.Applied < m.Wanted {
			notes = append(notes, "it does not run the last change yet")
		}
		if why, refused := refusesListener(m, x.listenerID()); refused {
			notes = append(notes, "it refuses the listener: "+why)
		} else if len(m.Refused) > 0 {
			notes = append(notes, "it refuses or awaits something")
		}
	}
	if m.Cordoned {
		notes = append(notes, "it is cordoned")
	}
	e.Note = strings.Join(notes, "; ")
	return e
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
