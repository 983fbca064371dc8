// Package address holds VIPs as addresses of the loopback device, so that the
// machine's sockets take their connections, whichever way the network learns where
// a VIP is.
//
// A held address is silent: the kernel does not answer ARP for it and never names
// it in an ARP request of its own. Several machines of a segment may hold the same
// VIP; which of them the segment sees is decided elsewhere. For IPv4 this takes two
// settings of every interface, which are made when the first address is held, only
// where what is set does not already do, and stay: arp_ignore=3 (no answers for
// addresses of scope host; all others are answered as before) and arp_announce=2.
// For IPv6 the kernel answers on an interface only for addresses of that interface.
//
// Addresses of ours carry a mark, so that the next agent knows what an agent that
// was killed left behind. What it refuses: to touch an address without the mark; to
// hold an address that the machine has elsewhere, but for the device of kube-proxy in IPVS
// mode, which takes in the addresses of all Services.
//
// Invariant: an address that is held is usable at once and by every socket that is
// bound to all addresses, and no connection of the machine's own uses it as its
// source unless the program asks for it.
package address
