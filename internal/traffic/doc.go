// Package traffic makes rates and totals of what proxies have counted of requests. It is pure: samples and their times are
// arguments.
//
// by.go says by what requests are grouped, rates.go compares two samples (fairlead top), totals.go adds up counters for metrics,
// within a bound.
package traffic
