// Package health asks backends whether they work, for all machines: over TCP, TLS, HTTP,
// gRPC and UDP, each check in an interval of its own, and counts failures and successes
// in a row.
//
// It says what this machine found and decides nothing for others: who checks what, and
// what comes of several results, is the plane's business. It keeps nothing on the disk.
//
// Invariant: at most Config.Limit probes are under way, each with one socket, and a probe
// ends within the timeout of its check.
package health
