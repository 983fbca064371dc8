package status

import (
	"fmt"
	"testing"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/model"
)

// TestAttachedForgetsSections holds that nothing stays of a listener whose last route goes, while others of its set have
// some.
func TestAttachedForgetsSections(t *testing.T) {
	var attached attachedRoutes
	on := func(name string, section int) attachment {
		return attachment{model.Object{Kind: "HTTPRoute", Namespace: "team", Name: name}, gatewayv1.SectionName(fmt.Sprintf("l%d", section))}
	}
	for i := range 8 {
		attached.fold(on("first", i), nil, &struct{}{})
	}
	attached.fold(on("second", 1), nil, &struct{}{})
	attached.fold(on("first", 0), &struct{}{}, nil)
	attached.fold(on("first", 1), &struct{}{}, nil)
	if _, stays := attached["l0"]; stays || len(attached) != 7 || attached["l1"] != 1 {
		t.Errorf("routes are attached to %v", attached)
	}
}
