// Package translate turns a snapshot of resources into the state that every
// machine should be in, and the status that every resource should show.
//
// It does no I/O, reads no clock, keeps no globals and never changes its inputs.
// Equal snapshots give byte-equal results however they came about, so a bug
// report can be a directory of YAML.
//
// There is one form, the incremental one; the full form is the incremental form
// from nothing. The work is cut into values, pure functions of what they read: a
// GatewayClass, a Gateway, a certificate, a route, a virtual host, a set of backends, a status.
// They stand in tables of package memo, which records what each function reads. A changed
// object leads to the values that must be computed again, and from there, only as far as
// values differ, to those that depend on them. Each is computed at most once per change.
//
// No table reads anything outside the graph. Room input alone is set from outside, to the objects of the
// snapshot and the pins of the caller. Pins keep groups, certificates and authorities in use that no
// resource asks for. Unclaimed, which no table reads, looks at a snapshot itself.
//
// HTTPRoutes and IngressRoutes meet in the same nouns (package model) before a
// virtual host is made; nothing behind that point knows which kind said what.
//
// Begin with New in translate.go, which wires the rooms. The comment of a room with several files lists
// them in reading order: functions call only functions of their own file and of later ones. Here they are
// converge.go (a translation with all assignments recorded), translate.go (New, Apply, the result), decide.go
// (questions about the result: the policies that decide, the Services in use, the IngressRoutes of other
// controllers), unclaimed.go (objects that nobody serves) and api.go (names that other packages use).
//
// What is refused is refused with a condition that names the field, and hurts
// the resource that said it only. Programmed conditions are not this package's:
// they need to know what machines acknowledged.
package translate
