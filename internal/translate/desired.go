package translate

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"fairlead.dev/internal/model"
)

// Desired is the whole result of a translation. Every slice is sorted by what
// identifies its elements. The values are shared with the Translator and must not
// be changed.
type Desired struct {
	// MinTLS is the least version of TLS of every host name, whatever listeners and hosts ask for.
	MinTLS       model.TLSVersion      `json:"minTLS,omitempty"`
	Listeners    []*model.Listener     `json:"listeners"`
	VirtualHosts []*model.VirtualHost  `json:"virtualHosts"`
	Certificates []*model.Certificate  `json:"certificates,omitempty"`
	Authorities  []*model.Authority    `json:"authorities,omitempty"`
	TLSHosts     []*model.TLSHost      `json:"tlsHosts,omitempty"`
	Groups       []*model.BackendGroup `json:"groups"`
	Sets         []*model.BackendSet   `json:"sets"`
	Views        []*model.View         `json:"views"`
	Machines     []*model.Machine      `json:"machines"`
	Nodes        []*model.Node         `json:"nodes,omitempty"`
	Frontends    []*model.Frontend     `json:"frontends,omitempty"`
	Assignments  []*model.Assignment   `json:"assignments,omitempty"`
	VIPs         []MachineVIP          `json:"vips,omitempty"`
	Peers        []MachinePeer         `json:"peers,omitempty"`
	Statuses     []ObjectStatus        `json:"statuses"`
}

// MachineVIP is a VIP at one machine.
type MachineVIP struct {
	Machine string `json:"machine"`
	*model.VIP
}

// MachinePeer is a BGP peer at one machine. Its password is not shown.
type MachinePeer struct {
	Machine string `json:"machine"`
	*model.Peer
}

// ObjectStatus is the status of one resource.
type ObjectStatus struct {
	Object model.Object `json:"object"`
	Status *Status      `json:"status"`
}

// Desired returns the whole result as it stands. It costs as much as the result is
// large.
func (t *Translator) Desired() Desired {
	r := t.result()
	d := Desired{
		MinTLS:       t.config.MinTLS,
		Listeners:    values(r.Listeners, cmp.Compare),
		VirtualHosts: values(r.VirtualHosts, model.HostKey.Compare),
		Certificates: values(r.Certificates, cmp.Compare),
		Authorities:  values(r.Authorities, cmp.Compare),
		TLSHosts:     values(r.TLSHosts, model.HostKey.Compare),
		Groups:       values(r.Groups, cmp.Compare),
		Sets:         values(r.Sets, cmp.Compare),
		Views:        values(r.Views, cmp.Compare),
		Machines:     values(r.Machines, cmp.Compare),
		Nodes:        values(r.Nodes, cmp.Compare),
		Frontends:    values(r.Frontends, model.FrontendKey.Compare),
		Assignments:  values(r.Assignments, netip.Addr.Compare),
	}
	for _, k := range slices.SortedFunc(maps.Keys(r.VIPs), model.VIPKey.Compare) {
		d.VIPs = append(d.VIPs, MachineVIP{k.Machine, r.VIPs[k]})
	}
	for _, k := range slices.SortedFunc(maps.Keys(r.Peers), model.PeerKey.Compare) {
		d.Peers = append(d.Peers, MachinePeer{k.Machine, r.Peers[k]})
	}
	for _, o := range slices.SortedFunc(maps.Keys(r.Statuses), model.Object.Compare) {
		d.Statuses = append(d.Statuses, ObjectStatus{o, r.Statuses[o]})
	}
	return d
}

// values returns a map's values in the order of its keys.
func values[K comparable, V any](m map[K]V, compare func(a, b K) int) []V {
	var list []V
	for _, k := range slices.SortedFunc(maps.Keys(m), compare) {
		list = append(list, m[k])
	}
	return list
}
