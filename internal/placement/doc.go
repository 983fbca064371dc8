// Package placement decides which listeners each machine is sent.
//
// A machine is sent the listeners of its views. A listener that leaves its views becomes a leftover: the
// machine keeps it for its drain time, and longer where a VIP or a load balancer still leads connections
// to it. Machines with the same views and the same leftovers share one combined view.
//
// It does no I/O and reads no clock. It changes the translation's changes in place: combined views replace
// views.
package placement
