// Package vip assigns the addresses of AddressPools to Gateways, Services and root IngressRoutes. An
// owner keeps a recorded address as long as its pool holds it (ADR 14).
//
// Files in reading order: vip.go (the tables), assigner.go (the assignment), share.go (Services that
// share an address), foreign.go (addresses in use elsewhere), outcome.go, admission.go, want.go.
package vip
