// Package traffic makes rates and totals of what proxies and data planes have counted. It is pure: samples and their times are
// arguments.
//
// by.go says by what requests are grouped. For fairlead top, rates.go and loadrates.go compare two samples, and times.go keeps the times
// of single requests. For metrics, and within bounds, totals.go adds up the requests of one machine, volumes.go bytes, times and
// connections, and loads.go what the proxy reports of single backends, and
// seats.go says which names have series of their own; classic.go makes classic buckets of histograms.
package traffic
