// Package mirror decides which Services and EndpointSlices follow from what upstreams have. It
// compares the discovered services with the stored objects and gives two results: the objects that are in effect now, for
// the translation, and the writes that bring the API to them.
//
// It is pure: it asks no API, reads no clock and starts nothing. One goroutine owns a Mirror.
//
// Files in reading order: mirror.go (inputs and results), upstream.go (what one upstream has), loss.go (lists that are
// suddenly shorter, upstreams that are away), pace.go (upstreams that come back), stored.go (stored objects become services again,
// after a start), status.go, place.go (a service becomes objects), object.go (the objects), copied.go (which of their labels and
// annotations are the upstream's), endpoint.go (which endpoints, and how many), name.go (namespaces and names), index.go (what is
// stored, by upstream and Service), key.go (small tools), gimbal.go (Gimbal's names and labels). Each calls only functions of later ones.
//
// Invariants: an object that is not ours is never changed, hidden or deleted. Before the first complete list of an upstream, what is stored
// of it is in effect. The result does not depend on the order of inputs about different upstreams, but for names and
// limits, where the first comes first.
package mirror
