// Package status writes the status of every resource from the tables of the other rooms, once these
// have decided. It is the last room: no other reads it.
//
// Read the files in this order; each calls only later ones:
//   - tables.go: the tables, one for each kind of resource
//   - ingressroute.go, route.go, stream.go, class.go, gateway.go, service.go, pool.go, peer.go,
//     backendtls.go, policy.go: the statuses of some kinds each
//   - attachment.go: how many routes are attached to each listener, and which Gateways use a Service
//   - slashes.go, features.go: notes on slashes in paths; the features of the class
//   - status.go: the status of one resource, as data
package status
