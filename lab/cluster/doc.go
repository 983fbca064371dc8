// Package cluster runs a real Kubernetes cluster on one host: etcd, kube-apiserver,
// controllers and scheduler on a machine of a lab, and on each of its nodes containerd,
// runc, kubelet and kube-proxy, in mount, process and host name namespaces of the node's own.
//
// Nothing is pulled from a registry: images are files that the nodes import. Nodes and
// what runs on the other machines share one segment, so a process in a node's network
// namespace reaches every pod of the cluster, as it would on a node of metal.
//
// Several clusters can be in one lab (Options.In), each with machines and networks of pods of its own.
//
// It refuses to be a cluster for anything but tests: etcd does not sync unless it is one of
// several, one administrator may do everything, and all of it goes with the lab.
//
// Invariant: a cluster's processes, mounts, namespaces and control groups end with its
// lab, by whatever means that ends (see package lab): the first process of a node is
// killed with the lab, the kernel kills the rest of the node, and what it had mounted was
// mounted nowhere else.
package cluster
