// Package fleet turns Machines and BGPPeers into the model's machines, nodes and peers: which
// addresses each machine has, which pools and peers select it, and which of several machines with
// one address holds that address.
package fleet
