// Package explain says what becomes of one request: the VIPs that lead to its listener and
// who announces them, the machines that may take it, the TLS handshake, the virtual host, the
// routes that are tried and the one that takes it, what policies ask, the backends with their
// shares, and the resource that decided each step.
//
// It computes what Envoy would do with the configuration that internal/xds makes of the same
// model; a test there asks a real Envoy the same questions. It sends no request. It knows
// what the plane knows: token buckets, answers of other
// services and time-outs that a request may run into are not seen here, and an explanation
// names them where they count.
//
// Invariant: equal requests and equal worlds give equal explanations.
package explain
