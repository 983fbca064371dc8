// Package bpf is what drivers of programs in the kernel have in common: it loads an object's maps
// and programs, pins them, attaches programs to interfaces and keeps maps that all programs read
// as the network is. It knows nothing of what programs are for: no frontends, no backends.
//
// Maps, links and programs outlive the process below a directory on a bpffs. The next agent adopts
// the maps with their entries, uses programs of its own build as they are and replaces others in
// place. Pins of another layout are left alone until their links can be taken over, one
// at a time and each in one step.
//
//	pins    OpenPins     the directory, locked for one agent
//	object  Load         maps by their names, programs of this build
//	hooks   NewAttacher  programs at interfaces: XDP, tcx ingress and egress
//	ports   Ports        interfaces, and which of them lead out of the machine
//	paths   NewNextHops  how the kernel sends to an address, written to the map next_hops
//	drops   Drops        why packets were dropped, and Captures of these packets
//
// It refuses what the machine cannot do with an error that wraps errors.ErrUnsupported. It never
// touches programs of others, nor interfaces that it was not told of.
package bpf
