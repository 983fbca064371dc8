package explain

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairlead.dev/internal/lookup"
	"fairlead.dev/internal/model"
)

// FlowRequest is a flow to explain: where a client sends to, and from where.
type FlowRequest struct {
	Frontend model.FrontendKey `json:"frontend"`
	Client   netip.AddrPort    `json:"client"`
	// Machine at which its packets arrive; empty leaves it open.
	Machine string `json:"machine,omitempty"`
}

// NewFlowRequest reads a flow as people write it: "tcp://VIP:PORT" and "IP:PORT". Its
// errors say what is wrong and what is wanted.
func NewFlowRequest(url, from, machine string) (FlowRequest, error) {
	k, err := model.ParseFrontend(strings.TrimSuffix(url, "/"))
	if err != nil {
		return FlowRequest{}, err
	}
	if from == "" {
		return FlowRequest{}, errors.New("from: a flow needs the address of its client: want IP:PORT, such as 198.51.100.7:40000")
	}
	client, err := netip.ParseAddrPort(from)
	if err != nil || client.Port() == 0 {
		return FlowRequest{}, fmt.Errorf("from %q: want IP:PORT, [IP]:PORT for IPv6", from)
	}
	client = netip.AddrPortFrom(client.Addr().Unmap().WithZone(""), client.Port())
	if client.Addr().Is4() != k.VIP.Is4() {
		return FlowRequest{}, fmt.Errorf("from %q: no packet goes from there to %s: one is IPv4, the other IPv6", from, k.VIP)
	}
	return FlowRequest{Frontend: k, Client: client, Machine: machine}, nil
}

// FlowWorld is what is known when a flow is explained.
type FlowWorld struct {
	// Balanced is the frontend as machines are told of it; nil when there is none.
	Balanced *model.Balanced
	// At says what each connected machine does about it, sorted by machine.
	At []FrontendAt
	// VIP is the address over all machines; nil when nobody has it.
	VIP *model.VIPStatus
	// Groups are those of the frontend's targets that were discovered, with no more than what says so.
	Groups []Group
	// Others are frontends of the same VIP, sorted.
	Others []model.FrontendKey
	// FromVIP says that the client's address is a VIP itself.
	FromVIP bool
	// Flows are entries of flow tables of exactly this flow.
	Flows []FlowAt
	// Silent are machines that were asked for their entries and did not answer.
	Silent []string
	// Offline says that there are no machines to ask.
	Offline bool
}

// FrontendAt is what one machine does about a frontend.
type FrontendAt struct {
	Machine string `json:"machine"`
	model.FrontendObserved
}

// FlowAt is a flow in the table of one machine.
type FlowAt struct {
	At string `json:"at"`
	model.Flow
}

// FlowExplanation is what becomes of a flow's packets, and why.
type FlowExplanation struct {
	Request  FlowRequest      `json:"request"`
	VIP      *model.VIPStatus `json:"vip,omitempty"`
	Frontend *model.Frontend  `json:"frontend,omitempty"`
	At       []FrontendAt     `json:"at,omitempty"`
	// Discovered are the services of upstreams whose endpoints are backends of the frontend.
	Discovered []Discovered `json:"discovered,omitempty"`
	// Hash of the flow, and the row that it chooses of so many.
	Hash string `json:"hash,omitempty"` // hexadecimal
	Row  int    `json:"row"`
	Rows int    `json:"rows,omitempty"`
	// Asked are the backends of the row, in the order in which they are asked. The first
	// takes the flow if it is new; the others, which tunnels only lead on to, may have begun
	// it before a change.
	Asked []FlowBackend `json:"asked,omitempty"`
	// Flows that machines have in their tables already.
	Flows []FlowAt `json:"flows,omitempty"`
	// Backend takes the flow if it is new; nil when nobody does.
	Backend *FlowBackend `json:"backend,omitempty"`
	// Reason by which load balancers count what they drop of it, if it is new; else empty.
	Reason string   `json:"reason,omitempty"`
	Answer string   `json:"answer"`
	Notes  []string `json:"notes,omitempty"`
}

// FlowBackend is a backend with its share.
type FlowBackend struct {
	model.FrontendBackend
	// Percent of the rows of which it is the first.
	Percent float64 `json:"percent"`
	Why     string  `json:"why"`
}

