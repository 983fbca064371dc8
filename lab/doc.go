// Package lab builds networks of machines on one host, runs real processes in
// them and takes everything away again.
//
// A machine is a network namespace with its own addresses (IPv4 and IPv6), one
// interface eth0 and a directory for its files. All machines of a lab share one
// segment: a bridge that lives in a namespace of its own, so that nothing of a
// lab (no bridge, no veth, no route, no address) is ever in the host's network
// namespace, and two labs may use the same addresses.
//
// It refuses to be a container runtime: machines share the host's files,
// processes and kernel, and what runs in them runs as root.
//
// Invariant: a lab lives exactly as long as the process that brought it up. What
// it makes is written to <dir>/<name>/state.json before it is made; a janitor in
// its own session sweeps the lab when its owner goes away by whatever means,
// SIGKILL included; and the next Up of the same name sweeps what a power cut or
// a killed janitor left. Processes are found by pid and start time or by the
// network namespace they are in, never by name.
//
// A program that calls Up calls MaybeJanitor first thing in main (or TestMain).
package lab
