// Package gate decides what an Envoy may be given now of what a plane wants: make before break.
//
// A Gate is told the wanted resources of Envoy's types, Envoy's answers and the time, and gives
// the changes that are due. A Feed puts them into the set that Envoy's stream follows, and handles
// the requests of that stream. Whoever owns a Feed carries bytes between it and an Envoy, and
// calls Advance after everything that happened.
//
// It does no I/O, reads no clock and starts nothing: the same calls give the same changes. It is
// not safe for concurrent use.
//
// Invariants:
//   - A virtual host that Envoy holds names only clusters that Envoy holds warm.
//   - A resource that Envoy refuses holds back only itself and those that need it.
//   - The work of a change follows the change.
//
// Its files in reading order, each of which calls only those after it:
//
//   - feed.go: the set and the stream of an Envoy;
//   - input.go, applied.go: what comes in, and what is said of it;
//   - bisect.go, witness.go, renew.go: refused route configurations, use, connections that end;
//   - step.go: what is due now;
//   - shard.go, compose.go: route configurations and their virtual hosts;
//   - warm.go, debt.go: when clusters are warm, and which checkpoints wait for what;
//   - names.go, read.go: what resources name;
//   - gate.go, kind.go: the types.
package gate
