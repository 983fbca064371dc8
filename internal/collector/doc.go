// Package collector sends spans to a collector of OpenTelemetry, over OTLP by gRPC.
//
// Invariant: who has a trace sent never waits, whatever the collector does. At most maxWaiting traces wait; what is beyond is
// dropped and counted.
package collector
