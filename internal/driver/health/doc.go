// Package health probes backends for all machines: over TCP, TLS, HTTP,
// gRPC and UDP, each check in its own interval, and counts failures and successes
// in a row.
//
// It reports this machine's results and decides nothing for others: the plane chooses the checkers
// and combines their results. It keeps nothing on the disk.
//
// Invariant: at most Config.Limit probes run at once, each with one socket, and a probe
// ends within the timeout of its check.
package health
