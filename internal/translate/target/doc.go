// Package target finds the policy that applies to a target: a Gateway, a listener, a route, a rule, a
// Service. Of several policies with one target the oldest applies.
//
// Files in reading order: target.go (the tables), service.go (targets of BackendTLSPolicies).
package target
