// Package pool validates each AddressPool for itself: its ranges, its machines, how its addresses are
// announced, and the assignments that its status records.
//
// Files in reading order: pool.go (the tables), attributes.go.
package pool
