package model

import (
	"slices"
	"strings"
)

// foreignDomains are those of labels and annotations that have a meaning only in their own cluster or another one here,
// and those that make a controller act on the Service that has them: take it for its own and delete it, read a
// configuration from it, make a name or a load balancer for it.
var foreignDomains = []string{
	"kubernetes.io", "k8s.io", "fairlead.dev", "gimbal.heptio.com", "gimbal.projectcontour.io",
	"argoproj.io", "helm.sh", "fluxcd.io", // toolkit.fluxcd.io, too
	"getambassador.io", "istio.io", "linkerd.io", "cert-manager.io",
	"cloud.google.com", "azure.com", "amazonaws.com", "k8s.aws",
}

// IsForeignKey says whether a label or annotation of an upstream is of a domain that its author may give no meaning here.
func IsForeignKey(key string) bool {
	domain, _, ok := strings.Cut(strings.ToLower(key), "/")
	if !ok {
		return false
	}
	return strings.HasPrefix(domain, "external-dns.") || slices.ContainsFunc(foreignDomains, func(d string) bool {
		return domain == d || strings.HasSuffix(domain, "."+d)
	})
}
