// Package gate decides which of the wanted resources an Envoy may be given now: make before break.
//
// A Gate receives the wanted resources of Envoy's types, Envoy's answers and the time, and returns
// the changes that are due. A Feed puts them into the set that Envoy's stream follows, and handles
// the requests of that stream. The owner of a Feed carries bytes between it and an Envoy, and
// calls Advance after every event.
//
// It does no I/O, reads no clock and starts no goroutine: the same calls give the same changes. It is
// not safe for concurrent use.
//
// Invariants:
//   - A virtual host that Envoy holds names only clusters that Envoy holds warm.
//   - A resource that Envoy refuses holds back only itself and its dependents.
//   - The work of a change follows the change.
//
// Its files in reading order, each of which calls only later ones:
//
//   - feed.go: the set and the stream of an Envoy;
//   - input.go, applied.go: the inputs, and the applied revision with its problems;
//   - bisect.go, witness.go, renew.go: refused route configurations, use, connections that end;
//   - step.go: the changes that are due now;
//   - shard.go, compose.go: route configurations and their virtual hosts;
//   - warm.go, debt.go: the warmth of clusters, and the resources that checkpoints wait for;
//   - names.go, read.go: the names that resources refer to;
//   - gate.go, kind.go: the types.
package gate
