// Package listener makes the listeners of proxies, with the client settings that hold there (TLS,
// timeouts, limits, PROXY protocol), and the views: which listeners a machine has.
//
// Files in reading order: listener.go (the tables), client.go (ClientPolicies).
package listener
