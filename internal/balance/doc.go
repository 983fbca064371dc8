// Package balance makes of a frontend, its sets of backends, health and what was before
// the backends that every load balancer of the frontend is told.
//
// It does no I/O and reads no clock, and keeps nothing: what was before is a value that
// the caller passes in and gets back. It does not choose a backend for a flow (package
// lookup does), nor does it know what one machine can reach: every machine is told the
// same, and a machine that must keep to its own backends leaves the others out itself.
//
// Invariants:
//   - Equal inputs give equal results, in whatever order they come.
//   - A backend's hop weight is at least its weight, and at least every weight that it
//     had within the last drain time.
//   - A backend that goes is draining for the drain time before it is gone.
//   - A backup has weight 0 while another backend of its set has flows.
package balance
