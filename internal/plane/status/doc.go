// Package status writes the statuses of objects into the API.
//
// It combines the status that a translation wants with the progress of the machines (package
// progress), keeps the conditions of other controllers, and writes only differences: at a bounded rate,
// only the newest status of each object, fair among namespaces, and while this plane leads. A write whose
// change people wait for makes an Event.
//
// It decides nothing about traffic, and nothing waits for it: machines receive a change before any status is
// written.
package status
