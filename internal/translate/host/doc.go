// Package host decides between candidates. Routes, IngressRoutes and Gateways put what they want of a
// virtual host, a server name or a port into its sums; this room decides who owns each (the oldest
// kind of resource, then the oldest resource) and orders the routes of a host.
//
// Files in reading order: host.go (the tables), rival.go (routes that exclude each other),
// servername.go, port.go, policy.go (RoutePolicies of a host), candidate.go, tally.go.
package host
