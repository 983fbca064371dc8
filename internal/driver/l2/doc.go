// Package l2 announces VIPs on flat segments: on each segment, one machine owns a VIP and
// answers ARP and neighbour discovery for it.
//
// The agent answers, never the kernel: Hold must give the machine the address in such
// a way that the kernel stays silent about it. So the VIP of a dead or hung agent has no
// owner, and another machine can own it without a conflict, whatever still runs on
// the first machine.
//
// The machines of a segment elect the owner among themselves, without the plane. Each sends a
// heartbeat every round (a quarter of a second), with the VIPs for which it is a candidate and the VIPs that
// it owns. Silence for four rounds, or the owner's message, makes a VIP vacant. The best candidate among the
// machines that are heard becomes the owner, after asking the segment whether another host has the address.
// Ownership has a term, which grows with each change of owner: of two owners that hear each other,
// the one with the smaller term yields at once. An owner that could not send for four rounds stops
// answering until it has listened again. A VIP never moves back: a move costs its connections.
//
// It refuses to own a VIP that the machine cannot serve, for which it is no candidate,
// or for which a foreign host answers. It authenticates nothing: a host on a segment
// can spoof ARP anyway.
//
// Invariant: among machines that hear each other no VIP has two owners for longer
// than a round.
package l2
