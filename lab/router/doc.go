// Package router runs BIRD or FRR in a machine of a lab: routers that others wrote,
// for what announces addresses to be tried against. It writes their configuration
// from templates, starts and ends them, and says which next hops the kernel of the
// machine uses, as it changes.
//
// It refuses to be a configuration language: peers, families and timers that our
// tests and the demo need, no policy.
//
// Invariant: a daemon reads and writes below its machine's directory and nowhere
// else; a router and a reflector of any kind may run in one lab, and beside the
// host's own.
package router
