// Package catalog turns what a translation changed into Envoy's resources, for each view.
//
// A translation gives listeners, virtual hosts, TLS hosts, backend groups, backend sets, certificates
// and authorities, and the listeners of each view. The catalog keeps them by listener and counts which
// view needs which resource. Apply takes changes and returns the resources that may be different, by
// view: one changed host is one RouteConfiguration, one changed backend set one load assignment.
//
// A resource that cannot be sent, as it cannot be encoded or is too large, hurts itself only: views
// keep its last version, and Unfit has the reason. A view has the private keys that its listeners serve
// with, and no other.
//
// It does no I/O and reads no clock. Invariant: the changes of all calls of Apply add up to what each
// view must hold, whatever the order.
package catalog
