// Package history decides which changes of routing machines are sent: all of them, unless a Freeze holds.
//
// It keeps the last steps of routing: listeners, virtual hosts, TLS hosts and views, with the values that each
// step replaced. While a Freeze holds, it holds back further steps; a Freeze as of an earlier time turns
// routing back to that time. Endpoints and certificates are not routing and always pass.
//
// A Keeper packs the steps (package past), in the background. Log is a history to be written,
// and Stored one that was read: a plane prepends the steps of earlier planes to its own.
//
// It does no I/O, reads no clock and starts no goroutine; the plane's keeper does these.
//
// Its files in reading order, each of which calls only later ones:
//
//   - history.go: New, and Apply, which receives the changes;
//   - freeze.go: a Freeze, from its beginning to its end;
//   - log.go, pack.go: the history as it is written down, and turning steps back;
//   - steps.go, owner.go: the last steps, and the objects that they are of;
//   - routing.go: routing as a value.
package history
