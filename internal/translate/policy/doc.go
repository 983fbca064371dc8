// Package policy validates each RoutePolicy, ClientPolicy and LoadBalancerPolicy for itself, and merges
// the RoutePolicies that apply to a route. Package target says which policy applies where.
package policy
