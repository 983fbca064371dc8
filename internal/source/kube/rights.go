package kube

import "k8s.io/apimachinery/pkg/runtime/schema"

// Reads are the resources that a Source lists and watches, in every namespace: an API
// with authorisation must allow that.
func Reads() []schema.GroupVersionResource {
	var all []schema.GroupVersionResource
	for _, r := range resources() {
		all = append(all, r.gvr)
	}
	return all
}
