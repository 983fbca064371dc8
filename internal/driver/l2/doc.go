// Package l2 announces VIPs on flat segments: on each, one machine owns a VIP and
// answers ARP and neighbour discovery for it.
//
// The agent answers, never the kernel: Hold must give the machine the address in such
// a way that the kernel stays silent about it. So a VIP whose agent is dead or hung is
// nobody's, and another machine can take it without a quarrel, whatever still runs on
// the first.
//
// The machines of a segment agree among themselves, without the plane. Each sends a
// heartbeat every round (a quarter of a second) that lists its claims and which VIPs
// it owns. Silence for four rounds, or a word of the owner, makes a VIP vacant; the
// best candidate of those that are heard takes it, after having asked the segment
// whether anybody else has the address. Ownership has a term that grows with each
// taking: of two owners that hear each other the one with the smaller term yields at
// once. An owner that could not send for four rounds answers no more until it has
// listened again. Nobody is moved back: a move costs a VIP its connections.
//
// What it refuses: to own what the machine cannot serve, what it is no candidate for,
// or what a foreign host answers for. It authenticates nothing: who is on a segment
// can spoof ARP anyway.
//
// Invariant: among machines that hear each other no VIP has two owners for longer
// than a round.
package l2
