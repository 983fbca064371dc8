// Package history decides which changes of routing machines are sent: all, unless a Freeze holds.
//
// It knows the last steps of routing: listeners, virtual hosts, TLS hosts and views, with what each
// step replaced. While a Freeze holds, it holds back further steps; a Freeze as of an earlier time turns
// routing back to then. Endpoints and certificates are not routing and always pass.
//
// A Keeper packs the steps (package past), behind the loop's back. Log is a history that can be written
// down, and Stored one that was read: a plane puts the steps of planes before it before its own.
//
// It does no I/O, reads no clock and starts no goroutine: the plane's keeper does.
package history
