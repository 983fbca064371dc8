// Package upstream holds the tests of the sources of upstreams against what they read in the end: here an API server of
// Kubernetes with its etcd, in a process of its own that can be killed, behind connections that can be cut.
package upstream
