package render

import (
	"maps"
	"slices"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/translate/status"
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
	Object model.Object   `json:"object"`
	Status *status.Status `json:"status"`
}

// Values returns a map's values in the order of its keys.
func Values[K comparable, V any](m map[K]V, compare func(a, b K) int) []V {
	var list []V
	for _, k := range slices.SortedFunc(maps.Keys(m), compare) {
		list = append(list, m[k])
	}
	return list
}
