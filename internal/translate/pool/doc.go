// Package pool judges AddressPools, each for itself.
package pool
