// Package health adds a machine's own results about backends to the state that a plane wants, where the
// plane does not know the health of a backend or is away: to the load assignments of Envoy, and to the
// backends of frontends, which become rows of data planes.
//
// It does no I/O and reads no clock: its results follow from the plane's resources and the machine's
// own results. It is not safe for concurrent use.
//
// Files in reading order: assignments.go (the load assignments of Envoy), rows.go (the backends of frontends),
// finding.go (a machine's own result).
//
// Invariant: without a better result, the plane's last one holds.
package health
