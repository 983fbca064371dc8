// Package health puts what a machine itself finds of backends into what a plane wants, where the
// plane does not know it or is away: into the load assignments of Envoy, and into the backends of
// frontends, which become rows of data planes.
//
// It does no I/O and reads no clock: what was sent and what was found decide. It is not safe for
// concurrent use.
//
// Invariant: where nobody knows better, it is as the plane said last.
package health
