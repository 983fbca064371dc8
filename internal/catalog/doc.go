// Package catalog turns the changes of a translation into Envoy's resources, for each view.
//
// A translation gives listeners, virtual hosts, TLS hosts, backend groups, backend sets, certificates
// and authorities, and the listeners of each view. The catalog keeps them by listener and counts the
// resources that each view needs. Apply receives changes and returns the resources that may differ, by
// view: one changed host is one RouteConfiguration, one changed backend set one load assignment.
//
// A resource that cannot be encoded, or is too large, affects only itself: views
// keep its last version, and Unfit has the reason. A view has only the private keys of its own
// listeners.
//
// It does no I/O and reads no clock. Invariant: the changes of all calls of Apply add up to the
// content of each view, whatever the order.
//
// Its files in reading order, each of which calls only later ones:
//
//   - catalog.go: New, and Apply, which receives the changes;
//   - build.go: the resources that a view is sent;
//   - unsendable.go, empty.go, read.go: answers about the content;
//   - secret.go: TLS hosts, and the Secrets that listeners and groups need;
//   - shard.go: routes, and the hosts that a shard has no room for;
//   - use.go: the groups that hosts, listeners and views use;
//   - entry.go, key.go: what is kept of each listener, group and set; the names of resources.
package catalog
