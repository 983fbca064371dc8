// Package gateway judges Gateways and ListenerSets, and finds the listeners that a route attaches
// to.
package gateway
