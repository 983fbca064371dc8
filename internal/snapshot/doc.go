// Package snapshot holds the inputs of a translation as plain data: the
// resources as they are in the API, in maps by name. A Resource describes each
// kind, for all who read or write objects of it; a Batch is what a source saw change.
//
// A Snapshot belongs to one goroutine, which applies changes to it between
// translations; the objects in it are never changed, only replaced. It does no
// I/O and knows no client.
package snapshot
