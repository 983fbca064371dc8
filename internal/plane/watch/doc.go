// Package watch answers those who look at a plane's machines: rates (top), single requests and flows (tap), lists that are sent as
// changes, and the metrics of requests. While nobody looks, no machine is asked.
//
// It has no part in traffic, decides nothing, and keeps nothing but the last samples and lists. It asks a Plane, its Loop, its Machines
// and its Lists, when somebody looks. One list is not made here: the plane's loop brings the rows of routes up to date, in a List.
//
// A file calls files after it in this order, and none before it:
//
//	viewers                          the kinds of viewers
//	requestmetrics, frontendmetrics  what machines have counted, for Prometheus
//	top                              the same as rates, by two samples
//	flowtap, tap                     single flows and requests, as they come
//	lists, polled, list              lists that are watched; some are made as a whole, again and again
//	plane                            what all of them are answered from
//
// Invariant: viewers share what is asked of machines and of the plane's loop, so that many cost as much as one; and each is bounded.
package watch
