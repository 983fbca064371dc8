// Package bpf is the common part of drivers of kernel programs: it loads an object's maps
// and programs, pins them, attaches programs to interfaces and maintains the maps about the network that
// all programs read. It does not know the purpose of programs: no frontends, no backends.
//
// Maps, links and programs outlive the process below a directory on a bpffs. The next agent adopts
// the maps with their entries, uses programs of its own build as they are, and replaces others in
// place. Pins of another layout stay until their links can be taken over, one
// at a time and each in one step.
//
//	pins    OpenPins     the directory, locked for one agent
//	object  Load         maps by their names, programs of this build
//	hooks   NewAttacher  programs at interfaces: XDP, tcx ingress and egress
//	ports   Ports        interfaces, and which of them lead out of the machine
//	paths   NewNextHops  the kernel's way to an address, written to the map next_hops
//	drops   Drops        the reasons of dropped packets, and Captures of these packets
//
// It refuses features that the machine lacks with an error that wraps errors.ErrUnsupported. It never
// touches programs of others, nor interfaces that it was not given.
package bpf
