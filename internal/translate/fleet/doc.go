// Package fleet turns Machines and BGPPeers into the model's machines, nodes and peers: which
// addresses each machine has, which pools and peers select it, and which of several machines with
// one address holds that address.
//
// Files in reading order: fleet.go (the tables), machine.go, routerid.go, own.go (addresses in use),
// peer.go (BGP), holder.go.
package fleet
