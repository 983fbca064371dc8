// Package provenance finds the resources, and their fields, that decide what is served: the listener
// of a Gateway, the hostname of a route, the policies of a host.
//
// It reads a snapshot and its translation, for package explain, online and offline. It does
// no I/O, and changes nothing.
package provenance
