// Package gateway judges GatewayClasses, Gateways and ListenerSets, merges the listeners of one
// Gateway, and attaches routes: Attach finds the listeners that a parentRef means and the hosts that
// a route and they have in common.
//
// Files in reading order: gateway.go (the tables), class.go, listenerset.go, parent.go (attachment of
// routes), merge.go (listeners with one port), clientvalidation.go, listener.go.
package gateway
