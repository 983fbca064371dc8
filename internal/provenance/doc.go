// Package provenance says which resources, and which of their fields, decide what is served: the listener
// of a Gateway, the hostname of a route, the policies of a host.
//
// It reads a snapshot and what a translation made of it, for package explain, online and offline. It does
// no I/O, and changes nothing.
package provenance
