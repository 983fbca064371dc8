// Package input is the snapshot as a translation reads it: the objects of each kind, and indexes
// over them.
package input
