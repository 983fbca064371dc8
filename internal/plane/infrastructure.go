package plane

import (
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/derive"
	"fairlead.dev/internal/snapshot"
)

const (
	// infrastructureSuffix ends the names of the ServiceAccounts of Gateways.
	infrastructureSuffix = "-fairlead"
	labelManagedBy       = "app.kubernetes.io/managed-by"
	managedBy            = "fairlead"
)

// infrastructure derives the object that represents a Gateway with spec.infrastructure in its namespace: a ServiceAccount
// without rights, which bears the labels and annotations that the Gateway asks for, so that tools that look for what
// belongs to a Gateway find it. The machines that serve Gateways are shared, so nothing else could bear them.
func infrastructure(g *gatewayv1.Gateway, log *slog.Logger) derive.Object {
	controller := true
	o := infrastructureAccount(client.ObjectKeyFromObject(g))
	derived := derive.Object{
		Wanted: o, Absent: true, Merge: mergeMetadata,
		Owner: &metav1.OwnerReference{
			APIVersion: gatewayv1.GroupVersion.String(), Kind: string(snapshot.KindGateway), Name: g.Name, UID: g.UID, Controller: &controller,
		},
		Tell: func(t derive.Trouble, err error) { tellInfrastructure(log, o, g, t, err) },
	}
	asked := g.Spec.Infrastructure
	if asked == nil || len(asked.Labels)+len(asked.Annotations) == 0 || g.DeletionTimestamp != nil {
		return derived
	}
	derived.Absent = false
	o.AutomountServiceAccountToken = new(bool)
	o.Labels, o.Annotations = map[string]string{}, map[string]string{}
	for k, v := range asked.Labels {
		o.Labels[string(k)] = string(v)
	}
	for k, v := range asked.Annotations {
		o.Annotations[string(k)] = string(v)
	}
	o.Labels[gatewayv1.GatewayNameLabelKey], o.Labels[labelManagedBy] = g.Name, managedBy
	if len(g.Name) > 63 { // the longest value of a label
		sum := sha256.Sum256([]byte(g.Name))
		o.Labels[gatewayv1.GatewayNameLabelKey] = hex.EncodeToString(sum[:16])
	}
	return derived
}

// infrastructureAccount is the ServiceAccount of a Gateway, by its name alone.
func infrastructureAccount(gateway types.NamespacedName) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: gateway.Namespace, Name: infrastructureName(gateway.Name)}}
}

// mergeMetadata sets labels and annotations.
func mergeMetadata(live, wanted client.Object) bool {
	if maps.Equal(live.GetLabels(), wanted.GetLabels()) && maps.Equal(live.GetAnnotations(), wanted.GetAnnotations()) {
		return false
	}
	live.SetLabels(wanted.GetLabels())
	live.SetAnnotations(wanted.GetAnnotations())
	return true
}

// tellInfrastructure logs why a Gateway has not what it asks for.
func tellInfrastructure(log *slog.Logger, o *corev1.ServiceAccount, g *gatewayv1.Gateway, t derive.Trouble, err error) {
	name := client.ObjectKeyFromObject(g).String()
	switch t {
	case derive.Foreign:
		log.Warn("a ServiceAccount that Fairlead did not create has the name of a Gateway's ServiceAccount", "service_account", client.ObjectKeyFromObject(o).String())
	case derive.Forbidden:
		log.Warn("the plane has no right to ServiceAccounts in the namespace of a Gateway with spec.infrastructure; the Gateway is served all the same (rbac.infrastructureNamespaces of the chart)",
			"gateway", name, "error", err)
	case derive.Failed:
		log.Warn("what stands for a Gateway cannot be written; it is tried again", "gateway", name, "error", err)
	}
}

// infrastructureName is the name of a Gateway's ServiceAccount.
func infrastructureName(gateway string) string {
	const longest = 253
	if len(gateway)+len(infrastructureSuffix) <= longest {
		return gateway + infrastructureSuffix
	}
	sum := sha256.Sum256([]byte(gateway))
	return gateway[:longest-len(infrastructureSuffix)-17] + "-" + hex.EncodeToString(sum[:8]) + infrastructureSuffix
}
