// Package envoytest runs a real Envoy against an in-memory delta ADS server, so
// that tests and benchmarks see what Envoy makes of generated configuration.
//
// It serves what it is given, without order or pacing of its own beyond Envoy's
// documented type order, and it is no control plane: nothing outside of tests and
// benchmarks may use it. Every process and file that it makes is gone after Close.
package envoytest
