// Package frontend makes the frontends of addresses, which are balanced in the kernel, and the VIPs
// of machines.
package frontend
