// Package input holds the snapshot as a translation reads it: one memo.Input for each kind of
// resource, indexes over them, pins, and the configuration. It is the first room; all others read it.
//
// Files in reading order: input.go (the tables), pin.go (what is pinned), object.go (names of objects), listenerid.go (names of
// listeners), config.go (the configuration).
package input
