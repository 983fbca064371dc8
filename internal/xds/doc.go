// Package xds turns the model into Envoy's configuration: listeners, scopes, route
// configurations, clusters, load assignments and the bootstrap.
//
// It is pure: no I/O, no clock, no state. Equal input gives byte-equal messages, and
// the order of hosts and backends in the input does not matter; the order of a
// virtual host's routes does, it is the order in which they are tried. The package
// decides nothing about who may route where; it only words what the model says and
// adds what an edge proxy needs (limits, timeouts, header hygiene).
//
// Routes live in a fixed number of shards for each listener, so that a change of one
// host re-sends one small RouteConfiguration and never the listener; see scope.go and
// docs/adr/0002-scoped-routes.md.
package xds
