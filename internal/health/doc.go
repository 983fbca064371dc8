// Package health decides which machine checks which backend, and which backends are healthy.
//
// Its users are groups and frontends: each names the backends that it wants checked. Package verdict
// chooses three machines for each check among those that can run it. Their results are votes, and so is
// the ejection of a backend by a proxy. Package verdict counts the votes.
//
// A backend without a requested check is checked as well, as long as the machines have slots
// for it: the namespaces share the slots fairly (ration).
//
// It does no I/O and reads no clock. Its state is in memory only: after a restart of the plane the
// machines report again.
//
// Its files in reading order, each of which calls only later ones:
//
//   - checks.go: New, Use, Members and Report, which receive the inputs, and Judge and Flush, which give the results;
//   - report.go: the same results for people;
//   - ration.go: the checks that nobody requested, by namespace;
//   - checked.go: one check and its checkers.
package health
