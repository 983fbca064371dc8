// Package fleet is the machines: the addresses that they have, the pools that select them, and
// their BGP peers.
package fleet
