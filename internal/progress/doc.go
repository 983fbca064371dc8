// Package progress computes how far each object is programmed into the machines concerned.
//
// A translation lists the hosts, listeners and frontends that an object needs. The tracker notes the
// revision at which each of them last changed. It compares that with the revision that each machine has applied,
// and with the resources that a machine refused. The result is a condition, in words for people.
//
// Each change returns the objects whose result it may change: judging all objects for each report would
// cost too much.
//
// It does no I/O and reads no clock. It refuses to guess: while a machine may still send its
// first report the result is unknown, and the written status stays.
//
// Its files in reading order, each of which calls only later ones:
//
//   - tracker.go: New, Apply and Judge;
//   - machine.go: the reports of one machine;
//   - unfit.go, publications.go: resources that cannot be sent, and the times of revisions.
package progress
