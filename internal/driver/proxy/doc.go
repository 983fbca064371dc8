// Package proxy supervises the machine's Envoy: it starts it, adopts the one that an
// earlier agent left running, restarts it after an exit, reports its state, and drains
// and stops it on request. It keeps what Envoy writes in a bounded log, and copies that to an
// Output if there is one (ADR 64).
//
// Envoy outlives the supervisor: it has its own session and gets its
// configuration from a socket that the next agent will serve again. It holds a lock
// on a file for as long as it lives, so there are never two, whatever was killed and
// when. A compromised Envoy of another user could release the lock or pass it on. So the supervisor's own
// record of it comes first, and the lock second.
//
// It refuses to start a second Envoy. It refuses to adopt a process
// that was neither recorded nor holds the lock, and to end an Envoy for being slow, as long as
// any thread of it runs. It knows nothing of listeners and routes, and decides
// nothing about them.
//
// Invariant: while Run runs there is one Envoy, or the status gives the reason why not.
package proxy
