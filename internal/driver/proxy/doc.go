// Package proxy supervises the machine's Envoy: it starts it, adopts the one that an
// earlier agent left running, restarts it after an exit, says how it is, and drains
// and stops it if it is told to.
//
// Envoy outlives the supervisor: it has a session of its own and gets its
// configuration from a socket that the next agent will serve again. It holds a lock
// on a file for as long as it lives, so there are never two, whatever was killed
// when. One of another user, taken over, could let go of the lock or hand it on: what
// the supervisor wrote down of it counts first, and the lock second.
//
// What it refuses: to start a second Envoy; to take a process for its Envoy that
// was neither written down nor holds the lock; to end one for being slow, as long as
// any thread of it runs. It knows nothing of listeners and routes, and decides
// nothing about them.
//
// Invariant: while Run runs there is one Envoy, or the status says why not.
package proxy
