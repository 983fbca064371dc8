// Package kube reads the Services and EndpointSlices of a Kubernetes cluster that is an upstream, and gives them to a
// cloud.Sink, joined to services.
//
// It lists once and then watches. A broken watch goes on where it ended: an API that was away is not listed again. It
// is listed again if it no longer has that version (410), if it turns out to be restored from a backup or to be another
// cluster, and once an hour, so that nothing can stay wrong for ever.
//
// # What is given
//
// The first call is a Replace, after Services and EndpointSlices were both read completely. A Replace follows every
// later list, even of one of them; services that are as before are then the same pointers. Between lists a change
// gives a Put or a Remove after a few milliseconds. What does not change what is given, gives nothing. If some of the
// selected namespaces cannot be read, there is no Replace until they can; the others are given by Put.
//
// Services that cannot be backends are given without slices, and Refused says why: those of type ExternalName (Reason
// ExternalName), and, without ports too, those that were discovered by this or another Fairlead or Gimbal (Reason Loop). Not given
// at all are the Service default/kubernetes, Services that the selector or the selection of namespaces leaves out, and
// EndpointSlices without a Service. The namespaces kube-system, kube-public and kube-node-lease are left out unless an entry of include
// begins so.
//
// Objects whose names Kubernetes cannot have are left out. At most maxRefusals are said of a service.
//
// Of labels and annotations those are given that have a meaning outside of their cluster, and that make no controller
// act on the Service here: none of foreignDomains, except the labels of app.kubernetes.io (but for instance). See limits.go for how many.
// Nodes' names and the references to pods are not given: they mean nothing here.
//
// # What it refuses to do
//
// It decides nothing about losses: an empty list is given as it was read. It never takes a part of a list for a whole
// one. It decodes nothing that would take much more memory than Config.AnswerBytes, and no format or kind that it has
// not asked for. It sends no request but GET, follows no redirect to another host, and reads no file and starts no program that
// cloud.Allow does not allow.
//
// Files in reading order: source.go (configuration and parts), stream.go (watches), follower.go (lists of one kind),
// kubeconfig.go, weigh.go (answers are weighed before they are decoded), identity.go (which cluster answers, and whether it does), table.go (what is known, joined to services),
// selection.go (namespaces), convert.go (objects become services), limits.go, error.go (classes of errors). Each calls only
// functions of later ones.
package kube
