// Package policy validates each RoutePolicy, ClientPolicy and LoadBalancerPolicy for itself, and merges
// the RoutePolicies that apply to a route. Package target says which policy applies where.
//
// Files in reading order: policy.go (the tables), route.go, client.go, balancefit.go, balance.go (one
// file for each kind), then what they share: accesslog.go, compiler.go, encoding.go, errorpage.go.
package policy
