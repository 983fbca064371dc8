// Package status writes what people read of their objects into the API.
//
// It puts together the status that a translation wants and how far machines have programmed it (package
// progress), keeps the conditions of other controllers, and writes differences only: at a bounded rate,
// the newest of each object, fair among namespaces, and while this plane leads. A write that shows people
// something that they wait for makes an Event.
//
// It decides nothing about traffic, and nothing waits for it: machines are told before any status is
// written.
package status
