// Package address reads IP addresses, prefixes and ranges as resources write them, and computes with
// ranges: containment, overlap, the free addresses of a pool.
//
// Files in reading order: addrrange.go, prefix.go.
package address