// Flow says what becomes of a flow: which backend load balancers choose for it, and why.
func Flow(r FlowRequest, w FlowWorld) FlowExplanation {
	e := FlowExplanation{Request: r, VIP: w.VIP, At: w.At, Flows: w.Flows}
	for _, g := range w.Groups {
		e.Discovered = append(e.Discovered, *g.Upstream)
	}
	if w.Balanced == nil {
		e.Answer = "nothing balances " + r.Frontend.String()
		switch {
		case len(w.Others) > 0:
			e.Answer += "; this VIP has the frontends " + joinFrontends(w.Others)
		case w.VIP == nil:
			e.Answer += ": no AddressPool has assigned " + r.Frontend.VIP.String()
		}
		return e
	}
	f := w.Balanced.Frontend
	e.Frontend = f
	if w.FromVIP || nobodys(r.Client.Addr()) {
		what := "is not an address of a client"
		if w.FromVIP {
			what = "is a VIP, from which no client sends"
		}
		e.refuse(reasonMartian, fmt.Sprintf("%s %s", r.Client.Addr(), what))
		return e
	}
	if len(f.Sources) > 0 && !slices.ContainsFunc(f.Sources, func(p netip.Prefix) bool { return p.Contains(r.Client.Addr()) }) {
		e.refuse(reasonSource, fmt.Sprintf("%s is in none of the source ranges of %s", r.Client.Addr(), f.Owner))
		return e
	}
	backends := w.Balanced.Backends
	if f.LocalOnly && r.Machine == "" {
		e.Answer = "new flows stay at the machine at which they arrive (externalTrafficPolicy: Local): say which with --machine"
		return e
	}
	members, which := lookup.Members(f.FrontendKey, backends)
	if f.LocalOnly { // those elsewhere keep the flows that they have
		for i := range members {
			if backends[which[i]].Machine != r.Machine {
				members[i].Weight = 0
			}
		}
	}
	if len(members) > lookup.MaxMembers {
		e.refuse(reasonNoBackend, fmt.Sprintf("it has %d backends, and a lookup table has at most %d", len(members), lookup.MaxMembers))
		return e
	}
	e.Rows = lookup.Rows(len(members))
	table := lookup.New(e.Rows, members)
	hash := lookup.Hash(f.Hash, r.Client, f.FrontendKey)
	e.Hash, e.Row = fmt.Sprintf("%016x", hash), int(hash&uint64(e.Rows-1))
	index := map[uint64]int{}
	for i, m := range members {
		index[m.ID] = which[i]
	}
	shares := table.Shares()
	row := table.Row(e.Row)
	passed := w.passesOn(f, r.Machine)
	for k, place := range turns(table, row) {
		if k > 0 && !passed {
			break
		}
		m := table.Members()[place]
		b := FlowBackend{
			FrontendBackend: backends[index[m.ID]],
			Percent:         100 * float64(shares[place]) / float64(e.Rows),
			Why:             "may have begun the flow before a change",
		}
		if k == 0 && m.Weight > 0 {
			b.Why = "first of the row: takes the flow if it is new"
		}
		e.Asked = append(e.Asked, b)
	}
	if row[0] != lookup.None {
		e.Backend = &e.Asked[0]
	}
	e.answer(f, w.Offline, slices.ContainsFunc(backends, func(b model.FrontendBackend) bool { return b.Machine == r.Machine }))
	e.silent(w.Silent)
	e.sick(backends)
	if e.Backend != nil && e.Backend.Backup {
		e.Notes = append(e.Notes, "it is a backup: no other backend of its Service is able to take new flows")
	}
	e.remark(members)
	return e
}

// Reasons by which load balancers count what they drop (bpf/lib/reason.h).
const (
	reasonMartian   = "martian-source"
	reasonSource    = "source-denied"
	reasonNoBackend = "no-backend"
)

func (e *FlowExplanation) refuse(reason, why string) {
	e.Reason, e.Answer = reason, fmt.Sprintf("dropped (%s): %s", reason, why)
}

// nobodys says that an address is no client's: this network, loopback, multicast, reserved
// and broadcast (RFC 1122, 3.2.1.3; RFC 4291, 2.5 and 2.7).
func nobodys(a netip.Addr) bool {
	if a.Is4() {
		net := a.As4()[0]
		return net == 0 || net == 127 || net >= 224
	}
	return a.IsMulticast() || a.IsUnspecified() || a.IsLoopback() || a.Is4In6()
}

// passesOn says whether load balancers tell those whom they ask who else to ask: tunnels do.
// Empty is any machine.
func (w FlowWorld) passesOn(f *model.Frontend, machine string) bool {
	mode, known := f.Mode, false
	for _, o := range w.At {
		if o.State != model.FrontendBalanced || o.Mode == model.ModeAuto || machine != "" && machine != o.Machine {
			continue
		}
		if o.Mode == model.ModeDSRGeneve {
			return true
		}
		mode, known = o.Mode, true
	}
	if !known && f.Listener != "" {
		return mode != model.ModeLocal
	}
	return mode == model.ModeAuto || mode == model.ModeDSRGeneve
}

// turns are the places of a row in the order in which they are asked: the first, then those
// that take new flows before those that take none.
func turns(t *lookup.Table, row [3]int32) []int32 {
	list := slices.DeleteFunc(row[:], func(place int32) bool { return place == lookup.None })
	if len(list) > 2 {
		slices.SortStableFunc(list[1:], func(a, b int32) int {
			takes := func(place int32) int { return int(min(t.Members()[place].Weight, 1)) }
			return takes(b) - takes(a)
		})
	}
	return list
}

