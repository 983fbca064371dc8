// Package gateway judges GatewayClasses, Gateways and ListenerSets, merges the listeners of one
// Gateway, and attaches routes: Attach finds the listeners that a parentRef means and the hosts that
// a route and they have in common.
package gateway
