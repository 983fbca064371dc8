// Package uml runs a test in user-mode Linux: a kernel of Debian's as a process, for what
// this machine's own kernel lacks (IPVS, VRFs).
//
// The test's own binary is the first process of that kernel. Its root is this machine's,
// read-only; what it writes is in memory, and it has no network but what it makes itself.
// Run starts it and says how it ended; Inside and Finish are its part. Nothing is left: the
// kernel is a process in a PID namespace of its own, which ends with the context.
//
// Hosts whose processor has AMX need a small library before the C library's ptrace
// (shim/README.md); it is built with the C compiler when such a host is found.
package uml