// answer words what was found. offline says that no machine was asked, and here that the machine of the request has backends.
func (e *FlowExplanation) answer(f *model.Frontend, offline, here bool) {
	switch {
	case len(e.Flows) > 0:
		l := e.Flows[0]
		e.Answer = fmt.Sprintf("the flow is in the table of %s: its packets go to %s", l.At, place(l.Backend, l.Machine))
		for _, other := range e.Flows[1:] {
			if other.Backend != l.Backend || other.Machine != l.Machine {
				e.Notes = append(e.Notes, fmt.Sprintf("machine %s has it at %s", other.At, place(other.Backend, other.Machine)))
			}
		}
		if e.Backend != nil {
			e.Notes = append(e.Notes, "a new flow of this address and port would go to "+place(e.Backend.Address, e.Backend.Machine))
		}
	case e.Backend == nil:
		why := "there is no backend that works"
		switch {
		case f.LocalOnly && !here:
			why = "machine " + e.Request.Machine + " has no backend of its own (externalTrafficPolicy: Local), and does not announce the VIP"
		case len(e.Asked) > 0:
			why = "no backend takes new flows"
		}
		e.refuse(reasonNoBackend, why)
		if len(e.Asked) > 0 {
			e.Answer = "a new flow is " + e.Answer + "; an older one is asked for at " + place(e.Asked[0].Address, e.Asked[0].Machine)
		}
	default:
		e.Answer = "a new flow goes to " + place(e.Backend.Address, e.Backend.Machine)
		if !offline {
			e.announced()
		}
	}
	if f.Affinity > 0 {
		e.Notes = append(e.Notes, fmt.Sprintf("session affinity: if %s was at another backend within %s, it stays there", e.Request.Client.Addr(), f.Affinity))
	}
	if f.QUIC != nil {
		e.Notes = append(e.Notes, "QUIC: packets whose connection ID names a server go to that one")
	}
	if f.NewFlows > 0 {
		e.Notes = append(e.Notes, fmt.Sprintf("a machine that takes %d new flows in a second drops more of them (new-flow-limit)", f.NewFlows))
	}
	if f.Transport == model.UDP && len(e.Asked) > 1 {
		e.Notes = append(e.Notes, "of UDP, others than the first are asked only within the drain time of a change")
	}
	for _, o := range e.At {
		if o.DataPlane != "" && o.DataPlane != model.DataPlaneXDP && o.State == model.FrontendBalanced {
			e.Notes = append(e.Notes, fmt.Sprintf("machine %s balances it with %s, which chooses by a hash of its own", o.Machine, o.DataPlane))
		}
	}
}

// announced says so when no packet of the flow gets to a load balancer, since no machine
// announces the VIP: what is said of its backend holds only once one does.
func (e *FlowExplanation) announced() {
	v := e.VIP
	if v == nil || slices.ContainsFunc(v.At, func(at model.VIPAt) bool { return at.State == model.VIPAnnounced }) {
		return
	}
	e.Answer = unannounced([]VIP{{Address: v.Address, Announce: v.Mode, Message: v.Message}}) + "; once one does, " + e.Answer
}

// silent says of which machines it is not known whether they have the flow.
func (e *FlowExplanation) silent(machines []string) {
	if len(machines) > 0 {
		e.Notes = append(e.Notes, fmt.Sprintf("%s did not answer in time: whether the flow is in a table there is not known (`fairlead status` shows the state of machines)", shortList(machines, ", ")))
	}
}

// sick says so when backends take new flows although their check fails, all of them.
func (e *FlowExplanation) sick(backends []model.FrontendBackend) {
	if model.AllFail(backends) {
		e.Notes = append(e.Notes, "the backends all fail their checks, so all are used")
	}
}

// remark says at which machines the choice may be another one, since they do not reach every
// backend.
func (e *FlowExplanation) remark(members []lookup.Member) {
	takes := 0
	for _, m := range members {
		if m.Weight > 0 {
			takes++
		}
	}
	for _, o := range e.At {
		if o.State != model.FrontendBalanced || o.DataPlane != model.DataPlaneXDP || e.Request.Machine != "" && e.Request.Machine != o.Machine || o.Mode == model.ModeLocal {
			continue
		}
		if int(o.Available) < takes {
			e.Notes = append(e.Notes, fmt.Sprintf("machine %s sends new flows to %d of %d backends only: there, another may be chosen", o.Machine, o.Available, takes))
		}
	}
}

func place(a netip.AddrPort, machine string) string {
	if machine == "" {
		return a.String()
	}
	return a.String() + " on machine " + machine
}

func joinFrontends(keys []model.FrontendKey) string {
	const most = 5
	var texts []string
	for _, k := range keys[:min(len(keys), most)] {
		texts = append(texts, k.String())
	}
	if len(keys) > most {
		texts = append(texts, fmt.Sprintf("%d more", len(keys)-most))
	}
	return strings.Join(texts, ", ")
}
