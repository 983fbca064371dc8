// Package placement decides which listeners each machine is sent.
//
// A machine is sent the listeners of its views. A listener that leaves them is a leftover: the machine
// has it for its drain time yet, and longer where a VIP or a load balancer still leads connections to
// it. Machines with the same views and the same leftovers are sent the same, by one combined view.
//
// It does no I/O and reads no clock. It changes the translation's changes in place: views become
// combined views.
package placement
