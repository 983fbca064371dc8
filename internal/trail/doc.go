// Package trail makes spans of OpenTelemetry from the way of a change: when the plane saw objects written, translated and
// published them, and when each machine acknowledged that and ran it.
//
// It does no I/O and reads no clock.
//
// Invariants: a Trail makes at most MaxSpans spans. Texts that others wrote are values of attributes, never names, and are
// printable and bounded. The same Trail makes the same spans.
package trail
