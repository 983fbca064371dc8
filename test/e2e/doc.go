// Package e2e holds the end-to-end tests: the real binary with its API server, real
// Envoys, kubectl, and packets between network namespaces.
//
// What they assert is what people see: answers to requests, conditions of resources,
// the output and the exit status of commands, processes. They refuse to look inside,
// to measure time (they report it), and to run without root.
//
// Invariant: a test that breaks something for the lab that others share mends it, or
// has a lab of its own; every lab is gone when the tests have ended.
package e2e
