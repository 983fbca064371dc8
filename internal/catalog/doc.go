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
package catalog
