package bundle

import (
	"bytes"
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"
)

// lastApplied is kubectl's copy of the manifest; it repeats the object.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// collected lists the resources of a bundle. Secrets are not among them, and
// must not be added.
var collected = [...]schema.GroupVersionResource{
	{Version: "v1", Resource: "namespaces"},
	{Version: "v1", Resource: "services"},
	{Version: "v1", Resource: "events"},
	{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"},
	{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "gatewayclasses"},
	{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "gateways"},
	{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "listenersets"},
	{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "httproutes"},
	{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "grpcroutes"},
	{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "backendtlspolicies"},
	{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "referencegrants"},
	{Group: "contour.heptio.com", Version: "v1beta1", Resource: "ingressroutes"},
	{Group: "contour.heptio.com", Version: "v1beta1", Resource: "tlscertificatedelegations"},
	{Group: "fairlead.dev", Version: "v1alpha1", Resource: "machines"},
	{Group: "fairlead.dev", Version: "v1alpha1", Resource: "addresspools"},
	{Group: "fairlead.dev", Version: "v1alpha1", Resource: "bgppeers"},
	{Group: "fairlead.dev", Version: "v1alpha1", Resource: "clientpolicies"},
	{Group: "fairlead.dev", Version: "v1alpha1", Resource: "routepolicies"},
	{Group: "fairlead.dev", Version: "v1alpha1", Resource: "backendpolicies"},
	{Group: "fairlead.dev", Version: "v1alpha1", Resource: "freezes"},
	{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"},
}

// Resources returns a part for each kind that routing depends on: one YAML file
// a kind that `fairlead translate -f` reads, without managed fields.
func Resources(client dynamic.Interface) []Part {
	var parts []Part
	for _, r := range collected {
		parts = append(parts, Part{
			Name:  "resources/" + r.Resource + ".yaml",
			Fetch: func(ctx context.Context) ([]byte, error) { return dump(ctx, client, r) },
		})
	}
	return parts
}

func dump(ctx context.Context, client dynamic.Interface, r schema.GroupVersionResource) ([]byte, error) {
	var out bytes.Buffer
	options := metav1.ListOptions{Limit: 1000}
	for {
		page, err := client.Resource(r).List(ctx, options)
		if err != nil {
			return out.Bytes(), fmt.Errorf("list %s: %w", r.Resource, err)
		}
		for i := range page.Items {
			object := &page.Items[i]
			object.SetManagedFields(nil)
			if notes := object.GetAnnotations(); notes[lastApplied] != "" {
				delete(notes, lastApplied)
				object.SetAnnotations(notes)
			}
			body, err := yaml.Marshal(object.Object)
			if err != nil {
				return out.Bytes(), fmt.Errorf("write %s %s/%s: %w", r.Resource, object.GetNamespace(), object.GetName(), err)
			}
			out.WriteString("---\n")
			out.Write(body)
		}
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return out.Bytes(), nil
		}
	}
}
