// Package address holds VIPs as addresses of the loopback device, so that the
// machine's sockets accept their connections, however the network learns the location of
// a VIP.
//
// A held address is silent: the kernel does not answer ARP for it and never uses
// it in its own ARP requests. Several machines of a segment may hold the same
// VIP; another package decides which of them the segment sees. IPv4 needs two
// settings of every interface: arp_ignore=3 (no answers for
// addresses of scope host; all others are answered as before) and arp_announce=2. They are made when the
// first address is held, only if the present settings are not sufficient, and they stay.
// For IPv6 the kernel answers on an interface only for addresses of that interface.
//
// Our addresses carry a mark, so that the next agent recognises the addresses that a killed agent
// left behind. This package refuses to touch an address without the mark, and to
// hold an address that the machine has on another device. The exception is the device of kube-proxy in IPVS
// mode, which accepts the addresses of all Services.
//
// Invariant: an address that is held is usable at once and by every socket that is
// bound to all addresses, and no connection of the machine's own uses it as its
// source unless the program asks for it.
package address
