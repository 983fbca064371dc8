// Package embedded runs a Kubernetes API inside this process: kube-apiserver, etcd and
// the few controllers without which a bare API surprises its users (namespaces that never
// finish deleting, owners whose dependents stay, missing default ServiceAccounts, roles
// that aggregate nothing, Services whose selectors select nothing).
//
// One Server owns one data directory:
//
//	lock              held while the server runs; names the process
//	etcd/             etcd's own files
//	etcd.sock:1       etcd's only listener, a unix socket
//	pki/              certificate authorities and the certificates made from them
//	admin.kubeconfig  for kubectl
//
// With Config.EtcdServers the data lives in an outside etcd cluster; with Outside the
// whole API is somebody else's. All three are an API, so that callers have one code path.
//
// It refuses to share a data directory, to start on damaged certificate authorities, to
// replace newer CustomResourceDefinitions, to overwrite data by a restore, and to run
// workloads: there is no scheduler and no kubelet.
//
// Invariant: a write that was acknowledged is in the data directory, whatever kills the
// process afterwards. When the disk runs out, writes are refused before anything can be
// lost, reads go on, and writes resume by themselves once there is space.
//
// kube-apiserver keeps process-wide state (feature gates, its logger, its panic handling),
// so a process runs at most one Server at a time.
package embedded
