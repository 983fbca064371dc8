// Package frontend makes the frontends that machines balance in the kernel: those of Services of type
// LoadBalancer and those of TCP and UDP listeners, each at every address of its owner. It also makes
// the VIPs, which say where each address is announced.
//
// Files in reading order: frontend.go (the tables), judge.go (LoadBalancerPolicies), service.go.
package frontend
