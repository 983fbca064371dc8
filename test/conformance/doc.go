// Package conformance runs the conformance suite of the Gateway API against Fairlead in a real Kubernetes cluster.
package conformance
