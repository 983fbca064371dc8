// Package conformance runs the conformance suite of the Gateway API against Fairlead in a
// real Kubernetes cluster: a plane beside the cluster's API, an agent with Envoy on each
// of two nodes, and VIPs that the nodes announce by ARP on the segment that they share
// with the client.
//
// The cluster is brought up by TestMain, which then runs the tests in a second process on
// the lab's client machine: the suite opens its own connections and knows no namespaces.
//
// It refuses to say what is supported without testing it: every feature of the profiles
// is declared but those in features_test.go, each with its reason.
package conformance
