// Package delta is the incremental (delta) xDS protocol as a state machine: what
// a client wants, was sent, acknowledged and refused, per stream, type and name.
// The plane's server and the agent's relay for Envoy are the same engine.
//
// A Set holds named, versioned resources. A Stream is one client that follows
// one or more Sets; requests go in by Receive, responses come out of Next. The
// package does no I/O, reads no clock, starts no goroutine and takes no lock: a
// Set and every Stream that follows it belong to one owner, which serialises all
// calls on them.
//
// What it refuses: requests that break the protocol (no type, resource locators,
// more types or names than the stream's limits). Unknown names are not refused,
// they are answered with removed_resources and delivered when they appear.
//
// Invariants:
//   - A client that acknowledges everything holds exactly what it follows.
//   - At most one response a type is unanswered; changes meanwhile coalesce.
//   - A version is a hash of its content. What a client holds is not sent again,
//     unless it subscribes to the name again. Then it may hold nothing of the name until it acks.
//   - A refused response is halved until the refused resource stands alone. Only
//     that one stays behind, at the version that the client last accepted, until
//     it changes.
//   - A client that is told a version of a type that is held back (Options.Last) lacks nothing
//     of other types that is of that version's revision or older, but what it refused. Changes that
//     never pause do not keep it from being told.
//   - The work of a change is proportional to the changed names times their
//     subscribers. A wildcard subscriber costs memory only for the names that it
//     has not yet acknowledged; an explicit one for every name it asked for.
//   - The work of answers is proportional to the names of their responses, times a logarithm,
//     whatever else the client asked for or refused. A name of a type that is held back costs
//     a change of another name nothing until it changes itself.
//
// The protocol: https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol
package delta
