// Package openstack runs OpenStack clouds for tests, demos and benchmarks: a real one, which is
// keystone and octavia in two processes on loopback, and a simulated one for sizes and faults
// that a real one does not have.
//
// The real one has octavia's API and worker, without machines: drivers that do nothing take
// the place of amphorae and networks. Both speak the same API, and one suite of tests runs
// against both.
package openstack
