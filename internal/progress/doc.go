// Package progress says how far each object is programmed into the machines concerned.
//
// A translation says which hosts, listeners and frontends an object needs. The tracker notes at which
// revision each of them changed last, and compares with the revision that each machine has applied and
// with the resources that a machine refused. The result is a condition, in words for people.
//
// Whoever changes something is told which objects may have another result by it: judging all of them
// for each report would cost too much.
//
// It does no I/O and reads no clock. It refuses to guess: a machine that may still report for the first
// time makes a result unknown, and the status that is written stays.
package progress
