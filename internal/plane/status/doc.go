// Package status writes the statuses of objects into the API.
//
// It combines the status that a translation wants with the progress of the machines (package
// progress), keeps the conditions of other controllers, and writes only differences: at a bounded rate,
// only the newest status of each object, fair among namespaces, and while this plane leads. A write whose
// change people wait for makes an Event.
//
// It decides nothing about traffic, and nothing waits for it: machines receive a change before any status is
// written.
//
// Its files in reading order, each of which calls only later ones:
//
//   - apply.go, service.go, route.go, gateway.go, policy.go: the status that an object should show, by kind;
//   - condition.go: conditions beside those of other controllers;
//   - state.go: the same status in one word, for people;
//   - programmed.go: the progress of machines as a condition;
//   - writer.go, events.go: writing, and the Events of a write;
//   - queue.go: the order of writes.
package status
