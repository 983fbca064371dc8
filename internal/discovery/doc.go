// Package discovery brings the services of upstreams into the plane. It runs a source for each Upstream and stands between the
// source of the plane's own API and the plane's loop: what it passes on are the API's changes, with discovered Services and
// EndpointSlices as they are in effect now, whether or not they are stored already.
//
// It decides nothing about services: package mirror does. It writes nothing itself: a Writer of package derive does, and
// the plane writes the statuses.
//
// Files in reading order: discovery.go (the loop), feed.go (what sources say), open.go (an Upstream becomes a source), runner.go
// (sources begin and end), write.go (what is stored), metrics.go, report.go (what upstreams show), timeline.go (the way of a
// change), ask.go (questions to the loop). Each calls only functions of later ones.
//
// Invariants: sources run only while the plane leads. Sources share nothing: one that is slow or dead delays no other one.
package discovery
