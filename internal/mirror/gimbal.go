package mirror

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// The labels of Gimbal (0.5 and later), and the older form of their prefix.
const (
	gimbalPrefix    = "gimbal.projectcontour.io/"
	gimbalOldPrefix = "gimbal.heptio.com/"
)

// mirroringManager manages the EndpointSlices that Kubernetes makes of Endpoints, which Gimbal wrote.
const mirroringManager = "endpointslicemirroring-controller.k8s.io"

// gimbalBackend is the backend that Gimbal's labels name; empty: none.
func gimbalBackend(labels map[string]string) string {
	if b := labels[gimbalPrefix+"backend"]; b != "" {
		return b
	}
	return labels[gimbalOldPrefix+"backend"]
}

// gimbalService is the service of the backend that Gimbal's labels name; empty: none.
func gimbalService(labels map[string]string) string {
	if s := labels[gimbalPrefix+"service"]; s != "" {
		return s
	}
	return labels[gimbalOldPrefix+"service"]
}

// gimbalName joins backend and service as Gimbal does: parts that are too long end with six digits of their hash, the last part
// first (Gimbal 0.5, pkg/translator).
func gimbalName(parts ...string) string {
	joined := strings.Join(parts, "-")
	for i := len(parts) - 1; i >= 0 && len(joined) >= maxName; i-- {
		if most := maxName / len(parts); len(parts[i]) > most {
			sum := sha256.Sum256([]byte(parts[i]))
			parts[i] = parts[i][:most-6] + hex.EncodeToString(sum[:])[:6]
		}
		joined = strings.Join(parts, "-")
	}
	return joined
}

// gimbalLabels are the labels that Gimbal gives a service.
func gimbalLabels(backend string, s *model.UpstreamService) map[string]string {
	labels := map[string]string{
		gimbalPrefix + "backend": gimbalName(backend),
		gimbalPrefix + "service": gimbalName(strings.ToLower(s.Key.Name)),
	}
	if id := s.Labels[v1alpha1.LabelLoadBalancerID]; id != "" {
		labels[gimbalPrefix+"load-balancer-id"] = id
		labels[gimbalPrefix+"load-balancer-name"] = gimbalLabelValue(s.Labels[v1alpha1.LabelLoadBalancerName])
	}
	return labels
}

var notInLabel = regexp.MustCompile(`[^a-zA-Z0-9\-._]`)

// gimbalLabelValue makes a label's value of a name as Gimbal does.
func gimbalLabelValue(name string) string {
	if name == "" {
		return ""
	}
	name = notInLabel.ReplaceAllString(name, "-")
	if strings.Trim(name[:1], "-._") == "" {
		name = "lb" + name
	}
	if strings.Trim(name[len(name)-1:], "-._") == "" {
		name += "lb"
	}
	return gimbalName(name)
}

// withoutEndpoints deletes the Endpoints of a Service that is taken over from Gimbal: Kubernetes makes EndpointSlices of them.
func withoutEndpoints(n snapshot.Name) Write {
	//nolint:staticcheck // Endpoints are deprecated; Gimbal has written nothing else
	return Write{Wanted: &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: n.Namespace, Name: n.Name}}, Absent: true}
}

// isCopy says whether Kubernetes has made an EndpointSlice of Endpoints.
func isCopy(o snapshot.Object) bool {
	return o.GetLabels()[discoveryv1.LabelManagedBy] == mirroringManager
}
