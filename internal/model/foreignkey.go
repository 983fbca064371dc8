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

// instanceKey names an application. Argo CD before 3.0 takes what has this label for a part of its own application of that name, and
// deletes what is not in its repository.
const instanceKey = "app.kubernetes.io/instance"

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

// IsForeignLabel says it of a label. Those of app.kubernetes.io describe a program, and mean the same here.
func IsForeignLabel(key string) bool {
	return IsForeignKey(key) && (!strings.HasPrefix(key, "app.kubernetes.io/") || key == instanceKey)
}
