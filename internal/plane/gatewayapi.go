package plane

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"fairlead.dev/internal/plane/status"
)

// bundleVersion is where the Gateway API's definitions say of which release they are.
const bundleVersion = "gateway.networking.k8s.io/bundle-version"

// gatewayAPIVersion is the release of the Gateway API's definitions in an API, as they say
// themselves; empty when they do not, or when this plane may not read them.
func gatewayAPIVersion(ctx context.Context, cfg *rest.Config) string {
	ctx, cancel := context.WithTimeout(ctx, status.WriteTimeout)
	defer cancel()
	c, err := metadata.NewForConfig(cfg)
	if err != nil {
		return ""
	}
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	o, err := c.Resource(definitions).Get(ctx, "gatewayclasses.gateway.networking.k8s.io", metav1.GetOptions{})
	if err != nil {
		return ""
	}
	return o.Annotations[bundleVersion]
}
